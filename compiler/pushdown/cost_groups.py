"""Sparse rows of costs by pending."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from compiler.automata import spread


@dataclass(frozen=True, slots=True, eq=False)
class LeastSums:
    """Costs by pending of G groups, to which others are added.

    pending  int [N]  of each cost
    cost     [N]
    first    int [G]  the costs of group g are first[g] .. first[g + 1] - 1; no group is empty
    """

    pending: np.ndarray
    cost: np.ndarray
    first: np.ndarray

    def least(self, further: np.ndarray) -> np.ndarray:
        """The least sum in each group: [G]. `further` has the further cost of each pending, [X]."""
        if not len(self.first):
            return self.cost
        found: np.ndarray = np.minimum.reduceat(further.take(self.pending) + self.cost, self.first)
        return found


@dataclass(frozen=True, slots=True, eq=False)
class CostGroups:
    """Costs by pending, for each of G groups.

    first    int64 [G+1]  the costs of group g are first[g] .. first[g + 1] - 1
    pending  int32 [N]    ascending in each group
    cost     [N]
    """

    first: np.ndarray
    pending: np.ndarray
    cost: np.ndarray

    @classmethod
    def least(cls, group: np.ndarray, pending: np.ndarray, cost: np.ndarray, *, groups: int) -> CostGroups:
        """From costs in any order. Of several for one pending of a group the least counts."""
        key = group * (int(pending.max(initial=0)) + 1) + pending
        order = np.argsort(key, kind="stable")
        first = np.flatnonzero(np.diff(key[order], prepend=-1))
        least = np.minimum.reduceat(cost[order], first) if len(first) else cost
        kept = order[first]
        return cls(np.searchsorted(group[kept], np.arange(groups + 1)), pending[kept], least)

    @property
    def nbytes(self) -> int:
        return int(self.first.nbytes + self.pending.nbytes + self.cost.nbytes)

    def pendings_of(self, group: int) -> set[int]:
        """The pendings of a group."""
        return set(self.pending[self.first[group] : self.first[group + 1]].tolist())

    def sums(self, groups: np.ndarray) -> tuple[np.ndarray, LeastSums]:
        """The costs of groups that have any, beside their places in `groups`."""
        place, counts = self.of(groups)
        filled = np.flatnonzero(counts)
        first = (np.cumsum(counts) - counts)[filled]
        return filled, LeastSums(self.pending[place].astype(np.intp), self.cost[place], first)

    def of(self, groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The places of some groups' costs, and how many each has."""
        return spread(self.first[groups], self.first[groups + 1])
