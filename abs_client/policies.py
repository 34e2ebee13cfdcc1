"""Policies: rules over the events of a conversation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Policy:
    """Rules over a conversation's calls, results and replies.

    rules      LTLf formulas or templates of Declare, such as "precedence(confirm, delete)"
    max_calls  how many calls may still be made; None for any number
    assume     results to count on, such as "result(approve, ok = true)"
    decl       more rules, as the text of a Declare file

    >>> Policy(["precedence(confirm, delete)"], max_calls=4).as_dict()
    {'rules': ['precedence(confirm, delete)'], 'max_calls': 4}
    """

    rules: Sequence[str] = ()
    max_calls: int | None = None
    assume: Sequence[str] = ()
    decl: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """The API's JSON."""
        fields = {"max_calls": self.max_calls, "decl": self.decl}
        given = {name: value for name, value in fields.items() if value is not None}
        return {"rules": list(self.rules), **given, **({"assume": list(self.assume)} if self.assume else {})}


@dataclass(frozen=True)
class BrokenRule:
    """A rule that a conversation does not satisfy.

    event    the event after which it cannot be met; None where it only is not met yet
    message  the number of the message that the event stands in
    """

    rule: str
    event: str | None
    message: int | None


@dataclass(frozen=True)
class PolicyState:
    """A state of a policy. `past` is the shortest conversation that leads to it; the rest is what may come next."""

    past: tuple[str, ...]
    calls_needed: int | None
    reply: bool
    tools: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class PolicyResult:
    """What a policy says of a conversation. The result itself is true if the conversation satisfies all rules.

    open_rules    the rules that a reply now would leave unmet
    reply, tools  what may come next: a reply in words; calls whose arguments satisfy these schemas
    calls_needed  the fewest calls before a reply that satisfies all rules, whatever the results are; None for none
    conflict      rules that cannot be met together any more
    past          the shortest conversation that leads to the conflict
    states        the states of the policy; None unless they were asked for
    """

    satisfied: bool
    broken: tuple[BrokenRule, ...]
    open_rules: tuple[str, ...]
    reply: bool
    tools: dict[str, Any]
    calls_needed: int | None
    conflict: tuple[str, ...]
    past: tuple[str, ...]
    states: tuple[PolicyState, ...] | None = None
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False, metadata={"json_name": None})

    def __bool__(self) -> bool:
        return self.satisfied
