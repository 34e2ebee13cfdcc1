"""Redis dies, is down, is full or holds forged values.

Generations are scripted (tests/servers/fake_worker.py). The table of all faults is test_table.py.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import subprocess
import time
from collections.abc import Iterator

import httpx2
import pytest
from redis.asyncio import Redis

from app.automaton_cache import automaton_secret
from app.messages import automaton_key
from app.settings import Settings
from app.store.redis import RedisStore
from compiler.codec import encode
from compiler.pipeline import compile_spec
from compiler.spec import RegexSpec
from compiler.vocab import byte_vocabulary
from tests.app.faults.test_workers import BODY, SLOTS, WORKERS, begin, final_status, read_on, steps
from tests.servers.cluster import COMMON, FULL, Cluster, Event, events
from tests.servers.forkserver import run_process
from tests.servers.processes import until
from tests.servers.redis_server import RedisServer, old_server_program, running_server

AWAY_S = 60.0 if FULL else 4.0  # over twice as long as a caller waits, at least
COMMAND_S_MAX = 120.0


@pytest.fixture
def services(scripted: Cluster) -> Iterator[Cluster]:
    scripted.restore()
    yield scripted
    if not scripted.server.ask("PING"):
        scripted.server.start()


def test_streams_and_jobs_survive_a_killed_server(services: Cluster) -> None:
    stream_events: list[Event] = []
    with services.client() as http:
        waiting_jobs = [begin(http, "steps 5 0.1", priority="batch") for _ in range(20)]
        with http.stream("POST", "/generate", json=BODY | {"prompt": "steps 50 0.1", "stream": True}) as response:
            for event in events(response):
                stream_events.append(event)
                if len(stream_events) == 5:
                    services.server.kill()
                    time.sleep(1.0)
                    services.server.start()
        while stream_events[-1].name == "reconnect":  # the stream was let go of while the server was away
            stream_events.pop()
            stream_events += read_on(http, response.headers["x-job-id"], stream_events[-1].id)
        job_status = http.get(response.headers["location"]).json()
        assert (job_status["state"], job_status["attempt"]) == ("done", 1)
        assert {final_status(http, job)["state"] for job in waiting_jobs} == {"done"}
    assert stream_events[-1].name == "done" and [event.name for event in stream_events].count("done") == 1
    numbers = steps(stream_events)
    assert numbers == sorted(set(numbers)) and numbers[-1] == 50


def test_an_absent_server_returns_503_and_loses_no_job(services: Cluster) -> None:
    pids = {name: part.pid for name, part in services.parts.items()}
    with services.client() as http:
        jobs = [begin(http, "steps 20 0.1") for _ in range(4)]
        services.server.kill()
        outage_start = time.monotonic()
        refusal = http.post("/generate", json=BODY | {"prompt": "x"})
        assert (refusal.status_code, refusal.json()["code"]) == (503, "storage_down"), refusal.text
        assert int(refusal.headers["retry-after"]) > 0
        ready = http.get("/ready")
        assert ready.status_code == 503 and ready.json()["reasons"] and http.get("/health").status_code == 200
        time.sleep(max(0.0, outage_start + AWAY_S - time.monotonic()))
        services.server.start()
        until(lambda: http.post("/generate", json=BODY | {"prompt": "x"}).is_success, "requests are answered again")
        until(lambda: http.get("/ready").is_success, "the service says that it is ready")
        over = [final_status(http, job) for job in jobs]
        assert {job_status["state"] for job_status in over} == {"done"}, over
    assert {name: part.pid for name, part in services.parts.items() if part.alive} == pids, "no process had to end"


def test_a_full_server_evicts_caches_and_keeps_accepted_jobs(services: Cluster) -> None:
    """Filled by real callers up to a few MiB."""
    server = services.server
    with services.client() as http:
        running_jobs = [begin(http, "steps 300 0.2") for _ in range(SLOTS)]  # nothing else is done until these are over
        keys_before = automaton_keys(server)
        try:
            assert server.ask("CONFIG", "SET", "maxmemory", str(used_bytes(server) + 4 * 2**20)) == "+OK"
            asyncio.run(fill_store(server.url, count=30, size=100_000))
            new_keys = automaton_keys(server) - keys_before
            large, _ = fill_queue(http, "x" * 30_000)
            small_jobs, refusal = fill_queue(http, "x")  # no gap is left, into which a worker could write
            accepted_jobs = large + small_jobs
            assert (refusal.status_code, refusal.json()["code"]) == (503, "storage_down"), refusal.text
            assert "full" in refusal.json()["detail"] and int(refusal.headers["retry-after"]) > 0
            assert len(new_keys) > 20 and not automaton_keys(server) & new_keys, "what is only cached goes first"
            assert len(accepted_jobs) > 20
            for job in running_jobs:
                http.delete(f"/jobs/{job}")
            assert {final_status(http, job)["state"] for job in accepted_jobs} == {"done"}
            assert http.post("/generate", json=BODY | {"prompt": "x"}).status_code == 200, "there is room again"
        finally:
            assert server.ask("CONFIG", "SET", "maxmemory", "0") == "+OK"


def fill_queue(http: httpx2.Client, words: str) -> tuple[list[str], httpx2.Response]:
    """Begin jobs until one is refused; returns ids and the refusal."""
    accepted_jobs: list[str] = []
    while True:
        body = BODY | {"prompt": f"steps 1 0 {words}"}
        response = http.post("/generate", json=body, headers={"prefer": "respond-async"})
        if response.status_code != 202:
            return accepted_jobs, response
        accepted_jobs.append(response.json()["id"])


def used_bytes(server: RedisServer) -> int:
    stream_events = re.search(r"used_memory:(\d+)", server.ask("INFO", "memory"))
    assert stream_events
    return int(stream_events[1])


async def fill_store(url: str, count: int, size: int) -> None:
    """Stores `count` values of this size under the keys of automata."""
    store = RedisStore(url, Settings.of(secret=b"s" * 16))
    try:
        for _ in range(count):
            await store.put(automaton_key(secrets.token_hex(32)), secrets.token_bytes(size), ttl_s=3_600)
    finally:
        await store.close()


def automaton_keys(server: RedisServer) -> set[str]:
    return {word for word in server.ask("KEYS", "{abs}:dfa:*").split() if word.startswith("{abs}:dfa:")}


def flip(data: bytes) -> bytes:
    return data[:60] + bytes(byte ^ 0xFF for byte in data[60:64]) + data[64:]


def old_version(data: bytes) -> bytes:
    return b"ABSDFA00" + data[8:]


def cut_off(data: bytes) -> bytes:
    return data[:-10]


def signed_by(secret: bytes, automaton: str) -> bytes:
    """A signed automaton that accepts anything, for another vocabulary."""
    return encode(compile_spec(RegexSpec(".*"), byte_vocabulary()), automaton_secret(secret, automaton))


async def spoil(url: str, keys: list[str]) -> int:
    """Replaces each of these automata by an invalid value of another kind. Returns their number."""
    async with Redis.from_url(url) as client:
        values = [await client.get(key) for key in keys]
        names = [key.rpartition(":")[2] for key in keys]
        spoilt = [
            flip(values[0]), old_version(values[1]), cut_off(values[2]), values[4], values[3],  # two swapped
            signed_by(b"the secret of another", names[5]), signed_by(COMMON["ABS_SECRET"].encode(), names[6]), b"",
        ]
        for key, data in zip(keys, spoilt, strict=True):
            await client.set(key, data, keepttl=True)
        return len(spoilt)


def test_values_of_the_store_are_never_trusted(services: Cluster) -> None:
    def corrupt() -> float:  # of the API that has not seen any of these yet
        return services.parts["other"].metric("abs_cache_requests_total", result="corrupt")

    constraints = [{"regex": f"spoilt in way {way} [a-d]{{3}}"} for way in "abcdefgh"]
    with services.client() as http:
        answers = [http.post("/compile", json={"constraint": constraint}).json() for constraint in constraints]
    keys_before, same_fields = corrupt(), {"compile_ms": 0, "cached": False, "request_id": ""}
    spoilt = asyncio.run(spoil(services.server.url, [automaton_key(answer["automaton"]) for answer in answers]))
    with services.client("other") as http:
        for constraint, answer in zip(constraints, answers, strict=True):
            repetition = http.post("/compile", json={"constraint": constraint})
            assert repetition.status_code == 200, repetition.text
            assert repetition.json() | same_fields == answer | same_fields
        body = {"prompt": "x", "automaton": answers[0]["automaton"], "max_tokens": 16}
        assert http.post("/generate", json=body).status_code == 200
    assert corrupt() == keys_before + spoilt


@pytest.mark.parametrize(
    ("command", "options", "word"),
    [
        (("serve", "--port", "0"), ("--maxmemory-policy", "allkeys-lru"), "volatile-lru"),
        (("worker", "compile"), ("--appendonly", "no"), "appendonly yes"),
    ],
)
def test_a_server_that_may_lose_jobs_is_refused_at_startup(
    command: tuple[str, ...], options: tuple[str, ...], word: str
) -> None:
    with running_server(*options) as server:
        output = run_command(command, {"ABS_BROKER": server.url, "ABS_STORE": server.url})
        assert output.returncode == 4 and word in output.stderr, output.stderr


@pytest.mark.parametrize("command", [("serve", "--port", "0"), ("worker", "compile"), ("worker", "generate")])
def test_a_server_that_is_too_old_is_refused_at_startup(command: tuple[str, ...]) -> None:
    with running_server(program=old_server_program()) as server:
        output = run_command(command, {"ABS_BROKER": server.url, "ABS_STORE": server.url})
    assert output.returncode == 4, output.stderr
    words = " ".join(output.stderr.split())
    assert f"ABS_BROKER = {server.url}: the server is of version 6.2.5: 7 or newer is needed" in words


def run_command(words: tuple[str, ...], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """The command `abs`, until it ends."""
    return run_process(["app.main", *words], {**os.environ, **COMMON, **environment}, COMMAND_S_MAX)


def test_a_truncated_append_only_file_loses_no_request(services: Cluster) -> None:
    """The last writes may be lost with the end of the log."""
    server = services.server
    with services.client() as http:
        jobs = [begin(http, "steps 20 0.1") for _ in range(SLOTS + 4)]  # more than run at once
        services.busy(*WORKERS)
        assert server.ask("SET", "{abs}:last", "x" * 100) == "+OK"
        server.kill()
        log = max(server.folder.glob("appendonlydir/*.incr.aof"), key=lambda path: path.stat().st_mtime)
        values = log.read_bytes()
        os.truncate(log, values.rindex(b"{abs}:last") + 40)
        server.start()
        assert "truncat" in (server.folder / "log").read_text().lower(), "the server says nothing of the loss"
        assert server.ask("GET", "{abs}:last") == "$-1"
        assert {final_status(http, job)["state"] for job in jobs} == {"done"}
        assert http.post("/generate", json=BODY | {"prompt": "x"}).status_code == 200
