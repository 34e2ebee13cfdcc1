"""Conjunctions and disjunctions of the parts of a product, over their distances."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TypeAlias, TypeVar, Union

import numpy as np

from compiler.lifting import UNREACHABLE

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Branch:
    """The conjunction of some formulas, or their disjunction."""

    is_and: bool
    parts: tuple[Formula, ...]


Formula: TypeAlias = Union[int, Branch]  # noqa: UP007 (a forward reference)
"""A part of a product by its number, or a combination of parts."""


def fold(
    formula: Formula, leaf: Callable[[int], _T], both: Callable[[_T, _T], _T], either: Callable[[_T, _T], _T]
) -> _T:
    """The value of a formula, from the values of its parts."""
    if not isinstance(formula, Branch):
        return leaf(formula)
    return reduce(both if formula.is_and else either, [fold(part, leaf, both, either) for part in formula.parts])


def least(formula: Formula, distances: Sequence[np.ndarray]) -> np.ndarray:
    """A lower bound of the distance, from those of the parts.

    It is int32 [N]: 0 where the text is accepted, 1 where it may end, and UNREACHABLE where a part that is needed is
    dead.
    """
    # The next EOS ends all parts of a conjunction, or all of one alternative: the bound is exact up to 1.
    return fold(formula, distances.__getitem__, np.maximum, np.minimum)


def estimate(formula: Formula, distances: Sequence[np.ndarray]) -> np.ndarray:
    """The distance as if no token served two parts: int64 [N]. EOS counts for each part."""
    return fold(formula, lambda part: distances[part].astype(np.int64), np.add, np.minimum)


def needed(formula: Formula, distances: Sequence[np.ndarray]) -> np.ndarray:
    """Which parts can still contribute: bool [n, N]. The parts of a dead alternative cannot."""
    found = np.zeros((len(distances), len(distances[0])), dtype=np.bool_)

    def mark(node: Formula, alive: np.ndarray) -> None:
        alive = alive & (least(node, distances) != UNREACHABLE)
        if isinstance(node, Branch):
            for part in node.parts:
                mark(part, alive)
        else:
            found[node] |= alive

    mark(formula, np.ones(len(distances[0]), dtype=np.bool_))
    return found


def has_alternatives(formula: Formula) -> bool:
    """Whether there is a disjunction."""
    return isinstance(formula, Branch) and (not formula.is_and or any(map(has_alternatives, formula.parts)))


def parts_of(formula: Formula) -> list[int]:
    """The numbers of the parts, in order."""
    return [part for each in formula.parts for part in parts_of(each)] if isinstance(formula, Branch) else [formula]


def to_json(formula: Formula) -> object:
    """A number, or a list of "all" or "any" and the parts."""
    if not isinstance(formula, Branch):
        return formula
    return ["all" if formula.is_and else "any", *map(to_json, formula.parts)]


def from_json(value: object) -> Formula:
    """The formula that gave this value. Raises ValueError if none did."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if not isinstance(value, list) or len(value) < 2 or value[0] not in ("all", "any"):
        raise ValueError("a formula is a number, or all or any with its parts")
    return Branch(value[0] == "all", tuple(map(from_json, value[1:])))
