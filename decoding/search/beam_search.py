"""What both beam searches keep between two forward passes: the beam, its history, and its rows in the model."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from decoding.errors import ModelOutputInvalid, SearchExhausted
from decoding.generation import BeamRow, GenerationSize, Hypothesis, Snapshot, StepEvent, TextOf
from decoding.options import SearchOptions
from decoding.prepared_constraint import PreparedConstraint
from decoding.search.beams import BackPointers, Beams, HostBeams
from decoding.tensors import Array, count_up, like, scratch_bytes

Key = tuple[float, float, int, tuple[int, ...]]


class NBest:
    """The `options.n` best of the answers that were added.

    text_of  with it answers are distinct as texts, without it as ids
    """

    def __init__(self, options: SearchOptions, text_of: TextOf | None) -> None:
        self._options, self._text_of = options, text_of
        self._longest = float(options.max_tokens**options.length_power)  # divides the longest text's log-prob
        self._best: dict[bytes | tuple[int, ...], tuple[Key, Hypothesis]] = {}

    def add(self, answer: Hypothesis) -> None:
        """Keeps an answer where it is among the best, and better than one of the same text."""
        ids = answer.tokens[:-1]
        said = ids if self._text_of is None else self._text_of(ids)
        found = (self._key(answer), answer)
        self._best[said] = min(self._best.get(said, found), found, key=lambda one: one[0])
        if len(self._best) > self._options.n:
            del self._best[max(self._best, key=lambda text: self._best[text][0])]

    @property
    def complete(self) -> bool:
        """Whether there are n answers."""
        return len(self._best) >= self._options.n

    @property
    def floor(self) -> float:
        """The log-prob that a row must exceed to become better than the n-th best; -inf while there are fewer."""
        return -max(key for key, _ in self._best.values())[0] * self._longest if self.complete else -inf

    def answers(self, dropped: float | None) -> tuple[Hypothesis, ...]:
        """Best first, each with how far a better text can be above it.

        dropped  the highest log-prob of all rows that the search dropped; None where it is unknown
        """
        ranked = sorted(self._best.values(), key=lambda one: one[0])
        if dropped is None:
            return tuple(answer for _, answer in ranked)
        best = max(dropped / self._longest, -ranked[0][0][0])
        return tuple(replace(answer, proven_gap=best + key[0]) for key, answer in ranked)

    def _key(self, answer: Hypothesis) -> Key:
        """Lower is better: by `rank_by`, then by the other sum, then shorter, then lower ids."""
        divisor = len(answer.tokens) ** self._options.length_power
        values = answer.log_prob / divisor, answer.score / divisor
        first, second = reversed(values) if self._options.rank_by == "score" else values
        return -first, -second, len(answer.tokens), answer.tokens


class BeamSearch:
    """The part of a `Generation` that does not depend on the algorithm.

    rows     the most rows that the algorithm reads side by side
    start    the automaton's state before the answer; None: the automaton's own
    text_of  with it answers are distinct as texts, without it as ids
    """

    def __init__(
        self, constraint: PreparedConstraint, options: SearchOptions, rows: int, start: int | None,
        text_of: TextOf | None,
    ) -> None:
        self._options, self._eos_ids = options, constraint.automaton.eos_ids
        self._tables = constraint.tables.for_search()
        self._device = constraint.tables.distance.device
        scratch = scratch_bytes(rows, len(self._tables.token_class), self._device)
        self.size = GenerationSize(rows, options.max_tokens, scratch)
        self._beams = Beams.start(constraint.automaton.start if start is None else start, self._tables.distance)
        self._columns = self._before = HostBeams.of(self._beams, self._tables)
        self._fed = np.zeros(1, dtype=np.int64)  # for each row of the beam, the row of the last feed that it extends
        self._history, self._finished = BackPointers(), NBest(options, text_of)

    @property
    def done(self) -> bool:
        return not self._columns.live.size

    def feed(self) -> tuple[Tensor, Tensor]:
        """The last token of each live row."""
        live = self._columns.live
        parents = self._fed[live]
        self._fed = np.zeros(self._columns.rows, dtype=np.int64)
        self._fed[live] = np.arange(len(live))
        return self._on_device(parents), self._on_device(self._columns.token[live, None])

    @property
    def _budget_before(self) -> int:
        """T - t + 1, the tokens that may still be written."""
        return self._options.max_tokens - len(self._history)

    def _take(self, beams: Beams, *, keep_finished: bool) -> Snapshot:
        """Makes `beams` the present beam, and collects its finished rows. Raises ModelOutputInvalid, SearchExhausted.

        keep_finished  whether finished rows stay in the beam; they are behind the live ones where they do not
        """
        columns = HostBeams.of(beams, self._tables)
        if np.isnan(columns.score).any():
            raise ModelOutputInvalid("the model's log-probs hold NaN, or none of them is finite")
        if not columns.rows and not self._finished.complete:
            raise SearchExhausted(f"no row could be extended with {self._budget_before} tokens left")
        self._before, self._columns, self._fed = self._columns, columns, self._fed[columns.parent]
        self._history.add(columns)
        kept = columns.rows if keep_finished else len(columns.live)
        self._beams = beams if kept == len(beams.token) else beams.select(count_up(beams.token, kept))
        if not keep_finished or self.done:
            texts = self._history.tokens(columns.finished, len(self._history), self._eos_ids)
            for row, ids in zip(columns.finished.tolist(), texts, strict=True):
                self._finished.add(Hypothesis(ids, float(columns.score[row]), float(columns.log_prob[row])))
        return self._snapshot()

    def _array(self, numbers: Array) -> Array:
        """In the library and on the device of the search's own arrays."""
        return like(self._tables.distance, numbers)

    def _on_device(self, numbers: NDArray[np.int64]) -> Tensor:
        """On the model's device."""
        return torch.from_numpy(np.ascontiguousarray(numbers)).to(self._device)

    def _alpha(self, distance: int, budget_before: int) -> float:
        """The push-up of a row at a step; 0 where the algorithm has none."""
        return 0.0

    def _snapshot(self) -> Snapshot:
        """The present beam, put into words when a listener reads it; what it refers to never changes."""
        columns, before, history, steps = self._columns, self._before, self._history, len(self._history)
        budget_after = self._budget_before

        def event() -> StepEvent:
            ids = history.tokens(np.arange(columns.rows), steps, self._eos_ids)
            alpha = [self._alpha(int(before.distance[parent]), budget_after + 1) for parent in columns.parent]
            numbers = (columns.parent.tolist(), columns.state.tolist(), columns.distance.tolist(), alpha)
            sums = (columns.score.tolist(), columns.log_prob.tolist())
            return StepEvent(steps, budget_after, tuple(map(BeamRow, ids, *numbers, *sums)))

        return event
