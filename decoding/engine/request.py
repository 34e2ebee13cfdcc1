"""One generation in an engine: its run, its session with the model, and the way back to the thread that waits."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any

from decoding.generation import Generation, Hypothesis, Snapshot, StepEvent
from decoding.model import LanguageModel, Scores, StepInput, piece_rows

COMPANY_MAX = 3  # a generation that ran out of memory so often begins only when no other runs
EngineOutcome = tuple[Hypothesis, ...] | BaseException


@dataclass(slots=True, eq=False)
class EngineRequest:
    """A generation that is waiting or running.

    Only the engine's thread uses a request once it is queued, except for `news` and `abandoned`. After `drop`, a
    reference to it holds no memory of the device.

    begin       makes its run. A restarted run takes the same steps; steps that were already sent are not sent again.
    bytes_held  the most that it may come to hold
    put_back    how often it ran out of memory and went back to the queue
    feed        its input to the step at hand
    """

    begin: Callable[[], Generation]
    prompt_ids: Sequence[int]
    cancelled: Callable[[], bool] | None
    listened_to: bool
    bytes_held: int = 0
    put_back: int = 0
    feed: StepInput[Any] | None = None
    news: SimpleQueue[Snapshot | EngineOutcome] = field(default_factory=SimpleQueue)
    abandoned: bool = False
    asked: float = field(default_factory=time.monotonic)
    _run: Generation | None = None
    _session: Any = None
    _steps: int = 0
    _told: int = 0

    def __post_init__(self) -> None:
        self._run = self.begin()  # in the caller's thread, so that errors in its arguments are raised there

    @property
    def run(self) -> Generation:
        if self._run is None:
            self._run = self.begin()
        return self._run

    @property
    def called_off(self) -> bool:
        return self.abandoned or (self.cancelled is not None and self.cancelled())

    @property
    def alone(self) -> bool:
        """Whether it shall run by itself: either there is memory enough then, or there never is."""
        return self.put_back >= COMPANY_MAX

    def open(self, model: LanguageModel[Any]) -> None:
        """Have the prompt read, and take the first step."""
        self._session, first = model.prefill(self.prompt_ids)
        self.take(Scores.of_prompt(first))

    def prepare(self) -> None:
        """Set `feed`, its input to the next step."""
        self.feed = StepInput(self._session, *self.run.feed())

    @property
    def rows(self) -> int:
        """How many rows of a pass its feed takes."""
        return piece_rows(*self.feed.tokens.shape) if self.feed else 0

    def take(self, scores: Scores) -> None:
        """Advance the run by the scores of its feed.

        A listener receives the new steps, unless it received them before a restart.
        """
        for snapshot in self.run.advance(scores):
            self._steps += 1
            if self.listened_to and self._steps > self._told:
                self._told = self._steps
                self.news.put(snapshot)

    def drop(self) -> None:
        """Free its session, its feed and its run; the run must restart from the prompt."""
        self._session = self._run = self.feed = None
        self._steps = 0


def outcome(ticket: EngineRequest, on_step: Callable[[StepEvent], None] | None) -> tuple[Hypothesis, ...]:
    """Wait for the answers, and pass each step to `on_step` as it arrives.

    Raises the error that ended the generation.
    """
    while True:
        news = ticket.news.get()
        if isinstance(news, tuple):
            return news
        if isinstance(news, BaseException):
            try:
                raise news
            finally:
                del news  # it would hold this frame, and the frame it, and both the run
        if on_step is not None:
            on_step(news())
