"""What a broker of jobs must do. Every implementation passes the contract in tests/app/broker/test_contract.py."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Literal, Protocol

from app.messages import Priority as Priority


@dataclass(frozen=True, slots=True)
class ConcurrencyGroup:
    """Jobs that are limited together: at most `cap` of them are not over. `limit` is what a refusal calls that."""

    name: str
    cap: int
    limit: str


@dataclass(frozen=True, slots=True)
class SubmitOptions:
    """The options of a submitted job.

    owner          the caller that may see the job; the broker only stores it
    kind           the job's name for its owner, empty for a job without one; the broker only stores it
    digest         digest of the request; a job of the same key and another digest is not joined
    priority       all waiting interactive jobs of a queue go before the batch ones
    weight         what the job counts against `queue_weight_max` while it waits
    after          a job that must end first, with any outcome; until then this job waits outside its queue
    detached       the job runs without subscribers; submitting it gives no share
    key_ttl_s      seconds after the job's end during which its key leads to it, if its worker keeps the result
    pools          the job is admitted if each of these has room; joining a job needs no room
    deadline_in_s  seconds until the job must be done, None for no limit. A job that would be late is not admitted. A
                   job with a kind is also not run if its turn comes too late
    """

    owner: str = ""
    kind: str = ""
    digest: str = ""
    priority: Priority = "interactive"
    weight: int = 0
    after: str | None = None
    detached: bool = False
    key_ttl_s: float = 0.0
    pools: tuple[ConcurrencyGroup, ...] = ()
    deadline_in_s: float | None = None


DEFAULT_SUBMIT = SubmitOptions()


@dataclass(frozen=True, slots=True)
class Delivery:
    """A job delivered to a worker.

    waited_s  time in the queue
    attempt   1 for the first delivery
    age_s     seconds since the submission, by the broker's clock, which may differ from the worker's
    """

    job_id: str
    body: bytes
    waited_s: float
    attempt: int = 1
    age_s: float = 0.0


@dataclass(frozen=True, slots=True)
class JobEvent:
    """An event of a job. A reader who comes back names the id of the last one that he saw."""

    id: str
    data: bytes


@dataclass(frozen=True, slots=True)
class JobStatus:
    """Where a job is, and what it was submitted with. `submitted` is Unix time in s; `attempt` is 0 until it is taken.

    ahead  how many jobs of its queue go before it, while it waits
    """

    state: Literal["waiting", "running", "done", "cancelled"]
    owner: str
    queue: str
    submitted: float
    attempt: int
    ahead: int = 0
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Backlog:
    """What waits in a queue: jobs by priority, and the weight of all. Those that wait for another job do not count."""

    interactive: int
    batch: int
    weight: int


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """A worker's last status report. `reason` is empty while the worker takes jobs."""

    worker: str
    reason: str


class Broker(Protocol):
    """Queues of jobs. A job is submitted once, delivered to one worker, and finished with one result.

    A caller that submits or joins a job has a share in it until it leaves. A job without shares is cancelled. The
    result of a job with a share is not dropped for lack of space.

    A finished job is dropped when its time is over. For lack of space, the jobs that ended first are dropped first,
    but never the last one to end.

    Bodies, events and results are bytes that the broker never reads.

    A broker whose server cannot be reached waits for a while and then raises StorageDown. The methods for workers
    wait without a limit instead.
    """

    @property
    def outlives(self) -> bool:
        """Whether jobs are still there when this process is gone."""

    async def submit(self, queue: str, key: str, body: bytes, terms: SubmitOptions = DEFAULT_SUBMIT) -> str:
        """The id of the job, and a share in it. A job of the same key that is not finished is joined, not run twice.

        Raises QueueFull if a limit of the queue or of a concurrency group is reached, and DeadlineUnreachable if the
        jobs ahead would take longer than `SHARE` of `deadline_in_s` at the current `throughput`. Both carry a time to
        retry. Raises KeyReused if the key belongs to a job of another digest.
        """

    async def join(self, job_id: str) -> None:
        """One share more in a job, finished or not. Raises JobUnknown."""

    async def state(self, job_id: str) -> JobStatus:
        """Where the job is. Raises JobUnknown."""

    def events(self, job_id: str, after: str = "") -> AsyncIterator[JobEvent]:
        """The job's stored events after that id, until the job is over. Raises JobUnknown.

        An `after` that is no id of the job's events counts as empty, so all events follow.
        """

    async def result(self, job_id: str) -> bytes:
        """Waits for the result. Raises JobCancelled where the job was called off, JobUnknown."""

    async def cancel(self, job_id: str) -> None:
        """Cancel a job for all callers that joined it. Idempotent.

        A waiting job never runs. The worker of a running job is notified.
        """

    async def leave(self, job_id: str) -> None:
        """Give one share up; the last one to leave a job that is not finished calls it off."""

    async def take(self, queue: str, slots: int = 1) -> Delivery:
        """Worker: waits for the next job: interactive before batch, oldest first.

        A job whose worker died is taken again by another, up to `job_attempts_max` times; then it is finished with the
        failure WorkerLost. Where others wait, a job that has waited so long that by what runs take of late it cannot
        be done in `deadline_in_s` is not run, but finished with the failure DeadlineExceeded. Between two processes
        nothing that a worker says of a job counts once another has taken it.

        slots  how many jobs of the queue this worker runs at once, the same at every call: it claims no more
        """

    async def give_back(self, job_id: str) -> None:
        """Worker: return a running job to the front of its queue. The attempt does not count."""

    async def publish(self, job_id: str, event: bytes, passing: bool = False) -> None:
        """Worker: add an event to a job. Ignored once the job is finished, or has as many as may be.

        Of events that are only passing the last few are kept: a reader who lags misses those before.
        """

    async def finish(self, job_id: str, result: bytes, remember: bool = True) -> None:
        """Worker: give the result. Ignored once the job is finished.

        remember  whether the job's key leads to this result, if its terms say so; without, the next of the key runs
        """

    async def cancelled(self, job_id: str) -> None:
        """Worker: returns once the job is called off."""

    async def announce(self, queue: str, presence: WorkerStatus) -> None:
        """Worker: say that it is alive, good for `PRESENCE_TTL_S` seconds."""

    async def workers(self, queue: str) -> tuple[WorkerStatus, ...]:
        """The workers of a queue that are alive."""

    async def backlog(self, queue: str) -> Backlog:
        """What waits in a queue now."""

    async def close(self) -> None:
        """Give up connections; the broker is not used after."""


PRESENCE_TTL_S = 10.0
