"""The rights of deploy/redis/users.acl on a real server."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.auth import Key, scope_of
from app.broker import ConcurrencyGroup, SubmitOptions, WorkerStatus
from app.broker.redis.broker import RedisBroker
from app.redis.server_checks import check_server
from app.settings import Settings
from app.store.redis import RedisStore
from app.wiring import open_limiter
from tests.app.broker.brokers import SCENARIO_S_MAX, all_events, connected_broker
from tests.servers.redis_server import RedisServer, running_server, server_program, version_of
from tests.servers.redis_worker import settings

ROOT = Path(__file__).resolve().parents[3]
USERS = ("api", "compile", "generate")
WORKERS = USERS[1:]
DENIED = [
    ("FLUSHALL",), ("FLUSHDB",), ("KEYS", "*"), ("SCAN", "0"), ("CONFIG", "SET", "maxmemory", "1"),
    ("CONFIG", "GET", "*"), ("SHUTDOWN",), ("ACL", "LIST"), ("MONITOR",),
    ("REPLICAOF", "NO", "ONE"), ("EVAL", "return 1", "0"), ("SAVE",), ("FUNCTION", "FLUSH"), ("SCRIPT", "FLUSH"),
    ("CLIENT", "KILL", "ID", "1"), ("GET", "other:key"), ("SET", "other:key", "1"), ("PUBLISH", "other", "1"),
]


@pytest.fixture(scope="module")
def guarded_server() -> Iterator[RedisServer]:
    """A server with the users of the deployment only."""
    rules = (ROOT / "deploy" / "redis" / "users.acl").read_text(encoding="utf-8")
    for user in USERS:
        assert f"#{{{user}_password}}" in rules
        rules = rules.replace(f"{{{user}_password}}", hashlib.sha256(user.encode()).hexdigest())
    if version_of(server_program()) < (7, 2):
        rules = rules.replace(" +client|setinfo", "")  # as the file says
    lines = [line for line in rules.splitlines() if line.startswith("user ") and not line.startswith("user default")]
    options = [word for line in lines for word in ("--user", *line.split()[1:])]
    with running_server(*options) as server:
        yield server


def url_of(server: RedisServer, user: str) -> str:
    return f"unix://{user}:{user}@{server.socket}"


@pytest.mark.parametrize("user", USERS)
async def test_every_user_may_check_the_server(guarded_server: RedisServer, user: str) -> None:
    facts = await check_server(url_of(guarded_server, user), "ABS_BROKER", True, False, 20.0)
    assert facts["policy"] == "volatile-lru"


@pytest.mark.parametrize("worker_user", WORKERS)
async def test_each_kind_of_process_may_do_its_work(guarded_server: RedisServer, worker_user: str) -> None:
    guarded_server.flush()
    urls = [url_of(guarded_server, user) for user in ("api", worker_user)]
    async with connected_broker(urls[0], settings(2.0)) as api, connected_broker(urls[1], settings(2.0)) as worker:
        async with asyncio.timeout(SCENARIO_S_MAX):
            await do_everything(api, worker)


async def do_everything(api: RedisBroker, worker: RedisBroker) -> None:
    await worker.heartbeat("q", WorkerStatus("w", ""))
    assert await api.workers("q") == (WorkerStatus("w", ""),)
    first_job = await api.submit(
        "q", "first", b"", SubmitOptions(weight=2, key_ttl_s=5, pools=(ConcurrencyGroup("q", 9, "cap"),))
    )
    then = await api.submit("q", "then", b"", SubmitOptions(after=first_job, priority="batch"))
    gone_job = await api.submit("q", "gone", b"")
    await api.subscribe(gone_job)
    await api.unsubscribe(gone_job)
    await api.cancel(gone_job)
    waits = await api.submit("q", "waits", b"")
    assert (await api.backlog("q")).weight == 2
    for _ in range(2):
        assert (await worker.take("q")).job_id == first_job
        await worker.publish(first_job, b"lasts")
        for _ in range(3):
            await worker.publish(first_job, bytes(600_000), droppable=True)
        await worker.requeue(first_job)
    assert (await worker.take("q")).job_id == first_job
    await worker.finish(first_job, b"answer")
    assert (await api.state(first_job)).state == "done"
    assert await api.result(first_job) == b"answer"
    assert (await all_events(api, first_job))[0] == b"lasts"
    await api.unsubscribe(first_job)
    assert (await worker.take("q")).job_id == waits
    await worker.finish(waits, b"")
    assert (await worker.take("q")).job_id == then
    refusals = asyncio.create_task(worker.cancelled(then))
    await asyncio.sleep(2.5)  # leases are renewed, queues are swept
    await api.cancel(then)
    await refusals
    await worker.finish(then, b"")
    own_job = await worker.submit("other", "own", b"")
    await worker.unsubscribe(own_job)


@pytest.mark.parametrize("user", WORKERS)
def test_a_worker_may_run_every_command_of_the_scripts(guarded_server: RedisServer, user: str) -> None:
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "app" / "broker" / "redis" / "lua").glob("*.lua")]
    calls = {call for text in texts for call in re.findall(r"redis\.p?call\('(\w+)'(?:, '([A-Z]{3,})')?", text)}
    assert len(calls) > 30
    for command, second in calls:
        words = ("ACL", "DRYRUN", user, command, *filter(None, [second]))
        replies = {guarded_server.ask(*words, *["{abs}:job:x"] * count) for count in range(8)}
        refusals = [one for one in replies if "wrong number" not in one]  # with as many arguments as it takes
        assert refusals and not any("no permissions to run" in one for one in refusals), (
            f"{user} {command} {second}: {replies}"
        )


@pytest.mark.parametrize("user", USERS)
async def test_each_kind_of_process_may_use_the_store(guarded_server: RedisServer, user: str) -> None:
    store = RedisStore(url_of(guarded_server, user), settings(2.0))
    for key in ("{abs}:dfa:v3:k", "{abs}:explanation:v3:k", "{abs}:unmet:v3:k:k", "{abs}:probe:k"):
        await store.put(key, b"value", 60)
        await store.put(key, b"value", 60, "anna")
        assert await store.get(key, renew_s=120) == b"value"
        await store.delete(key, b"value")
        assert await store.get(key) is None
    assert await store.used_bytes() > 0
    await store.close()


async def test_the_api_may_count_the_requests_of_keys(guarded_server: RedisServer) -> None:
    guarded_server.ask("ACL", "LOG", "RESET")
    limiter = open_limiter(Settings.of(broker=url_of(guarded_server, "api")))
    key, door = Key("0" * 12, "anna", "0" * 64, ("generate",)), scope_of("POST", "/generate")
    async with limiter.admitted(key, door) as usage:
        assert usage
        await limiter.charge(key, 10)
        await limiter.settle(key, 10, "job")
    await limiter.close()
    assert guarded_server.ask("ACL", "LOG") == "*0"  # else it has counted for itself


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("words", DENIED, ids=" ".join)
def test_harmful_commands_are_denied(guarded_server: RedisServer, user: str, words: tuple[str, ...]) -> None:
    assert ask_as(guarded_server, user, words).startswith("-NOPERM")


def ask_as(server: RedisServer, user: str, words: tuple[str, ...]) -> str:
    return server.ask_all(("AUTH", user, user), words)[-1]


def test_only_workers_take_jobs_and_only_the_api_counts(guarded_server: RedisServer) -> None:
    add = ("XADD", "{abs}:queue:q:v7:leases", "*", "job", "x")
    read = ("XREADGROUP", "GROUP", "workers", "me", "STREAMS", "{abs}:queue:q:v7:leases", ">")
    for words in (add, read):
        assert ask_as(guarded_server, "api", words).startswith("-NOPERM")
        assert not ask_as(guarded_server, "compile", words).startswith("-NOPERM")
    for user in WORKERS:
        assert ask_as(guarded_server, user, ("GET", "{abs}:limits:x")).startswith("-NOPERM")
    assert ask_as(guarded_server, "api", ("GET", "{abs}:limits:x")) in ("$-1", "_")
