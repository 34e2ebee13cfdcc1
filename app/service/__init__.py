"""The use cases: compile, check, generate, decode, and read a job.

`ServedModels` selects the `Service` of a model, which resolves a constraint, submits jobs through `JobClient`, the
queue's client, and waits for their results or events. Compiled constraints and cached failures are kept in the store
under the hash of their canonical form.
"""

from __future__ import annotations

from app.service.job_client import JobClient, SubmissionContext
from app.service.policies import PolicyParams
from app.service.served_models import ServedModels
from app.service.service import EventSubscription, Service, SubmittedJob

__all__ = [
    "EventSubscription", "JobClient", "PolicyParams", "ServedModels", "Service", "SubmissionContext", "SubmittedJob",
]  # fmt: skip
