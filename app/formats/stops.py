"""Excludes stop strings from answers, and removes them from their ends."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pydantic import JsonValue

from app.formats.answer_reader import AnswerReader
from app.messages import Failure

STOPPED_PATH, STOP_PATH = "all.0.", "all.1."  # inside a constraint of `constraint_without`
_BEFORE = "(?s:.*)(?:"  # the pattern before a stop string
# How a contradiction names the two parts.
_STOPPED, _EXCLUSION = f"'{STOPPED_PATH[:-1]}'", f"'{STOP_PATH[:-1]}' (not regex {_BEFORE}"


def constraint_without(stop_free: dict[str, Any], constraint: dict[str, Any]) -> dict[str, Any]:
    """A constraint and one of `stop_constraint` as one."""
    return {"all": [constraint, stop_free]}


def stop_constraint(stops: Sequence[str], at_end: bool, leading_space: str) -> dict[str, Any]:
    """The constraint that a text contains no stop string. With `at_end` it may end with one."""
    pattern = "|".join(re.escape(stop) for stop in stops)
    ending = "+" if at_end else "*"
    return {"not": {"regex": f"{_BEFORE}{pattern})(?s:.{ending})", "leading_space": leading_space}}


def contradiction_with_stops(failure: Failure) -> Failure:
    """A contradiction in terms of a request with stop strings."""
    conflict, detail = failure.fields.get("conflict"), failure.detail
    if not isinstance(conflict, list):
        return failure
    named: list[JsonValue] = [_part_of_request(str(part)) for part in conflict]
    for part, name in zip(conflict, named, strict=True):
        detail = detail.replace(str(part), str(name), 1)
    return replace(failure, detail=detail, fields={**failure.fields, "conflict": named})


def names_stops(conflict: object) -> bool:
    """Whether stop strings are a part of the contradiction."""
    return isinstance(conflict, list) and any(str(part).startswith(_EXCLUSION) for part in conflict)


def _part_of_request(part: str) -> str:
    if part.startswith(_EXCLUSION):
        return "'stop'"
    if part.startswith(_STOPPED):
        return f"'constraint'{part.removeprefix(_STOPPED)}"
    return part.replace(f"'{STOPPED_PATH}", "'", 1)


def remove_stop(text: str, stops: Sequence[str], reader: AnswerReader | None = None) -> str:
    """A finished text without the stop string at its end.

    What stands behind the stop string, because it ends the reply, is removed, too.

    reader  finds the reply in the text, to which the stop strings belong; None: all of the text is the reply
    """
    if not stops:
        return text
    reply, end = text, ""
    if reader is not None:
        parts, end = reader.read(text, finished=True), reader.reply_end
        reply = "" if parts.calls else parts.content
    # Of several matching stop strings the longest begins first in the text.
    length = max((len(stop) for stop in stops if reply.endswith(stop)), default=0)
    return text.removesuffix(end)[:-length] if length else text


def remove_partial_stop(text: str, stops: Sequence[str]) -> str:
    """An unfinished text without a suffix that may become a stop string."""
    longest = max(map(len, stops), default=0)
    lengths = (size for size in range(longest, 0, -1) if any(stop.startswith(text[-size:]) for stop in stops))
    return text[: len(text) - min(next(lengths, 0), len(text))]
