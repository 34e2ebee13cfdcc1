"""Rows of figures, stored as they are measured, so that a run may be stopped and taken up; bars that show it."""

from __future__ import annotations

import datetime
import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.compile import machine
from benchmarks.systems.base import Wanted
from benchmarks.systems.catalogue import SYSTEMS
from benchmarks.systems.running import Answer, NotHere, running

Row = dict[str, Any]


def bars() -> Progress:
    """A bar for each row that is being measured."""
    return Progress(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())


class Rows:
    """The rows of one file. It is read anew each time: two runs may measure different rows side by side.

    place  by what rows are sorted
    """

    def __init__(self, path: Path, command: str, place: Callable[[Row], tuple[Any, ...]]) -> None:
        self._path, self._command, self._place = path, command, place

    def run(self) -> dict[str, Any]:
        """All that is in the file."""
        found: dict[str, Any] = {"rows": []}
        if self._path.exists():
            found = json.loads(self._path.read_text(encoding="utf-8"))
        return found

    def known(self, key: Row, **size: int) -> bool:
        """Whether a row of this key and size has been measured."""
        return self.find(key | size) is not None

    def find(self, key: Row) -> Row | None:
        """The row of a key, if it has been measured."""
        return next((row for row in self.run()["rows"] if _is_of(row, key)), None)

    def store(self, row: Row, key: Row, **about: Any) -> None:
        """Put a row in the place of the one of its key; `about` is said of the whole run."""
        run = self.run()
        rows = sorted([*(other for other in run["rows"] if not _is_of(other, key)), row], key=self._place)
        run |= {"date": datetime.date.today().isoformat(), "machine": machine(), "command": self._command}
        self._path.write_text(json.dumps(run | about | {"rows": rows}, indent=1) + "\n", encoding="utf-8")


def _is_of(row: Row, key: Row) -> bool:
    return all(row[name] == value for name, value in key.items())


Question = tuple[Wanted, str, int]  # with the prompt, and the budget in tokens


@dataclass(frozen=True, slots=True)
class PeerQuestions:
    """How systems are asked, and where it is shown."""

    threads: int
    seconds_max: float  # for one answer, its constraint's preparation among them
    progress: Progress

    def answers(
        self, title: str, system: str, folder: str, questions: Sequence[Question], first: Question | None = None
    ) -> list[Answer] | None:
        """What a system says to each question, in order; None where it cannot be started here.

        first  asked before all others, and not told: a first answer is slow for reasons of its own
        """
        bar = self.progress.add_task(title, total=len(questions))
        found = []
        try:
            with running(SYSTEMS[system], folder, self.threads, self.seconds_max) as child:
                if first is not None:
                    child.ask(*first)
                for question in questions:
                    found.append(child.ask(*question))
                    self.progress.advance(bar)
        except NotHere as error:
            print(f"{system}: {error}")
            return None
        return found


def timings(found: Sequence[Answer]) -> Row:
    """Medians of the answers that came, in ms, and how many did not, with the first reason."""
    came = [one for one in found if not one.error]
    errors = [one.error for one in found if one.error]
    return {
        "prepare_ms": statistics.median([one.prepare_ms for one in came] or [0.0]),
        "answer_ms": statistics.median([one.answer_ms for one in came] or [0.0]),
        "errors": len(errors), "error": errors[0] if errors else "",
    }  # fmt: skip
