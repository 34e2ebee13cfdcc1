"""What a search learns on its way: how dear each class of tokens really is after each state of the labeller.

The prior knows tokens at large; in its place a token is often far more probable: the rest of a word that has been
begun, or a noun after "the". Rows that have met an obligation are then credited with too much. So the costs that all
rows so far have seen are averaged, and now and then the ways to acceptance are found anew with them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from compiler.token_automaton import TokenAutomaton
from decoding.arrays import Array
from decoding.beams import Tables
from decoding.estimate import LEAST_PRIOR, corrected
from decoding.forced import FREE

_CELLS_MAX = 1 << 18  # of the automaton's table between characters; larger ones learn nothing
_SELDOM = 2  # the next estimate is due after one step for so many that were taken up to the last one
_ONE = 1 << 20  # sums are whole numbers of such parts of a nat: they do not depend on the order of addition

Reals = NDArray[np.float64]
Wholes = NDArray[np.int64]


class Lessons:
    """The costs seen, by labeller state between characters and class. B such states, C0 classes that begin there.

    class_cost  float64 [C]  the prior's, which counts as one observation of its own
    prior       float64 [S]  nats from each state to acceptance by the prior alone
    """

    def __init__(self, automaton: TokenAutomaton, tables: Tables, class_cost: Reals, prior: Reals) -> None:
        self._automaton, self._class_cost, self._prior = automaton, class_cost, prior
        self._due, self._free = 1, False
        chunk_class = _on_host(tables.chunk_class)
        order = np.argsort(chunk_class, kind="stable")
        self._chunks: Wholes = order[chunk_class[order] < automaton.edge_outer.shape[1]]
        self._classes, self._first = np.unique(chunk_class[self._chunks], return_index=True)
        self._total: Wholes = np.zeros(automaton.edge_outer.shape, dtype=np.int64)  # [B, C0]
        self._count: Wholes = np.zeros(len(automaton.edge_outer), dtype=np.int64)  # [B]

    @staticmethod
    def possible(automaton: TokenAutomaton) -> bool:
        """Whether the automaton is small enough to learn from in every request."""
        return automaton.edge_outer.size <= _CELLS_MAX

    def learn(self, states: Wholes, leader: Array, allowed: Array | None) -> None:
        """Rows in these states, int64 [N], have been read. Rows that are told what to write teach nothing.

        NaN, which ends a search, teaches whatever it may.

        leader   [N, M]  the best log-prob of each chunk after each row
        allowed  as in `step.step`
        """
        labeller = states // self._automaton.letter_states
        free = np.ones(len(states), dtype=bool) if allowed is None else _on_host(allowed) == FREE
        self._free = bool(free.any())
        between = np.flatnonzero(free & (labeller < len(self._count)))
        if not len(between):
            return
        best = np.maximum.reduceat(_on_host(leader)[between][:, self._chunks], self._first, axis=1)
        best = np.nan_to_num(best.astype(np.float64), nan=LEAST_PRIOR).clip(LEAST_PRIOR, 0.0)  # [n, classes]
        cost = np.rint(-best * _ONE).astype(np.int64)
        seen = np.zeros((len(between), self._total.shape[1]), dtype=np.int64)
        seen[:, self._classes] = cost
        np.add.at(self._total, labeller[between], seen)
        np.add.at(self._count, labeller[between], 1)

    def estimate(self, step: int) -> Reals | None:
        """Nats from each state to acceptance by what was learned: float64 [S], for a step, from 1.

        None where it is not due, for it takes milliseconds: ever more seldom, the less each step adds to all before;
        and where no row of the step may choose. States inside characters keep what the prior says, and so do all
        where the work passes a bound.
        """
        if step < self._due or not self._free:
            return None
        self._due = step + max(1, step // _SELDOM)
        own = self._class_cost[: self._total.shape[1]]  # [C0]
        cost = (self._total / _ONE + own) / (self._count + 1.0)[:, None]  # [B, C0]
        return corrected(self._automaton, cost, self._prior)


def _on_host(array: Array) -> NDArray[Any]:
    return array if isinstance(array, np.ndarray) else array.cpu().numpy()
