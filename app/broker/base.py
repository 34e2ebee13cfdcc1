"""What a broker of jobs must do. Every implementation passes the contract in tests/app/test_broker.py."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Delivery:
    """A job handed to a worker, and how many seconds it waited."""

    job_id: str
    body: bytes
    waited_s: float


@dataclass(frozen=True, slots=True)
class Presence:
    """What a worker last said of itself: `reason` is empty when it takes jobs."""

    worker: str
    reason: str


class Broker(Protocol):
    """Queues of jobs. A job is submitted once, delivered to one worker, and finished with one result.

    Whoever submits or joins a job has a share in it until he leaves: a job that everyone left is called off, and the
    result of one that someone still has a share in is not dropped for want of space.

    Bodies, events and results are bytes that the broker never reads.
    """

    async def submit(self, queue: str, key: str, body: bytes) -> str:
        """The id of the job, and a share in it. A job of the same key that is not finished is joined, not run twice.

        Raises QueueFull where the queue holds as many waiting jobs as it may.
        """

    def events(self, job_id: str) -> AsyncIterator[bytes]:
        """The job's events from its first on, as far as they are kept, until it is finished. Raises JobUnknown."""

    async def result(self, job_id: str) -> bytes:
        """Waits for the result. Raises JobCancelled where the job was called off, JobUnknown."""

    async def cancel(self, job_id: str) -> None:
        """Call a job off, for all who joined it: a waiting one never runs, a running one is told. Idempotent."""

    async def leave(self, job_id: str) -> None:
        """Give one share up; the last one to leave a job that is not finished calls it off."""

    async def take(self, queue: str) -> Delivery:
        """Worker: waits for the next job, oldest first."""

    async def publish(self, job_id: str, event: bytes, passing: bool = False) -> None:
        """Worker: add an event to a job. Ignored once the job is finished, or has as many as may be.

        Of events that are only passing the last few are kept: a reader who lags misses those before.
        """

    async def finish(self, job_id: str, result: bytes) -> None:
        """Worker: give the result. Ignored once the job is finished."""

    async def cancelled(self, job_id: str) -> None:
        """Worker: returns once the job is called off."""

    async def announce(self, queue: str, presence: Presence) -> None:
        """Worker: say that it is alive, good for `PRESENCE_TTL_S` seconds."""

    async def workers(self, queue: str) -> tuple[Presence, ...]:
        """The workers of a queue that are alive."""

    async def close(self) -> None:
        """Give up connections; the broker is not used after."""


PRESENCE_TTL_S = 10.0
