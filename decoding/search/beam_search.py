"""The protocol of a search, and the base class of both searches.

The base class holds the beam, its history and the best answers, which do not depend on the algorithm.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from math import inf
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from decoding.errors import ModelOutputInvalid, SearchExhausted
from decoding.generation import BeamRow, BeamStep, Generation, GenerationSize, Hypothesis, Snapshot, TextOf
from decoding.model import Scores
from decoding.options import SearchOptions
from decoding.search.beams import BackPointers, Beams, HostBeams
from decoding.tensors import Array, TokenStates, arange, like, scratch_bytes, to_device

Key = tuple[float, float, int, tuple[int, ...]]


class NBest:
    """The `options.n` best of the answers that were added.

    text_of  with it answers are distinct as texts, without it as ids

    >>> best = NBest(SearchOptions(max_tokens=4, n=2), text_of=None)
    >>> for tokens, log_prob in (((5, 0), -3.0), ((6, 0), -1.0), ((7, 0), -2.0)):
    ...     best.add(Hypothesis(tokens=tokens, score=log_prob, log_prob=log_prob))
    >>> [answer.tokens for answer in best.answers(dropped=None)]
    [(6, 0), (7, 0)]
    """

    def __init__(self, options: SearchOptions, text_of: TextOf | None) -> None:
        self._options, self._text_of = options, text_of
        self._max_divisor = float(options.max_tokens**options.length_power)  # of the longest text's log-prob
        # An answer by its text, below its key. Keys hold the ids, so no two are equal and entries compare by them.
        self._best: dict[bytes | tuple[int, ...], tuple[Key, bytes | tuple[int, ...], Hypothesis]] = {}

    def add(self, answer: Hypothesis) -> None:
        """Add an answer that is among the best. Of answers with one text, the better one stays."""
        ids = answer.tokens[:-1]
        text = ids if self._text_of is None else self._text_of(ids)
        key = self._key(answer)
        if text not in self._best or key < self._best[text][0]:
            self._best[text] = key, text, answer
        if len(self._best) > self._options.n:
            del self._best[max(self._best.values())[1]]

    @property
    def complete(self) -> bool:
        """Whether there are n answers."""
        return len(self._best) >= self._options.n

    def excludes(self, log_prob: float, score: float, tokens: int) -> bool:
        """Whether an answer with these sums is surely not among the best."""
        return self.complete and self._values(log_prob, score, tokens)[0] > max(self._best.values())[0][0]

    @property
    def floor(self) -> float:
        """The log-prob that a row must exceed to enter the n-best list.

        It is -inf while there are fewer than n answers.
        """
        # Of a negative sum the largest divisor makes the best value: no extension of a row can be worth more.
        return -max(self._best.values())[0][0] * self._max_divisor if self.complete else -inf

    def answers(self, dropped: float | None) -> tuple[Hypothesis, ...]:
        """The answers, best first. Each has a bound on how far a better text can be above it.

        dropped  the highest log-prob of all rows that the search dropped; None where it is unknown
        """
        ranked = sorted(self._best.values())
        if dropped is None:
            return tuple([answer for _, _, answer in ranked])
        # Log-probs only fall, so this bounds the value of every text, whether or not the search followed it.
        bound = max(dropped / self._max_divisor, -ranked[0][0][0])
        return tuple([replace(answer, proven_gap=bound + key[0]) for key, _, answer in ranked])

    def _key(self, answer: Hypothesis) -> Key:
        """The sort key of an answer, lower is better.

        It compares `rank_by`, then the other sum, then fewer tokens, then lower ids.
        """
        first, second = self._values(answer.log_prob, answer.score, len(answer.tokens))
        return first, second, len(answer.tokens), answer.tokens

    def _values(self, log_prob: float, score: float, tokens: int) -> tuple[float, float]:
        """The first two parts of a sort key."""
        divisor = tokens**self._options.length_power
        values = -(log_prob / divisor), -(score / divisor)
        return values[::-1] if self._options.rank_by == "score" else values


class Search(Generation, Protocol):
    """A generation that looks for the best answers. Each algorithm is one class: `AbsSearch` and `BankedSearch`."""

    def feed(self) -> tuple[Tensor, Tensor]:
        """The rows to extend, and the tokens that extend them."""

    def answers(self) -> tuple[Hypothesis, ...]:
        """The answers, best first, all distinct; at least one."""


class BeamSearch(ABC):
    """A beam search between two forward passes. It obeys `Search`; `advance` and `answers` make the algorithm.

    rows     the most rows that the algorithm reads side by side
    states   the automaton's states for this generation
    text_of  with it answers are distinct as texts, without it as ids
    """

    def __init__(
        self, options: SearchOptions, rows: int, states: TokenStates, *, text_of: TextOf | None
    ) -> None:
        self._options, self._states, self._device = options, states, states.tokens.device
        self._eos_ids = tuple(states.tokens.eos_ids.tolist())
        scratch = scratch_bytes(rows, len(states.tokens.token_class), self._device)
        states_bytes = states.bytes_max(rows, options.max_tokens)
        self.size = GenerationSize(rows, options.max_tokens, scratch, states_bytes)
        # The beam lies on the device as `_beams` and on the host as `_host`; `_host_before` is the one before it.
        self._beams = Beams.start(states.start, states.tokens.token_class)
        self._host = self._host_before = HostBeams.of(self._beams, states)
        self._fed = np.zeros(1, dtype=np.int64)  # for each row of the beam, the row of the last feed that it extends
        self._history, self._n_best = BackPointers(), NBest(options, text_of)

    @property
    def done(self) -> bool:
        """True where no live row is left."""
        return not self._host.live.size

    @abstractmethod
    def advance(self, scores: Scores) -> list[Snapshot]:
        """One step for each token of a row of the feed. Raises ModelOutputInvalid, SearchExhausted."""

    @abstractmethod
    def answers(self) -> tuple[Hypothesis, ...]:
        """The answers, best first."""

    def feed(self) -> tuple[Tensor, Tensor]:
        """The last token of each live row."""
        live = self._host.live
        parents = self._fed[live]
        self._fed = np.zeros(len(self._host.token), dtype=np.int64)
        self._fed[live] = np.arange(len(live))
        return self._on_device(parents), self._on_device(self._host.token[live, None])

    @property
    def _budget_before(self) -> int:
        """T - t + 1, the tokens that may still be written."""
        return self._options.max_tokens - len(self._history)

    def _take(self, beams: Beams, *, keep_finished: bool) -> Snapshot:
        """Makes `beams` the present beam, and collects its finished rows. Raises ModelOutputInvalid, SearchExhausted.

        keep_finished  whether finished rows stay in the beam; they are behind the live ones where they do not
        """
        host = HostBeams.of(beams, self._states)
        if np.isnan(host.score).any():
            raise ModelOutputInvalid("the model's log-probs hold NaN, or none of them is finite")
        rows, finished = len(host.token), host.finished
        if not rows and not self._n_best.complete:
            raise SearchExhausted(f"no row could be extended with {self._budget_before} tokens left")
        self._host_before, self._host, self._fed = self._host, host, self._fed[host.parent]
        self._history.add(host)
        retained = rows if keep_finished else len(host.live)
        self._beams = beams if retained == len(beams.token) else beams.select(arange(beams.token, retained))
        # With finished rows in the beam a later step may still push them out, so the last beam alone decides.
        if not keep_finished or self.done:
            if not keep_finished:  # these rows end here, so their values are known without their ids
                length = len(self._history)
                finished = np.array(
                    [row for row in finished.tolist()
                     if not self._n_best.excludes(float(host.log_prob[row]), float(host.score[row]), length)],
                    dtype=np.int64,
                )  # fmt: skip
            texts = self._history.tokens(finished, len(self._history), self._eos_ids)
            for row, ids in zip(finished.tolist(), texts, strict=True):
                self._n_best.add(
                    Hypothesis(tokens=ids, score=float(host.score[row]), log_prob=float(host.log_prob[row]))
                )
        return self._snapshot()

    def _on_device(self, numbers: NDArray[Any]) -> Tensor:
        """On the model's device."""
        return to_device(numbers, self._device)

    def _array(self, numbers: Array) -> Array:
        """In the library and on the device of the search's own arrays."""
        return like(self._states.tokens.token_class, numbers)

    def _alpha(self, distance: int, budget_before: int) -> float:
        """The push-up of a row at a step. It is 0 where the algorithm has none."""
        return 0.0

    def _snapshot(self) -> Snapshot:
        """The present beam, which becomes an event when a listener reads it."""
        # The arrays of a step are replaced and never changed, so the event may be made later, in another thread.
        host, before, history, steps = self._host, self._host_before, self._history, len(self._history)
        budget_after = self._budget_before

        def event() -> BeamStep:
            ids = history.tokens(np.arange(len(host.token)), steps, self._eos_ids)
            alpha = [self._alpha(int(before.distance[parent]), budget_after + 1) for parent in host.parent]
            columns = zip(ids, host.parent.tolist(), host.state.tolist(), host.distance.tolist(), alpha,
                          host.score.tolist(), host.log_prob.tolist(), strict=True)
            rows = tuple(
                BeamRow(tokens=tokens, parent=parent, state=state, distance=distance, alpha=push, score=score,
                        log_prob=log_prob)
                for tokens, parent, state, distance, push, score, log_prob in columns
            )
            return BeamStep(steps, budget_after, rows)

        return event
