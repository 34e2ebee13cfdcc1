"""Decoding a matrix of log-probs over labels: exactly T labels that a constraint accepts, the best of all or by beams.

For models whose steps do not depend on what was written before them: image streams, classifiers, event logs. Then the
best accepted sequence is a longest path through (steps left) x (states of the automaton), and needs no search.
Owns both algorithms; numpy only. The automaton is one over labels (a plain table): ids 0..L-1 are the labels, L the
end, which nothing here writes. So distances are counted in labels: 0 where a sequence may end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import isfinite

import numpy as np
from numpy.typing import NDArray

from compiler.lifting import UNREACHABLE, TokenAutomaton
from decoding.errors import Cancelled, LengthImpossible, ModelOutputInvalid, VocabularyMismatch
from decoding.options import require
from decoding.tensors import LOG_PROB_FLOOR

_CELLS_AT_ONCE = 2**18  # of a (states x classes) table that are looked at together
_OFF = float("-inf")  # the worth of what cannot be accepted

CancelCheck = Callable[[], bool]


@dataclass(frozen=True, slots=True)
class BeamOptions:
    """A search by beams, Algorithm 1. Raises OptionsInvalid where a value is out of its range.

    beams      k, the rows kept after each step
    alpha_min  the least push-up, 0 to 1 (paper, Eq. 2)
    gamma      sharpness of the ramp, above 0
    """

    beams: int
    alpha_min: float = 0.5
    gamma: float = 1.0

    def __post_init__(self) -> None:
        require(self.beams >= 1, "beams", "at least 1")
        require(0.0 <= self.alpha_min <= 1.0, "alpha_min", "between 0 and 1")
        require(isfinite(self.gamma) and self.gamma > 0.0, "gamma", "a finite number above 0")


@dataclass(frozen=True, slots=True)
class LabelPath:
    """T labels by number that are accepted, their log-probs as counted, the sum, and the score (pushed, by beams)."""

    labels: tuple[int, ...]
    log_probs: tuple[float, ...]
    log_prob: float
    score: float


def best_labels(
    log_probs: NDArray[np.float64], automaton: TokenAutomaton, cancelled: CancelCheck | None = None
) -> LabelPath:
    """The most probable accepted sequence of exactly T labels; of equals the one with the lower label first.

    log_probs  float64 [T, L]; what lies below LOG_PROB_FLOOR, -inf too, counts as that: it is no reason to refuse
    Holds T x S worths of 8 bytes. Raises LengthImpossible where the constraint accepts no sequence of T labels,
    ModelOutputInvalid, VocabularyMismatch, Cancelled.
    """
    grid = _Grid.of(log_probs, automaton)
    worth = np.empty((grid.rows + 1, grid.states))  # [t, s]: the best sum of rows t.. that is accepted from s
    worth[grid.rows] = np.where(grid.distance == 0, 0.0, _OFF)
    for row in range(grid.rows - 1, -1, -1):
        _ask(cancelled)
        for block, successor in grid.blocks():
            worth[row, block] = (grid.class_best[row] + worth[row + 1][successor]).max(axis=1)
    if worth[0, grid.start] == _OFF:
        raise _impossible(grid, cancelled)
    labels, state = [], grid.start
    for row in range(grid.rows):
        after = grid.log_probs[row] + worth[row + 1][grid.successor[state, grid.label_class]]  # [L]
        labels.append(int(after.argmax()))  # the first of equals
        state = int(grid.successor[state, grid.label_class[labels[-1]]])
    own = grid.own(labels)
    return LabelPath(tuple(labels), own, sum(own), sum(own))


def beam_labels(
    log_probs: NDArray[np.float64],
    automaton: TokenAutomaton,
    options: BeamOptions,
    cancelled: CancelCheck | None = None,
) -> LabelPath:
    """An accepted sequence of exactly T labels by Algorithm 1, the most probable of the last beam.

    Rows that cannot be accepted in EXACTLY the steps left are dropped: "within" would not do, since no row may end
    before the others. Ranks by score, the row's log-prob, the label's, lower label, lower row.
    log_probs  as in `best_labels`. Holds T x S marks of one byte. Raises what `best_labels` raises.
    """
    grid = _Grid.of(log_probs, automaton)
    possible = _acceptable(grid, cancelled)
    if not possible[grid.rows, grid.start]:
        raise _impossible(grid, cancelled)
    beam = _Beam.first(grid.start)
    links = []
    for row in range(grid.rows):
        _ask(cancelled)
        beam = beam.extended(grid, row, possible[grid.rows - row - 1], options)
        links.append((beam.parent, beam.label))
    place = int(np.lexsort((-beam.score, -beam.log_prob))[0])
    log_prob, score, labels = float(beam.log_prob[place]), float(beam.score[place]), []
    for parent, label in reversed(links):
        labels.append(int(label[place]))
        place = int(parent[place])
    labels.reverse()
    return LabelPath(tuple(labels), grid.own(labels), log_prob, score)


@dataclass(frozen=True, slots=True, eq=False)
class _Grid:
    """A matrix beside the automaton that reads it. T rows, L labels, C classes of labels that act alike, S states.

    log_probs    float64 [T, L]  finite
    class_best   float64 [T, C]  the best of each class
    label_class  int64   [L]
    successor    int32   [S, C]  state after one label of the class
    distance     int64   [S]     fewest labels to acceptance, UNREACHABLE when dead
    """

    log_probs: NDArray[np.float64]
    class_best: NDArray[np.float64]
    label_class: NDArray[np.int64]
    successor: NDArray[np.int32]
    distance: NDArray[np.int64]
    start: int

    @classmethod
    def of(cls, log_probs: NDArray[np.float64], automaton: TokenAutomaton) -> _Grid:
        labels = log_probs.shape[1]
        if automaton.eos_ids != (labels,) or automaton.vocabulary_size != labels + 1:
            raise VocabularyMismatch(automaton.vocabulary_size, labels + 1)
        if automaton.letter_states != 1 or automaton.edge_inner.size:
            raise ValueError("an automaton over labels is a plain table")
        if np.isnan(log_probs).any() or (log_probs == np.inf).any():
            raise ModelOutputInvalid("the log-probs hold NaN or infinity")
        known = np.maximum(log_probs, LOG_PROB_FLOOR)
        classes, label_class = np.unique(automaton.token_class[:labels], return_inverse=True)
        order = np.argsort(label_class, kind="stable")
        first = np.searchsorted(label_class[order], np.arange(len(classes)))
        far = automaton.distance.astype(np.int64)
        distance = np.where((far == UNREACHABLE) | (far == 0), UNREACHABLE, far - 1)  # the end is no label
        table = automaton.edge_target[automaton.edge_outer[:, classes]]
        best = np.maximum.reduceat(known[:, order], first, axis=1)
        return cls(known, best, label_class, table, distance, automaton.start)

    @property
    def rows(self) -> int:
        return len(self.log_probs)

    @property
    def states(self) -> int:
        return len(self.distance)

    def own(self, labels: list[int]) -> tuple[float, ...]:
        """The log-prob of each of T labels."""
        return tuple(self.log_probs[np.arange(self.rows), labels].tolist())

    def blocks(self) -> Iterator[tuple[slice, NDArray[np.int32]]]:
        """The successors of all states, some states at a time."""
        size = max(1, _CELLS_AT_ONCE // self.successor.shape[1])
        for begin in range(0, self.states, size):
            yield slice(begin, begin + size), self.successor[begin : begin + size]


@dataclass(frozen=True, slots=True, eq=False)
class _Beam:
    """The rows after a step. k rows: label, parent, state int64 [k], score and log_prob float64 [k]."""

    label: NDArray[np.int64]
    parent: NDArray[np.int64]
    state: NDArray[np.int64]
    score: NDArray[np.float64]
    log_prob: NDArray[np.float64]

    @classmethod
    def first(cls, start: int) -> _Beam:
        whole = np.zeros(1, dtype=np.int64)
        return cls(whole, whole, whole + start, np.zeros(1), np.zeros(1))

    def extended(self, grid: _Grid, row: int, possible: NDArray[np.bool_], options: BeamOptions) -> _Beam:
        """Every row by every label of one row of the matrix, and the best k kept (Algorithm 1, lines 5-22)."""
        own = grid.log_probs[row]  # [L]
        successor = grid.successor[self.state][:, grid.label_class]  # [k, L]
        to_go = grid.distance[self.state]  # [k]
        urgency = np.minimum(1.0, to_go / (grid.rows - row)) ** options.gamma
        alpha = (options.alpha_min + (1.0 - options.alpha_min) * urgency)[:, None]
        gains = grid.distance[successor] < to_go[:, None]
        step = np.where(gains, alpha * own.max() + (1.0 - alpha) * own, own)  # [k, L]
        score = np.where(possible[successor], self.score[:, None] + step, _OFF).reshape(-1)
        log_prob = (self.log_prob[:, None] + own).reshape(-1)
        kept = np.flatnonzero(score > _OFF)
        if len(kept) > options.beams:
            least = np.partition(score[kept], -options.beams)[-options.beams]
            kept = kept[score[kept] >= least]  # includes all ties with the last; the sort below decides among them
        parent, label = np.divmod(kept, len(own))
        order = np.lexsort((parent, label, -own[label], -log_prob[kept], -score[kept]))[: options.beams]
        kept, parent, label = kept[order], parent[order], label[order]
        state = successor[parent, label].astype(np.int64)
        return _Beam(label, parent, state, score[kept], log_prob[kept])


def _acceptable(grid: _Grid, cancelled: CancelCheck | None) -> NDArray[np.bool_]:
    """[j, s]: whether exactly j labels more can be accepted from s; bool [T + 1, S]."""
    possible = np.empty((grid.rows + 1, grid.states), dtype=bool)
    possible[0] = grid.distance == 0
    for left in range(grid.rows):
        _ask(cancelled)
        for block, successor in grid.blocks():
            possible[left + 1, block] = possible[left][successor].any(axis=1)
    return possible


def _impossible(grid: _Grid, cancelled: CancelCheck | None) -> LengthImpossible:
    """The error for T labels, with the nearest accepted lengths below and above T.

    The longer length is found from the states that exactly T labels reach.
    """
    shorter = 0 if grid.distance[grid.start] == 0 else None
    reached = np.zeros(grid.states, dtype=bool)
    reached[grid.start] = True
    for length in range(1, grid.rows + 1):
        _ask(cancelled)
        after = np.zeros_like(reached)
        after[grid.successor[reached]] = True
        reached = after & (grid.distance != UNREACHABLE)
        if (grid.distance[reached] == 0).any():
            shorter = length
    longer = grid.rows + int(grid.distance[reached].min()) if reached.any() else None
    return LengthImpossible(grid.rows, tuple(length for length in (shorter, longer) if length is not None))


def _ask(cancelled: CancelCheck | None) -> None:
    if cancelled is not None and cancelled():
        raise Cancelled("the decoding was cancelled")
