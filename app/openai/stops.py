"""Strings that end a text, kept together with the promise: what is answered still satisfies, and holds none of them.

Where what follows a satisfying text cannot change that it satisfies, the model may write a stop string as its end, and
it is taken off: so is it where there is no constraint, and where the constraint speaks of words alone and the strings
are white space. Elsewhere a text that was cut short might not satisfy: there the model cannot write them at all.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from compiler.spec import AllSpec, AnySpec, KeywordsSpec, LengthSpec, LtlfSpec, NotSpec, Spec


def taken_off(spec: Spec | None, stops: Sequence[str]) -> tuple[str, ...]:
    """The stop strings that may end a text of the model, and are to be taken off it."""
    return tuple(stops) if spec is None or (_of_words(spec) and not any(map(str.strip, stops))) else ()


def stopping(stops: Sequence[str], ending: bool, leading_space: str) -> dict[str, Any]:
    """The constraint that no stop string is in the text, but for its very end where it may be that."""
    written = "|".join(re.escape(stop) for stop in stops)
    after = "+" if ending else "*"
    return {"not": {"regex": f"(?s:.*)(?:{written})(?s:.{after})", "leading_space": leading_space}}


def without_stop(text: str, stops: Sequence[str]) -> str:
    """A finished text without the stop string at its end, the one that begins first."""
    return text[: len(text) - max((len(stop) for stop in stops if text.endswith(stop)), default=0)]


def without_beginning(text: str, stops: Sequence[str]) -> str:
    """What of a text that goes on is certainly no part of a stop string at its end."""
    longest = max(map(len, stops), default=0)
    held = (size for size in range(longest, 0, -1) if any(stop.startswith(text[-size:]) for stop in stops))
    return text[: len(text) - min(next(held, 0), len(text))]


def strips(spec: Spec) -> bool:
    """Whether a part of the constraint is about whole texts, and may have a leading space taken off."""
    match spec:
        case AllSpec() | AnySpec():
            return any(strips(part) for part in spec.parts)
        case NotSpec():
            return strips(spec.part)
        case _:
            return hasattr(spec, "leading_space")


def _of_words(spec: Spec) -> bool:
    """Whether white space after a text changes nothing."""
    match spec:
        case AllSpec() | AnySpec():
            return all(_of_words(part) for part in spec.parts)
        case NotSpec():
            return _of_words(spec.part)
        case LengthSpec():
            return spec.max_chars is None
        case _:
            return isinstance(spec, LtlfSpec | KeywordsSpec)
