"""What a handler is, and what of the world it may touch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from app.jobs import Job, Progress, Result, Step
from app.settings import Settings


class Context(Protocol):
    """A running job's door to the world. Every method may be called from the handler's thread."""

    @property
    def waited_s(self) -> float:
        """How long the job waited in its queue."""

    def progress(self, event: Progress) -> None:
        """Tell whoever follows the job how far it is. Cheap: what comes too fast for a reader is dropped."""

    def tell(self, step: Step) -> None:
        """Tell whoever follows the job the texts of a step. What comes too fast for a reader is dropped."""

    def cancelled(self) -> bool:
        """True once the job was called off or its deadline has passed."""

    def load(self, key: str) -> bytes | None:
        """A value of the store."""

    def save(self, key: str, value: bytes, ttl_s: float) -> None:
        """Put a value into the store."""

    def discard(self, key: str, value: bytes) -> None:
        """Remove a faulty value from the store."""


def _nothing() -> None:
    """What most handlers have to give up."""


@dataclass(frozen=True, slots=True)
class Handler:
    """What a worker runs, in threads of its own.

    handle  from a job to its result; blocks
    slots   how many jobs it takes at once, each in its own thread
    close   gives up what the handler holds; called once, when no job runs any more
    """

    handle: Callable[[Job, Context], Result]
    slots: int = 1
    close: Callable[[], None] = _nothing

    def __call__(self, job: Job, context: Context) -> Result:
        return self.handle(job, context)


OpenHandler = Callable[[Settings], Handler]
