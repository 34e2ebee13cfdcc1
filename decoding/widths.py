"""How many rows "banked" keeps after each step: most at first, and more where the budget is tight.

Short texts tell least of where they lead and cost least to read, and what a beam loses for ever it mostly loses in its
first steps. Where the constraint takes a large part of the budget every token counts, and a row of few has the right
ones. Knows numbers alone: the search goes by them, and models reckon with them what a generation may hold.
"""

from __future__ import annotations

from itertools import pairwise

ROWS = {1: ((4, 8, 3), (31, 1, 1)), 64: ((2, 8, 8), (5, 4, 2), (20, 1, 1))}
"""By the least k that it is for: the step, or the so-manieth part of the budget if that is sooner, after which so many
times k rows are kept; as many before the first of these steps, on a straight line between two. By
benchmarks/search_quality, and by benchmarks/decode: more would take more time, or where k is small more memory, than
transformers' own search does."""
TIGHT_ROWS = {1: ((4, 8, 4), (31, 1, 2), (62, 1, 1)), 64: ((2, 8, 8), (5, 4, 4), (31, 1, 4), (62, 1, 1))}
"""The same where the budget is tight."""
TIGHT_SHARE = 4
"""It is where the fewest tokens that satisfy are more than one of so many."""


def is_tight(min_tokens: int, max_tokens: int) -> bool:
    """Whether a constraint takes so much of the budget that its search keeps more rows."""
    return min_tokens * TIGHT_SHARE > max_tokens


def rows_after(step: int, beams: int, max_tokens: int, tight: bool = False) -> int:
    """The live rows kept after a step, from 1; k = `beams`."""
    points = _points(beams, max_tokens, tight)
    if step <= points[0][0]:
        return points[0][1] * beams
    for (begin, more), (end, less) in pairwise(points):
        if begin < step <= end:
            return less * beams + (more - less) * beams * (end - step) // (end - begin)
    return points[-1][1] * beams


def _points(beams: int, max_tokens: int, tight: bool) -> list[tuple[int, int]]:
    """The steps, ascending, at which so many times k rows are kept."""
    table = TIGHT_ROWS if tight else ROWS
    rows = table[max(least for least in table if least <= beams)]
    return [(min(at, max_tokens // share), times) for at, share, times in rows]


def rows_at_most(beams: int, max_tokens: int, tight: bool = False) -> int:
    """The most rows that are ever read side by side; the last token of a text is not read."""
    return rows_after(1, beams, max_tokens, tight) if max_tokens > 1 else beams


def nodes_at_most(beams: int, max_tokens: int, tight: bool = False) -> int:
    """The most tokens that rows side by side have written, all of them together."""
    last = _points(beams, max_tokens, tight)[-1][0]
    most: int = max(step * rows_after(step, beams, max_tokens, tight) for step in [*range(1, last + 1), max_tokens])
    return most
