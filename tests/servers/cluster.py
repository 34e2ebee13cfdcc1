"""The service as local processes that a test starts and kills.

A test can also stop and continue them. The Redis server is real.

`abs up` (tests/servers/abs_up.py) restarts a process that dies. Here only the test or `keep_alive` does.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx2

from app.local.server import packaged_server
from tests.servers.abs_up import short_folder
from tests.servers.clocks import Clocks
from tests.servers.forkserver import IMPORTED, PREFORKED, Child, ForkServer, spawn
from tests.servers.processes import START_S_MAX, free_port, until
from tests.servers.redis_server import RedisServer, running_server
from tests.servers.small_model import small_model

FULL = os.environ.get("ABS_TESTS_FULL") == "1"  # faults in full length and number (make test-long)
STOP_S_MAX = 60.0
ASK_S_MAX = 300.0 if FULL else 120.0
LEASE_S = 30.0 if FULL else 3.0
SLACK_S = 20.0  # what a busy machine may add to anything
COMMON = {
    "ABS_SECRET": "a secret of the tests alone", "ABS_EMBEDDED_WORKERS": "", "ABS_JOB_LEASE_S": str(LEASE_S),
    "ABS_REDIS_WAIT_S": "2", "ABS_STREAM_GRACE_S": "2", "ABS_SHUTDOWN_GRACE_S": "20", "ABS_COMPILE_S_MAX": "6",
    "OMP_NUM_THREADS": "1",
}
API = ("-m", "app.main", "serve")
COMPILE = ("-m", "app.main", "worker", "compile")
SCRIPTED = ("-m", "tests.servers.fake_worker", "scripted")


class Event(NamedTuple):
    """A server-sent event."""

    id: str
    name: str
    data: dict[str, Any]


def events(response: httpx2.Response) -> Iterator[Event]:
    """The events of a stream, as they come."""
    fields: dict[str, str] = {}
    for line in response.iter_lines():
        field, _, value = line.partition(": ")
        if line:
            fields[field] = value
        elif "data" in fields:
            yield Event(fields.get("id", ""), fields["event"], json.loads(fields["data"]))
            fields = {}


def fetch(url: str) -> tuple[int, str]:
    """Status and body of a URL; cheap enough for polling. Raises OSError."""
    parts = urlsplit(url)
    connection = HTTPConnection(parts.netloc, timeout=30)
    try:
        connection.request("GET", parts.path)
        response = connection.getresponse()
        return response.status, response.read().decode()
    except HTTPException as error:
        raise ConnectionError(url) from error
    finally:
        connection.close()


def metric(url: str, name: str, **labels: str) -> float:
    """A metric of a process, summed over unnamed labels. It is 0 if it was never set.

    Raises OSError where the process does not answer.
    """
    pairs = {f'{key}="{value}"' for key, value in labels.items()}
    _, text = fetch(f"{url}/metrics")
    lines = (re.fullmatch(r"(\w+)(?:\{(.*)\})? (\S+)", line) for line in text.splitlines())
    of_name = (line for line in lines if line and line[1] == name)
    return sum(float(line[3]) for line in of_name if pairs <= set((line[2] or "").split(",")))


class Part:
    """One process of the service."""

    def __init__(
        self, name: str, command: tuple[str, ...], environment: Mapping[str, str], folder: Path,
        fork_server: ForkServer | None = None,
    ) -> None:
        self.name, self.keep_alive = name, False
        self._command, self._log, self._fork_server = command, folder / f"{name}.log", fork_server
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        port_setting = {"ABS_PORT" if "serve" in command else "ABS_METRICS_PORT": str(self.port)}
        self._environment = {**os.environ, "ABS_MODEL": small_model(), **COMMON, **port_setting, **environment}
        self.process: subprocess.Popen[bytes] | Child | None = None

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def start(self) -> None:
        start = spawn if self._fork_server is None else self._fork_server.start
        self.process = start(self._command[1:], self._environment, self._log)

    def wait_until(self, path: str = "/health") -> None:
        """Until it answers well at a path."""
        until(lambda: self._answers_ok(path), f"{self.name}{path}", START_S_MAX)

    def _answers_ok(self, path: str) -> bool:
        assert self.alive, self.log()
        try:
            return fetch(self.url + path)[0] == 200
        except OSError:
            return False

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        """kill -9."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """SIGTERM; the exit status."""
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(STOP_S_MAX)

    def metric(self, name: str, **labels: str) -> float:
        """A metric of the process."""
        return metric(self.url, name, **labels)

    def log(self) -> str:
        return f"{self.name}: " + self._log.read_text(errors="replace")[-4_000:]

    def end(self) -> None:
        """Leave nothing behind."""
        self.keep_alive = False
        if self.alive:
            with contextlib.suppress(ProcessLookupError):
                self.signal(signal.SIGCONT)
            self.kill()


def _running(part: Part) -> float:
    return part.metric("abs_running_requests")


class Cluster:
    """A Redis server and the service parts that a test started."""

    def __init__(self, folder: Path, server: RedisServer, fork_server: ForkServer | None) -> None:
        self._folder, self.server, self._fork_server = folder, server, fork_server
        self.parts: dict[str, Part] = {}
        self._job_paths: set[str] = set()
        self._stop = threading.Event()
        self._keeper = threading.Thread(target=self._keep, daemon=True)
        self._keeper.start()

    def add(self, name: str, command: tuple[str, ...], **environment: str) -> Part:
        """Start a part."""
        urls = {"ABS_BROKER": self.server.url, "ABS_STORE": self.server.url}
        part = self.parts[name] = Part(name, command, urls | environment, self._folder, self._fork_server)
        part.start()
        return part

    def _keep(self) -> None:
        """Restarts parts that are to be kept alive."""
        while not self._stop.wait(0.2):
            for part in list(self.parts.values()):
                if part.keep_alive and not part.alive:
                    part.start()

    def restore(self) -> None:
        """Restarts killed parts, awaits their readiness, and cancels jobs of earlier tests."""
        for part in self.parts.values():
            if not part.alive:
                part.start()
        for part in self.parts.values():
            part.wait_until("/ready")
        if self._job_paths:
            with self.client() as http:
                while self._job_paths:
                    http.delete(self._job_paths.pop())
            until(lambda: not any(map(_running, self.parts.values())), "nothing of them runs any more")

    def client(self, name: str = "api") -> httpx2.Client:
        """A client of an API.

        Its jobs are cancelled before the next test. It reads no certificates, which would be slow.
        """
        hooks = {"response": [self._note]}
        return httpx2.Client(
            base_url=self.parts[name].url, timeout=ASK_S_MAX, trust_env=False, verify=False, event_hooks=hooks,
        )

    def _note(self, response: httpx2.Response) -> None:
        if response.status_code == 202 and "location" in response.headers:
            self._job_paths.add(response.headers["location"])

    def busy(self, *names: str, queue: str = "generate") -> Part:
        """Waits until one of these parts runs a job of a queue. Returns that part."""
        parts = [self.parts[name] for name in names]

        def running_part() -> Part | None:
            return next((part for part in parts if part.metric("abs_running_requests", queue=queue) > 0), None)

        part = until(running_part, f"a job runs in {names}")
        assert isinstance(part, Part)
        return part

    def end(self) -> None:
        """Leave nothing behind."""
        self._stop.set()
        self._keeper.join()
        for part in self.parts.values():
            part.end()


def clocked_server(clocks: Clocks) -> AbstractContextManager[RedisServer]:
    """A server that uses the clock "server". Debian's, whose memory is jemalloc's, hangs under libfaketime."""
    return running_server(program=packaged_server(), environment=clocks.of("server"))


@contextlib.contextmanager
def cluster(
    use_fork: bool = not FULL, imported: Sequence[str] = IMPORTED, clocks: Clocks | None = None
) -> Iterator[Cluster]:
    """Redis without parts. Parts are started as usual, or forked from a process with these imports.

    clocks  Redis uses the clock "server"; parts may use others
    """
    redis_server = running_server() if clocks is None else clocked_server(clocks)
    parent = closing(ForkServer(imported, clocks.of("fork_server") if clocks else {})) if use_fork else nullcontext()
    with short_folder() as folder, redis_server as server, parent as forking:
        running = Cluster(folder, server, forking)
        try:
            yield running
        finally:
            running.end()


@contextlib.contextmanager
def scripted_cluster() -> Iterator[Cluster]:
    """Two APIs, a compile worker, and two workers with scripted generations. None holds a model."""
    with cluster() as running:
        for name in ("api", "other"):
            running.add(name, API)
        running.add("compile", COMPILE, **{PREFORKED: ""})  # its sandbox is its child, for tests that disturb it
        for name in ("first", "second"):
            running.add(name, SCRIPTED)
        running.restore()
        yield running
