"""Calls the broker's scripts, and converts their replies to our types."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from coredis.commands.script import Script

from app.broker.base import Backlog, Delivery, JobEvent, JobStatus, SubmitOptions, WorkerStatus
from app.broker.redis import scripts
from app.broker.redis.streaq_worker import Claimed
from app.broker.throughput import retry_delay_s
from app.errors import DeadlineUnreachable, JobUnknown, KeyReused, QueueFull, SettingsInvalid
from app.redis.connection import Connection

EVENTS_MAX = 1_024  # durable events per job
DROPPABLE_BYTES_MAX = 2**20  # of droppable events per job; the latest one is kept whatever its size
EVENTS_PER_READ = 64


@dataclass(frozen=True, slots=True)
class JobSnapshot:
    """The state of a job. `result` is set once the state is done."""

    state: str
    cancel_requested: bool
    result: bytes


@dataclass(frozen=True, slots=True)
class Records:
    """The jobs on the server.

    process           the id of this process, which notifications are sent to
    lost, late, forged
                      results of a job whose workers all died, that missed its deadline in the queue, or that this
                      service did not submit
    wait_s            how long calls wait for the server, except those of workers
    lease_s           how long a worker may be silent
    """

    url: str
    link: Connection
    process: str
    secret: bytes
    queue_jobs_max: int
    queue_weight_max: int
    result_ttl_s: float
    result_bytes_max: int
    wait_s: float
    lease_s: float
    tries_max: int
    lost: bytes
    late: bytes
    forged: bytes

    async def submit(self, job_id: str, queue: str, key: str, body: bytes, terms: SubmitOptions, ticket: bytes) -> str:
        caps = {"queue_jobs_max": self.queue_jobs_max, "queue_weight_max": self.queue_weight_max}
        pools = [part for pool in terms.pools for part in (pool.name, pool.cap, pool.limit)]
        outcome, reply, *in_ms = await self._call(
            "submit", scripts.SUBMIT, job_id, secrets.token_hex(8), queue, hashlib.sha256(key.encode()).hexdigest(),
            body, terms.owner, terms.digest, terms.kind, terms.priority, terms.weight, terms.after or "",
            int(terms.detached), _ms(terms.key_ttl_s), ticket, *caps.values(), self.result_bytes_max,
            -1 if terms.deadline_in_s is None else _ms(terms.deadline_in_s), *pools,
        )
        match outcome:
            case b"full":
                caps |= {pool.limit: pool.cap for pool in terms.pools}
                raise _admission_error(reply.decode(), caps, terms, *(int(ms) / 1000 for ms in in_ms))
            case b"reused":
                raise KeyReused("an earlier request used this key")
            case _:
                return cast(str, reply.decode())

    async def add_subscribers(self, job_id: str, change: int) -> bool:
        """Adds `change` to the subscribers of a job. False if the job is unknown."""
        token = secrets.token_hex(8)  # so that a repeated call after a broken connection counts once
        return bool(await self._call("share", scripts.SHARE, job_id, token, change, *self._limits))

    async def cancel(self, job_id: str) -> None:
        await self._call("cancel", scripts.CANCEL, job_id, *self._limits)

    async def state(self, job_id: str) -> JobStatus:
        reply = _require_known(await self._call("state", scripts.STATE, job_id))
        state, owner, queue, submitted, attempt, ahead, kind = (field.decode() for field in reply)
        return JobStatus(state, owner, queue, int(submitted) / 1000, int(attempt), int(ahead), kind)

    async def look(self, job_id: str, worker: bool = False) -> JobSnapshot | None:
        """The state of a job, None if unknown. Subscribes this process to the job's changes."""
        reply = await self._call("look", scripts.LOOK, job_id, self.process, patient=worker)
        return None if reply is None else JobSnapshot(reply[0].decode(), bool(reply[1]), reply[2])

    async def read(self, job_id: str, after: str) -> tuple[bool, list[JobEvent]]:
        """Whether the job is over, and its next events. Subscribes this process to the job's changes."""
        reply = await self._call("read", scripts.READ, job_id, self.process, after, EVENTS_PER_READ)
        over, events = _require_known(reply)
        return bool(over), [JobEvent(number.decode(), data) for number, data in events]

    async def peek(self, job_ids: Sequence[str]) -> list[bytes]:
        """A value for each job that differs after every change to it."""
        return list(await self._call("peek", scripts.PEEK, *job_ids, once=True))

    async def take(self, job_id: str, token: str) -> tuple[Delivery, str] | None:
        """The job and the fence of this attempt. None if there is nothing to run."""
        reply = await self._call(
            "take", scripts.TAKE, job_id, token, self.process, self.tries_max, self.lost, self.late,
            *self._limits, patient=True,
        )
        if reply is None:
            return None
        body, waited_ms, attempt, fence, age_ms = reply
        delivery = Delivery(job_id, body, int(waited_ms) / 1000, int(attempt), int(age_ms) / 1000)
        return delivery, fence.decode()

    async def requeue(self, job_id: str, fence: str) -> None:
        await self._call("give_back", scripts.GIVE_BACK, job_id, fence, *self._limits, patient=True)

    async def publish(self, job_id: str, fence: str, number: int, event: bytes, droppable: bool) -> bool:
        """False if another worker has the job."""
        reply = await self._call(
            "publish", scripts.PUBLISH, job_id, fence, number, int(droppable), event, EVENTS_MAX, DROPPABLE_BYTES_MAX,
            patient=True,
        )
        return bool(reply >= 0)

    async def finish(self, job_id: str, fence: str, result: bytes, cacheable: bool, ran_s: float) -> None:
        await self._call(
            "finish", scripts.FINISH, job_id, fence, result, int(cacheable), _ms(ran_s), *self._limits, patient=True
        )

    async def refuse(self, job_id: str, queue: str, priority: str, message: str) -> None:
        await self._call(
            "refuse", scripts.REFUSE, job_id, queue, priority, message, self.forged, *self._limits, patient=True
        )

    async def claim(
        self, queue: str, consumer: str, count: int, idle_ms: int, expected_ms: int | None
    ) -> tuple[int, Claimed]:
        """The server's time, and the messages that this consumer has now; see `ConsumerCallbacks`.

        expected_ms  the expected time, if known. A server that is ahead by more than half a lease had its clock
                     changed, because leases are renewed three times each; the difference is then ignored
        """
        expected, step_ms = "" if expected_ms is None else expected_ms, _ms(self.lease_s / 2)
        now_ms, reply = await self._call(
            "claim", scripts.CLAIM, queue, consumer, count, idle_ms, expected, step_ms, once=True
        )
        return int(now_ms), {
            stream.decode(): [(message.decode(), job_id.decode(), ms.decode()) for message, job_id, ms in messages]
            for stream, messages in reply
        }

    async def ticket(self, queue: str, stream: str, consumer: str, message: str, job_id: str) -> bytes | None:
        """The ticket of a job; see `ConsumerCallbacks`."""
        reply = await self._call("ticket", scripts.TICKET, queue, stream, consumer, message, job_id, once=True)
        return cast("bytes | None", reply)

    async def renew(self, stream: str, consumer: str, messages: list[str]) -> set[str]:
        """The messages that other workers have taken over."""
        reply = await self._call("renew", scripts.RENEW, stream, consumer, *messages, once=True)
        return {message.decode() for message in reply}

    async def sweep(self, queue: str) -> int:
        return int(await self._call("sweep", scripts.SWEEP, queue, self.result_bytes_max, patient=True))

    async def heartbeat(self, queue: str, presence: WorkerStatus, ttl_s: float) -> None:
        fingerprint = hmac.digest(self.secret, b"abs secret", "sha256").hex()
        same = await self._call(
            "announce", scripts.ANNOUNCE, queue, presence.worker, presence.reason, _ms(ttl_s), fingerprint,
            patient=True,
        )
        if not same:
            raise SettingsInvalid("ABS_SECRET differs from the other workers on this server: set the same for all")

    async def workers(self, queue: str) -> tuple[WorkerStatus, ...]:
        reply = await self._call("workers", scripts.WORKERS, queue)
        return tuple(WorkerStatus(worker.decode(), reason.decode()) for worker, reason in reply)

    async def backlog(self, queue: str) -> Backlog:
        return Backlog(*map(int, await self._call("backlog", scripts.BACKLOG, queue)))

    @property
    def _limits(self) -> tuple[int, int]:
        return _ms(self.result_ttl_s), self.result_bytes_max

    async def _call(
        self, op: str, script: Script[bytes], *arguments: str | bytes | int, patient: bool = False, once: bool = False
    ) -> Any:
        """Runs a script. `patient` waits for the server without limit; `once` makes one attempt."""
        # Calls of workers wait without limit, because a worker has no caller that could retry.
        wait_s = None if patient else 0.0 if once else self.wait_s
        return await self.link.run(op, script, (), arguments, wait_s, keep_full=patient)


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def _admission_error(
    limit: str, caps: dict[str, int], terms: SubmitOptions, retry_s: float, total_s: float
) -> QueueFull | DeadlineUnreachable:
    """The error for a job that is not admitted. A negative `retry_s` means that the wait is unknown."""
    retry_after_s = retry_delay_s(retry_s if retry_s >= 0 else None, total_s)
    if limit == "slow":
        return DeadlineUnreachable(total_s, terms.deadline_in_s or 0.0, retry_after_s)
    return QueueFull(caps[limit], limit, retry_after_s)


def _require_known(reply: Any) -> Any:
    if reply is None:
        raise JobUnknown("no such job, or its result is too old")
    return reply
