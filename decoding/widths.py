"""How many rows "banked" keeps after each step: most at first, and more where the budget is tight.

Short texts tell least of where they lead and cost least to read, and what a beam loses for ever it mostly loses in its
first steps. Where the constraint takes a large part of the budget every token counts, and a row of few has the right
ones. Knows numbers alone: the search goes by them, and models reckon with them what a generation may hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

TIGHT_SHARES = (5, 4)
"""A budget is a degree tighter for each n of these where the fewest tokens that satisfy are more than its n-th part."""
_FEW_BEAMS = {1: ((4, 8, 4, 0), (31, 1, 2, 0), (62, 1, 1, 0)), 16: ((4, 8, 5, 0), (31, 1, 3, 0), (62, 1, 1, 0))}
ROWS: tuple[Mapping[int, tuple[tuple[int, int, int, int], ...]], ...] = (
    {1: ((4, 8, 3, 0), (31, 1, 1, 0)), 64: ((2, 8, 8, 0), (5, 4, 2, 192), (20, 1, 1, 0))},
    _FEW_BEAMS | {64: ((2, 8, 8, 0), (5, 4, 2, 512), (20, 1, 1, 512), (31, 1, 1, 512), (62, 1, 1, 0))},
    _FEW_BEAMS | {64: ((2, 8, 8, 1024), (5, 4, 4, 1024), (31, 1, 4, 1024), (62, 1, 1, 0))},
)
"""By how tight the budget is and the least k that it is for: the step, or the so-manieth part of the budget if that is
sooner, after which so many times k rows are kept, and no fewer than so many; as many before the first of these steps,
on a straight line between two. By benchmarks/search_quality; where the budget is not tight also by benchmarks/decode,
as more would take more time, or where k is small more memory, than transformers' own search does."""


def tightness(min_tokens: int, max_tokens: int) -> int:
    """How much of the budget a constraint takes, from 0: the more, the more rows its search keeps."""
    return sum(min_tokens * share > max_tokens for share in TIGHT_SHARES)


def rows_after(step: int, beams: int, max_tokens: int, tight: int = 0) -> int:
    """The live rows kept after a step, from 1; k = `beams`."""
    points = _points(beams, max_tokens, tight)
    if step <= points[0][0]:
        return points[0][1]
    for (begin, more), (end, less) in pairwise(points):
        if begin < step <= end:
            return less + (more - less) * (end - step) // (end - begin)
    return points[-1][1]


def _points(beams: int, max_tokens: int, tight: int) -> list[tuple[int, int]]:
    """The steps, ascending, after which so many rows are kept."""
    table = ROWS[tight]
    points = table[max(least for least in table if least <= beams)]
    return [(min(at, max_tokens // share), max(times * beams, least)) for at, share, times, least in points]


def rows_at_most(beams: int, max_tokens: int, tight: int = 0) -> int:
    """The most rows that are ever read side by side; the last token of a text is not read."""
    return rows_after(1, beams, max_tokens, tight) if max_tokens > 1 else beams


def nodes_at_most(beams: int, max_tokens: int, tight: int = 0) -> int:
    """The most tokens that rows side by side have written, all of them together."""
    last = _points(beams, max_tokens, tight)[-1][0]
    most: int = max(step * rows_after(step, beams, max_tokens, tight) for step in [*range(1, last + 1), max_tokens])
    return most
