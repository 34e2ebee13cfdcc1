"""One generation in an engine. It has its state, its session with the model, and the queue to the caller's thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any

from torch import Tensor

from decoding.generation import BeamStep, Generation, Hypothesis, Snapshot
from decoding.model import LanguageModel, Scores, StepInput, piece_rows

PREEMPTIONS_BEFORE_EXCLUSIVE = 3  # after this many preemptions a request runs only while no other does
EngineOutcome = tuple[Hypothesis, ...] | BaseException


@dataclass(slots=True, eq=False, kw_only=True)
class EngineRequest:
    """A generation that is waiting or running.

    Only the engine's thread uses a request once it is queued, except for `messages` and `abandoned`. After `drop`, a
    reference to it holds no memory of the device.

    model        reads its prompt
    begin        makes its generation; again after a preemption, then steps that were already sent are not sent again
    bytes_max    the most that it may come to hold
    preemptions  how often it ran out of memory and went back to the queue
    overtook     whether it began before a larger request that had waited longer
    feed         its input to the present step
    messages     to the caller's thread: a snapshot for each step, then the outcome
    """

    # With `eq=False` the lists of the scheduler compare requests by identity.
    model: LanguageModel[Any]
    begin: Callable[[], Generation]
    prompt_ids: Sequence[int]
    cancelled: Callable[[], bool] | None
    has_listener: bool
    bytes_max: int = 0  # set before it is queued, from the size of the generation
    preemptions: int = 0
    overtook: bool = False
    feed: StepInput[Any] | None = None
    messages: SimpleQueue[Snapshot | EngineOutcome] = field(default_factory=SimpleQueue)
    abandoned: bool = False
    created_s: float = field(default_factory=time.monotonic)
    _generation: Generation | None = None
    _chunks: Iterator[tuple[Any, Tensor] | None] | None = None  # of the prompt; None before the first one is read
    _session: Any = None
    _saved_rows: int = 0
    _steps: int = 0  # since the last start
    _steps_sent: int = 0  # over all starts

    def __post_init__(self) -> None:
        self._generation = self.begin()  # in the caller's thread, so that errors in its arguments are raised there

    @property
    def generation(self) -> Generation:
        """The generation, made again after a preemption."""
        if self._generation is None:
            self._generation = self.begin()
        return self._generation

    @property
    def is_cancelled(self) -> bool:
        """Whether its caller no longer waits."""
        return self.abandoned or (self.cancelled is not None and self.cancelled())

    @property
    def exclusive(self) -> bool:
        """Whether the generation must run alone. It then finds enough memory, or it never does."""
        return self.preemptions >= PREEMPTIONS_BEFORE_EXCLUSIVE

    @property
    def is_prefilled(self) -> bool:
        """Whether the last chunk of its prompt was read."""
        return self._session is not None

    def prefill(self) -> None:
        """Reads a chunk of the prompt. After the last one it takes the first step."""
        if self._chunks is None:
            self._chunks = self.model.prefill_chunks(self.prompt_ids)
        found = next(self._chunks)
        if found is not None:
            self._session, first = found
            self._chunks = None
            self.take(Scores.of_prompt(first))

    def prepare(self) -> None:
        """Sets `feed`, its input to the next step, where it has none."""
        # `feed()` of a generation changes it, so it is called once a step, also where the pass is split or must wait.
        if self.feed is None:
            self.feed = StepInput(self._session, *self.generation.feed())

    @property
    def rows(self) -> int:
        """How many rows of a pass its feed takes."""
        return piece_rows(*self.feed.tokens.shape) if self.feed else 0

    def is_due(self, share: int) -> bool:
        """Whether it takes part in a step that gives it `share` rows. It saves them up for a feed with more."""
        self._saved_rows += share
        if self._saved_rows < self.rows:
            return False
        self._saved_rows = min(self._saved_rows - self.rows, share)
        return True

    def take(self, scores: Scores) -> None:
        """Advance the generation by its scores. New steps go to a listener."""
        self.feed = None
        for snapshot in self.generation.advance(scores):
            self._steps += 1
            # A restarted generation takes the same steps, so the first ones were sent before the preemption.
            if self.has_listener and self._steps > self._steps_sent:
                self._steps_sent = self._steps
                self.messages.put(snapshot)

    def drop(self) -> None:
        """Free the session, the feed and the generation. The request must then restart from the prompt."""
        self._session = self._generation = self.feed = self._chunks = None
        self._steps = 0

    def wait(self, on_step: Callable[[BeamStep], None] | None) -> tuple[Hypothesis, ...]:
        """Wait for the answers, and pass each step to `on_step`. Raises the generation's error."""
        while True:
            message = self.messages.get()
            if isinstance(message, tuple):
                return message
            if isinstance(message, BaseException):
                try:
                    raise message
                finally:
                    # The error's traceback holds this frame: a cycle that would keep the memory of the generation.
                    del message
            if on_step is not None:
                on_step(message())
