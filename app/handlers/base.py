"""What a handler is, and what of the world it may touch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from app.jobs import Job, Progress, Result
from app.settings import Settings


class Context(Protocol):
    """A running job's door to the world. Every method may be called from the handler's thread."""

    @property
    def waited_s(self) -> float:
        """How long the job waited in its queue."""

    def progress(self, event: Progress) -> None:
        """Tell whoever follows the job how far it is. Cheap: what comes too fast for a reader is dropped."""

    def cancelled(self) -> bool:
        """True once the job was called off or its deadline has passed."""

    def load(self, key: str) -> bytes | None:
        """A value of the store."""

    def save(self, key: str, value: bytes, ttl_s: float) -> None:
        """Put a value into the store."""

    def discard(self, key: str, value: bytes) -> None:
        """Remove a faulty value from the store."""


Handler = Callable[[Job, Context], Result]
OpenHandler = Callable[[Settings], Handler]
