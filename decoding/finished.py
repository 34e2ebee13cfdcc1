"""The answers that a search has found so far: the best ones, all distinct. Knows ids and sums, not how they came."""

from __future__ import annotations

from math import inf

from decoding.options import SearchOptions
from decoding.runs import Hypothesis, TextOf

Key = tuple[float, float, int, tuple[int, ...]]


class Finished:
    """The `options.n` best answers by the last choice, of those that were added.

    text_of  with it answers are distinct as texts, without it as ids
    """

    def __init__(self, options: SearchOptions, text_of: TextOf | None) -> None:
        self._options, self._text_of = options, text_of
        self._best: dict[bytes | tuple[int, ...], tuple[Key, Hypothesis]] = {}

    def add(self, answer: Hypothesis) -> None:
        """Keeps an answer where it is among the best, and better than what says the same."""
        ids = answer.tokens[:-1]
        said = ids if self._text_of is None else self._text_of(ids)
        found = (self._key(answer), answer)
        self._best[said] = min(self._best.get(said, found), found, key=lambda one: one[0])
        if len(self._best) > self._options.n:
            del self._best[max(self._best, key=lambda text: self._best[text][0])]

    @property
    def complete(self) -> bool:
        """True when there are as many as were asked for."""
        return len(self._best) >= self._options.n

    @property
    def threshold(self) -> float:
        """What the last of them is ranked by, which a better one must pass; -inf while there is room."""
        return -max(key for key, _ in self._best.values())[0] if self.complete else -inf

    def answers(self) -> tuple[Hypothesis, ...]:
        """Best first."""
        return tuple(answer for _, answer in sorted(self._best.values(), key=lambda one: one[0]))

    def _key(self, answer: Hypothesis) -> Key:
        """Lower is better: as asked, then by the other sum, then shorter, then lower ids."""
        shrink = len(answer.tokens) ** self._options.length_power
        score, log_prob = answer.score / shrink, answer.log_prob / shrink
        first, second = (score, log_prob) if self._options.rank_by == "score" else (log_prob, score)
        return -first, -second, len(answer.tokens), answer.tokens
