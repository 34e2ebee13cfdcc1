"""Sequences of parts. docs/constraints/sequence.md defines their meaning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from abs_client.constraints import Constraint, json_value
from abs_client.forms import LeadingSpace

Part: TypeAlias = "str | Constraint | Mapping[str, Any]"
"""Literal text, a constraint, or what one of the functions here returns."""


class SequenceOf(Constraint):
    """The text is a text of each part, one after the other.

    >>> SequenceOf("I am ", capture("age", Regex("[0-9]+")), ".").as_dict()["sequence"][0]
    'I am '
    """

    FORM = "sequence"

    def __init__(self, *parts: Part, leading_space: LeadingSpace | None = None) -> None:
        super().__init__(*parts, leading_space=leading_space)

    def _body(self) -> Any:
        return list(self._arguments)


def token(name: str) -> dict[str, Any]:
    """One special or added token of the model, such as <tool_call>.

    >>> token("<tool_call>")
    {'token': '<tool_call>'}
    """
    return {"token": name}


def free(
    *, until: str | Sequence[str] = (), without: str | Sequence[str] = (), max_tokens: int | None = None
) -> dict[str, Any]:
    """Free text.

    until       strings of which the first occurrence ends it, and is the end of it
    without     strings that do not occur in it
    max_tokens  how many tokens may write it

    >>> free(until="</think>", max_tokens=64)
    {'free': {'until': ['</think>'], 'max_tokens': 64}}
    """
    strings = {"until": until, "without": without}
    fields = {name: [value] if isinstance(value, str) else list(value) for name, value in strings.items() if value}
    return {"free": {**fields, **({} if max_tokens is None else {"max_tokens": max_tokens})}}


def optional(part: Part) -> dict[str, Any]:
    """The part, or nothing.

    >>> optional("please ")
    {'optional': 'please '}
    """
    return {"optional": json_value(part)}


def repeat(part: Part, *, min: int = 0, max: int | None = None, separator: Part | None = None) -> dict[str, Any]:
    """The part `min` to `max` times, with the separator between two.

    >>> repeat(Regex("[a-z]+"), min=1, separator=", ")
    {'repeat': {'regex': '[a-z]+'}, 'min': 1, 'separator': ', '}
    """
    fields = {"min": min or None, "max": max, "separator": separator}
    given = {name: json_value(value) for name, value in fields.items() if value is not None}
    return {"repeat": json_value(part), **given}


def one_of(*parts: Part) -> dict[str, Any]:
    """Any one of the parts.

    >>> one_of("yes", Regex("no+"))
    {'any': ['yes', {'regex': 'no+'}]}
    """
    return {"any": [json_value(part) for part in parts]}


def capture(name: str, part: Part) -> dict[str, Any]:
    """The part, whose place in the text is answered under the name.

    >>> capture("age", Regex("[0-9]+"))
    {'capture': 'age', 'part': {'regex': '[0-9]+'}}
    """
    return {"capture": name, "part": json_value(part)}
