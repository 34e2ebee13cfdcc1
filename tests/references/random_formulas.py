"""Random LTLf formulas as text, and all short traces. Tests of both engines use them."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence

NAMES = ("a", "b", "c")
LETTERS = tuple(frozenset(subset) for size in range(4) for subset in itertools.combinations(NAMES, size))


def random_formula(rng: random.Random, names: Sequence[str] = NAMES) -> str:
    """One to four random formulas, joined by & or by |."""
    parts = (f"({_nested(rng, names, rng.randint(1, 4))})" for _ in range(rng.randint(1, 4)))
    return rng.choice((" & ", " | ")).join(parts)


def random_formula_with_past(rng: random.Random, names: Sequence[str] = NAMES) -> str:
    """A random formula, with formulas of the past for some names."""
    places = ["p", *names]
    formula = random_formula(rng, places)
    while "p" in formula:
        formula = formula.replace("p", f"({_nested_past(rng, names, rng.randint(1, 3))})", 1)
    return f"{rng.choice('FGX')}({formula})"  # nothing may look back from the first step


def _nested_past(rng: random.Random, names: Sequence[str], depth: int) -> str:
    if depth == 0:
        return rng.choice([*list(names) * 4, "true", "false"])
    kind = rng.random()
    if kind < 0.6:
        return rng.choice(("!", "Y ", "O ", "H ")) + _nested_past(rng, names, depth - 1)
    left, right = (_nested_past(rng, names, depth - 1) for _ in range(2))
    return f"({left} {rng.choice(('S', 'S', '->', '<->', '&', '|'))} {right})"


def _nested(rng: random.Random, names: Sequence[str], depth: int) -> str:
    if depth == 0 or rng.random() < 0.15:
        return rng.choice([*list(names) * 4, "true", "false", "last"])
    kind = rng.random()
    if kind < 0.4:
        return rng.choice(("!", "X ", "WX ", "F ", "G ")) + _nested(rng, names, depth - 1)
    if kind < 0.55:
        parts = [_nested(rng, names, depth - 1) for _ in range(rng.randint(2, 3))]
        return f"({rng.choice((' & ', ' | ')).join(parts)})"
    left, right = (_nested(rng, names, depth - 1) for _ in range(2))
    return f"({left} {rng.choice(('U', 'R', 'W', 'M', '->', '<->'))} {right})"


def traces(symbols: int, length_max: int) -> Iterator[tuple[int, ...]]:
    """All traces over a number of symbols up to a length. The empty trace comes first."""
    for length in range(length_max + 1):
        yield from itertools.product(range(symbols), repeat=length)
