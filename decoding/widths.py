"""How many rows "banked" keeps after each step: most at first.

Short texts tell least of where they lead and cost least to read, and what a beam loses for ever it mostly loses in its
first steps. Knows numbers alone: the search goes by them, and models reckon with them what a generation may hold.
"""

from __future__ import annotations

from itertools import pairwise

ROWS = {1: ((4, 3), (31, 1)), 64: ((2, 8), (5, 2), (20, 1))}
"""By the least k that it is for: after so many steps so many times k rows are kept; as many before the first of these
steps, on a straight line between two. By benchmarks/search_quality, and by benchmarks/decode: more would take more
time, or where k is small more memory, than transformers' own search does."""
SOONER = (8, 4)
"""With T tokens the first of these steps is T // 8 and the next T // 4 if that is sooner, and none is beyond T."""


def rows_after(step: int, beams: int, max_tokens: int) -> int:
    """The live rows kept after a step, from 1; k = `beams`."""
    points = _points(beams, max_tokens)
    if step <= points[0][0]:
        return points[0][1] * beams
    for (begin, more), (end, less) in pairwise(points):
        if begin < step <= end:
            return less * beams + (more - less) * beams * (end - step) // (end - begin)
    return beams


def _points(beams: int, max_tokens: int) -> list[tuple[int, int]]:
    """The steps, ascending, at which so many times k rows are kept."""
    rows = ROWS[max(least for least in ROWS if least <= beams)]
    sooner = [max_tokens // share for share in SOONER[: len(rows) - 1]]
    return [(min(at, most), times) for (at, times), most in zip(rows, [*sooner, max_tokens], strict=True)]


def rows_at_most(beams: int, max_tokens: int) -> int:
    """The most rows that are ever read side by side; the last token of a text is not read."""
    return rows_after(1, beams, max_tokens) if max_tokens > 1 else beams


def nodes_at_most(beams: int, max_tokens: int) -> int:
    """The most tokens that rows side by side have written, all of them together."""
    last = _points(beams, max_tokens)[-1][0]
    most: int = max(step * rows_after(step, beams, max_tokens) for step in [*range(1, last + 1), max_tokens])
    return most
