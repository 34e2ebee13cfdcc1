"""What a first pass of the search teaches: how dear each class of tokens really is after each state of the labeller.

The prior knows tokens at large; in its place a token is often far more probable: the rest of a word that has been
begun, or a noun after "the". Rows that have met an obligation are then credited with too much. So the costs that the
rows of one pass have seen are averaged, and the ways to acceptance found anew with them.
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
_ONE = 1 << 20  # sums are whole numbers of such parts of a nat: they do not depend on the order of addition

Reals = NDArray[np.float64]
Wholes = NDArray[np.int64]


class Lessons:
    """The costs seen, by labeller state between characters and class. B such states, C0 classes that begin there.

    class_cost  float64 [C]  the prior's, which counts as one observation of its own
    """

    def __init__(self, automaton: TokenAutomaton, tables: Tables, class_cost: Reals) -> None:
        self._automaton, self._class_cost = automaton, class_cost
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

        leader   [N, M]  the best log-prob of each chunk after each row
        allowed  as in `step.step`
        """
        labeller = states // self._automaton.letter_states
        free = labeller < len(self._count)
        if allowed is not None:
            free = free & (_on_host(allowed) == FREE)
        between = np.flatnonzero(free)
        if not len(between):
            return
        best = np.maximum.reduceat(_on_host(leader)[between][:, self._chunks], self._first, axis=1)
        cost = np.rint(-best.astype(np.float64).clip(LEAST_PRIOR, 0.0) * _ONE).astype(np.int64)  # [n, classes]
        seen = np.zeros((len(between), self._total.shape[1]), dtype=np.int64)
        seen[:, self._classes] = cost
        np.add.at(self._total, labeller[between], seen)
        np.add.at(self._count, labeller[between], 1)

    def estimate(self, prior: Reals) -> Reals:
        """Nats from each state to acceptance, float64 [S], by what was learned; `prior` is the same by the prior alone.

        States inside characters keep what the prior says, and so do all where the work passes a bound.
        """
        own = self._class_cost[: self._total.shape[1]]  # [C0]
        cost = (self._total / _ONE + own) / (self._count + 1.0)[:, None]  # [B, C0]
        return corrected(self._automaton, cost, prior)


def _on_host(array: Array) -> NDArray[Any]:
    return array if isinstance(array, np.ndarray) else array.cpu().numpy()
