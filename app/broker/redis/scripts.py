"""Calls the broker's Lua scripts. Each script is atomic."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from app.broker import base, throughput
from app.messages import KEY_PREFIX
from app.redis.connection import Connection
from app.settings import Settings

QUEUES_KNOWN_MAX = 10_000
PUSHED_RESULT_MAX = 32_768  # bytes of a result that is sent along with the notification of a job's end
_NAMES = "jobs bodies results keys pools finished evictable garbage queues counters seen secret"
SERVICE_KEYS = [KEY_PREFIX + name for name in _NAMES.split()]
_TEXTS = {path.stem: path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("lua/*.lua")}


class JobScripts:
    """The scripts of one process. The settings are constants in their texts.

    process  the id of this process, which notifications are sent to
    lease_s  how long a worker may be silent
    """

    def __init__(self, link: Connection, settings: Settings) -> None:
        self.link, self.process, self.lease_s = link, secrets.token_hex(8), settings.queue.job_lease_s
        self._wait_s = settings.storage.redis_wait_s
        self._queues: dict[str, str] = {}  # of jobs, which never change it
        values = vars(base) | vars(throughput)
        constants = {name: value for name, value in values.items() if isinstance(value, int | float)}
        constants |= {
            "RESULT_TTL_MS": to_ms(settings.retention.result_ttl_s),
            "RESULT_BYTES_MAX": settings.retention.result_bytes_max,
            "LEASE_MS": to_ms(self.lease_s), "PUSHED_RESULT_MAX": PUSHED_RESULT_MAX,
            "ATTEMPTS_MAX": settings.queue.job_attempts_max,
        }  # fmt: skip
        head = "".join(f"local {name} = {value}\n" for name, value in constants.items()) + _TEXTS["common"]
        # Scripts that free memory must also run on a full server.
        self._scripts = {
            name: f"#!lua{'' if name == 'submit' else ' flags=allow-oom'}\n{head}{text}"
            for name, text in _TEXTS.items()
        }

    async def call(
        self, script: str, queue: str, *arguments: str | bytes | int, keys: Sequence[str] = (), patient: bool = False,
        once: bool = False,
    ) -> Any:
        """Runs a script with the keys of service and queue, and these.

        patient  waits for the server without limit, as a worker does, which has no caller that could retry
        once     makes one attempt
        """
        wait_s = None if patient else 0.0 if once else self._wait_s
        all_keys = [*SERVICE_KEYS, *queue_keys(queue), *keys]
        return await self.link.run(script, self._scripts[script], all_keys, arguments, wait_s, keep_full=patient)

    async def queue_of(self, job_id: str) -> str:
        """The queue of a job, whose keys its scripts need. Empty if the job is unknown."""
        if job_id not in self._queues:
            job = await self.call("look", "", job_id, "")
            if job is None:
                return ""
            self.remember_queue(job_id, job[1].decode())
        return self._queues[job_id]

    def remember_queue(self, job_id: str, queue: str) -> None:
        """Remembers the queue of a job, which saves a look-up."""
        self._queues[job_id] = queue
        if len(self._queues) > QUEUES_KNOWN_MAX:
            del self._queues[next(iter(self._queues))]


def queue_keys(queue: str) -> list[str]:
    """The keys of a queue."""
    return [f"{KEY_PREFIX}queue:{queue}{part}" for part in ("", ":waiting", ":outside", ":workers", ":leases")]


def event_keys(job_id: str) -> list[str]:
    """The keys of a job's events."""
    return [f"{KEY_PREFIX}events:{job_id}", f"{KEY_PREFIX}events:{job_id}:droppable"]


def to_ms(seconds: float) -> int:
    """A duration in whole ms."""
    return round(seconds * 1000)
