"""Applies policies to conversations, by jobs of the compile workers."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.auth import KeyPolicy
from app.broker import SubmitOptions
from app.errors import InvalidRequest
from app.messages import PolicyEvent, PolicyJob, PolicyJobResult, request_id
from app.requests import require_at_most
from app.service.job_client import JobClient, time_limit
from app.settings import Settings

_WEAKENS = "would weaken the policy of the API key, which does not assume this: leave it out"


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyParams:
    """A policy, and the conversation it is applied to.

    tools       the JSON schema of the arguments of each tool that may be called
    max_calls   how many calls may still be made; None for any number
    assume      what results satisfy whenever their tools answer
    states_max  how many states of the policy are listed
    key         the policy of the caller's API key, which holds as well; None if it has none

    Raises InvalidRequest for an assumption that the policy of the key does not make.
    """

    rules: tuple[str, ...]
    tools: Mapping[str, dict[str, Any]]
    events: Sequence[PolicyEvent] = ()
    assume: tuple[str, ...] = ()
    max_calls: int | None = None
    states_max: int = 0
    key: KeyPolicy | None = None

    def __post_init__(self) -> None:
        for number, text in enumerate(self.assume):
            if self.key is not None and text not in self.key.assume:
                raise InvalidRequest(((f"policy.assume.{number}", _WEAKENS),))

    @property
    def calls_left(self) -> int | None:
        """How many calls both policies leave; None for any number."""
        limits = [self.max_calls, None if self.key is None else self.key.max_calls]
        return min((limit for limit in limits if limit is not None), default=None)


async def apply_policy(params: PolicyParams, jobs: JobClient, settings: Settings) -> PolicyJobResult:
    """What a policy says of a conversation. Raises JobFailed where the policy is at fault, and RequestOverLimit."""
    limits, schemas = settings.limits, sum(len(repr(schema)) for schema in params.tools.values())
    require_at_most("rules", sum(map(len, params.rules)), "formulas_chars_max", limits.formulas_chars_max)
    require_at_most("tools", schemas, "schema_chars_max", limits.schema_chars_max)
    timeout_s, key = settings.requests.timeout_s_default, params.key
    async with time_limit(timeout_s):
        job = PolicyJob(
            params.rules, dict(params.tools), tuple(params.events), time.time() + timeout_s,
            key_rules=() if key is None else key.rules, assume=params.assume if key is None else key.assume,
            max_calls=params.calls_left, states_max=params.states_max,
        )
        return await jobs.run("compile", request_id(), job, PolicyJobResult, SubmitOptions(deadline_in_s=timeout_s))
