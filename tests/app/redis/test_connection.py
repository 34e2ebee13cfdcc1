"""Scripts over a shared connection: order, cancellation, silence."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.errors import SettingsInvalid, StorageDown
from app.redis.connection import Connection, open_client
from tests.servers.redis_server import RedisServer

S_MAX = 60.0
ECHO = "return ARGV[1]"
LATE = "for number = 1, 2e7 do end return ARGV[1]"  # a script's clock stands still
WRONG = "return redis.error_reply('ERR not so')"


@contextlib.asynccontextmanager
async def open_connection(url: str) -> AsyncIterator[Connection]:
    connection = Connection(url)
    try:
        async with asyncio.timeout(S_MAX):
            yield connection
    finally:
        await connection.close()


async def echo(connection: Connection, message: str, wait_s: float = 30.0) -> bytes:
    answer: bytes = await connection.run("echo", ECHO, (), (message,), wait_s)
    return answer


async def test_concurrent_commands_are_pipelined_in_order(redis_server: RedisServer) -> None:
    async with open_connection(redis_server.url) as connection:
        await echo(connection, "first")
        reads = input_events(redis_server)
        slow = asyncio.create_task(connection.run("late", LATE, (), ("slow",), 30.0))
        await asyncio.sleep(0.05)
        texts = [f"{number}" * number for number in range(1, 100)]
        answers = await asyncio.gather(*(echo(connection, text) for text in texts))
        assert [await slow, *answers] == [b"slow", *(text.encode() for text in texts)]
        # They were written while the server was busy with the first, so it read many at once.
        assert input_events(redis_server) - reads < 10


def input_events(server: RedisServer) -> int:
    """How often the server has read from a connection."""
    return int(re.search(r"total_reads_processed:(\d+)", server.ask("INFO", "stats"))[1])  # type: ignore[index]


async def test_the_reply_of_a_cancelled_command_is_discarded(redis_server: RedisServer) -> None:
    async with open_connection(redis_server.url) as connection:
        await echo(connection, "first")
        leaving_call = asyncio.create_task(connection.run("late", LATE, (), ("gone",), 30.0))
        await asyncio.sleep(0.05)
        staying_call = asyncio.create_task(echo(connection, "here"))
        await asyncio.sleep(0.05)
        leaving_call.cancel()
        assert await staying_call == b"here"
        assert await echo(connection, "after") == b"after"


async def test_a_missing_script_is_reloaded_and_script_errors_are_raised(own_redis_server: RedisServer) -> None:
    async with open_connection(own_redis_server.url) as connection:
        assert await echo(connection, "before") == b"before"
        own_redis_server.ask("SCRIPT", "FLUSH")
        assert await echo(connection, "after") == b"after"
        with pytest.raises(Exception, match="not so"):
            await connection.run("wrong", WRONG, (), (), 30.0)
        own_redis_server.kill()
        with pytest.raises(StorageDown):
            await echo(connection, "away", 0.0)
        own_redis_server.start()
        assert await echo(connection, "back") == b"back"


@pytest.mark.parametrize("wait_s", [30.0, 5.0, 0.0])
async def test_a_silent_connection_with_pending_replies_is_replaced(tmp_path: Path, wait_s: float) -> None:
    """The first connection falls silent; the second answers."""
    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        silent = len(writers) == 1
        while data := await reader.read(65_536):
            if b"SETINFO" in data:
                writer.write(b"+OK\r\n" * data.count(b"SETINFO"))
            elif not silent:
                writer.write(b"$4\r\nwell\r\n" * data.count(b"EVALSHA"))
        writer.close()

    server = await asyncio.start_unix_server(serve, tmp_path / "s")
    async with open_connection(f"unix://{tmp_path / 's'}") as connection:
        answers: list[object] = []
        while answers != [b"well"] * 5:
            calls = (echo(connection, "x", wait_s) for _ in range(5))
            answers = await asyncio.gather(*calls, return_exceptions=True)
            assert wait_s < 30.0 or answers == [b"well"] * 5
        assert len(writers) == 2
        assert await echo(connection, "x") == b"well" and len(writers) == 2
    server.close()
    for writer in writers:
        writer.close()


@pytest.mark.parametrize("url", [
    "redis+sentinel://localhost:26379", "redis+sentinel://localhost/service", "redis+cluster://localhost:6379", "redis://host:port",
])  # fmt: skip
def test_an_invalid_url_is_refused(url: str) -> None:
    with pytest.raises(SettingsInvalid, match="is not the URL of a Redis server"):
        open_client(url)
