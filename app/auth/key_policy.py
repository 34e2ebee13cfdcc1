"""Policies of API keys: rules that all conversations of a key keep."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from compiler.errors import CompileError
from compiler.limits import DEFAULT_LIMITS, ResourceGuard
from compiler.policies import check_rules, read_decl

_FIELDS = {"rules", "decl", "max_calls", "assume"}


@dataclass(frozen=True, slots=True)
class KeyPolicy:
    """A policy that an operator binds to a key. Requests may tighten it.

    rules      LTLf formulas or templates of Declare; they may name tools that a request does not have
    max_calls  how many calls may still be made, in each request; None for any number
    assume     what results satisfy whenever their tools answer

    Raises ValueError for rules that do not read.
    """

    rules: tuple[str, ...]
    max_calls: int | None = None
    assume: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.max_calls is not None and (type(self.max_calls) is not int or self.max_calls < 0):
            raise ValueError("max_calls of a policy must be an integer, 0 or more")
        try:
            check_rules(self.rules, self.assume, ResourceGuard(DEFAULT_LIMITS))
        except CompileError as error:
            raise ValueError(f"a policy is at fault: {error}") from None

    @classmethod
    def of(cls, fields: object) -> KeyPolicy:
        """The policy of JSON as requests have it. Raises ValueError."""
        if not isinstance(fields, Mapping) or not set(fields) <= _FIELDS:
            raise ValueError(f"a policy must be a JSON object with fields out of {', '.join(sorted(_FIELDS))}")
        decl = fields.get("decl") or ""
        if not isinstance(decl, str):
            raise ValueError("decl of a policy must be the text of a Declare file")
        try:
            rules = (*_texts(fields, "rules"), *read_decl(decl))
        except CompileError as error:
            raise ValueError(f"a policy is at fault: {error}") from None
        return cls(rules, fields.get("max_calls"), _texts(fields, "assume"))

    def as_dict(self) -> dict[str, Any]:
        """The JSON of the policy."""
        fields = {"rules": list(self.rules), "max_calls": self.max_calls, "assume": list(self.assume)}
        return {name: value for name, value in fields.items() if value not in (None, [])}


def _texts(fields: Mapping[str, object], name: str) -> tuple[str, ...]:
    texts = fields.get(name, [])
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise ValueError(f"{name} of a policy must be a list of strings")
    return tuple(texts)
