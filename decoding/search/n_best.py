"""The best answers that a search has found so far, all distinct."""

from __future__ import annotations

from dataclasses import replace
from math import inf

from decoding.generation import Hypothesis, TextOf
from decoding.options import SearchOptions

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
