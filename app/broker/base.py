"""The protocol of brokers. Every implementation passes the contract in tests/app/broker/test_contract.py."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Literal, Protocol

from app.messages import Priority as Priority

EVENTS_MAX = 1_024  # durable events per job
DROPPABLE_BYTES_MAX = 2**20  # of droppable events per job; the latest one is kept whatever its size
JOB_BYTES = 4_096  # estimated size of a finished job without its result and events


@dataclass(frozen=True, slots=True)
class ConcurrencyGroup:
    """Jobs that are limited together: at most `cap` of them are unfinished. `limit` names that limit in errors."""

    name: str
    cap: int
    limit: str


@dataclass(frozen=True, slots=True)
class SubmitOptions:
    """The options of a submitted job.

    owner       the caller that may see the job; the broker only stores it
    kind        the job's name for its owner, empty for a job without one; the broker only stores it
    digest      digest of the request; a job of the same key and another digest is not shared
    priority    all waiting interactive jobs of a queue are delivered before its batch jobs
    weight      what the job counts against `queue_weight_max` while it waits
    after       a job that must end first, with any outcome; until then this job waits outside its queue
    detached    the job runs without subscribers; submitting it does not subscribe
    key_ttl_s   seconds after the job's end during which its key leads to it, if its result is cacheable
    pools       the job is admitted if each of these has room; subscribing to a job needs no room
    deadline_in_s
                seconds until the job must be done, None for no limit. A job that would be late is not admitted. A job
                with a kind is also not run if its turn comes too late
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


DEFAULT_SUBMIT = SubmitOptions()  # frozen, so one instance can be the default argument of all brokers


@dataclass(frozen=True, slots=True)
class Delivery:
    """A job delivered to a worker.

    waited_s  time in the queue, until this process has the job
    attempt   1 for the first delivery
    age_s     seconds since the submission, by the broker's clock, which may differ from the worker's
    """

    job_id: str
    body: bytes  # opaque to the broker, which parses no message
    waited_s: float
    attempt: int = 1
    age_s: float = 0.0


@dataclass(frozen=True, slots=True)
class JobEvent:
    """An event of a job. A subscriber resumes after the id of the last event that it received."""

    id: str
    data: bytes


@dataclass(frozen=True, slots=True)
class JobStatus:
    """The state of a job, and its options that callers may see.

    submitted  Unix time in s
    attempt    0 until a worker takes the job
    ahead      number of jobs in its queue that are delivered before it, 0 if it does not wait
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
    """The jobs that wait in a queue, by priority, and their weight. Jobs that wait for another job do not count."""

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

    A caller that submits a job, or a second job of the same key, is subscribed to it until it unsubscribes. A job
    without subscribers is cancelled. The result of a job with subscribers is not dropped for lack of space.

    A finished job is dropped when its time is over. For lack of space, the jobs that ended first are dropped first,
    but never the last one to end.

    Bodies, events and results are bytes that the broker never reads.

    A broker whose server cannot be reached waits for a while and then raises StorageDown. The methods for workers
    wait without a limit instead.
    """

    @property
    def durable(self) -> bool:
        """Whether jobs survive the end of this process."""

    async def submit(self, queue: str, key: str, body: bytes, options: SubmitOptions = DEFAULT_SUBMIT) -> str:
        """Submit a job, subscribe to it and return its id.

        If an unfinished job has the same key, the caller is subscribed to that job and nothing new runs.

        Raises QueueFull if a limit of the queue or of a concurrency group is reached, and DeadlineUnreachable if the
        jobs ahead would take longer than `DEADLINE_SHARE` of `deadline_in_s` at the current throughput. Both carry a
        time to retry. Raises KeyReused if the key belongs to a job of another digest.
        """

    async def subscribe(self, job_id: str) -> None:
        """Add a subscriber to a job, finished or not. Raises JobUnknown."""

    async def state(self, job_id: str) -> JobStatus:
        """The job's state. Raises JobUnknown."""

    def events(self, job_id: str, after: str = "") -> AsyncIterator[JobEvent]:
        """The job's stored events after that id, until the job is over. Raises JobUnknown.

        An `after` that is no id of the job's events counts as empty, so all events follow.
        """

    async def result(self, job_id: str) -> bytes:
        """Wait for the result. Raises JobCancelled if the job was cancelled, JobUnknown."""

    async def cancel(self, job_id: str) -> None:
        """Cancel a job for all its subscribers. Idempotent.

        A waiting job never runs. The worker of a running job is notified.
        """

    async def unsubscribe(self, job_id: str) -> None:
        """Remove a subscriber. An unfinished job without subscribers is cancelled, unless it is detached."""

    async def take(self, queue: str) -> Delivery:
        """Worker: wait for the next job, interactive before batch, oldest first.

        A job whose worker died is delivered again, up to `job_attempts_max` times; then it is finished with the failure
        WorkerLost. If others wait, a job that cannot finish within `deadline_in_s`, judged by recent run times, is not
        run but finished with the failure DeadlineExceeded. Writes of a worker are ignored once another worker has taken
        the job.
        """

    async def requeue(self, job_id: str) -> None:
        """Worker: return a running job to the front of its queue. The attempt does not count."""

    async def publish(self, job_id: str, event: bytes, droppable: bool = False) -> None:
        """Worker: add an event to a job. Ignored if the job is finished or has too many durable events.

        droppable  only the latest droppable events are kept, so a slow subscriber misses earlier ones
        """

    async def finish(self, job_id: str, result: bytes, cacheable: bool = True) -> None:
        """Worker: set the result. Ignored if the job is finished.

        cacheable  whether the job's key leads to this result for `key_ttl_s`; otherwise the next job of the key runs
        """

    async def cancelled(self, job_id: str) -> None:
        """Worker: return once the job is cancelled."""

    async def heartbeat(self, queue: str, status: WorkerStatus) -> None:
        """Worker: report that it is alive. The report expires after `HEARTBEAT_TTL_S` seconds."""

    async def workers(self, queue: str) -> tuple[WorkerStatus, ...]:
        """The workers of a queue whose last heartbeat has not expired."""

    async def backlog(self, queue: str) -> Backlog:
        """The jobs that wait in a queue now."""

    async def close(self) -> None:
        """Close the connections. The broker must not be used afterwards."""


# Three heartbeats fit, so one lost heartbeat does not make a worker disappear (app.worker.loop).
HEARTBEAT_TTL_S = 10.0
