"""The service as a process of its own, as `abs serve` starts it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2

from app.demo import LISTENING

START_S_MAX = 120.0


class ServiceProcess:
    """A process that serves, with its URL and what it has written to its log so far."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self.process = process
        self._log = log
        assert process.stdout is not None
        line = process.stdout.readline()
        assert LISTENING in line, f"it did not start: {line} {self.log}"
        self.url = line.partition(LISTENING)[2].strip()
        self.port = int(self.url.rpartition(":")[2])

    @property
    def log(self) -> str:
        """Standard error."""
        return self._log.read_text(encoding="utf-8")

    def wait_until_ready(self, key: str = "") -> None:
        """Until requests would be served."""
        headers = {"authorization": f"Bearer {key}"} if key else {}
        self.wait_for(lambda: httpx2.get(f"{self.url}/ready", headers=headers, timeout=START_S_MAX).is_success)

    def wait_for(self, holds: Callable[[], bool]) -> None:
        """Until something holds; it fails where the process ends before, or time does."""
        ends = time.monotonic() + START_S_MAX
        while True:
            with contextlib.suppress(httpx2.TransportError):
                if holds():
                    return
            assert self.process.poll() is None, self.log
            assert time.monotonic() < ends, self.log
            time.sleep(0.05)


@contextlib.contextmanager
def serving(folder: Path, *arguments: str, **settings: object) -> Iterator[ServiceProcess]:
    """A service with these settings, which ends with the body of the statement. The folder takes its log."""
    given = {name if name.isupper() else f"ABS_{name.upper()}": str(value) for name, value in settings.items()}
    command = [sys.executable, "-m", "app.main", "serve", "--port", "0", *arguments]
    log = folder / "log"
    with log.open("w", encoding="utf-8") as words:
        process = subprocess.Popen(command, env=os.environ | given, stdout=subprocess.PIPE, stderr=words, text=True)
    try:
        yield ServiceProcess(process, log)
    finally:
        process.terminate()
        try:
            process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout:
            process.stdout.close()
