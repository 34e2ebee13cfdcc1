"""Starts `abs up` in a folder of its own for the load benchmark, and reads its memory and metrics."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.service.http_client import HttpConnection
from tests.servers.processes import children, free_port, resident_bytes

_COMPILATIONS = re.compile(rb"^abs_compile_total\{[^}]*\} ([0-9.e+]+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class RunningService:
    """A running service.

    processes     the process id by name
    metrics_port  one less than the first worker's port for metrics
    """

    url: str
    processes: dict[str, int]
    metrics_port: int

    def memory_mib(self) -> dict[str, float]:
        """The resident set of each process and its descendants (the sandboxes of the compile workers)."""
        sizes = {}
        for name, pid in self.processes.items():
            with contextlib.suppress(OSError):  # the process was restarted
                sizes[name] = sum(map(resident_bytes, (pid, *_descendants(pid)))) / 2**20
        return sizes

    async def compilations(self) -> float:
        """The number of compilations of the compile worker since its start."""
        connection = HttpConnection(f"http://127.0.0.1:{self.metrics_port + 1}")
        metrics = await connection.get("/metrics")
        connection.close()
        return sum(float(number) for number in _COMPILATIONS.findall(metrics.body))


@contextlib.contextmanager
def run_service() -> Iterator[RunningService]:
    """`abs up` with the built-in model and default settings, ready for the duration of the statement."""
    port = free_port()  # the two after it are most likely free as well
    with tempfile.TemporaryDirectory(prefix="abs-load-") as folder:
        command = [sys.executable, "-m", "app.main", "up", "--json", "--port", "0", "--data", folder]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("ABS_")}
        process = subprocess.Popen(
            command, env=environment | {"ABS_METRICS_PORT": str(port)}, stdout=subprocess.PIPE, text=True
        )
        try:
            assert process.stdout
            events = map(json.loads, process.stdout)
            ready = next((event for event in events if event["event"] == "ready"), None)
            if ready is None:
                raise SystemExit("`abs up` did not start; see its output above")
            yield RunningService(ready["url"], ready["processes"], port)
        finally:
            process.terminate()
            process.wait(120)
            if process.stdout:
                process.stdout.close()
            logs = "".join(path.read_text(errors="replace")[-2000:] for path in Path(folder).glob("logs/*.log"))
            if "Traceback" in logs:
                print("a process logged an error:\n", logs, file=sys.stderr)


def _descendants(pid: int) -> list[int]:
    direct = children(pid)
    return [*direct, *(inner for child in direct for inner in _descendants(child))]
