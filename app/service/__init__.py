"""The use cases: compile, check, generate, decode, and what became of a job.

`Service` resolves a constraint, submits jobs through `JobClient`, the queue's client, and waits for their results or
events. Compiled constraints and cached failures are kept in the store under the hash of their canonical form.
"""

from __future__ import annotations

from app.service.job_client import Asking
from app.service.service import Begun, Reader, Service

__all__ = [
    "Asking",
    "Begun",
    "Reader",
    "Service",
]
