"""The connection to the server breaks, falls silent, or is refused.

Generations are scripted (tests/servers/fake_worker.py). The table of all faults is test_table.py.
"""

from __future__ import annotations

import asyncio
import resource
import shlex
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.app.faults.small_disk import NoDisk, SmallDisk, small_disk
from tests.app.faults.test_workers import BODY, WORKERS, begin, final_status, read_on, steps
from tests.long.chaos import states_of_generations
from tests.servers import redis_server
from tests.servers.cluster import API, COMPILE, FULL, LEASE_S, SCRIPTED, Cluster, Event, Part, cluster, events
from tests.servers.flaky_proxy import FlakyProxy
from tests.servers.processes import until

REQUESTS = 200 if FULL else 24
AT_ONCE = 8
STEPS = 120  # longer than a silence; a reader may miss events of that time
ANSWER_S_MAX = 60.0 + 4 * LEASE_S
RETRY_S = 0.2
TRIES = {"ABS_JOB_ATTEMPTS_MAX": "1000"}  # to be cut off from the server for a lease is one


@dataclass(frozen=True)
class Lined:
    """The service, which has its server at the end of a line. `disk` is the server's, or why it has none of its own."""

    parts: Cluster
    line: FlakyProxy
    disk: SmallDisk | str

    @property
    def data(self) -> Path:
        """Where the server's files are, as we see them."""
        return self.disk.folder if isinstance(self.disk, SmallDisk) else self.parts.server.folder

    def add(self, name: str, *command: str) -> Part:
        """Start a part."""
        return self.parts.add(name, command, ABS_BROKER=self.line.url, ABS_STORE=self.line.url, **TRIES)


def server_on(disk: SmallDisk | str, program: Path) -> None:
    """Writes a script for a server whose data file is limited."""
    words = shlex.join(disk.enter) if isinstance(disk, SmallDisk) else ""
    at = f"--dir {shlex.quote(str(disk.inside))}" if isinstance(disk, SmallDisk) else ""
    program.write_text(f"#!/bin/sh\ntrap '' XFSZ\nexec {words} {redis_server.server_program()} \"$@\" {at}\n")
    program.chmod(0o755)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lined]:
    """All parts of the service, on a server with its own disk."""
    program = tmp_path_factory.mktemp("server") / "server"
    disk: SmallDisk | str
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        try:
            disk = stack.enter_context(small_disk(tmp_path_factory.mktemp("disk")))
        except NoDisk as none:
            disk = str(none)
        server_on(disk, program)
        patch.setattr(redis_server, "server_program", lambda: str(program))
        parts = stack.enter_context(cluster())
        running = Lined(parts, stack.enter_context(FlakyProxy(parts.server.socket, flaky=False)), disk)
        try:
            for name, command in {"api": API, "compile": COMPILE, **dict.fromkeys(WORKERS, SCRIPTED)}.items():
                running.add(name, *command)
            yield running
        finally:
            parts.end()


@pytest.fixture
def proxied_cluster(running: Lined) -> Lined:
    """The same, when all is well with it."""
    running.parts.restore()
    with running.parts.client() as http:
        until(lambda: http.post("/generate", json=BODY | {"prompt": "x"}).is_success, "requests are answered")
    return running


def answer_of(http: httpx2.Client, number: int) -> dict[str, Any]:
    """The answer to a request that is repeated under its key."""
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


def test_each_request_is_answered_once_over_an_unreliable_connection(proxied_cluster: Lined) -> None:
    states_before = asyncio.run(states_of_generations(proxied_cluster.parts.server.socket))
    with proxied_cluster.parts.client() as http, ThreadPoolExecutor(AT_ONCE) as callers:
        proxied_cluster.line.flaky = True
        try:
            answers = [callers.submit(answer_of, http, number) for number in range(REQUESTS)]
            until(lambda: sum(answer.done() for answer in answers) >= REQUESTS / 2, "half are answered", ANSWER_S_MAX)
            proxied_cluster.line.stop_replies()
            first_answers = [answer.result() for answer in answers]
        finally:
            proxied_cluster.line.flaky = False
        second_answers = [callers.submit(answer_of, http, number) for number in range(REQUESTS)]
        assert [answer.result()["id"] for answer in second_answers] == [answer["id"] for answer in first_answers]
    assert {answer["choices"][0]["text"] for answer in first_answers} == {"dog"}
    assert len({answer["id"] for answer in first_answers}) == REQUESTS
    assert asyncio.run(states_of_generations(proxied_cluster.parts.server.socket)) - states_before == {"done": REQUESTS}


def test_a_stream_continues_when_all_connections_stall(proxied_cluster: Lined) -> None:
    stream_events: list[Event] = []
    with proxied_cluster.parts.client() as http:
        with http.stream("POST", "/generate", json=BODY | {"prompt": f"steps {STEPS} 0.1", "stream": True}) as response:
            for event in events(response):
                stream_events.append(event)
                if len(stream_events) == 5:
                    proxied_cluster.line.stop_replies()

        def is_complete() -> bool:
            if stream_events[-1].name == "reconnect":  # the stream was let go of while the server said nothing
                stream_events.pop()
            if stream_events[-1].name != "done":
                stream_events.extend(read_on(http, response.headers["x-job-id"], stream_events[-1].id))
            return stream_events[-1].name == "done"

        until(is_complete, "the stream has come to its end", ANSWER_S_MAX, RETRY_S)
    last_place = max((place for place, event in enumerate(stream_events) if event.name == "restarted"), default=0)
    numbers = steps(stream_events[last_place:])
    assert numbers == sorted(set(numbers)) and numbers[-1] == STEPS


@contextmanager
def disk_filled(proxied_cluster: Lined) -> Iterator[None]:
    """Nothing is left of the server's disk."""
    if not isinstance(proxied_cluster.disk, SmallDisk):
        pytest.skip(f"no disk of our own: {proxied_cluster.disk}")
    proxied_cluster.disk.fill()
    try:
        yield
    finally:
        proxied_cluster.disk.make_room()


@contextmanager
def log_limited(proxied_cluster: Lined) -> Iterator[None]:
    """The server may make no file longer than its log."""
    log = max(proxied_cluster.data.glob("appendonlydir/*.incr.aof"), key=lambda path: path.stat().st_mtime)
    pid, limit = proxied_cluster.parts.server.pid, resource.RLIMIT_FSIZE
    resource.prlimit(pid, limit, (log.stat().st_size + 2_000, resource.RLIM_INFINITY))
    try:
        yield
    finally:
        resource.prlimit(pid, limit, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


@pytest.mark.parametrize("without_room", [disk_filled, log_limited])
def test_a_full_disk_refuses_new_jobs_and_loses_none(
    proxied_cluster: Lined, without_room: Callable[[Lined], AbstractContextManager[None]]
) -> None:
    server = proxied_cluster.parts.server
    with proxied_cluster.parts.client() as http:
        jobs = [begin(http, "steps 20 0.1") for _ in range(4)]
        with without_room(proxied_cluster):
            refusal = httpx2.Response(202)
            while refusal.status_code == 202:
                refusal = http.post("/generate", json=BODY | {"prompt": "x"}, headers={"prefer": "respond-async"})
                if refusal.status_code == 202:
                    jobs.append(refusal.json()["id"])
            assert (refusal.status_code, refusal.json()["code"]) == (503, "storage_down"), refusal.text
            assert "cannot be written to" in refusal.json()["detail"] and int(refusal.headers["retry-after"]) > 0
            assert "aof_last_write_status:err" in server.ask("INFO", "persistence")
        until(lambda: http.post("/generate", json=BODY | {"prompt": "x"}).is_success, "there is room again")
        server.kill()
        server.start()
        assert "truncat" not in (server.folder / "log").read_text().lower(), "a write that failed half-way was left"
        assert {final_status(http, job)["state"] for job in jobs} == {"done"}
