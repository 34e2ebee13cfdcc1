"""Runs systems as processes and sends lists of questions.

A process whose answer takes too long is ended.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import queue
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.report import write_report
from benchmarks.runs import Row
from benchmarks.systems.base import TextConstraint
from benchmarks.systems.catalogue import ENVIRONMENTS, SYSTEMS, Entry

ROOT = Path(__file__).resolve().parents[2]
START_S_MAX = 300.0
WALL_TIMES_MAX = 15  # a limit of processor time is also one of this multiple of wall time
TIMEOUTS_MAX = 3  # consecutive timeouts after which a system gets no more questions
Question = tuple[TextConstraint, str, int]  # with the prompt and the budget in tokens


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
    """A system's process, which the first question starts. A question also restarts it after it died or was ended.

    seconds_max  for an answer, by the clock
    clock        of the answers' times, one of CLOCKS
    """

    def __init__(self, entry: Entry, folder: str, threads: int, *, seconds_max: float, clock: str = "wall") -> None:
        self._command = [
            str(python_of(entry.environment)), "-m", "benchmarks.systems.child", entry.class_path,
            json.dumps(dict(entry.options)),
            folder, clock,
        ]  # fmt: skip
        self._is_wall_time = clock == "wall"
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
            timed_out = isinstance(failure, queue.Empty)
            self.end()
            self._timeouts += timed_out
            reason = f"no answer within {self._seconds_max:g} s" if timed_out else "its process died"
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

    def _processor_s(self) -> float:
        """The processor time of the process so far."""
        assert self._child is not None
        fields = Path(f"/proc/{self._child.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")  # utime and stime

    def _read_line(self, seconds_max: float) -> dict[str, Any]:
        """The next line. Raises queue.Empty after the time limit, EOFError if the process has ended."""
        line = self._lines.get(timeout=seconds_max) if self._is_wall_time else self._read_line_by_processor(seconds_max)
        if not line:
            raise EOFError
        fields: dict[str, Any] = json.loads(line)
        return fields

    def _read_line_by_processor(self, seconds_max: float) -> str:
        """The next line within a processor time. Raises queue.Empty."""
        start, wall_end = self._processor_s(), time.perf_counter() + WALL_TIMES_MAX * seconds_max
        while True:
            left = seconds_max - (self._processor_s() - start)
            try:
                return self._lines.get(timeout=max(0.1, left))
            except queue.Empty:
                if left <= 0 or time.perf_counter() > wall_end:
                    raise

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
    """Put each output line into the queue, then an empty one."""
    assert child.stdout is not None
    with contextlib.suppress(ValueError):  # the pipe was closed in the meantime
        for line in child.stdout:
            lines.put(line)
    lines.put("")


def run_system(
    entry: Entry, folder: str, threads: int, *, seconds_max: float = 60.0, clock: str = "wall"
) -> closing[SystemProcess]:
    """A system for the duration of a `with` statement. Raises SystemUnavailable, here or at the first question."""
    return closing(SystemProcess(entry, folder, threads, seconds_max=seconds_max, clock=clock))


def progress_bars() -> Progress:
    """One bar for each row that is measured."""
    return Progress(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())


@dataclass(frozen=True, slots=True)
class Questioner:
    """How systems are run.

    threads      of a system's process
    seconds_max  for one answer and the preparation of its constraint
    progress     shows the answers of each system
    clock        of the times, one of CLOCKS
    """

    threads: int
    seconds_max: float
    progress: Progress
    clock: str = "wall"

    def answers(
        self, title: str, system: str, folder: str, questions: Sequence[Question], warm_up: Question | None = None
    ) -> list[SystemAnswer] | None:
        """A system's answers in order; None if the system cannot start.

        warm_up  sent before all others and discarded: the first answer of a process is slower than the rest
        """
        bar = self.progress.add_task(title, total=len(questions))
        answers = []
        try:
            with run_system(
                SYSTEMS[system], folder, self.threads, seconds_max=self.seconds_max, clock=self.clock
            ) as process:
                if warm_up is not None:
                    process.ask(*warm_up)
                for question in questions:
                    answers.append(process.ask(*question))
                    self.progress.advance(bar)
        except SystemUnavailable as error:
            print(f"{system}: {error}")
            return None
        return answers


def add_system_arguments(parser: argparse.ArgumentParser, default: Sequence[str]) -> None:
    """The arguments of all commands that compare systems and store their rows."""
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=default)
    parser.add_argument("--again", action="store_true", help="measure stored rows again")


def ask_systems(
    run: Callable[[argparse.Namespace, Questioner], None], args: argparse.Namespace, seconds_max: float
) -> None:
    """Measure and store the rows of a task, then write RESULTS.md."""
    with progress_bars() as progress:
        run(args, Questioner(args.threads, seconds_max, progress, args.clock))
    write_report()


def timings(answers: Sequence[SystemAnswer]) -> Row:
    """Median times of successful answers, failure count, and first error. Times are in ms."""
    errors = [answer.error for answer in answers if answer.error]
    times = [answer for answer in answers if not answer.error]
    return {
        **{name: statistics.median([getattr(answer, name) for answer in times] or [0.0])
           for name in ("prepare_ms", "answer_ms")},
        "errors": len(errors), "error": errors[0] if errors else "",
    }  # fmt: skip
