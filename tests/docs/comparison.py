"""Compares the output of a program with its display in a page.

Pages shorten: fields are left out, and … at the end of a text or a list stands for the rest.
"""

from __future__ import annotations

import math
import re
from typing import Any

MORE = "…"


def differs(shown: Any, said: Any, where: str = "answer", exactly: bool = True) -> str:
    """Where an answer is not as shown, in words; empty where it is.

    exactly  False compares only the names of fields and the types of values: what a model writes may change
    """
    match shown, said:
        case dict(), dict():
            for name, value in shown.items():
                if name not in said:
                    return f"{where} has no {name}"
                found = differs(value, said[name], f"{where}.{name}", exactly)
                if found:
                    return found
            return ""
        case list(), list():
            return _list(shown, said, where, exactly)
        case bool(), bool():
            return "" if shown == said or not exactly else f"{where} is {said}"
        case (int() | float(), int() | float()) if not isinstance(shown, bool) and not isinstance(said, bool):
            close = math.isclose(shown, said, rel_tol=0.01) or not exactly
            return "" if close else f"{where} is {said}, not {shown}"
        case str(), str():
            same = not exactly or shown == said or (shown.endswith(MORE) and said.startswith(shown[: -len(MORE)]))
            return "" if same else f"{where} is {said!r}, not {shown!r}"
    return "" if shown is None and said is None else f"{where} is {said!r}, not {shown!r}"


def _list(shown: list[Any], said: list[Any], where: str, exactly: bool) -> str:
    cut = bool(shown) and shown[-1] == MORE
    wanted = shown[:-1] if cut else shown
    if exactly and (len(said) < len(wanted) if cut else len(said) != len(wanted)):
        return f"{where} has {len(said)} entries"
    if not exactly and wanted and not said:
        return f"{where} is empty"
    pairs = zip(wanted, said, strict=False)
    return next(filter(None, (differs(a, b, f"{where}.{n}", exactly) for n, (a, b) in enumerate(pairs))), "")


def same_output(shown: str, said: str) -> bool:
    """Whether lines are as shown; … stands for anything, a line of it alone for any lines."""
    parts = [re.escape(part) for part in shown.strip().split(MORE)]
    return re.fullmatch(".*?".join(parts), said.strip(), re.DOTALL) is not None
