"""`abs up` for benchmarks.load: started in a folder of its own, watched, stopped."""

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

from benchmarks.load_client import Connection
from tests.servers.processes import children, free_port, resident_bytes

_COMPILATIONS = re.compile(rb"^abs_compile_total\{[^}]*\} ([0-9.e+]+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Service:
    """A running service.

    processes     the number of each process, by name
    metrics_port  the first of the workers' ports for metrics, less 1; the API answers at its own
    """

    url: str
    processes: dict[str, int]
    metrics_port: int

    def memory_mib(self) -> dict[str, float]:
        """What each process holds in memory, and what those hold that it started (the compile workers' sandboxes)."""
        found = {}
        for name, pid in self.processes.items():
            with contextlib.suppress(OSError):  # it was restarted
                found[name] = sum(map(resident_bytes, (pid, *_descendants(pid)))) / 2**20
        return found

    async def compilations(self) -> float:
        """How many compilations the compile worker has made since its start."""
        connection = Connection(f"http://127.0.0.1:{self.metrics_port + 1}")
        exposed = await connection.get("/metrics")
        connection.close()
        return sum(float(number) for number in _COMPILATIONS.findall(exposed.body))


@contextlib.contextmanager
def running() -> Iterator[Service]:
    """`abs up` with the built-in model and nothing set, from ready until stopped."""
    port = free_port()  # it and the two after it are most likely free
    with tempfile.TemporaryDirectory(prefix="abs-load-") as folder:
        command = [sys.executable, "-m", "app.main", "up", "--json", "--port", "0", "--data", folder]
        kept = {name: value for name, value in os.environ.items() if not name.startswith("ABS_")}
        process = subprocess.Popen(
            command, env=kept | {"ABS_METRICS_PORT": str(port)}, stdout=subprocess.PIPE, text=True
        )
        try:
            assert process.stdout
            told = next(filter(_is_ready, map(json.loads, process.stdout)), None)
            if told is None:
                raise SystemExit("`abs up` did not start; what it said is above")
            yield Service(told["url"], told["processes"], port)
        finally:
            process.terminate()
            process.wait(120)
            if process.stdout:
                process.stdout.close()
            logs = "".join(path.read_text(errors="replace")[-2000:] for path in Path(folder).glob("logs/*.log"))
            if "Traceback" in logs:
                print("a process wrote of an error:\n", logs, file=sys.stderr)


def _is_ready(told: dict[str, object]) -> bool:
    return told["event"] == "ready"


def _descendants(pid: int) -> list[int]:
    found = children(pid)
    return [*found, *(inner for child in found for inner in _descendants(child))]
