"""The queue of jobs, in memory or on Redis.

A broker admits jobs, orders them by priority and age, delivers each to one worker at a time under a lease, keeps
its events and its one result. The throughput estimate refuses jobs that cannot meet their deadline. Both brokers obey
`base` and pass the same tests.
"""

from __future__ import annotations

from app.broker.base import (
    DEFAULT_SUBMIT,
    HEARTBEAT_TTL_S,
    Broker,
    ConcurrencyGroup,
    Delivery,
    JobEvent,
    JobStatus,
    SubmitOptions,
    WorkerStatus,
)

__all__ = [
    "DEFAULT_SUBMIT", "HEARTBEAT_TTL_S", "Broker", "ConcurrencyGroup", "Delivery", "JobEvent", "JobStatus",
    "SubmitOptions", "WorkerStatus",
]  # fmt: skip
