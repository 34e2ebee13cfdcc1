"""Calls the broker's Lua scripts, and converts their replies to our types. Each script is atomic."""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from app.broker import throughput as pace
from app.broker.base import Backlog, JobEvent, JobStatus, SubmitOptions, WorkerStatus
from app.broker.redis.signatures import Signatures
from app.errors import DeadlineUnreachable, JobUnknown, KeyReused, QueueFull, SettingsInvalid
from app.messages import KEY_PREFIX
from app.redis.connection import Connection, Script

EVENTS_MAX = 1_024  # durable events per job
DROPPABLE_BYTES_MAX = 2**20  # of droppable events per job; the latest one is kept whatever its size
EVENTS_PER_READ = 64
QUEUES_KNOWN_MAX = 10_000
NEVER_MS = 2**40  # longer than any lease
SERVICE_KEYS = [
    KEY_PREFIX + name for name in ("jobs", "bodies", "results", "keys", "finished", "evictable", "counters", "garbage")
]
_FOLDER = Path(__file__).parent / "lua"
_PACE = {
    "PACE_MEMORY_MS": pace.MEMORY_S * 1000, "PACE_IDLE_MEMORY_MS": pace.IDLE_MEMORY_S * 1000,
    "PACE_KNOWN_MS": pace.WAITING_S_MIN * 1000, "PACE_SHARE": pace.DEADLINE_SHARE,
    "PACE_LATEST": pace.LATEST_RUN_WEIGHT, "PACE_RUN_SHARE": pace.RUN_TIME_SHARE,
}
_COMMON = "".join(f"local {name} = {value}\n" for name, value in _PACE.items()) + (_FOLDER / "common.lua").read_text(
    encoding="utf-8"
)


def _read(path: Path) -> Script:
    # Scripts that free memory must also run on a full server.
    flags = "" if path.stem == "submit" else " flags=allow-oom"
    return Script(f"#!lua{flags}\n{_COMMON}{path.read_text(encoding='utf-8')}")


SCRIPTS = {path.stem: _read(path) for path in _FOLDER.glob("*.lua") if path.stem != "common"}


@dataclass(frozen=True, slots=True)
class JobSnapshot:
    """The state of a job. `result` is set once the state is done."""

    state: str
    cancel_requested: bool
    result: bytes


@dataclass(frozen=True, slots=True)
class ClaimedJob:
    """A job that this process has leased.

    message  its message in the stream of leases
    fence    the number of the lease; writes with an older one are ignored
    verdict  empty, or why the job is not to be run: `lost` after too many attempts or a cancellation, `late`
    body     signed
    """

    job_id: str
    message: str
    fence: str
    attempt: int
    waited_s: float
    age_s: float
    verdict: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Records:
    """The jobs on the server.

    process  the id of this process, which notifications are sent to
    wait_s   how long calls wait for the server, except those of workers
    lease_s  how long a worker may be silent
    """

    link: Connection
    process: str
    secret: bytes
    signatures: Signatures
    queue_jobs_max: int
    queue_weight_max: int
    result_ttl_s: float
    result_bytes_max: int
    wait_s: float
    lease_s: float
    attempts_max: int
    _queues: OrderedDict[str, str] = field(default_factory=OrderedDict)  # of jobs, which never change it

    async def submit(self, job_id: str, queue: str, key: str, body: bytes, terms: SubmitOptions) -> str:
        caps = {"queue_jobs_max": self.queue_jobs_max, "queue_weight_max": self.queue_weight_max}
        options = {
            "queue": queue, "key": hashlib.sha256(key.encode()).hexdigest(), "owner": terms.owner,
            "digest": terms.digest, "kind": terms.kind, "priority": terms.priority, "weight": terms.weight,
            "after": terms.after or "", "detached": terms.detached, "key_ttl": _ms(terms.key_ttl_s),
            "within": -1 if terms.deadline_in_s is None else _ms(terms.deadline_in_s), "jobs_max": self.queue_jobs_max,
            "weight_max": self.queue_weight_max, "bytes_max": self.result_bytes_max,
            "pools": [{"cap": pool.cap, "limit": pool.limit} for pool in terms.pools],
        }
        signed = self.signatures.sign_body(queue, job_id, body, terms.owner, terms.deadline_in_s)
        keys = [_seen_key(), *(f"{KEY_PREFIX}pool:{pool.name}" for pool in terms.pools)]
        outcome, reply, *in_ms = await self._call("submit", queue, job_id, signed, json.dumps(options), keys=keys)
        match outcome:
            case b"full":
                caps |= {pool.limit: pool.cap for pool in terms.pools}
                raise _admission_error(reply.decode(), caps, terms, *(int(ms) / 1000 for ms in in_ms))
            case b"reused":
                raise KeyReused("an earlier request used this key")
            case _:
                self._remember_queue(reply.decode(), queue)
                return cast(str, reply.decode())

    async def add_subscribers(self, job_id: str, change: int) -> bool:
        """Adds `change` to the subscribers of a job. False if the job is unknown."""
        queue = await self._queue_of(job_id)
        arguments = (job_id, change, *self._limits)
        return bool(await self._call("change_subscribers", queue, *arguments, keys=[_seen_key()]))

    async def cancel(self, job_id: str) -> None:
        await self._call("cancel", await self._queue_of(job_id), job_id, *self._limits)

    async def state(self, job_id: str) -> JobStatus:
        reply = _require_known(await self._call("state", await self._queue_of(job_id), job_id))
        state, owner, queue, submitted, attempt, ahead, kind = (item.decode() for item in reply)
        return JobStatus(state, owner, queue, int(submitted) / 1000, int(attempt), int(ahead), kind)

    async def look(self, job_id: str, worker: bool = False) -> JobSnapshot | None:
        """The state of a job, None if unknown. Subscribes this process to the job's changes."""
        reply = await self._call("look", "", job_id, self.process, patient=worker)
        if reply is None:
            return None
        state, cancel, fence, result = reply
        if state == b"done":
            result = self.signatures.open_result(job_id, fence.decode(), result)
        return JobSnapshot(state.decode(), bool(cancel), result)

    async def read(self, job_id: str, after: str) -> tuple[bool, list[JobEvent]]:
        """Whether the job is over, and its next events. Subscribes this process to the job's changes."""
        arguments = (job_id, self.process, after, EVENTS_PER_READ)
        over, events = _require_known(await self._call("read", "", *arguments, keys=_event_keys(job_id)))
        open_event = self.signatures.open_event
        named = ((event_id.decode(), data) for event_id, data in events)
        return bool(over), [JobEvent(event_id, open_event(job_id, event_id, data)) for event_id, data in named]

    async def peek(self, job_ids: Sequence[str]) -> list[bytes]:
        """A value for each job that differs after every change to it."""
        return list(await self._call("peek", "", *job_ids, once=True))

    async def requeue(self, job_id: str, fence: str) -> None:
        await self._call("requeue", await self._queue_of(job_id), job_id, fence, *self._limits, patient=True)

    async def publish(self, job_id: str, fence: str, number: int, event: bytes, droppable: bool) -> bool:
        """False if another worker has the job."""
        signed = self.signatures.sign_event(job_id, f"{fence}-{number}", event)
        reply = await self._call(
            "publish", "", job_id, fence, number, int(droppable), signed, EVENTS_MAX, DROPPABLE_BYTES_MAX,
            keys=_event_keys(job_id), patient=True,
        )
        return bool(reply >= 0)

    async def finish(self, job_id: str, fence: str, result: bytes, cacheable: bool, ran_s: float | None) -> None:
        """Stores the result. `ran_s` is None for a job that did not run."""
        signed = self.signatures.sign_result(job_id, fence, result)
        ran_ms = -1 if ran_s is None else _ms(ran_s)
        queue = await self._queue_of(job_id)
        await self._call("finish", queue, job_id, fence, signed, int(cacheable), ran_ms, *self._limits, patient=True)

    async def claim(
        self, queue: str, consumer: str, count: int, ended_leases: bool, expected_ms: int | None,
        messages: Sequence[str],
    ) -> tuple[int, list[ClaimedJob]]:
        """The server's time, and up to `count` jobs that this consumer leases.

        ended_leases  whether to take jobs over whose worker has been silent for a lease
        expected_ms   the expected time, if known. A server that is ahead by more than half a lease had its clock
                      changed, because leases are renewed three times each; the difference is then ignored
        messages      those of the jobs that this consumer runs
        """
        lease_ms = _ms(self.lease_s) if ended_leases else NEVER_MS
        expected = "" if expected_ms is None else expected_ms
        now_ms, claimed = await self._call(
            "claim", queue, consumer, self.process, count, lease_ms, self.attempts_max, expected,
            _ms(self.lease_s / 2), *messages, once=True,
        )
        jobs = []
        for *fields, body in claimed:
            job_id, message, fence, attempt, waited_ms, age_ms, verdict = (item.decode() for item in fields)
            self._remember_queue(job_id, queue)
            jobs.append(ClaimedJob(
                job_id, message, fence, int(attempt), int(waited_ms) / 1000, int(age_ms) / 1000, verdict, body
            ))
        return int(now_ms), jobs

    async def renew(self, queue: str, consumer: str, messages: Sequence[str]) -> set[str]:
        """The messages that other workers have taken over."""
        reply = await self._call("renew", queue, consumer, *messages, once=True)
        return {message.decode() for message in reply}

    async def sweep(self, queue: str) -> None:
        """Deletes what is no longer needed."""
        await self._call("sweep", queue, self.result_bytes_max, patient=True)
        job_ids: list[str] = []
        while True:
            keys = [key for job_id in job_ids for key in _event_keys(job_id)]
            garbage = await self._call("collect", "", *job_ids, keys=keys, patient=True)
            if not garbage:
                return
            job_ids = [job_id.decode() for job_id in garbage]

    async def heartbeat(self, queue: str, presence: WorkerStatus, ttl_s: float) -> None:
        fingerprint = hmac.digest(self.secret, b"abs secret", "sha256").hex()
        same = await self._call(
            "heartbeat", "", presence.worker, presence.reason, _ms(ttl_s), fingerprint,
            keys=[*_worker_keys(queue), f"{KEY_PREFIX}secret"], patient=True,
        )
        if not same:
            raise SettingsInvalid("ABS_SECRET differs from the other workers on this server: set the same for all")

    async def workers(self, queue: str) -> tuple[WorkerStatus, ...]:
        reply = await self._call("workers", "", keys=_worker_keys(queue))
        return tuple(WorkerStatus(worker.decode(), reason.decode()) for worker, reason in reply)

    async def backlog(self, queue: str) -> Backlog:
        return Backlog(*map(int, await self._call("backlog", queue)))

    @property
    def _limits(self) -> tuple[int, int]:
        return _ms(self.result_ttl_s), self.result_bytes_max

    async def _queue_of(self, job_id: str) -> str:
        """The queue of a job, whose keys its scripts need. Empty if the job is unknown."""
        queue = self._queues.get(job_id)
        if queue is None:
            reply = await self._call("locate", "", job_id)
            if reply is None:
                return ""
            queue = reply.decode()
            self._remember_queue(job_id, queue)
        return queue

    def _remember_queue(self, job_id: str, queue: str) -> None:
        self._queues[job_id] = queue
        if len(self._queues) > QUEUES_KNOWN_MAX:
            self._queues.popitem(last=False)

    async def _call(
        self, script: str, queue: str, *arguments: str | bytes | int, keys: Sequence[str] = (), patient: bool = False,
        once: bool = False,
    ) -> Any:
        """Runs a script with the keys of service and queue, and these.

        patient  waits for the server without limit, as a worker does, which has no caller that could retry
        once     makes one attempt
        """
        wait_s = None if patient else 0.0 if once else self.wait_s
        queue_keys = [f"{KEY_PREFIX}queue:{queue}{part}" for part in ("", ":waiting", ":outside", ":leases")]
        all_keys = [*SERVICE_KEYS, *queue_keys, *keys]
        return await self.link.run(script, SCRIPTS[script], all_keys, arguments, wait_s, keep_full=patient)


def _seen_key() -> str:
    """A key that is set once, so a repeated call counts once."""
    return f"{KEY_PREFIX}seen:{secrets.token_hex(8)}"


def _event_keys(job_id: str) -> list[str]:
    return [f"{KEY_PREFIX}events:{job_id}", f"{KEY_PREFIX}events:{job_id}:droppable"]


def _worker_keys(queue: str) -> list[str]:
    return [f"{KEY_PREFIX}workers:{queue}", f"{KEY_PREFIX}workers:{queue}:reasons"]


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def _admission_error(
    limit: str, caps: dict[str, int], terms: SubmitOptions, retry_s: float, total_s: float
) -> QueueFull | DeadlineUnreachable:
    """The error for a job that is not admitted. A negative `retry_s` means that the wait is unknown."""
    retry_after_s = pace.retry_delay_s(retry_s if retry_s >= 0 else None, total_s)
    if limit == "slow":
        return DeadlineUnreachable(total_s, terms.deadline_in_s or 0.0, retry_after_s)
    return QueueFull(caps[limit], limit, retry_after_s)


def _require_known(reply: Any) -> Any:
    if reply is None:
        raise JobUnknown("no such job, or its result is too old")
    return reply
