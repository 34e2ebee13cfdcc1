"""Systems as processes: started with the Python of their environment, asked, and ended when they take too long."""

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

from benchmarks.systems.base import Wanted
from benchmarks.systems.catalogue import ENVIRONMENTS, Entry

ROOT = Path(__file__).resolve().parents[2]
START_S_MAX = 300.0
IN_A_ROW_MAX = 3  # answers that did not come in time, after which a system is asked no more


class Answer(NamedTuple):
    """What a system said. `error` says why it said nothing."""

    text: str
    prepare_ms: float
    answer_ms: float
    error: str

    @property
    def ms(self) -> float:
        return self.prepare_ms + self.answer_ms


class NotHere(Exception):
    """A system cannot be started on this machine."""


def python_of(environment: str) -> Path:
    """The interpreter of a system's environment. Raises NotHere."""
    if not environment:
        return Path(sys.executable)
    python = ENVIRONMENTS / environment / "bin" / "python"
    if not python.exists():
        raise NotHere(f"there is no {python.relative_to(ROOT)}: make reference")
    return python


class Running:
    """A system that runs, and is begun anew where it had to be ended."""

    def __init__(self, entry: Entry, folder: str, threads: int, seconds_max: float) -> None:
        self._command = [
            str(python_of(entry.environment)), "-m", "benchmarks.systems.child", entry.where,
            json.dumps(dict(entry.options)),
            folder,
        ]  # fmt: skip
        self._environment = os.environ | {
            "OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "PASSIVE", "PYTHONPATH": str(ROOT),
            "PYTHONWARNINGS": "ignore", "TRANSFORMERS_VERBOSITY": "error", "TOKENIZERS_PARALLELISM": "false",
            "HF_HUB_OFFLINE": "1",
        }  # fmt: skip
        self._seconds_max = seconds_max
        self._words = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115 - closed with the system
        self._child: subprocess.Popen[str] | None = None
        self._said: queue.Queue[str] = queue.Queue()
        self._late = 0

    def ask(self, wanted: Wanted, prompt: str, max_tokens: int) -> Answer:
        """Its answer. Raises NotHere where it does not start at all."""
        if self._late >= IN_A_ROW_MAX:
            return Answer("", 0.0, 0.0, f"not asked: {IN_A_ROW_MAX} answers in a row took over {self._seconds_max:g} s")
        if self._child is None:
            self._start()
        assert self._child is not None and self._child.stdin is not None
        asked = {"wanted": dataclasses.asdict(wanted), "prompt": prompt, "max_tokens": max_tokens}
        with contextlib.suppress(BrokenPipeError):  # it is gone, as will be seen
            print(json.dumps(asked), file=self._child.stdin, flush=True)
        began = time.perf_counter()
        try:
            told = self._told(self._seconds_max)
        except (queue.Empty, EOFError) as nothing:
            late = isinstance(nothing, queue.Empty)
            self.end()
            self._late += late
            why = f"no answer within {self._seconds_max:g} s" if late else "its process died"
            return Answer("", 0.0, (time.perf_counter() - began) * 1000, why)
        self._late = 0
        return Answer(**told)

    def _start(self) -> None:
        child = subprocess.Popen(
            self._command, cwd=ROOT, env=self._environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=self._words, text=True,
        )  # fmt: skip
        self._child, self._said = child, queue.Queue()
        threading.Thread(target=_read, args=(child, self._said), daemon=True).start()
        try:
            self._told(START_S_MAX)
        except (queue.Empty, EOFError) as nothing:
            self.end()
            self._words.seek(0)
            raise NotHere((self._words.read().strip().splitlines() or ["it says nothing"])[-1]) from nothing

    def _told(self, seconds_max: float) -> dict[str, Any]:
        """The next line. Raises queue.Empty where none comes in time, EOFError where the process has ended."""
        line = self._said.get(timeout=seconds_max)
        if not line:
            raise EOFError
        told: dict[str, Any] = json.loads(line)
        return told

    def end(self) -> None:
        """End the process, if there is one."""
        if self._child is not None:
            self._child.kill()
            self._child.wait()
            for pipe in (self._child.stdin, self._child.stdout):
                if pipe is not None:
                    with contextlib.suppress(BrokenPipeError):
                        pipe.close()
        self._child = None

    def close(self) -> None:
        self.end()
        self._words.close()


def _read(child: subprocess.Popen[str], said: queue.Queue[str]) -> None:
    """Pass lines on; an empty one where there are no more."""
    assert child.stdout is not None
    with contextlib.suppress(ValueError):  # closed meanwhile
        for line in child.stdout:
            said.put(line)
    said.put("")


@contextlib.contextmanager
def running(entry: Entry, folder: str, threads: int, seconds_max: float = 60.0) -> Iterator[Running]:
    """A system that is asked within the statement. Raises NotHere, here or when it is first asked."""
    system = Running(entry, folder, threads, seconds_max)
    try:
        yield system
    finally:
        system.close()
