"""Suggested edits of requests, and warnings that carry them.

A suggestion is a list of JSON Patch operations (RFC 6902) on the body of the request. Two operations are ours: `splice`
replaces the characters `start` to `end` of the string at `path`, and `parse` replaces a string by the JSON in it. A
suggestion has paths and names, and at most a few characters of a value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY
from typing import Annotated, Any

from pydantic import Field, JsonValue
from pydantic.dataclasses import dataclass

from app.messages.parts import CONFIG
from compiler.errors import Edit
from compiler.grammars import GrammarWarning
from compiler.spec import Spec, moved, pointer, spec_warnings

SUGGESTION_BYTES_MAX = 500
_CONSTRAINT = "/constraint"
_REQUEST = "#"  # before a path that begins at the request
_PATH = re.compile(r"(?:/[A-Za-z0-9_-]{1,40})*")
_WIDER = {  # what may be written, by keyword
    "uniqueItems": "equal items may be written, or those of a list in its order alone, as their sets are too many",
    "additionalProperties": "undeclared properties may be written, as closed objects would have no value: declare all "
    "that are required",
}
_present = Field(exclude_if=lambda value: value is None)


@dataclass(frozen=True, config=CONFIG)
class WarningBody:
    """What is probably a mistake in a constraint that is accepted.

    line, column  where it is in a grammar or a formula, from 1
    field         the path of the part of the constraint, as in errors
    suggestion    edits of the request that were probably meant
    """

    message: str
    _: KW_ONLY
    line: Annotated[int | None, _present] = None
    column: Annotated[int | None, _present] = None
    field: Annotated[str | None, _present] = None
    suggestion: Annotated[tuple[dict[str, JsonValue], ...] | None, _present] = None


def grammar_warnings(warnings: Iterable[GrammarWarning]) -> tuple[WarningBody, ...]:
    """The warnings about a grammar, ready to send."""
    return tuple(WarningBody(each.message, line=each.line, column=each.column) for each in warnings)


def approximation_warnings(pointers: Iterable[str]) -> tuple[WarningBody, ...]:
    """The warnings about keywords that generation does not keep, by their pointers."""
    return tuple(WarningBody(f"{each}: {_WIDER[each.rpartition('/')[2]]}") for each in pointers)


def constraint_warnings(spec: Spec) -> tuple[WarningBody, ...]:
    """The warnings about a constraint, ready to send."""
    return tuple(
        WarningBody(each.message, field=each.field, suggestion=tuple(request_edits(each.suggestion)) or None)
        for each in spec_warnings(spec)
    )


def request_edits(edits: Sequence[Edit]) -> list[dict[str, Any]]:
    """Edits of a constraint as edits of its request. None where they are too long or have a path that is not shown."""
    absolute = [
        {name: _from_request(value) if name in ("from", "path") else value for name, value in edit.items()}
        for edit in edits
    ]
    paths = [str(edit[name]) for edit in absolute for name in ("from", "path") if name in edit]
    shown = all(map(_PATH.fullmatch, paths)) and len(json.dumps(absolute).encode()) <= SUGGESTION_BYTES_MAX
    return absolute if shown else []


def suggested(fields: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The suggestion of an error with these fields.

    It is `suggestion`, or the `replacement` in the string at `field`.
    """
    edits, replacement, field = fields.get("suggestion"), fields.get("replacement"), fields.get("field")
    if edits:
        return request_edits(edits)
    if not replacement or not isinstance(field, str) or not field:
        return []
    start, end, value = replacement
    root = _REQUEST if field.split(".")[0] in ("policy", "messages") else ""
    path = pointer(field.removeprefix("constraint."))
    splice: Edit = {"op": "splice", "path": path, "start": start, "end": end, "value": value}
    return request_edits([moved(splice, root)])


def _from_request(path: object) -> str:
    text = str(path)
    return text.removeprefix(_REQUEST) if text.startswith(_REQUEST) else _CONSTRAINT + text
