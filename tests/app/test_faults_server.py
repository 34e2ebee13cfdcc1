"""A server that dies, is away, is full, is wrong, or holds what nobody wrote: as callers of the service see it.

Generations are scripted (tests/scripted_worker.py). The table of all faults is tests/app/test_faults_table.py.
"""

from __future__ import annotations

import asyncio
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from app.broker.base import Terms
from app.broker.redis.broker import RedisBroker
from app.errors import StorageDown
from app.settings import Settings
from tests.app import redis_server
from tests.app.redis_server import RedisServer, running_server
from tests.app.test_faults_workers import BODY, WORKERS, begin, ended, read_on, steps
from tests.cluster import COMMON, SLACK_S, Cluster, Event, events
from tests.local import until

AWAY_S = 6.0  # over twice as long as a caller waits
RECOVERY_S = 10.0
COMMAND_S_MAX = 120.0


@pytest.fixture
def whole(scripted: Cluster) -> Iterator[Cluster]:
    scripted.whole()
    yield scripted
    if not scripted.server.ask("PING"):
        scripted.server.start()


def test_a_server_that_is_killed_and_comes_back_is_a_pause_to_a_stream_and_to_those_who_wait(whole: Cluster) -> None:
    told: list[Event] = []
    with whole.client() as http:
        waiting = [begin(http, "steps 5 0.1", priority="batch") for _ in range(20)]
        with http.stream("POST", "/generate", json=BODY | {"prompt": "steps 50 0.1", "stream": True}) as response:
            for event in events(response):
                told.append(event)
                if len(told) == 5:
                    whole.server.kill()
                    time.sleep(1.0)
                    whole.server.start()
        while told[-1].name == "handover":  # the stream was let go of while the server was away
            told.pop()
            told += read_on(http, response.headers["x-job-id"], told[-1].id)
        shown = http.get(response.headers["location"]).json()
        assert (shown["state"], shown["attempt"]) == ("done", 1)
        assert {ended(http, job)["state"] for job in waiting} == {"done"}
    assert told[-1].name == "done" and [event.name for event in told].count("done") == 1
    numbers = steps(told)
    assert numbers == sorted(set(numbers)) and numbers[-1] == 50


def test_while_the_server_is_away_callers_are_told_and_what_was_promised_is_kept(whole: Cluster) -> None:
    pids = {name: part.pid for name, part in whole.parts.items()}
    with whole.client() as http:
        jobs = [begin(http, "steps 20 0.1") for _ in range(4)]
        whole.server.kill()
        gone = time.monotonic()
        refused = http.post("/generate", json=BODY | {"prompt": "x"})
        assert (refused.status_code, refused.json()["code"]) == (503, "storage_down"), refused.text
        assert int(refused.headers["retry-after"]) > 0
        ready = http.get("/ready")
        assert ready.status_code == 503 and ready.json()["reasons"] and http.get("/health").status_code == 200
        time.sleep(max(0.0, gone + AWAY_S - time.monotonic()))
        whole.server.start()
        back = time.monotonic()
        until(lambda: http.post("/generate", json=BODY | {"prompt": "x"}).is_success, "requests are answered again")
        assert time.monotonic() - back < RECOVERY_S + SLACK_S
        until(lambda: http.get("/ready").is_success, "the service says that it is ready")
        assert {ended(http, job)["state"] for job in jobs} == {"done"}
    assert {name: part.pid for name, part in whole.parts.items() if part.alive} == pids, "no process had to end"


def test_a_full_server_takes_nothing_new_and_keeps_what_it_took(whole: Cluster) -> None:
    with whole.client() as http:
        jobs = [begin(http, "steps 40 0.1") for _ in range(12)]  # more than run at once
        try:
            assert whole.server.ask("CONFIG", "SET", "maxmemory", "1mb") == "+OK"
            refused = http.post("/generate", json=BODY | {"prompt": "x"})
            assert refused.status_code == 503, refused.text
            assert refused.json()["code"] in ("storage_down", "not_ready")  # workers' signs of life find no room either
            assert int(refused.headers["retry-after"]) > 0
        finally:
            assert whole.server.ask("CONFIG", "SET", "maxmemory", "0") == "+OK"
        assert {ended(http, job)["state"] for job in jobs} == {"done"}


def automaton_keys(server: RedisServer) -> set[str]:
    return {word for word in server.ask("KEYS", "abs:dfa:*").split() if word.startswith("abs:dfa:")}


def test_what_the_store_holds_is_never_trusted(whole: Cluster) -> None:
    def corrupt() -> float:  # as the API counts that `_require_same` has just started
        return whole.parts["other"].metric("abs_cache_requests_total", result="corrupt")

    before, answers, keys = automaton_keys(whole.server), [], []
    constraints = [{"regex": "spoilt [a-c]+"}, {"regex": "swapped [a-d]{3}"}, {"regex": "with [e-h]{4}"}]
    with whole.client() as http:
        for constraint in constraints:
            answers.append(http.post("/compile", json={"constraint": constraint}).json())
            (key,) = automaton_keys(whole.server) - before
            keys.append(key)
            before.add(key)
    assert whole.server.ask("SETRANGE", keys[0], "60", "\1\2\3\4").startswith(":")
    for old, new in ((keys[1], "abs:dfa:t"), (keys[2], keys[1]), ("abs:dfa:t", keys[2])):
        assert whole.server.ask("RENAME", old, new) == "+OK"
    _require_same(whole, constraints, answers)
    assert corrupt() == 3


def _require_same(cluster: Cluster, constraints: list[dict[str, str]], answers: list[dict[str, object]]) -> None:
    """An API that has just started, and so has decoded nothing yet, answers as before."""
    cluster.parts["other"].kill()
    cluster.parts["other"].start()
    cluster.parts["other"].wait_until("/ready")
    with cluster.client("other") as http:
        for constraint, answer in zip(constraints, answers, strict=True):
            again = http.post("/compile", json={"constraint": constraint})
            assert again.status_code == 200, again.text
            same = {"compile_ms": 0, "cached": False}
            assert again.json() | same == answer | same
            body = {"prompt": "x", "automaton": answer["automaton"], "max_tokens": 16}
            assert http.post("/generate", json=body).status_code == 200


@pytest.mark.parametrize(
    ("options", "word"),
    [(("--maxmemory-policy", "allkeys-lru"), "volatile-lru"), (("--appendonly", "no"), "appendonly yes")],
)
def test_a_server_that_would_lose_jobs_is_refused_at_the_start(options: tuple[str, str], word: str) -> None:
    with running_server(*options) as server:
        urls = {"ABS_BROKER": server.url, "ABS_STORE": server.url}
        commands = (["serve", "--port", "0"], ["worker", "compile"])
        with ThreadPoolExecutor(len(commands)) as pool:
            for said in pool.map(lambda command: run_command(command, urls), commands):
                assert said.returncode == 4 and word in said.stderr, said.stderr


def run_command(words: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """The command `abs`, until it ends."""
    return subprocess.run(
        [sys.executable, "-m", "app.main", *words],
        env={**os.environ, **COMMON, **environment}, capture_output=True, text=True, timeout=COMMAND_S_MAX,
    )


def submitted(url: str, keys: list[str]) -> list[str]:
    """The ids of jobs that wait, for nobody serves their queue."""

    async def submit() -> list[str]:
        broker = RedisBroker.from_url(url, Settings(secret=b"s" * 16, storage_wait_s=2.0))
        try:
            return [await broker.submit("q", key, b"body", Terms(detached=True)) for key in keys]
        finally:
            await broker.close()

    return asyncio.run(submit())


def states(url: str, jobs: list[str]) -> list[str]:
    async def ask() -> list[str]:
        broker = RedisBroker.from_url(url, Settings(secret=b"s" * 16))
        try:
            return [(await broker.state(job)).state for job in jobs]
        finally:
            await broker.close()

    return asyncio.run(ask())


def test_a_log_that_a_crash_cut_off_is_read_as_far_as_it_goes() -> None:
    with running_server() as server:
        jobs = submitted(server.url, ["one", "two"])
        assert server.ask("SET", "abs:last", "x" * 100) == "+OK"
        server.kill()
        (log,) = server.folder.glob("appendonlydir/*.incr.aof")
        os.truncate(log, log.stat().st_size - 40)
        server.start()
        assert "truncat" in (server.folder / "log").read_text().lower(), "the server says nothing of the loss"
        assert server.ask("GET", "abs:last") == "$-1"
        assert states(server.url, jobs) == ["waiting", "waiting"]


def test_a_full_disk_refuses_what_is_new_and_spoils_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "server"  # one that is told of a write past its limit, not killed for it
    program.write_text(f"#!/bin/sh\ntrap '' XFSZ\nexec {redis_server.server_program()} \"$@\"\n")
    program.chmod(0o755)
    monkeypatch.setattr(redis_server, "server_program", lambda: str(program))
    with running_server() as server:
        jobs = submitted(server.url, ["before"])
        (log,) = server.folder.glob("appendonlydir/*.incr.aof")
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (log.stat().st_size + 100, resource.RLIM_INFINITY))
        with pytest.raises(StorageDown):
            for number in range(200):
                submitted(server.url, [f"full {number}"])
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        until(lambda: server.ask("SET", "abs:again", "1") == "+OK", "there is room again")
        jobs += submitted(server.url, ["after"])
        server.kill()
        server.start()
        assert states(server.url, jobs) == ["waiting", "waiting"]


def test_a_worker_whose_clock_is_wrong_does_its_jobs_all_the_same(whole: Cluster) -> None:
    for name in WORKERS:
        whole.parts[name].kill()
    late = whole.add("late", ("-m", "tests.scripted_worker", "3600"))
    try:
        late.wait_until("/ready")
        with whole.client() as http:
            until(lambda: http.get("/ready").is_success, "the service says that it is ready")
            answer = http.post("/generate", json=BODY | {"prompt": "steps 5 0.1"})
            assert answer.status_code == 200, answer.text
            slow = http.post("/generate", json=BODY | {"prompt": "steps 600 0.1", "timeout_s": 2})
            assert (slow.status_code, slow.json()["code"]) == (504, "deadline"), slow.text
    finally:
        late.end()
        del whole.parts["late"]
