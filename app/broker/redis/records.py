"""Calls the broker's scripts, and converts their replies to our types."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from coredis.commands.script import Script

from app.broker.base import Backlog, Delivery, Event, JobState, SubmitOptions, WorkerStatus
from app.broker.redis import scripts
from app.broker.redis.streaq_worker import Claimed
from app.broker.throughput import come_again_s
from app.errors import DeadlineUnreachable, JobUnknown, KeyReused, QueueFull, SettingsInvalid
from app.redis.connection import Connection

EVENTS_MAX = 1_024  # that last, of a job
PASSING_BYTES_MAX = 2**20  # that pass, of a job; one is kept whatever its size
EVENTS_AT_ONCE = 64  # that are read in one reply


@dataclass(frozen=True, slots=True)
class JobSnapshot:
    """How a job stands. `result` is bytes once the state is done."""

    state: str
    called_off: bool
    result: bytes


@dataclass(frozen=True, slots=True)
class Records:
    """The jobs on the server.

    process           names us to those who tell the news
    lost, late, forged
                      the results of a job whose workers all died, of one whose turn came too late, and of one that was
                      not submitted by us
    wait_s            for how long calls that are no worker's wait for the server
    lease_s           for how long a worker may be silent
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
        word, said, *in_ms = await self._ask(
            "submit", scripts.SUBMIT, job_id, secrets.token_hex(8), queue, hashlib.sha256(key.encode()).hexdigest(),
            body, terms.owner, terms.digest, terms.kind, terms.priority, terms.weight, terms.after or "",
            int(terms.detached), _ms(terms.remember_s), ticket, *caps.values(), self.result_bytes_max,
            -1 if terms.within_s is None else _ms(terms.within_s), *pools,
        )
        match word:
            case b"full":
                caps |= {pool.limit: pool.cap for pool in terms.pools}
                raise _refusal(said.decode(), caps, terms, *(int(ms) / 1000 for ms in in_ms))
            case b"reused":
                raise KeyReused("this key came with another request before")
            case _:
                return cast(str, said.decode())

    async def share(self, job_id: str, change: int) -> bool:
        """One share more, or less. False where the job is unknown."""
        token = secrets.token_hex(8)
        return bool(await self._ask("share", scripts.SHARE, job_id, token, change, *self._limits))

    async def cancel(self, job_id: str) -> None:
        await self._ask("cancel", scripts.CANCEL, job_id, *self._limits)

    async def state(self, job_id: str) -> JobState:
        said = _known(await self._ask("state", scripts.STATE, job_id))
        state, owner, queue, submitted, attempt, ahead, kind = (field.decode() for field in said)
        return JobState(state, owner, queue, int(submitted) / 1000, int(attempt), int(ahead), kind)

    async def look(self, job_id: str, worker: bool = False) -> JobSnapshot | None:
        """The state of a job, None if unknown. Subscribes this process to the job's changes."""
        said = await self._ask("look", scripts.LOOK, job_id, self.process, patient=worker)
        return None if said is None else JobSnapshot(said[0].decode(), bool(said[1]), said[2])

    async def read(self, job_id: str, after: str) -> tuple[bool, list[Event]]:
        """Whether the job is over, and its next events. Subscribes this process to the job's changes."""
        over, said = _known(await self._ask("read", scripts.READ, job_id, self.process, after, EVENTS_AT_ONCE))
        return bool(over), [Event(number.decode(), data) for number, data in said]

    async def peek(self, job_ids: Sequence[str]) -> list[bytes]:
        """Of each job something that is another whenever there is news of it."""
        return list(await self._ask("peek", scripts.PEEK, *job_ids, once=True))

    async def take(self, job_id: str, token: str) -> tuple[Delivery, str] | None:
        """The job, and the fence of this try. None where there is nothing to run."""
        said = await self._ask(
            "take", scripts.TAKE, job_id, token, self.process, self.tries_max, self.lost, self.late,
            *self._limits, patient=True,
        )
        if said is None:
            return None
        body, waited_ms, attempt, fence, age_ms = said
        delivery = Delivery(job_id, body, int(waited_ms) / 1000, int(attempt), int(age_ms) / 1000)
        return delivery, fence.decode()

    async def give_back(self, job_id: str, fence: str) -> None:
        await self._ask("give_back", scripts.GIVE_BACK, job_id, fence, *self._limits, patient=True)

    async def publish(self, job_id: str, fence: str, number: int, event: bytes, passing: bool) -> bool:
        """False where another worker has the job."""
        said = await self._ask(
            "publish", scripts.PUBLISH, job_id, fence, number, int(passing), event, EVENTS_MAX, PASSING_BYTES_MAX,
            patient=True,
        )
        return bool(said >= 0)

    async def finish(self, job_id: str, fence: str, result: bytes, remember: bool, ran_s: float) -> None:
        await self._ask(
            "finish", scripts.FINISH, job_id, fence, result, int(remember), _ms(ran_s), *self._limits, patient=True
        )

    async def refuse(self, job_id: str, queue: str, priority: str, message: str) -> None:
        await self._ask(
            "refuse", scripts.REFUSE, job_id, queue, priority, message, self.forged, *self._limits, patient=True
        )

    async def claim(
        self, queue: str, consumer: str, count: int, idle_ms: int, expected_ms: int | None
    ) -> tuple[int, Claimed]:
        """What the server's clock says, and the messages that this consumer has from now on; see `ConsumerCallbacks`.

        expected_ms  what it should say, if that is known. Where it is later by half a lease, which would end leases
                     though they are renewed three times in each, it was put on: it goes on here as if it were not
        """
        expected, step_ms = "" if expected_ms is None else expected_ms, _ms(self.lease_s / 2)
        now_ms, said = await self._ask(
            "claim", scripts.CLAIM, queue, consumer, count, idle_ms, expected, step_ms, once=True
        )
        return int(now_ms), {
            stream.decode(): [(message.decode(), job_id.decode(), ms.decode()) for message, job_id, ms in messages]
            for stream, messages in said
        }

    async def ticket(self, queue: str, stream: str, consumer: str, message: str, job_id: str) -> bytes | None:
        """See `ConsumerCallbacks`."""
        said = await self._ask("ticket", scripts.TICKET, queue, stream, consumer, message, job_id, once=True)
        return cast("bytes | None", said)

    async def renew(self, stream: str, consumer: str, messages: list[str]) -> set[str]:
        """Those of the messages that others have now."""
        said = await self._ask("renew", scripts.RENEW, stream, consumer, *messages, once=True)
        return {message.decode() for message in said}

    async def sweep(self, queue: str) -> int:
        return int(await self._ask("sweep", scripts.SWEEP, queue, self.result_bytes_max, patient=True))

    async def announce(self, queue: str, presence: WorkerStatus, ttl_s: float) -> None:
        fingerprint = hmac.digest(self.secret, b"abs secret", "sha256").hex()
        same = await self._ask(
            "announce", scripts.ANNOUNCE, queue, presence.worker, presence.reason, _ms(ttl_s), fingerprint,
            patient=True,
        )
        if not same:
            raise SettingsInvalid("ABS_SECRET is not the one of the other workers on this server: set the same for all")

    async def workers(self, queue: str) -> tuple[WorkerStatus, ...]:
        said = await self._ask("workers", scripts.WORKERS, queue)
        return tuple(WorkerStatus(worker.decode(), reason.decode()) for worker, reason in said)

    async def backlog(self, queue: str) -> Backlog:
        return Backlog(*map(int, await self._ask("backlog", scripts.BACKLOG, queue)))

    @property
    def _limits(self) -> tuple[int, int]:
        return _ms(self.result_ttl_s), self.result_bytes_max

    async def _ask(
        self, op: str, script: Script[bytes], *arguments: str | bytes | int, patient: bool = False, once: bool = False
    ) -> Any:
        """Run a script. Who is patient waits for the server for ever; `once` says that it is away at the first try."""
        wait_s = None if patient else 0.0 if once else self.wait_s
        return await self.link.run(op, script, (), arguments, wait_s, keep_full=patient)


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def _refusal(
    limit: str, caps: dict[str, int], terms: SubmitOptions, room_s: float, whole_s: float
) -> QueueFull | DeadlineUnreachable:
    """The error for a job that is not admitted. A negative `room_s` means that the wait is unknown."""
    retry_after_s = come_again_s(room_s if room_s >= 0 else None, whole_s)
    if limit == "slow":
        return DeadlineUnreachable(whole_s, terms.within_s or 0.0, retry_after_s)
    return QueueFull(caps[limit], limit, retry_after_s)


def _known(said: Any) -> Any:
    if said is None:
        raise JobUnknown("no such job, or its result is too old")
    return said
