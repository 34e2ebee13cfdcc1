"""The service as a separate process, as `abs serve` starts it."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx2

from app.cli.demo import LISTENING
from tests.servers.forkserver import Child, start_process
from tests.servers.processes import START_S_MAX, until


class ServiceProcess:
    """A process that serves, with its URL and the log so far."""

    def __init__(self, process: subprocess.Popen[bytes] | Child, log: Path, out: Path) -> None:
        self.process = process
        self._log = log
        line = first_line(process, out)
        assert LISTENING in line, f"it did not start: {line} {self.log}"
        self.url = line.partition(LISTENING)[2].strip()
        self.port = int(self.url.rpartition(":")[2])

    @property
    def log(self) -> str:
        """Standard error."""
        return self._log.read_text(encoding="utf-8")

    def wait_until_ready(self, key: str = "") -> None:
        """Until requests would be served. Certificates are not read: that takes longer than a request."""
        headers = {"authorization": f"Bearer {key}"} if key else {}

        def ready() -> bool:
            assert self.process.poll() is None, self.log
            with contextlib.suppress(httpx2.TransportError):
                return http.get("/ready").is_success
            return False

        with httpx2.Client(base_url=self.url, headers=headers, timeout=START_S_MAX, verify=False) as http:
            until(ready, "the service is ready", START_S_MAX, poll_s=0.1)


def first_line(process: subprocess.Popen[bytes] | Child, out: Path) -> str:
    """The first line that a process writes to a file. It is shorter if the process ends earlier."""

    def written() -> bool:
        return process.poll() is not None or (out.exists() and "\n" in out.read_text(encoding="utf-8"))

    until(written, "a line of the service", START_S_MAX)
    return out.read_text(encoding="utf-8").partition("\n")[0]


@contextlib.contextmanager
def serving(folder: Path, *arguments: str, **settings: object) -> Iterator[ServiceProcess]:
    """A service with these settings, which ends with the statement's body. The folder gets its log."""
    variables = {name if name.isupper() else f"ABS_{name.upper()}": str(value) for name, value in settings.items()}
    log, stdout_file = folder / "log", folder / "out"
    process = start_process(["app.main", "serve", "--port", "0", *arguments], os.environ | variables, log, stdout_file)
    try:
        yield ServiceProcess(process, log, stdout_file)
    finally:
        process.terminate()
        try:
            process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
