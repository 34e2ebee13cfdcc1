"""What a handler is, and what of the world it may touch."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from app.messages import CompileJobResult, Job, NotReadyCode, Progress, Result, StepMessage
from app.settings import Settings


class Context(Protocol):
    """A running job's door to the world. Every method may be called from the handler's thread."""

    @property
    def waited_s(self) -> float:
        """How long the job waited in its queue."""

    @property
    def compiling(self) -> CompileJobResult | None:
        """What came of the compilation that the job waited for; None where the automaton was stored before."""

    def progress(self, event: Progress) -> None:
        """Publish the job's progress. The call is cheap: events that come too fast for a reader are dropped."""

    def tell(self, news: StepMessage | CompileJobResult) -> None:
        """Publish the job's constraint, or the texts of a step. Steps that come too fast are dropped."""

    def cancelled(self) -> bool:
        """True once the job was called off or its deadline has passed."""

    def load(self, key: str, renew_s: float = 0.0) -> bytes | None:
        """A value of the store, which then lives for so long again, if that is given."""

    def save(self, key: str, value: bytes, ttl_s: float, owner: str = "") -> None:
        """Put a value into the store, in the share of whose it is."""

    def discard(self, key: str, value: bytes) -> None:
        """Remove a faulty value from the store."""


def _nothing() -> None:
    """What most handlers have to give up."""


def _well() -> str:
    """What most handlers have to complain of."""
    return ""


@dataclass(frozen=True, slots=True)
class Handler:
    """What a worker runs, in threads of its own.

    handle   from a job to its result; blocks
    slots    how many jobs it takes at once, each in its own thread
    close    gives up what the handler holds; called once, when no job runs any more
    trouble  what keeps it from working, empty for nothing; asked every few seconds, and must not wait
    """

    handle: Callable[[Job, Context], Result]
    slots: int = 1
    close: Callable[[], None] = _nothing
    trouble: Callable[[], str] = _well

    def __call__(self, job: Job, context: Context) -> Result:
        return self.handle(job, context)


OpenHandler = Callable[[Settings], Handler]


def stuck(what: str, seconds: float, seconds_max: float) -> str:
    """The trouble of a handler that got nowhere for longer than it may; empty where it is within that."""
    if seconds <= seconds_max:
        return ""
    return NotReadyCode.STALLED.reason(what + (f" for {seconds:.0f} s" if math.isfinite(seconds) else " any more"))
