"""A bigram model of captions, and its optimum under a constraint.

A bigram model depends on the last token alone, so the continuation of a text depends on the pair (automaton state, last
token). The best text of at most T tokens is a longest path over such pairs, which the Viterbi algorithm finds; a bound
on the rest of the path prunes pairs.
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
from decoding.model import ObserveScores, ScoredSequence, Scores, StepInput, WholePrompts

_BACK_OFF = 4.0  # occurrences of a context that weigh as much as the unigrams
_UNSEEN = 0.01  # occurrences added to every id
_IMPOSSIBLE = float("-inf")
_PAIRS_PER_CHUNK = 1 << 9

Reals = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(slots=True)
class BigramSession:
    """The last id of each row, int64 [N]."""

    last: Tensor


class BigramModel(WholePrompts[BigramSession]):
    """A `LanguageModel` with P(next | last) from a table.

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
        """The model of texts, by counts backed off to unigrams. Each text has its first and last id."""
        pairs = np.concatenate([np.stack([text[:-1], text[1:]], axis=1) for text in map(np.asarray, texts)])
        count = np.zeros((vocab_size, vocab_size), dtype=np.float32)
        np.add.at(count, (pairs[:, 0], pairs[:, 1]), 1.0)
        unigram = count.sum(axis=0) + _UNSEEN
        unigram /= unigram.sum()
        context = count.sum(axis=1, keepdims=True)
        probs = (count + _BACK_OFF * unigram) / (context + _BACK_OFF)
        return cls(torch.from_numpy(np.log(probs)), eos_ids)

    def prefill(self, prompt_ids: Sequence[int]) -> tuple[BigramSession, Tensor]:
        last = prompt_ids[-1] if prompt_ids else self.eos_ids[0]  # a text starts after the end-of-text token
        return BigramSession(torch.tensor([last])), self.log_probs[last]

    def step(self, feeds: Sequence[StepInput[BigramSession]]) -> list[Scores]:
        return [self._extend(feed) for feed in feeds]

    def _extend(self, feed: StepInput[BigramSession]) -> Scores:
        feed.session.last = feed.tokens[:, -1]
        chunk = self.log_probs[feed.tokens[:, :-1], feed.tokens[:, 1:]]
        return Scores(self.log_probs[feed.session.last], chunk, self.log_probs[feed.tokens[:, :-1]].amax(dim=2))

    def bytes_for(self, prompt_tokens: int, rows: int, max_tokens: int, scratch_bytes: int = 0) -> int:
        return 8 * rows + 4 * rows * self.vocab_size

    def score(
        self, prompt_ids: Sequence[int], tokens: Sequence[int], observe: ObserveScores | None = None
    ) -> ScoredSequence:
        previous = [prompt_ids[-1] if prompt_ids else self.eos_ids[0], *tokens[:-1]]
        rows = self.log_probs[torch.tensor(previous)]
        if observe is not None:
            observe(0, rows)
        token_log_probs = rows.gather(1, torch.tensor(tokens)[:, None])[:, 0]
        return ScoredSequence(tuple(token_log_probs.tolist()), tuple(rows.amax(dim=1).tolist()))


@dataclass(frozen=True, slots=True)
class _Front:
    """The M live pairs of a length, sorted by state, then id.

    state     int64 [M]
    last      int64 [M]
    log_prob  float64 [M]
    parent    int64 [M]    index of the pair before, in the front before
    """

    state: Integers
    last: Integers
    log_prob: Reals
    parent: Integers


def most_probable(
    model: BigramModel,
    prompt_ids: Sequence[int],
    automaton: TokenAutomaton,
    max_tokens: int,
    lower_bound: float = _IMPOSSIBLE,
) -> tuple[tuple[int, ...], float]:  # fmt: skip
    """The exact most probable satisfying text, and its log-prob. It has at most `max_tokens` tokens including EOS.

    lower_bound  the log-prob of some satisfying text; it only speeds up the search

    The rest of a text costs at least as much as the cheapest path to acceptance on which each token follows its best
    context. A pair is dropped if this bound makes it worse than the best text so far, or if it was reached before in
    fewer tokens at no greater cost. Raises ValueError if no text of at most `max_tokens` tokens satisfies the
    constraint, or if the automaton is too large for the bound.
    """
    table = model.log_probs.double()
    ahead = cost_to_go(automaton, table.amax(dim=0))
    if ahead is None:
        raise ValueError("the automaton is too large")
    search = _Viterbi(table, automaton, ahead.numpy(), lower_bound - 1e-6)  # rounding must not drop the known text
    last = prompt_ids[-1] if prompt_ids else model.eos_ids[0]
    front = _Front(np.array([automaton.start]), np.array([last]), np.zeros(1), np.zeros(1, dtype=np.int64))
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
    """The best end and the best log-prob of each pair so far."""

    def __init__(self, table: Tensor, automaton: TokenAutomaton, ahead: Reals, lower_bound: float) -> None:
        self._table, self._automaton, self._ahead, self._floor = table, automaton, ahead, lower_bound
        self._best_context = table.amax(dim=0).numpy()
        self._visited_keys, self._visited_log_prob = np.zeros(0, dtype=np.int64), np.zeros(0)  # sorted by key
        self.best = _IMPOSSIBLE
        self.end: tuple[int, int, int] | None = None  # the front before the end, the pair in it, the EOS id

    def advance(self, front: _Front, step: int, budget_after: int) -> _Front:
        """The front one token later; also updates the best end. `step` is the number of fronts so far."""
        first = np.flatnonzero(np.diff(front.state, prepend=-1))
        keys, sums, parents = [], [], []
        for begin, end in zip(first.tolist(), [*first[1:].tolist(), len(front.state)], strict=True):
            successors = self._automaton.successors(int(front.state[begin]))[self._automaton.token_class]  # [V]
            distance = self._automaton.distance[successors]
            bound = front.log_prob[begin:end].max() + self._best_context - self._ahead[successors]
            token = np.flatnonzero((distance <= budget_after) & (bound > self._floor))
            if not len(token):
                continue
            total, parent = self._best_parents(front, begin, end, token)
            successors = successors[token]
            end_log_prob = np.where(distance[token] == 0, total, _IMPOSSIBLE)
            if end_log_prob.max() > self.best:
                self.best, at = float(end_log_prob.max()), int(end_log_prob.argmax())
                self.end = (step - 1, int(parent[at]), int(token[at]))
                self._floor = max(self._floor, self.best)
            live = (distance[token] > 0) & (total - self._ahead[successors] > self._floor)
            keys.append(successors[live] * len(self._table) + token[live])
            sums.append(total[live])
            parents.append(parent[live])
        if not keys:
            return _Front(front.state[:0], front.last[:0], front.log_prob[:0], front.parent[:0])
        return self._improve(np.concatenate(keys), np.concatenate(sums), np.concatenate(parents))

    def _best_parents(self, front: _Front, begin: int, end: int, token: Integers) -> tuple[Reals, Integers]:
        """The best predecessor pair of each id: sums and indices. Pairs begin..end-1 are considered."""
        best = torch.full((len(token),), _IMPOSSIBLE, dtype=torch.float64)
        parent = torch.zeros(len(token), dtype=torch.int64)
        columns = torch.from_numpy(token)
        for at in range(begin, end, _PAIRS_PER_CHUNK):
            chunk = slice(at, min(at + _PAIRS_PER_CHUNK, end))
            rows = self._table[torch.from_numpy(front.last[chunk])].index_select(1, columns)  # [n, tokens]
            total, row = (rows + torch.from_numpy(front.log_prob[chunk])[:, None]).max(dim=0)
            improves = total > best
            best, parent = torch.where(improves, total, best), torch.where(improves, row + at, parent)
        return best.numpy(), parent.numpy()

    def _improve(self, key: Integers, log_prob: Reals, parent: Integers) -> _Front:
        """The best path to each pair if it improves on earlier ones."""
        order = np.lexsort((-log_prob, key))
        order = order[np.flatnonzero(np.diff(key[order], prepend=-1))]
        key, log_prob, parent = key[order], log_prob[order], parent[order]
        previous_best = np.full(len(key), _IMPOSSIBLE)
        if len(self._visited_keys):
            at = np.minimum(np.searchsorted(self._visited_keys, key), len(self._visited_keys) - 1)
            previous_best = np.where(self._visited_keys[at] == key, self._visited_log_prob[at], _IMPOSSIBLE)
        improves = log_prob > previous_best
        key, log_prob, parent = key[improves], log_prob[improves], parent[improves]
        all_keys = np.concatenate([key, self._visited_keys])
        sums = np.concatenate([log_prob, self._visited_log_prob])
        order = np.lexsort((-sums, all_keys))
        order = order[np.flatnonzero(np.diff(all_keys[order], prepend=-1))]
        self._visited_keys, self._visited_log_prob = all_keys[order], sums[order]
        state, last = np.divmod(key, len(self._table))
        return _Front(state, last, log_prob, parent)
