"""The values that messages about policies are made of."""

from __future__ import annotations

from typing import Literal

from pydantic.dataclasses import dataclass

from app.messages.json_values import JsonContent
from app.messages.parts import CONFIG


@dataclass(frozen=True, config=CONFIG)
class PolicyEvent:
    """An event of a conversation.

    value    the arguments of a call, or the content of a result
    message  the number of the message that it stands in
    """

    kind: Literal["call", "result", "reply"]
    tool: str
    value: JsonContent
    message: int


@dataclass(frozen=True, config=CONFIG)
class BrokenRuleBody:
    """A rule that a conversation does not satisfy.

    event    the event after which it cannot be met any more; null where it only is not met yet
    message  the number of the message that the event stands in
    """

    rule: str
    event: str | None
    message: int | None


@dataclass(frozen=True, config=CONFIG)
class PolicyStateBody:
    """A state of a policy.

    past  the fewest events that lead to it; the rest is what may come next
    """

    past: tuple[str, ...]
    calls_needed: int | None
    reply: bool
    tools: tuple[str, ...]
