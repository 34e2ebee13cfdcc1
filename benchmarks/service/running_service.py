"""Starts `abs up` in a folder of its own for the load benchmark, and reads its memory and metrics."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.service.http_client import HttpConnection
from tests.servers.abs_up import short_folder, up
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
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ABS_")}
    with (
        short_folder() as folder,
        up(folder, environment=environment | {"ABS_METRICS_PORT": str(port)}) as running,
    ):
        yield RunningService(running.url, running.pids, port)
        running.stop()
        if "Traceback" in (logs := running.logs()):
            print("a process logged an error:\n", logs, file=sys.stderr)


def _descendants(pid: int) -> list[int]:
    direct = children(pid)
    return [*direct, *(inner for child in direct for inner in _descendants(child))]
