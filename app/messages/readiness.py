"""Why requests would not be served now. A worker's status has a code, and a detail after a colon if there is one."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class NotReadyCode(StrEnum):
    """Why a queue's jobs would not be run."""

    NO_WORKER = "no worker"
    LOADING = "loading"
    DRAINING = "about to stop"
    STALLED = "stuck"
    MODEL_CHANGED = "model changed"
    FAILED = "cannot start"

    def reason(self, detail: str = "") -> str:
        """The reason in a worker's status."""
        return f"{self}: {detail}" if detail else str(self)

    @classmethod
    def of(cls, reason: str) -> NotReadyCode:
        """The code of a reason in a worker's status. It is FAILED for a reason that this version does not know."""
        # The detail may hold colons itself; the codes have none.
        word = reason.partition(": ")[0]
        return next((code for code in cls if code == word), cls.FAILED)


@dataclass(frozen=True, slots=True)
class NotReadyReason:
    """Why the jobs of a queue would not be run now. `reason` is that of a worker's status, empty without a worker."""

    queue: str
    reason: str = ""

    @property
    def code(self) -> NotReadyCode:
        return NotReadyCode.of(self.reason) if self.reason else NotReadyCode.NO_WORKER

    def __str__(self) -> str:
        return f"{self.queue} worker: {self.reason}" if self.reason else f"no {self.queue} worker is alive"

    def public(self) -> str:
        """The reason as callers see it. An error at the start may name the operator's files, so it stays in the log."""
        failed = self.code is NotReadyCode.FAILED
        return f"{self.queue} worker: the model cannot be loaded; see the log" if failed else str(self)
