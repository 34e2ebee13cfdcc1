"""Decodes a matrix of log-probs over labels. The answer has exactly T labels that a constraint accepts: the best of
all, or the best found by beams.

For models whose steps do not depend on the labels before them: image streams, classifiers, event logs. Then the best
accepted sequence is a longest path through (steps) x (states), found by the Viterbi algorithm without a search. The
automaton is a plain table over labels: ids 0..L-1 are the labels, L is the end, which is never written. So distances
are counted in labels: 0 where a sequence may end.
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

_CELLS_AT_ONCE = 2**18  # cells of a (states x classes) table that are computed together
_STEP_BYTES, _LINK_BYTES = 128, 16  # of `beam_labels`: for a row and a label of one step, for a row of each step
_DEAD = float("-inf")  # the value of a sequence that cannot be accepted

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
    """T accepted labels by number, with their log-probs.

    `log_probs` are floored, `log_prob` is their sum, and `score` is the pushed sum of beams.
    """

    labels: tuple[int, ...]
    log_probs: tuple[float, ...]
    log_prob: float
    score: float


def best_labels(
    log_probs: NDArray[np.float64], automaton: TokenAutomaton, cancelled: CancelCheck | None = None
) -> LabelPath:
    """The most probable accepted sequence of exactly T labels. Of equals it is the one with the lower label first.

    log_probs  float64 [T, L]; values below LOG_PROB_FLOOR, -inf too, count as the floor

    Viterbi, backwards over the rows; takes T x S x 8 bytes. Raises LengthImpossible where the constraint accepts no
    sequence of T labels, ModelOutputInvalid, VocabularyMismatch, Cancelled.

    An automaton that accepts the labels 1, 0:

    >>> best_labels(np.array([[-0.1, -2.0], [-0.5, -3.0]]), automaton)
    LabelPath(labels=(1, 0), log_probs=(-2.0, -0.5), log_prob=-2.5, score=-2.5)
    """
    trellis = _Trellis.of(log_probs, automaton)
    value = np.empty((trellis.rows + 1, trellis.states))  # [t, s]: the best sum of rows t.. that is accepted from s
    value[trellis.rows] = np.where(trellis.distance == 0, 0.0, _DEAD)
    for row in range(trellis.rows - 1, -1, -1):
        _raise_if_cancelled(cancelled)
        # Labels of a class lead to one state, so the best one of each class stands for all.
        for block, successor in trellis.blocks():
            value[row, block] = (trellis.class_best[row] + value[row + 1][successor]).max(axis=1)
    if value[0, trellis.start] == _DEAD:
        raise _length_error(trellis, cancelled)
    # Forwards along the best values: no back-pointers are stored, and ties go to the lower label.
    labels, state = [], trellis.start
    for row in range(trellis.rows):
        after = trellis.log_probs[row] + value[row + 1][trellis.successor[state, trellis.label_class]]  # [L]
        labels.append(int(after.argmax()))  # the first of equals
        state = int(trellis.successor[state, trellis.label_class[labels[-1]]])
    label_log_probs = trellis.label_log_probs(labels)
    return LabelPath(tuple(labels), label_log_probs, sum(label_log_probs), sum(label_log_probs))


def beam_labels(
    log_probs: NDArray[np.float64],
    automaton: TokenAutomaton,
    options: BeamOptions,
    cancelled: CancelCheck | None = None,
) -> LabelPath:
    """An accepted sequence of exactly T labels by Algorithm 1. It is the most probable one of the last beam.

    log_probs  as in `best_labels`

    Candidates are ranked by score, the row's log-prob, the label's, lower label, lower row. Takes T x S bytes. Raises
    the errors of `best_labels`.
    """
    trellis = _Trellis.of(log_probs, automaton)
    # All rows end at step T, so a row is dropped where it cannot be accepted in EXACTLY the steps left. A distance says
    # only within how many steps it can.
    acceptance = _acceptance_table(trellis, cancelled)
    if not acceptance[trellis.rows, trellis.start]:
        raise _length_error(trellis, cancelled)
    beam = _Beam.first(trellis.start)
    links = []
    for row in range(trellis.rows):
        _raise_if_cancelled(cancelled)
        beam = beam.expand(trellis, row, acceptance[trellis.rows - row - 1], options)
        links.append((beam.parent, beam.label))
    best = int(np.lexsort((-beam.score, -beam.log_prob))[0])
    log_prob, score, labels = float(beam.log_prob[best]), float(beam.score[best]), []
    for parent, label in reversed(links):
        labels.append(int(label[best]))
        best = int(parent[best])
    labels.reverse()
    return LabelPath(tuple(labels), trellis.label_log_probs(labels), log_prob, score)


def beam_bytes(rows: int, labels: int, beams: int) -> int:
    """The most bytes that `beam_labels` takes beside its tables over the states.

    rows, labels  T and L, the shape of the matrix
    """
    return beams * (_STEP_BYTES * labels + _LINK_BYTES * rows)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _Trellis:
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
    def of(cls, log_probs: NDArray[np.float64], automaton: TokenAutomaton) -> _Trellis:
        labels = log_probs.shape[1]
        if automaton.eos_ids != (labels,) or automaton.vocabulary_size != labels + 1:
            raise VocabularyMismatch(automaton.vocabulary_size, labels + 1)
        if automaton.letter_states != 1 or automaton.edge_midchar.size or automaton.sparse_class.size:
            raise ValueError("an automaton over labels is a plain table")
        if np.isnan(log_probs).any() or (log_probs == np.inf).any():
            raise ModelOutputInvalid("the log-probs hold NaN or infinity")
        floored = np.maximum(log_probs, LOG_PROB_FLOOR)
        classes, label_class = np.unique(automaton.token_class[:labels], return_inverse=True)
        # Classes that no label has are left out, and the classes of labels are renumbered from 0.
        order = np.argsort(label_class, kind="stable")
        first = np.searchsorted(label_class[order], np.arange(len(classes)))
        # The automaton counts the end as a token. The state after the end is dead to labels.
        tokens = automaton.distance.astype(np.int64)
        distance = np.where((tokens == UNREACHABLE) | (tokens == 0), UNREACHABLE, tokens - 1)
        table = automaton.edge_target[automaton.edge_boundary[automaton.dense_row][:, classes]]
        best = np.maximum.reduceat(floored[:, order], first, axis=1)
        return cls(
            log_probs=floored, class_best=best, label_class=label_class, successor=table, distance=distance,
            start=automaton.start,
        )

    @property
    def rows(self) -> int:
        return len(self.log_probs)

    @property
    def states(self) -> int:
        return len(self.distance)

    def label_log_probs(self, labels: list[int]) -> tuple[float, ...]:
        """The log-prob of each of T labels."""
        return tuple(self.log_probs[np.arange(self.rows), labels].tolist())

    def blocks(self) -> Iterator[tuple[slice, NDArray[np.int32]]]:
        """The successors of all states, some states at a time."""
        size = max(1, _CELLS_AT_ONCE // self.successor.shape[1])
        for begin in range(0, self.states, size):
            yield slice(begin, begin + size), self.successor[begin : begin + size]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _Beam:
    """The k rows after a step.

    The fields `label`, `parent` and `state` are int64 [k], `score` and `log_prob` float64 [k].
    """

    label: NDArray[np.int64]
    parent: NDArray[np.int64]
    state: NDArray[np.int64]
    score: NDArray[np.float64]
    log_prob: NDArray[np.float64]

    @classmethod
    def first(cls, start: int) -> _Beam:
        zero = np.zeros(1, dtype=np.int64)
        return cls(label=zero, parent=zero, state=zero + start, score=np.zeros(1), log_prob=np.zeros(1))

    def expand(self, trellis: _Trellis, row: int, acceptance: NDArray[np.bool_], options: BeamOptions) -> _Beam:
        """Expand every row by every label, and keep the best k rows.

        The labels' log-probs are one row of the matrix (Algorithm 1, lines 5-22).
        """
        log_probs = trellis.log_probs[row]  # [L]
        successor = trellis.successor[self.state][:, trellis.label_class]  # [k, L]
        distance = trellis.distance[self.state]  # [k]
        urgency = np.minimum(1.0, distance / (trellis.rows - row)) ** options.gamma  # Equation 2, with T - t + 1
        alpha = (options.alpha_min + (1.0 - options.alpha_min) * urgency)[:, None]
        progress = trellis.distance[successor] < distance[:, None]  # [k, L]
        step = np.where(progress, alpha * log_probs.max() + (1.0 - alpha) * log_probs, log_probs)  # [k, L]
        score = np.where(acceptance[successor], self.score[:, None] + step, _DEAD).reshape(-1)
        log_prob = (self.log_prob[:, None] + log_probs).reshape(-1)
        candidates = np.flatnonzero(score > _DEAD)
        if len(candidates) > options.beams:
            least = np.partition(score[candidates], -options.beams)[-options.beams]
            candidates = candidates[score[candidates] >= least]  # with all ties, which the sort below settles
        parent, label = np.divmod(candidates, len(log_probs))
        keys = (parent, label, -log_probs[label], -log_prob[candidates], -score[candidates])
        order = np.lexsort(keys)[: options.beams]
        candidates, parent, label = candidates[order], parent[order], label[order]
        state = successor[parent, label].astype(np.int64)
        return _Beam(label=label, parent=parent, state=state, score=score[candidates], log_prob=log_prob[candidates])


def _acceptance_table(trellis: _Trellis, cancelled: CancelCheck | None) -> NDArray[np.bool_]:
    """Whether exactly j labels more can be accepted from s. The result is bool [T + 1, S], by j and s."""
    acceptance = np.empty((trellis.rows + 1, trellis.states), dtype=bool)
    acceptance[0] = trellis.distance == 0
    for left in range(trellis.rows):
        _raise_if_cancelled(cancelled)
        for block, successor in trellis.blocks():
            acceptance[left + 1, block] = acceptance[left][successor].any(axis=1)
    return acceptance


def _length_error(trellis: _Trellis, cancelled: CancelCheck | None) -> LengthImpossible:
    """The error for an impossible length T. It names the nearest accepted lengths below and above T."""
    # Forward reachability by length: the last accepted one is the shorter length, and the least distance of the states
    # that exactly T labels reach gives the longer one.
    shorter = 0 if trellis.distance[trellis.start] == 0 else None
    reached_states = np.zeros(trellis.states, dtype=bool)
    reached_states[trellis.start] = True
    for length in range(1, trellis.rows + 1):
        _raise_if_cancelled(cancelled)
        after = np.zeros_like(reached_states)
        after[trellis.successor[reached_states]] = True
        reached_states = after & (trellis.distance != UNREACHABLE)
        if (trellis.distance[reached_states] == 0).any():
            shorter = length
    longer = trellis.rows + int(trellis.distance[reached_states].min()) if reached_states.any() else None
    return LengthImpossible(trellis.rows, tuple(length for length in (shorter, longer) if length is not None))


def _raise_if_cancelled(cancelled: CancelCheck | None) -> None:
    if cancelled is not None and cancelled():
        raise Cancelled("the decoding was cancelled")
