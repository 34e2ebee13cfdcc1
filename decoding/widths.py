"""How many rows "banked" keeps after each step: most at first.

Short texts tell least of where they lead and cost least to read, and what a beam loses for ever it mostly loses in its
first steps. Knows numbers alone: the search goes by them, and models reckon with them what a generation may hold.
"""

from __future__ import annotations

WIDE, WIDER, MANY = 3, 4, 64
"""WIDE times k rows are kept at first; where k is MANY or more, WIDER times k. By benchmarks/search_quality.
Where k is small more would take more memory than transformers' own search does."""
FULL, NARROW, SOONER = 4, 31, 8
"""As many up to step FULL, k from step NARROW on, ever fewer between; with small budgets both are sooner."""
FIRST_SHARE, FIRST_MIN = 4, 4
"""A pass that only learns keeps one row where the other keeps so many at its end, but so many at least, or k."""


def rows_of_first_pass(beams: int) -> int:
    """The rows kept after each step by the pass that only learns; k = `beams`."""
    return max(min(beams, FIRST_MIN), -(-beams // FIRST_SHARE))


def rows_after(step: int, beams: int, max_tokens: int) -> int:
    """The live rows kept after a step, from 1, of the pass that is told."""
    full, narrow = min(FULL, max_tokens // SOONER), min(NARROW, max_tokens)
    left = min(max(0, narrow - step), narrow - full)
    return beams + ((WIDER if beams >= MANY else WIDE) - 1) * beams * left // (narrow - full)


def rows_at_most(beams: int, max_tokens: int) -> int:
    """The most rows that are ever read side by side; the last token of a text is not read."""
    return rows_after(1, beams, max_tokens) if max_tokens > 1 else beams


def nodes_at_most(beams: int, max_tokens: int) -> int:
    """The most tokens that rows side by side have written, all of them together."""
    steps = [*range(1, min(NARROW, max_tokens)), max_tokens]
    most: int = max(step * rows_after(step, beams, max_tokens) for step in steps)
    return most
