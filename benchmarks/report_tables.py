"""Numbers and tables as RESULTS.md shows them. Knows no benchmark."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

MIB = 2**20


def shown(value: float) -> str:
    """A number with as many digits as it deserves: 0.43, 4.3, 43, 4,300."""
    if value and abs(value) < 1:
        return f"{value:.2f}"
    return f"{value:.1f}" if abs(value) < 10 else f"{value:,.0f}"


def where(run: Mapping[str, Any], *more: str) -> str:
    """When, on what and by which command a run was measured, and what `more` there is to say of it."""
    threads = f"{run['threads']} thread{'s' if run['threads'] > 1 else ''}"
    return "; ".join((run["date"], run["machine"], threads, *more, f"`{run['command']}`"))


def spread(values: Iterable[float]) -> str:
    """The median, and the range where there is one to see."""
    ordered = sorted(values)
    middle, low, high = shown(statistics.median(ordered)), shown(ordered[0]), shown(ordered[-1])
    return middle if low == high else f"{middle} ({low}-{high})"


def table(head: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *body]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def geometric_mean(values: Sequence[float]) -> float:
    """ValueError where there are none, or one is not positive."""
    return math.exp(statistics.fmean(map(math.log, values)))
