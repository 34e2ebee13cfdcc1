"""Asks a system a list of questions, with a progress bar, and summarises its times."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.report import write_report
from benchmarks.runs import Row
from benchmarks.systems.base import TextConstraint
from benchmarks.systems.catalogue import SYSTEMS
from benchmarks.systems.process import SystemAnswer, SystemUnavailable, run_system

Question = tuple[TextConstraint, str, int]  # with the prompt and the budget in tokens


def progress_bars() -> Progress:
    """One bar for each row that is measured."""
    return Progress(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())


@dataclass(frozen=True, slots=True)
class Questioner:
    """How systems are run.

    threads      of a system's process
    seconds_max  for one answer and the preparation of its constraint
    progress     shows the answers of each system
    """

    threads: int
    seconds_max: float
    progress: Progress

    def answers(
        self, title: str, system: str, folder: str, questions: Sequence[Question], warm_up: Question | None = None
    ) -> list[SystemAnswer] | None:
        """A system's answer to each question, in order; None if it cannot be started on this machine.

        warm_up  sent before all others and discarded: the first answer of a process is slower than the rest
        """
        bar = self.progress.add_task(title, total=len(questions))
        answers = []
        try:
            with run_system(SYSTEMS[system], folder, self.threads, self.seconds_max) as process:
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
        run(args, Questioner(args.threads, seconds_max, progress))
    write_report()


def timings(answers: Sequence[SystemAnswer]) -> Row:
    """Median times of the successful answers in ms, the number of failures, and the first error."""
    errors = [answer.error for answer in answers if answer.error]
    times = [answer for answer in answers if not answer.error]
    return {
        "prepare_ms": statistics.median([answer.prepare_ms for answer in times] or [0.0]),
        "answer_ms": statistics.median([answer.answer_ms for answer in times] or [0.0]),
        "errors": len(errors), "error": errors[0] if errors else "",
    }  # fmt: skip
