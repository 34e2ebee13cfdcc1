"""Stores figures with their run's facts, row by row if requested."""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
COMMITTED = HERE / "results"  # the figures that the repository publishes
RESULTS_DIRECTORY = Path(os.environ.get("ABS_RESULTS") or COMMITTED).resolve()
REPORT = HERE / "RESULTS.md" if RESULTS_DIRECTORY == COMMITTED else RESULTS_DIRECTORY / "RESULTS.md"
SHARED = Path(os.environ.get("ABS_SHARED", HERE.parents[1] / "shared"))
Row = dict[str, Any]
Clock = Callable[[], float]
CLOCKS: dict[str, Clock] = {"wall": time.perf_counter, "process": time.process_time}
"""The seconds since some time. Processor time counts this process alone, for machines that others use."""


def link(path: Path) -> str:
    """A file of the results folder, relative to the report."""
    return Path(os.path.relpath(path, REPORT.parent)).as_posix()


def machine() -> str:
    """Processor, number of cores, system and version of Python."""
    model = next((line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")), "")
    name = model.partition(":")[2].strip() or platform.machine()
    return f"{name}, {os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}"


def about(*, arguments: bool = True) -> dict[str, str]:
    """The date, machine, command and commit of the code of this run. `arguments` adds those of the command."""
    command = shlex.join(["python", *sys.orig_argv[1 : None if arguments else 3]])  # -m MODULE ARGUMENT...
    return {"date": time.strftime("%Y-%m-%d"), "machine": machine(), "command": command, "code": commit_of(HERE)}


def parser_of(
    description: str | None, *, shared: bool = True, threads: int = 0, clock: bool = False
) -> argparse.ArgumentParser:
    """A parser of a command's arguments. `shared` adds --shared for the folder of data sets and models.

    threads  the default of --threads; 0: the command has no such argument
    clock    adds --clock, one of CLOCKS
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    if shared:
        parser.add_argument("--shared", type=Path, default=SHARED, help="holds data/commongen, models and the like")
    if threads:
        parser.add_argument("--threads", type=int, default=threads)
    if clock:
        parser.add_argument("--clock", choices=CLOCKS, default="wall", help="process: processor time, if busy")
    return parser


def tokenizer_path(shared: Path, vocabulary: str) -> Path:
    """The gzipped tokenizer.json of a vocabulary."""
    return shared / "data" / "tokenizers" / vocabulary / "tokenizer.json.gz"


def concept_sets_path(shared: Path) -> Path:
    """CommonGen's validation split."""
    return shared / "data" / "commongen" / "dev.jsonl"


def commit_of(folder: Path) -> str:
    """The commit of a checkout; "unknown" outside of one."""
    command = ["git", "-C", str(folder), "rev-parse", "--short=10", "HEAD"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    return result.stdout.strip() if not result.returncode else "unknown"


def write_json(path: Path, run: Row) -> None:
    """Write a run in the format of the results folder."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(run, indent=1) + "\n", encoding="utf-8")


class RowStore:
    """The rows of one file. Each access reads the file: two runs may measure different rows at the same time.

    A row is written as soon as it is measured, so that an interrupted run continues where it stopped.

    sort_key  orders the rows
    """

    def __init__(self, path: Path, sort_key: Callable[[Row], tuple[Any, ...]]) -> None:
        self._path, self._sort_key = path, sort_key

    def run(self) -> Row:
        """The contents of the file; no rows if there is no file."""
        run: Row = json.loads(self._path.read_text(encoding="utf-8")) if self._path.exists() else {"rows": []}
        return run

    def find(self, key: Row) -> Row | None:
        """The row with these values, if it has been measured."""
        return next((row for row in self.run()["rows"] if _matches(row, key)), None)

    def store(self, row: Row, key: Row, **run_fields: Any) -> None:
        """Replace the row of a key. `run_fields` describe the whole run."""
        run, origin = self.run(), about(arguments=False)
        row = row | {"code": origin["code"]}  # other rows may have been measured with other code
        rows = sorted([*(other for other in run["rows"] if not _matches(other, key)), row], key=self._sort_key)
        write_json(self._path, run | origin | run_fields | {"rows": rows})


def _matches(row: Row, key: Row) -> bool:
    return all(row[name] == value for name, value in key.items())
