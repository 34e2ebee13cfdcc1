"""Where in a pattern a construct stands that is not supported: Python's parser keeps no places in its tree."""

from __future__ import annotations

import re

_MARKS = {  # by the name that refusals give it
    "back-reference": r"\\[1-9]|\(\?P=",
    "conditional group": r"\(\?\(",
}
ESCAPE = r"\\."
COMMENT_OR_CLASS = r"\(\?#[^)]*\)|\[\^?\]?(?:\\.|[^\\\]])*\]"
"""A comment or a class, in which nothing is what it is elsewhere. This and ESCAPE are read with re.DOTALL."""
_VERBOSE = re.compile(r"\(\?[a-zA-Z]*x")  # there a comment may hold anything


def place_of(construct: str, pattern: str) -> int | None:
    """The offset of the first such construct in a pattern. None where it is not found in a pattern that Python can
    parse.
    """
    mark = _MARKS.get(construct)
    if mark is None or _VERBOSE.search(pattern):
        return None
    for match in re.finditer(f"{COMMENT_OR_CLASS}|(?P<mark>{mark})|{ESCAPE}", pattern, re.DOTALL):
        if match.lastgroup == "mark":
            return match.start()
    return None
