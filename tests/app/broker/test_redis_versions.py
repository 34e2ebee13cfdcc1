"""Format versions side by side, rotation of ABS_SECRET, encrypted connections."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.broker import WorkerStatus
from app.broker.redis.broker import RedisBroker
from app.errors import SettingsInvalid, StorageDown
from app.messages import VERSION, Failure, load
from app.redis.server_checks import check_server
from tests.app.broker.brokers import LEASE_S, all_events, connected_broker
from tests.servers.certificates import write_certificates
from tests.servers.redis_server import RedisServer
from tests.servers.redis_worker import WorkerProcess, settings

JOBS = 10
OLD, NEW = b"an old secret of the service", b"a new secret of the service"


@pytest.fixture
async def versions(redis_server: RedisServer) -> AsyncIterator[tuple[RedisBroker, RedisBroker]]:
    """Brokers of this version and the next."""
    url, given = redis_server.url, settings(LEASE_S)
    async with connected_broker(url, given) as old, connected_broker(url, given, version=VERSION + 1) as new:
        yield old, new


async def test_a_rolling_update_loses_no_job_of_either_version(
    redis_server: RedisServer, versions: tuple[RedisBroker, RedisBroker]
) -> None:
    old, new = versions
    with contextlib.ExitStack() as stack:
        workers = [WorkerProcess(redis_server.url, LEASE_S, VERSION + number) for number in (0, 0)]
        stack.callback(lambda: [worker.end() for worker in workers])
        jobs = [
            (broker, await broker.submit("q", f"key {number}", b"tell 2 0.1"))
            for number in range(JOBS) for broker in (old, new)
        ]  # fmt: skip
        assert len({job_id for _, job_id in jobs}) == 2 * JOBS, "a key belongs to a version"
        results = [asyncio.create_task(broker.result(job_id)) for broker, job_id in jobs]
        await asyncio.wait(results[:2], return_when=asyncio.FIRST_COMPLETED)
        for place in (0, 1):  # the update replaces a worker while the other one runs
            workers[place].end()
            workers[place] = WorkerProcess(redis_server.url, LEASE_S, VERSION + 1 - place)
        assert set(await asyncio.gather(*results)) == {b"2 0.1"}
        for broker, job_id in jobs:
            assert (await all_events(broker, job_id))[-2:] == [b"0", b"1"]
        assert {job_id for job_id, _ in workers[0].took} <= {job_id for broker, job_id in jobs if broker is new}
        with pytest.raises(StorageDown, match="another version"):
            await new.result(jobs[0][1])


async def test_a_worker_reports_jobs_of_another_version(
    versions: tuple[RedisBroker, RedisBroker], caplog: pytest.LogCaptureFixture
) -> None:
    old, new = versions
    job_id = await old.submit("q", "key", b"body")
    await old.heartbeat("q", WorkerStatus("old", ""))
    taking = asyncio.create_task(new.take("q"))
    with caplog.at_level(logging.WARNING, "app.broker.redis.consumer"):
        while "1 jobs wait for workers of another version" not in caplog.text:
            await asyncio.sleep(0.05)
    assert await new.workers("q") == (), "an API is not ready until workers of its version run"
    assert (await new.state(job_id)).state == "waiting" and not taking.done()
    taking.cancel()
    assert (await old.take("q")).body == b"body"


async def test_both_values_of_the_secret_are_accepted(redis_server: RedisServer) -> None:
    secrets = (OLD, OLD + b"," + NEW, NEW + b", " + OLD, NEW)
    given = [settings(LEASE_S).changed(secret=secret) for secret in secrets]
    async with contextlib.AsyncExitStack() as stack:
        brokers = [await stack.enter_async_context(connected_broker(redis_server.url, each)) for each in given]
        before, both, rotated, after = brokers
        turns = [(before, both), (both, before), (both, rotated), (rotated, both), (both, rotated), (rotated, after)]
        for number, (api, worker) in enumerate(turns):
            await worker.heartbeat("q", WorkerStatus("w", ""))
            job_id = await api.submit("q", str(number), b"body")
            assert (await worker.take("q")).body == b"body"
            await worker.publish(job_id, b"event")
            await worker.finish(job_id, b"answer")
            assert await api.result(job_id) == b"answer" and await all_events(api, job_id) == [b"event"]
        job_id = await before.submit("q", "with the old one", b"")
        answering = asyncio.create_task(after.take("q"))
        failure = load(await after.result(job_id))
        assert isinstance(failure, Failure) and failure.error == "MessageInvalid"
        answering.cancel()
        with pytest.raises(SettingsInvalid, match="ABS_SECRET differs"):
            await before.heartbeat("q", WorkerStatus("b", ""))


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the certificates of an authority and of localhost."""
    folder = tmp_path_factory.mktemp("certificates")
    write_certificates(folder)
    return folder


@pytest.fixture
async def encrypted_address(redis_server: RedisServer, certificates: Path) -> AsyncIterator[str]:
    """The address of a TLS endpoint before the server.

    Not every server has TLS built in.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificates / "server.pem", certificates / "server.key")

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65_536):
                writer.write(data)
        writer.close()

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to_server = await asyncio.open_unix_connection(redis_server.socket)
        await asyncio.gather(copy(reader, to_server[1]), copy(to_server[0], writer))

    redis_server.ask("ACL", "SETUSER", "service", "on", ">a:word", "~{abs}:*", "&*", "+@all")
    endpoint = await asyncio.start_server(connect, "localhost", 0, ssl=context)
    yield f"localhost:{endpoint.sockets[0].getsockname()[1]}"
    endpoint.close()


async def test_jobs_pass_over_an_encrypted_connection(encrypted_address: str, certificates: Path) -> None:
    url = f"rediss://service:a%3Aword@{encrypted_address}/0?ssl_ca_certs={certificates / 'ca.pem'}"
    assert (await check_server(url, "ABS_BROKER", True, False, 20.0))["persistence"] == "AOF"
    async with connected_broker(url, settings(LEASE_S)) as api, connected_broker(url, settings(LEASE_S)) as worker:
        job_id = await api.submit("q", "key", b"body")
        assert (await worker.take("q")).body == b"body"
        await worker.finish(job_id, b"answer")
        assert await api.result(job_id) == b"answer"


async def test_a_server_of_an_unknown_authority_is_not_used(encrypted_address: str) -> None:
    url = f"rediss://service:a%3Aword@{encrypted_address}/0"
    async with connected_broker(url, settings(LEASE_S, wait_s=1.0)) as broker:
        with pytest.raises(StorageDown):
            await broker.submit("q", "key", b"body")
