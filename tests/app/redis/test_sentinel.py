"""Jobs on a replicated master, found by sentinels, that is killed."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from app.broker.redis.broker import RedisBroker
from app.errors import StorageDown
from app.redis.server_checks import check_server
from tests.servers.processes import free_port
from tests.servers.redis_server import RedisServer, running_server, server_program
from tests.servers.redis_worker import settings

SENTINELS = 3
JOBS = 20
FAILOVER_S_MAX = 60.0
SENTINEL_SETTINGS = """
port {port}
dir {folder}
sentinel monitor jobs 127.0.0.1 {master} 2
sentinel down-after-milliseconds jobs 1000
sentinel failover-timeout jobs 5000
"""


@dataclass(frozen=True)
class ReplicatedServer:
    """A master and its replica. `url` names the sentinels that watch them."""

    master: RedisServer
    replica: RedisServer
    url: str


@pytest.fixture
def replicated_server(tmp_path: Path) -> Iterator[ReplicatedServer]:
    with ExitStack() as stack:
        master_port, sentinel_ports = free_port(), [free_port() for _ in range(SENTINELS)]
        master = stack.enter_context(running_server("--port", str(master_port)))
        replica = stack.enter_context(
            running_server("--port", str(free_port()), "--replicaof", f"127.0.0.1 {master_port}")
        )
        for port in sentinel_ports:
            folder = tmp_path / str(port)
            folder.mkdir()
            text = SENTINEL_SETTINGS.format(port=port, folder=folder, master=master_port)
            (folder / "sentinel.conf").write_text(text)
            sentinel = subprocess.Popen(
                [server_program(), str(folder / "sentinel.conf"), "--sentinel"], stdout=subprocess.DEVNULL
            )
            stack.callback(sentinel.wait)
            stack.callback(sentinel.kill)
        addresses = ",".join(f"127.0.0.1:{port}" for port in sentinel_ports)
        until_connected(replica)
        yield ReplicatedServer(master, replica, f"redis+sentinel://{addresses}/jobs")


def until_connected(replica: RedisServer) -> None:
    """Waits until the replica has the data of its master."""
    ends = time.monotonic() + FAILOVER_S_MAX
    while "master_link_status:up" not in replica.ask("INFO", "replication"):
        assert time.monotonic() < ends, "the replica does not reach its master"
        time.sleep(0.05)


async def submit_until_done(broker: RedisBroker, key: str) -> str:
    """The id of a job, submitted again while there is no master."""
    while True:
        try:
            return await broker.submit("q", key, key.encode())
        except StorageDown:
            await asyncio.sleep(0.1)


async def test_a_failover_loses_no_job_that_a_replica_has(replicated_server: ReplicatedServer) -> None:
    strict = settings(3.0, wait_s=1.0).changed(redis_replicas_min=1)
    before, after = RedisBroker(replicated_server.url, strict), RedisBroker(replicated_server.url, settings(3.0, 30.0))
    async with asyncio.timeout(2 * FAILOVER_S_MAX):
        jobs = {await submit_until_done(before, f"first {number}"): number for number in range(JOBS)}
        replicated_server.master.kill()
        with pytest.raises(StorageDown):
            await before.submit("q", "no master", b"")
        later = await submit_until_done(after, "later")
        deliveries = [await after.take("q") for _ in range(JOBS + 1)]
        for delivery in deliveries:
            await after.finish(delivery.job_id, b"answer to " + delivery.body)
        assert {delivery.job_id for delivery in deliveries} == {*jobs, later}
        for job_id, number in jobs.items():
            assert await after.result(job_id) == b"answer to first %d" % number
    await before.close()
    await after.close()


async def test_a_job_without_its_replica_is_not_acknowledged(replicated_server: ReplicatedServer) -> None:
    broker = RedisBroker(replicated_server.url, settings(3.0, wait_s=1.0).changed(redis_replicas_min=1))
    await submit_until_done(broker, "with a replica")
    replicated_server.replica.kill()
    with pytest.raises(StorageDown, match="too few replicas"):
        await broker.submit("q", "without", b"")
    await broker.close()


async def test_the_master_of_a_service_can_be_checked(replicated_server: ReplicatedServer) -> None:
    facts = await check_server(replicated_server.url, "ABS_BROKER", True, False, 20.0)
    assert facts["persistence"] == "AOF"
