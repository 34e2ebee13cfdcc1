"""Typed events of a running job."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

import httpx2

from abs_client._json import read
from abs_client.errors import InvalidResponseError, error_of
from abs_client.results import _CompiledSizes

R = TypeVar("R")


@dataclass(frozen=True)
class Compilation(_CompiledSizes):
    """The constraint is compiled, and generation starts. The fields are those of `CompileResult`."""


@dataclass(frozen=True)
class Beam:
    """One text of a step, with all of its tokens so far.

    text      everything that the model wrote, a leading space included
    parent    index of the row in the previous step that it continues
    state     the automaton's state after the text, as `automaton` numbers it
    distance  fewest tokens to the end, EOS included; 0 for a finished text
    alpha     the push towards acceptance before the last token, 0 to 1
    score     the log_prob that the search ranks by, with the push included
    log_prob  sum of the tokens' natural logarithms
    """

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
    """A probable next token that the constraint rejects.

    parent    index of the row in the previous step; 0 in the first step
    log_prob  natural logarithm of the token's own probability
    reason    "violates": no continuation satisfies; "over_budget": `distance` exceeds the budget; "incomplete": the
              text cannot end yet; "no_bytes": the token writes no text
    distance  fewest tokens to the end after it; None where no continuation satisfies
    """

    parent: int
    text: str
    log_prob: float
    reason: str
    distance: int | None = None


@dataclass(frozen=True)
class Step:
    """One more token of each text.

    step             number of the token, from 1
    budget_after     tokens left
    rejected_tokens  empty unless the request sets `rejected_top_k`
    """

    step: int
    budget_after: int
    rows: tuple[Beam, ...]
    rejected_tokens: tuple[RejectedToken, ...] = ()


@dataclass(frozen=True)
class Restart:
    """Another worker restarts the job; discard all earlier events. `attempt` counts from 1."""

    attempt: int


@dataclass(frozen=True)
class Done(Generic[R]):
    """The last event. `result` is what the request returns without a stream."""

    result: R


Event: TypeAlias = Compilation | Step | Restart | Done[R]
_KINDS: dict[str, type[Compilation] | type[Step] | type[Restart]] = {
    "compiled": Compilation, "step": Step, "restarted": Restart,
}  # fmt: skip


def parse_event(message: httpx2.ServerSentEvent) -> Compilation | Step | Restart | dict[str, Any] | None:
    """The typed event. Of the event `done` its JSON; None for an unknown event.

    Raises the error of the event `error`, and InvalidResponseError.
    """
    # A newer service may send events that this version does not know.
    if message.event not in (*_KINDS, "done", "error"):
        return None
    try:
        data = json.loads(message.data)
    except ValueError:
        raise InvalidResponseError(f"the event {message.event} is not JSON") from None
    if message.event == "error":
        problem = read(dict[str, Any], data, "the event error")
        raise error_of(int(problem.get("status", 500)), problem)
    if message.event == "done":
        return read(dict[str, Any], data, "the event done")
    return read(_KINDS[message.event], data, f"the event {message.event}")
