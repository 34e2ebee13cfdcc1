"""Typed events of a running job, and the state that resumes them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from abs_client.errors import AbsError, AnswerInvalid, error_of
from abs_client.pieces import read

R = TypeVar("R")


@dataclass(frozen=True)
class Compiled:
    """The constraint is ready, and the generation has begun. The fields are those of `CompileResult`."""

    automaton: str
    states: int
    letters: int
    token_states: int
    token_classes: int
    min_tokens: int
    cached: bool
    compile_ms: float


@dataclass(frozen=True)
class Beam:
    """One text as far as a step has written it; `parent` is the row of the step before that it continues."""

    text: str
    parent: int
    state: int
    distance: int
    alpha: float
    score: float
    log_prob: float
    finished: bool


@dataclass(frozen=True)
class RejectedToken:
    """A token among the most probable after the row `parent` of the step before, which the constraint rejects.

    reason  "violates": no continuation satisfies; "over_budget": `distance` exceeds the budget; "incomplete": the
            text may not end yet; "no_bytes": the token writes no text
    """

    parent: int
    text: str
    log_prob: float
    reason: str
    distance: int | None = None


@dataclass(frozen=True)
class Step:
    """The texts after a token more. `rejected_tokens` is None unless the request sets `rejected_top_k`."""

    step: int
    budget_after: int
    rows: tuple[Beam, ...]
    rejected_tokens: tuple[RejectedToken, ...] | None = None


@dataclass(frozen=True)
class Restart:
    """Another worker restarts the job; discard all earlier events."""

    attempt: int


@dataclass(frozen=True)
class Done(Generic[R]):
    """The end; `result` is what the plain request would have been answered."""

    result: R


Event: TypeAlias = Compiled | Step | Restart | Done[R]
_KINDS: dict[str, type[Compiled] | type[Step] | type[Restart]] = {
    "compiled": Compiled, "step": Step, "restarted": Restart,
}  # fmt: skip


class Sent(Protocol):
    """A server-sent event as httpx2 reads it."""

    @property
    def event(self) -> str: ...
    @property
    def data(self) -> str: ...


def told(sent: Sent) -> Compiled | Step | Restart | dict[str, Any] | None:
    """A typed event; the JSON of the last one, `done`; None for what this client does not know.

    Raises what an event `error` says, and AnswerInvalid.
    """
    if sent.event not in (*_KINDS, "done", "error"):
        return None
    try:
        data = json.loads(sent.data)
    except ValueError:
        raise AnswerInvalid(f"the event {sent.event} is not JSON") from None
    if sent.event == "error":
        raise _ended(data)
    if sent.event == "done":
        return read(dict[str, Any], data, "the event done")
    return read(_KINDS[sent.event], data, f"the event {sent.event}")


def _ended(data: Any) -> AbsError:
    """The error that a job ended in."""
    problem = read(dict[str, Any], data, "the event error")
    return error_of(int(problem.get("status", 500)), problem)
