"""Starts a system as a process, sends it questions, and ends it when an answer takes too long."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.systems.base import TextConstraint
from benchmarks.systems.catalogue import ENVIRONMENTS, Entry

ROOT = Path(__file__).resolve().parents[2]
START_S_MAX = 300.0
TIMEOUTS_MAX = 3  # consecutive timeouts after which a system gets no more questions


class SystemAnswer(NamedTuple):
    """A system's answer. `error` says why there is no text."""

    text: str
    prepare_ms: float
    answer_ms: float
    error: str

    @property
    def ms(self) -> float:
        return self.prepare_ms + self.answer_ms


class SystemUnavailable(Exception):
    """A system cannot be started on this machine."""


def python_of(environment: str) -> Path:
    """The interpreter of a system's environment. Raises SystemUnavailable."""
    if not environment:
        return Path(sys.executable)
    python = ENVIRONMENTS / environment / "bin" / "python"
    if not python.exists():
        raise SystemUnavailable(f"there is no {python.relative_to(ROOT)}: make reference")
    return python


class SystemProcess:
    """A system's process, started by the first question and again after it died or was ended."""

    def __init__(self, entry: Entry, folder: str, threads: int, seconds_max: float) -> None:
        self._command = [
            str(python_of(entry.environment)), "-m", "benchmarks.systems.child", entry.class_path,
            json.dumps(dict(entry.options)),
            folder,
        ]  # fmt: skip
        self._environment = os.environ | {
            "OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "PASSIVE", "PYTHONPATH": str(ROOT),
            "PYTHONWARNINGS": "ignore", "TRANSFORMERS_VERBOSITY": "error", "TOKENIZERS_PARALLELISM": "false",
            "HF_HUB_OFFLINE": "1",
        }  # fmt: skip
        self._seconds_max = seconds_max
        self._stderr = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115 - closed with the system
        self._child: subprocess.Popen[str] | None = None
        self._lines: queue.Queue[str] = queue.Queue()
        self._timeouts = 0

    def ask(self, constraint: TextConstraint, prompt: str, max_tokens: int) -> SystemAnswer:
        """The answer to a question. Raises SystemUnavailable if the system does not start at all."""
        if self._timeouts >= TIMEOUTS_MAX:
            reason = f"skipped: {TIMEOUTS_MAX} answers in a row took over {self._seconds_max:g} s"
            return SystemAnswer("", 0.0, 0.0, reason)
        if self._child is None:
            self._start()
        assert self._child is not None and self._child.stdin is not None
        question = {"constraint": dataclasses.asdict(constraint), "prompt": prompt, "max_tokens": max_tokens}
        with contextlib.suppress(BrokenPipeError):  # a dead process is noticed when its output is read
            print(json.dumps(question), file=self._child.stdin, flush=True)
        start = time.perf_counter()
        try:
            answer = self._read_line(self._seconds_max)
        except (queue.Empty, EOFError) as failure:
            late = isinstance(failure, queue.Empty)
            self.end()
            self._timeouts += late
            reason = f"no answer within {self._seconds_max:g} s" if late else "its process died"
            return SystemAnswer("", 0.0, (time.perf_counter() - start) * 1000, reason)
        self._timeouts = 0
        return SystemAnswer(**answer)

    def _start(self) -> None:
        child = subprocess.Popen(
            self._command, cwd=ROOT, env=self._environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=self._stderr, text=True,
        )  # fmt: skip
        self._child, self._lines = child, queue.Queue()
        threading.Thread(target=_forward_lines, args=(child, self._lines), daemon=True).start()
        try:
            self._read_line(START_S_MAX)
        except (queue.Empty, EOFError) as failure:
            self.end()
            self._stderr.seek(0)
            lines = self._stderr.read().strip().splitlines() or ["it printed nothing"]
            raise SystemUnavailable(lines[-1]) from failure

    def _read_line(self, seconds_max: float) -> dict[str, Any]:
        """The next line. Raises queue.Empty after the time limit, EOFError if the process has ended."""
        line = self._lines.get(timeout=seconds_max)
        if not line:
            raise EOFError
        fields: dict[str, Any] = json.loads(line)
        return fields

    def end(self) -> None:
        """End the process, if there is one."""
        if self._child is not None:
            with contextlib.suppress(BrokenPipeError), self._child:  # which closes its pipes and waits for it
                self._child.kill()
        self._child = None

    def close(self) -> None:
        self.end()
        self._stderr.close()


def _forward_lines(child: subprocess.Popen[str], lines: queue.Queue[str]) -> None:
    """Put each line of a process's output into the queue, and an empty one after the last."""
    assert child.stdout is not None
    with contextlib.suppress(ValueError):  # the pipe was closed in the meantime
        for line in child.stdout:
            lines.put(line)
    lines.put("")


@contextlib.contextmanager
def run_system(entry: Entry, folder: str, threads: int, seconds_max: float = 60.0) -> Iterator[SystemProcess]:
    """A system for the duration of the statement. Raises SystemUnavailable, here or at the first question."""
    system = SystemProcess(entry, folder, threads, seconds_max)
    try:
        yield system
    finally:
        system.close()
