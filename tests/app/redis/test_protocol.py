"""Scripts over a shared connection: pipelined, in order, robust to cancelled waits, dropped when silent."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from app.errors import StorageDown
from app.redis import protocol as wire
from app.redis.connection import Connection, script
from tests.servers.redis_server import RedisServer

SCENARIO_S_MAX = 60.0
ECHO = script("return ARGV[1]")
LATE = script("local ends = redis.call('TIME')[1] + 1 while redis.call('TIME')[1] + 0 < ends do end return ARGV[1]")
WRONG = script("return redis.error_reply('ERR not so')")
HELLO = b"%3\r\n$5\r\nproto\r\n:3\r\n$7\r\nversion\r\n$5\r\n7.0.0\r\n$2\r\nid\r\n:1\r\n"


@contextlib.asynccontextmanager
async def opened(url: str) -> AsyncIterator[Connection]:
    connection = Connection(url)
    try:
        async with asyncio.timeout(SCENARIO_S_MAX):
            yield connection
    finally:
        await connection.close()


async def echo(connection: Connection, said: str, wait_s: float = 30.0) -> bytes:
    answer: bytes = await connection.run("echo", ECHO, (), (said,), wait_s)
    return answer


def test_concurrent_commands_are_pipelined_in_order(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[bytes] = []
    flush = wire._Transport._flush

    def noted(self: Any) -> None:
        sent.append(b"".join(self._outbox))
        flush(self)

    async def scenario() -> None:
        async with opened(redis_server.url) as connection:
            await echo(connection, "first")
            sent.clear()
            said = [f"{number}" * number for number in range(1, 100)]
            answers = await asyncio.gather(*(echo(connection, text) for text in said))
            assert answers == [text.encode() for text in said]
        assert len(sent) == 1 and sent[0].count(b"EVALSHA") == len(said)

    monkeypatch.setattr(wire._Transport, "_flush", noted)
    asyncio.run(scenario())


async def test_the_reply_of_a_cancelled_command_is_discarded(redis_server: RedisServer) -> None:
    async with opened(redis_server.url) as connection:
        await echo(connection, "first")
        leaving = asyncio.create_task(connection.run("late", LATE, (), ("gone",), 30.0))
        await asyncio.sleep(0.05)
        staying = asyncio.create_task(echo(connection, "here"))
        await asyncio.sleep(0.05)
        leaving.cancel()
        assert await staying == b"here"
        assert await echo(connection, "after") == b"after"


async def test_a_missing_script_is_reloaded_and_script_errors_are_raised(own_redis_server: RedisServer) -> None:
    async with opened(own_redis_server.url) as connection:
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


def test_a_silent_connection_with_pending_replies_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first connection greets and falls silent, though it stays open; the second answers."""
    greeted: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        greeted.append(writer)
        silent = len(greeted) == 1
        while data := await reader.read(65_536):
            if b"HELLO" in data:
                writer.write(HELLO)
            elif not silent:
                writer.write(b"$4\r\nwell\r\n" * data.count(b"EVALSHA"))
        writer.close()

    async def scenario() -> None:
        server = await asyncio.start_unix_server(serve, tmp_path / "s")
        async with opened(f"unix://{tmp_path / 's'}") as connection:
            answers = await asyncio.gather(*(echo(connection, "x") for _ in range(5)))
            assert answers == [b"well"] * 5 and len(greeted) == 2
            await asyncio.sleep(3 * wire.REPLY_S_MAX)  # one that owes nothing may be silent
            assert await echo(connection, "x") == b"well" and len(greeted) == 2
        server.close()
        for writer in greeted:
            writer.close()

    monkeypatch.setattr(wire, "REPLY_S_MAX", 0.5)
    asyncio.run(scenario())
