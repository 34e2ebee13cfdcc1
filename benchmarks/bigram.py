"""A model whose optimum can be computed: bigrams of captions, and the most probable text under a constraint, exactly.

After a token a bigram model has forgotten all before it, so (automaton state, last token) is all that matters for what
follows, and the best text of at most T tokens is a longest path over such pairs: Viterbi, with a bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from compiler.lifting import TokenAutomaton
from decoding.heuristic import cost_to_go
from decoding.model import ScoredSequence, Scores, StepInput

_BACK_OFF = 4.0  # a context seen so often is believed as much as the unigrams are
_UNSEEN = 0.01  # occurrences given to every id
_NONE = float("-inf")
_PAIRS_AT_ONCE = 1 << 9

Reals = NDArray[np.float64]
Wholes = NDArray[np.int64]


@dataclass(slots=True)
class BigramSession:
    """The last id of each row, int64 [N]: all that a bigram model knows."""

    last: Tensor


class BigramModel:
    """P(next | last) from a table; a `LanguageModel`.

    log_probs  float32 [V, V]  row: the last id, column: the next
    """

    device = torch.device("cpu")
    tolerance = 1e-4
    supports_batching = True
    context_length = None

    def __init__(self, log_probs: Tensor, eos_ids: tuple[int, ...]) -> None:
        self.log_probs = log_probs
        self.eos_ids = eos_ids
        self.vocab_size = len(log_probs)

    @classmethod
    def estimated(cls, texts: Iterable[Sequence[int]], vocab_size: int, eos_ids: tuple[int, ...]) -> BigramModel:
        """From texts as ids, begun and ended as the model should: counts, backed off to unigrams."""
        pairs = np.concatenate([np.stack([text[:-1], text[1:]], axis=1) for text in map(np.asarray, texts)])
        count = np.zeros((vocab_size, vocab_size), dtype=np.float32)
        np.add.at(count, (pairs[:, 0], pairs[:, 1]), 1.0)
        unigram = count.sum(axis=0) + _UNSEEN
        unigram /= unigram.sum()
        seen = count.sum(axis=1, keepdims=True)
        probs = (count + _BACK_OFF * unigram) / (seen + _BACK_OFF)
        return cls(torch.from_numpy(np.log(probs)), eos_ids)

    def prefill(self, prompt_ids: Sequence[int]) -> tuple[BigramSession, Tensor]:
        last = prompt_ids[-1] if prompt_ids else self.eos_ids[0]  # what ends a text also begins one
        return BigramSession(torch.tensor([last])), self.log_probs[last]

    def step(self, feeds: Sequence[StepInput[BigramSession]]) -> list[Scores]:
        return [self._extend(feed) for feed in feeds]

    def _extend(self, feed: StepInput[BigramSession]) -> Scores:
        feed.session.last = feed.tokens[:, -1]
        own = self.log_probs[feed.tokens[:, :-1], feed.tokens[:, 1:]]
        return Scores(self.log_probs[feed.session.last], own, self.log_probs[feed.tokens[:, :-1]].amax(dim=2))

    def bytes_for(self, prompt_tokens: int, rows: int, max_tokens: int, scratch_bytes: int = 0) -> int:
        return 8 * rows + 4 * rows * self.vocab_size

    def score(self, prompt_ids: Sequence[int], tokens: Sequence[int]) -> ScoredSequence:
        before = [prompt_ids[-1] if prompt_ids else self.eos_ids[0], *tokens[:-1]]
        rows = self.log_probs[torch.tensor(before)]
        own = rows.gather(1, torch.tensor(tokens)[:, None])[:, 0]
        return ScoredSequence(tuple(own.tolist()), tuple(rows.amax(dim=1).tolist()))


@dataclass(frozen=True, slots=True)
class _Front:
    """The live pairs after so many tokens, by state, then last id. M of them.

    parent    int64 [M]    the pair before, in the front before
    """

    state: Wholes
    last: Wholes
    log_prob: Reals
    parent: Wholes


def most_probable(
    model: BigramModel, prompt_ids: Sequence[int], automaton: TokenAutomaton, max_tokens: int, known: float = _NONE
) -> tuple[tuple[int, ...], float]:
    """The most probable satisfying text of at most `max_tokens` tokens, EOS among them, and its log-prob. Exact.

    known  the log-prob of some satisfying text, for speed: what cannot come up to it is left out early

    What is left of a text costs at least what the cheapest way to acceptance costs when each token follows the context
    that suits it best, so a pair from which even that falls short of the best text known is dropped, and so is a pair
    reached before at no greater cost in fewer tokens. Raises ValueError where no text of so many tokens satisfies, or
    the automaton is too large to bound.
    """
    table = model.log_probs.double()
    ahead = cost_to_go(automaton, table.amax(dim=0))
    if ahead is None:
        raise ValueError("the automaton is too large")
    search = _Viterbi(table, automaton, ahead.numpy(), known - 1e-6)  # rounding must not drop the known text itself
    nothing = np.zeros(1, dtype=np.int64)
    front = _Front(
        nothing + automaton.start, nothing + (prompt_ids[-1] if prompt_ids else model.eos_ids[0]), np.zeros(1), nothing
    )
    fronts = [front]
    for budget_after in range(max_tokens - 1, -1, -1):
        front = search.advance(front, len(fronts), budget_after)
        if not len(front.state):
            break
        fronts.append(front)
    if search.end is None:
        raise ValueError(f"no text of {max_tokens} tokens satisfies the constraint")
    step, pair, eos = search.end
    tokens = [eos]
    for before in reversed(fronts[1 : step + 1]):
        tokens.append(int(before.last[pair]))
        pair = int(before.parent[pair])
    return tuple(reversed(tokens)), search.best


class _Viterbi:
    """What is known on the way: the best end so far, and the best log-prob of each pair so far."""

    def __init__(self, table: Tensor, automaton: TokenAutomaton, ahead: Reals, known: float) -> None:
        self._table, self._automaton, self._ahead, self._floor = table, automaton, ahead, known
        self._best_context = table.amax(dim=0).numpy()
        self._seen_key, self._seen = np.zeros(0, dtype=np.int64), np.zeros(0)
        self.best = _NONE
        self.end: tuple[int, int, int] | None = None  # the front it ends after, the pair there, the EOS id

    def advance(self, front: _Front, step: int, budget_after: int) -> _Front:
        """The pairs one token later; ends are noted. `step` fronts have been made so far."""
        first = np.flatnonzero(np.diff(front.state, prepend=-1))
        keys, sums, parents = [], [], []
        for begin, end in zip(first.tolist(), [*first[1:].tolist(), len(front.state)], strict=True):
            after = self._automaton.successors(int(front.state[begin]))[self._automaton.token_class]  # [V]
            distance = self._automaton.distance[after]
            hope = front.log_prob[begin:end].max() + self._best_context - self._ahead[after]
            token = np.flatnonzero((distance <= budget_after) & (hope > self._floor))
            if not len(token):
                continue
            total, parent = self._best_parents(front, begin, end, token)
            after = after[token]
            ended = np.where(distance[token] == 0, total, _NONE)
            if ended.max() > self.best:
                self.best, place = float(ended.max()), int(ended.argmax())
                self.end = (step - 1, int(parent[place]), int(token[place]))
                self._floor = max(self._floor, self.best)
            kept = (distance[token] > 0) & (total - self._ahead[after] > self._floor)
            keys.append(after[kept] * len(self._table) + token[kept])
            sums.append(total[kept])
            parents.append(parent[kept])
        if not keys:
            return _Front(front.state[:0], front.last[:0], front.log_prob[:0], front.parent[:0])
        return self._improved(np.concatenate(keys), np.concatenate(sums), np.concatenate(parents))

    def _best_parents(self, front: _Front, begin: int, end: int, token: Wholes) -> tuple[Reals, Wholes]:
        """For each of these ids the best of the pairs begin..end-1 to write it after: the sums, and which it is."""
        best = torch.full((len(token),), _NONE, dtype=torch.float64)
        parent = torch.zeros(len(token), dtype=torch.int64)
        columns = torch.from_numpy(token)
        for at in range(begin, end, _PAIRS_AT_ONCE):
            some = slice(at, min(at + _PAIRS_AT_ONCE, end))
            rows = self._table[torch.from_numpy(front.last[some])].index_select(1, columns)  # [n, tokens]
            total, place = (rows + torch.from_numpy(front.log_prob[some])[:, None]).max(dim=0)
            better = total > best
            best, parent = torch.where(better, total, best), torch.where(better, place + at, parent)
        return best.numpy(), parent.numpy()

    def _improved(self, key: Wholes, log_prob: Reals, parent: Wholes) -> _Front:
        """The best way to each pair, where it is better than all ways found before."""
        order = np.lexsort((-log_prob, key))
        order = order[np.flatnonzero(np.diff(key[order], prepend=-1))]
        key, log_prob, parent = key[order], log_prob[order], parent[order]
        known = np.full(len(key), _NONE)
        if len(self._seen_key):
            place = np.minimum(np.searchsorted(self._seen_key, key), len(self._seen_key) - 1)
            known = np.where(self._seen_key[place] == key, self._seen[place], _NONE)
        better = log_prob > known
        key, log_prob, parent = key[better], log_prob[better], parent[better]
        merged, sums = np.concatenate([key, self._seen_key]), np.concatenate([log_prob, self._seen])
        order = np.lexsort((-sums, merged))
        order = order[np.flatnonzero(np.diff(merged[order], prepend=-1))]
        self._seen_key, self._seen = merged[order], sums[order]
        state, last = np.divmod(key, len(self._table))
        return _Front(state, last, log_prob, parent)
