"""The line to the server breaks, falls silent, or leads to a server that will not do: as callers of the service see it.

Generations are scripted (tests/scripted_worker.py). The table of all faults is tests/app/test_faults_table.py.
"""

from __future__ import annotations

import asyncio
import re
import resource
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest

from tests.app import redis_server
from tests.app.flaky_line import FlakyLine, flaky_line
from tests.app.redis_server import running_server
from tests.app.test_faults_server import run_command
from tests.app.test_faults_workers import BODY, WORKERS, begin, ended, read_on, steps
from tests.chaos import states_of_generations
from tests.cluster import API, COMPILE, FULL, LEASE_S, SCRIPTED, Cluster, Event, Part, cluster, events
from tests.local import until

REQUESTS = 200 if FULL else 24
AT_ONCE = 8
STEPS = 120  # for longer than a silence lasts: of what was told meanwhile a reader may miss some
ANSWER_S_MAX = 60.0 + 4 * LEASE_S
RETRY_S = 0.2
TRIES = {"ABS_JOB_TRIES_MAX": "1000"}  # to be cut off from the server for a lease is one


@dataclass(frozen=True)
class Lined:
    """The service, which has its server at the end of a line."""

    parts: Cluster
    line: FlakyLine

    def add(self, name: str, *command: str) -> Part:
        """Start a part."""
        return self.parts.add(name, command, ABS_BROKER=self.line.url, ABS_STORE=self.line.url, **TRIES)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lined]:
    """All of the service's parts, and a server that is told of a write past its limit, not killed for it."""
    program = tmp_path_factory.mktemp("server") / "server"
    program.write_text(f"#!/bin/sh\ntrap '' XFSZ\nexec {redis_server.server_program()} \"$@\"\n")
    program.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(redis_server, "server_program", lambda: str(program))
        with cluster() as parts, flaky_line(parts.server.socket, flaky=False) as line:
            running = Lined(parts, line)
            try:
                for name, command in {"api": API, "compile": COMPILE, **dict.fromkeys(WORKERS, SCRIPTED)}.items():
                    running.add(name, *command)
                yield running
            finally:
                parts.end()


@pytest.fixture
def lined(running: Lined) -> Lined:
    """The same, when all is well with it."""
    running.parts.whole()
    with running.parts.client() as http:
        until(lambda: http.post("/generate", json=BODY | {"prompt": "x"}).is_success, "requests are answered")
    return running


def answered(http: httpx2.Client, number: int) -> dict[str, Any]:
    """The answer to a request, which is sent again under its key for as long as the service asks for that."""
    ends = time.monotonic() + ANSWER_S_MAX
    body = BODY | {"prompt": "steps 4 0.1", "timeout_s": ANSWER_S_MAX}  # each time a line loses it it waits for a lease
    key = {"idempotency-key": f"line-{number}"}
    while time.monotonic() < ends:
        response = http.post("/generate", json=body, headers=key)
        if response.is_success:
            answer: dict[str, Any] = response.json()
            return answer
        assert response.status_code in (429, 503), response.text
        time.sleep(RETRY_S)
    raise AssertionError(f"no answer within {ANSWER_S_MAX:g} s")


def test_over_a_line_that_breaks_and_falls_silent_each_request_is_answered_once(lined: Lined) -> None:
    before = asyncio.run(states_of_generations(lined.parts.server.socket))
    with lined.parts.client() as http, ThreadPoolExecutor(AT_ONCE) as callers:
        lined.line.flaky = True
        try:
            answers = [callers.submit(answered, http, number) for number in range(REQUESTS)]
            until(lambda: sum(answer.done() for answer in answers) >= REQUESTS / 2, "half are answered", ANSWER_S_MAX)
            lined.line.fall_silent()
            first = [answer.result() for answer in answers]
        finally:
            lined.line.flaky = False
        again = [callers.submit(answered, http, number) for number in range(REQUESTS)]
        assert [answer.result()["id"] for answer in again] == [answer["id"] for answer in first]
    assert {answer["choices"][0]["text"] for answer in first} == {"dog"}
    assert len({answer["id"] for answer in first}) == REQUESTS
    assert asyncio.run(states_of_generations(lined.parts.server.socket)) - before == {"done": REQUESTS}


def test_a_stream_goes_on_when_all_connections_fall_silent(lined: Lined) -> None:
    told: list[Event] = []
    with lined.parts.client() as http:
        with http.stream("POST", "/generate", json=BODY | {"prompt": f"steps {STEPS} 0.1", "stream": True}) as response:
            for event in events(response):
                told.append(event)
                if len(told) == 5:
                    lined.line.fall_silent()

        def whole() -> bool:
            if told[-1].name == "handover":  # the stream was let go of while the server said nothing
                told.pop()
            if told[-1].name != "done":
                told.extend(read_on(http, response.headers["x-job-id"], told[-1].id))
            return told[-1].name == "done"

        until(whole, "the stream has come to its end", ANSWER_S_MAX, RETRY_S)
    last = max((place for place, event in enumerate(told) if event.name == "restart"), default=0)
    numbers = steps(told[last:])
    assert numbers == sorted(set(numbers)) and numbers[-1] == STEPS


def test_a_worker_that_cannot_take_a_job_leaves_it_to_others(lined: Lined) -> None:
    parts = lined.parts
    for name in WORKERS:
        assert parts.parts[name].stop() == 0
    misreader = lined.add("misreader", *SCRIPTED, "misread")
    try:
        misreader.wait_until("/ready")
        with parts.client() as http:
            job = begin(http, "x")
            said = f"job {job} of abs:generate cannot be taken here: ValueError"
            until(lambda: said in misreader.log(), "the worker says that it cannot")
            for name in WORKERS:
                parts.parts[name].start()
            assert ended(http, job)["state"] == "done"
        assert misreader.alive
    finally:
        misreader.end()
        del parts.parts["misreader"]
        parts.whole()


def test_a_full_disk_refuses_what_is_new_and_spoils_nothing(lined: Lined) -> None:
    server = lined.parts.server
    with lined.parts.client() as http:
        jobs = [begin(http, "steps 20 0.1") for _ in range(4)]
        log = max(server.folder.glob("appendonlydir/*.incr.aof"), key=lambda path: path.stat().st_mtime)
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (log.stat().st_size + 2_000, resource.RLIM_INFINITY))
        refused = httpx2.Response(202)
        while refused.status_code == 202:
            refused = http.post("/generate", json=BODY | {"prompt": "x"}, headers={"prefer": "respond-async"})
            if refused.status_code == 202:
                jobs.append(refused.json()["id"])
        assert (refused.status_code, refused.json()["code"]) == (503, "storage_down"), refused.text
        assert "cannot be written to" in refused.json()["detail"] and int(refused.headers["retry-after"]) > 0
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        until(lambda: http.post("/generate", json=BODY | {"prompt": "x"}).is_success, "there is room again")
        server.kill()
        server.start()
        assert {ended(http, job)["state"] for job in jobs} == {"done"}


def test_a_server_that_says_it_is_old_is_refused_at_the_start() -> None:
    """A new one, which says that it is old: what it says of itself is changed on its way."""
    with running_server() as server, flaky_line(server.socket, flaky=False) as line:
        line.alter = lambda piece: re.sub(rb"((?:redis|valkey)_version:)\d+", alike, piece)
        said = run_command(("worker", "compile"), {"ABS_BROKER": line.url, "ABS_STORE": line.url})
    assert said.returncode == 4 and "of version 6" in said.stderr, said.stderr
    assert "7 or newer is needed" in " ".join(said.stderr.split())


def alike(found: re.Match[bytes]) -> bytes:
    """Version 6, in as many characters."""
    return found[1] + b"6".rjust(len(found[0]) - len(found[1]), b"0")
