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

    def filled(self, cost: float) -> CostGroups:
        """The same, with this cost in groups that have none."""
        empty = self.first[:-1][np.diff(self.first) == 0]
        counts = np.maximum(np.diff(self.first), 1)
        first = np.append(0, np.cumsum(counts))
        return CostGroups(first, np.insert(self.pending, empty, 0), np.insert(self.cost, empty, cost))

    def chosen(self, groups: np.ndarray) -> CostGroups:
        """Some groups, in this order."""
        place, counts = self.of(groups)
        return CostGroups(np.append(0, np.cumsum(counts)), self.pending[place], self.cost[place])

    def sums(self, groups: slice) -> LeastSums:
        """The costs of adjacent groups. None of them is empty."""
        begin, end = self.first.item(groups.start), self.first.item(groups.stop)
        return LeastSums(self.pending[begin:end], self.cost[begin:end], self.first[groups] - begin)

    def of(self, groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The places of some groups' costs, and how many each has."""
        return spread(self.first[groups], self.first[groups + 1])
