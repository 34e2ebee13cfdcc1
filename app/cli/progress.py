"""Shows progress on a terminal: loading, compiling and decoding. Elsewhere it writes nothing."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol

from rich.console import Console, RenderableType
from rich.markup import escape
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text

import abs_client
import app.messages
from app.cli.render import ProgressEvent, progress_line

BAR_AFTER_S = 1.0  # a stage that takes longer gets a bar with its time


class Display(Protocol):
    """Shows the progress of a request while it is entered."""

    def __enter__(self) -> object: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...

    def describe(self, stage: str) -> None:
        """Begin a stage whose steps cannot be counted."""

    def show(self, event: ProgressEvent) -> None:
        """Show an event of the request."""


class ProgressDisplay:
    """A line with the stage of a request.

    A stage of more than a second has a bar: of its steps, or one that moves where their number is not known.
    """

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            SpinnerColumn(), TextColumn("{task.description}"), _Late(BarColumn(bar_width=20)),
            _Late(TimeElapsedColumn()), console=console, transient=True, disable=not console.is_terminal,
        )  # fmt: skip
        self._task: TaskID | None = None
        self._stage = ""

    def __enter__(self) -> ProgressDisplay:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._progress.stop()

    def describe(self, stage: str) -> None:
        self._update(stage, escape(stage))

    def show(self, event: ProgressEvent) -> None:
        line = progress_line(event)
        text = line.markup if isinstance(line, Text) else escape(line)
        match event:
            case app.messages.Progress(stage="decode"):
                self._update("decode", text, event.step, event.steps)
            case app.messages.StepMessage() | abs_client.Step():
                self._update("decode", text, event.step, event.step + event.budget_after)
            case _:
                self._update(type(event).__name__, text)

    def _update(self, stage: str, text: str, step: int = 0, steps: int | None = None) -> None:
        """Show a stage. Its time begins with its first event."""
        if self._task is None or stage != self._stage:
            if self._task is not None:
                self._progress.remove_task(self._task)
            self._task, self._stage = self._progress.add_task(text, total=steps), stage
        self._progress.update(self._task, description=text, completed=step, total=steps)


class _Late(ProgressColumn):
    """A column that is shown once a stage has taken a second."""

    def __init__(self, column: ProgressColumn) -> None:
        super().__init__()
        self._column = column

    def render(self, task: Task) -> RenderableType:
        return self._column.render(task) if (task.elapsed or 0.0) >= BAR_AFTER_S else Text()
