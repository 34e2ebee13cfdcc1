"""`abs up` for tests: its events, its processes, and its termination."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil

from tests.servers.processes import START_S_MAX, until

STOP_S_MAX = 90.0
WAIT_S_MAX = 60.0


def end_all(process: subprocess.Popen[Any], children: Collection[psutil.Process]) -> None:
    """Kill a process and its descendants, and wait until they are gone."""
    if process.poll() is None:
        process.kill()
    for child in children:
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()
    process.wait(STOP_S_MAX)
    psutil.wait_procs(children, timeout=STOP_S_MAX)


class Up:
    """A running `abs up`."""

    def __init__(self, data: Path, *options: str, environment: Mapping[str, str] = os.environ) -> None:
        self.data = data
        command = [sys.executable, "-m", "app.main", "up", "--json", "--port", "0", "--data", str(data), *options]
        self._words = tempfile.TemporaryFile()  # noqa: SIM115  # closed by `end`
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self._words, text=True, env=environment)
        self._events: queue.Queue[dict[str, Any]] = queue.Queue()
        self.events_so_far: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.url = ""
        self._last: dict[str, int] = {}

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._events.put(json.loads(line))

    def wait_for(self, holds: Callable[[dict[str, Any]], bool], s_max: float = START_S_MAX) -> dict[str, Any]:
        """The next event that is such."""
        ends = time.monotonic() + s_max
        while True:
            try:
                event = self._events.get(timeout=0.1)
            except queue.Empty:
                assert self.process.poll() is None or not self._events.empty(), f"ended: {self.words()}"
                assert time.monotonic() < ends, f"no such event: {self.events_so_far}\n{self.words()}\n{self.logs()}"
                continue
            self._note(event)
            if holds(event):
                return event

    def _note(self, event: dict[str, Any]) -> None:
        self.events_so_far.append(event)
        if event["event"] == "ready":
            self.url, self._last = event["url"], dict(event["processes"])
        elif event["event"] == "started":
            self._last[event["process"]] = event["pid"]

    def wait_until_ready(self) -> None:
        self.wait_for(lambda event: event["event"] == "ready")

    @property
    def pids(self) -> dict[str, int]:
        """The last known number of each process."""
        self.events()
        return dict(self._last)

    def events(self) -> list[dict[str, Any]]:
        """All events so far."""
        while not self._events.empty():
            self._note(self._events.get())
        return self.events_so_far

    def kill(self, name: str) -> int:
        """kill -9 of one process, sandboxes aside; its number."""
        pid = self.pids[name]
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        return pid

    def wait_for_new(self, name: str, old: int) -> int:
        """The number of the process that replaced one."""
        return int(until(lambda: self.pids[name] not in (0, old) and self.pids[name], f"a new process {name}"))

    def words(self) -> str:
        """What it said on standard error."""
        self._words.seek(0)
        return self._words.read().decode(errors="replace")[-4_000:]

    def logs(self) -> str:
        """The ends of all logs."""
        files = sorted((self.data / "logs").glob("*.log"))
        return "\n".join(f"== {file.name}\n{file.read_text(errors='replace')[-4_000:]}" for file in files)

    def tree(self) -> list[psutil.Process]:
        """All processes below `abs up`, itself aside."""
        with contextlib.suppress(psutil.NoSuchProcess):
            return psutil.Process(self.process.pid).children(recursive=True)
        return []

    def stop(self) -> int:
        """SIGTERM; the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(STOP_S_MAX)
        self._reader.join(WAIT_S_MAX)
        return status

    def end(self) -> None:
        """Kills it and all its processes."""
        end_all(self.process, self.tree())
        if self.process.stdout:
            self.process.stdout.close()
        self._words.close()


@contextlib.contextmanager
def up(data: Path, *options: str, environment: Mapping[str, str] = os.environ) -> Iterator[Up]:
    """`abs up`, ready for requests."""
    running = Up(data, *options, environment=environment)
    try:
        running.wait_until_ready()
        yield running
    finally:
        running.end()


@contextlib.contextmanager
def short_folder() -> Iterator[Path]:
    """A folder with a short path, because socket paths are limited."""
    with tempfile.TemporaryDirectory(prefix="abs-up-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)
