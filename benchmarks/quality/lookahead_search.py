"""Beam searches with costs to go from the literature, for `benchmarks.quality.ablation`.

They rank as `BankedSearch` does without its endings and differ in the cost to go alone. The search is dense: it
computes the scores of all continuations, [R, V], so that a cost to go may depend on the last token and on the budget.
With the default's cost to go it finds the answers of `BankedSearch` without endings.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from math import inf
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from compiler.lifting import UNREACHABLE, TokenAutomaton
from compiler.lifting.token_automaton import DEAD_EDGE
from decoding.forced_tokens import NO_FORCED_TOKEN
from decoding.generation import GenerationSize, Hypothesis, Snapshot
from decoding.heuristic import unigram_prior
from decoding.model import LanguageModel, Scores, StepInput, begin_text
from decoding.options import DEFAULT, NATS_PER_TOKEN
from decoding.prepared_constraint import PreparedConstraint
from decoding.tensors import LOG_PROB_FLOOR, ExplicitStates, rank_in_group

_TEXTS, _TOKENS, _SEED = 256, 24, 7  # of the sample from which the bigram is estimated
_UNIGRAM_WEIGHT = 1.0  # occurrences of a last token that weigh as much as the unigram
_PROB_FLOOR = 1e-9  # of the bigram's probabilities, as PRIOR_FLOOR of the unigram's
_TOKENS_PER_CLASS, _TOKENS_IN_ALL = 2, 200  # the most probable tokens, which paths under the bigram may take

Reals = NDArray[np.float64]
Integers = NDArray[np.int64]


class PriorEstimates:
    """Token probabilities for the costs to go, each estimated lazily."""

    def __init__(self, model: LanguageModel[Any]) -> None:
        self._model = model

    @functools.cached_property
    def unigram(self) -> Reals:
        """The log-prob of each token regardless of context: float64 [V]."""
        return np.asarray(unigram_prior(self._model).numpy())

    @functools.cached_property
    def bigram(self) -> NDArray[np.float32]:
        """The cost in nats of each token after each: float32 [V, V]."""
        probs = _sampled_bigram(self._model, torch.from_numpy(self.unigram).exp().float())
        return np.asarray(-probs.clamp(min=_PROB_FLOOR).log().numpy())


@torch.inference_mode()
def _sampled_bigram(model: LanguageModel[Any], unigram: Tensor) -> Tensor:
    """The mean distribution after each last token in samples: float32 [V, V].

    unigram  float32 [V]  probabilities after a last token that does not occur in the sample
    """
    generator, (session, first) = torch.Generator().manual_seed(_SEED), begin_text(model)
    total, count = _UNIGRAM_WEIGHT * unigram.repeat(len(unigram), 1), torch.full((len(unigram), 1), _UNIGRAM_WEIGHT)
    sample = torch.multinomial(first.double().exp(), _TEXTS, replacement=True, generator=generator)
    parents, ends = torch.zeros(_TEXTS, dtype=torch.int64), torch.tensor(model.eos_ids)
    for _ in range(_TOKENS):
        live = (~torch.isin(sample, ends)).nonzero()[:, 0]
        if not len(live):
            break
        (scores,) = model.step([StepInput(session, parents[live], sample[live, None])])
        probs = scores.log_probs.exp()
        total.index_add_(0, sample[live], probs)
        count.index_add_(0, sample[live], torch.ones(len(live), 1))
        sample = torch.multinomial(probs.double(), 1, generator=generator)[:, 0]
        parents = torch.arange(len(sample))
    return total / count


class CostToGo(Protocol):
    """The estimated weighted cost in nats from a candidate to acceptance. The ranking applies the weight."""

    def __call__(self, state: Integers, token: Integers, budget_after: int) -> Reals:
        """The cost by state and last token with `budget_after` tokens left.

        state, token  int64 [N]
        result        float64 [N]
        """


def explicit_parts(constraint: PreparedConstraint) -> tuple[TokenAutomaton, ExplicitStates]:
    """The automaton, and its states in numpy's arrays. The costs below are those of explicit automata."""
    assert isinstance(constraint.automaton, TokenAutomaton) and isinstance(constraint.tables, ExplicitStates)
    return constraint.automaton, constraint.tables.for_search()


def unigram_viterbi(constraint: PreparedConstraint) -> Reals:
    """The default's cost to go without its weight: float64 [S]."""
    if constraint.cost_to_go is None:
        return np.asarray(NATS_PER_TOKEN * explicit_parts(constraint)[0].distance.astype(np.float64))
    assert isinstance(constraint.cost_to_go, Tensor)
    return np.asarray(constraint.cost_to_go.cpu().numpy())


class UnigramViterbi:
    """The default's cost to go: the cheapest path under the unigram."""

    def __init__(self, estimates: PriorEstimates, constraint: PreparedConstraint, max_tokens: int) -> None:
        self._cost = DEFAULT.cost_weight * unigram_viterbi(constraint)

    def __call__(self, state: Integers, token: Integers, budget_after: int) -> Reals:
        return np.asarray(self._cost[state])


class UnigramLookahead:
    """Minus the log-probability that a text is accepted within the budget. The text is drawn from the unigram.

    It sums over all paths, where Viterbi takes the cheapest. GeLaTo (Zhang et al. 2023) and Ctrl-G (Zhang et al. 2024)
    compute it under a hidden Markov model, with weight 1; a unigram is such a model with one hidden state.
    """

    _WEIGHT: ClassVar[float] = 1.0

    def __init__(self, estimates: PriorEstimates, constraint: PreparedConstraint, max_tokens: int) -> None:
        automaton, _ = explicit_parts(constraint)
        source, edge, log_prob = _merged_edges(automaton, estimates.unigram)
        target, target_letter = automaton.edge_target[edge], automaton.function[automaton.edge_function[edge]]
        first = np.flatnonzero(np.diff(source, prepend=-1))
        accepted = automaton.distance.reshape(-1, automaton.letter_states) == 0
        finished = np.where(accepted, 0.0, -inf)  # [L, Q]
        table = [finished]
        for _ in range(max_tokens):
            ahead = finished[target[:, None], target_letter] + log_prob[:, None]  # [N, Q]
            finished = np.where(accepted, 0.0, -inf)
            finished[source[first]] = np.logaddexp.reduceat(ahead, first, axis=0)
            finished[accepted] = 0.0
            table.append(finished)
        self._cost = -self._WEIGHT * np.stack(table).reshape(max_tokens + 1, -1)  # [T + 1, S]

    def __call__(self, state: Integers, token: Integers, budget_after: int) -> Reals:
        return np.asarray(self._cost[budget_after, state])


def _merged_edges(automaton: TokenAutomaton, unigram: Reals) -> tuple[Integers, Integers, Reals]:
    """The live edges by source state, and their tokens' total log-probability."""
    mass = np.bincount(automaton.token_class, weights=np.exp(unigram), minlength=automaton.classes)
    sources, edges, probs = [], [], []
    for state in range(automaton.states // automaton.letter_states):
        edge, edge_of_class = np.unique(automaton.edges(state), return_inverse=True)
        prob = np.bincount(edge_of_class, weights=mass)
        live = (edge != DEAD_EDGE) & (prob > 0)
        sources.append(np.full(live.sum(), state))
        edges.append(edge[live])
        probs.append(prob[live])
    return np.concatenate(sources), np.concatenate(edges), np.log(np.concatenate(probs))


class BigramViterbi:
    """The cheapest path under a bigram of the model's own samples.

    Value iteration over pairs of a state between characters and a last token. Paths take only the most probable tokens,
    including some of every token class, so that every state has a path. States inside a character keep the unigram's
    cost.
    """

    _WEIGHT: ClassVar[float] = 0.8

    def __init__(self, estimates: PriorEstimates, constraint: PreparedConstraint, max_tokens: int) -> None:
        (automaton, tables), nats = explicit_parts(constraint), estimates.bigram
        self._unigram = self._WEIGHT * unigram_viterbi(constraint)
        boundary_states = automaton.boundary_states * automaton.letter_states
        successor = _all_successors(tables, np.arange(boundary_states))  # [S', C]
        live = (automaton.distance[successor] != UNREACHABLE).any(axis=0)  # [C]
        relevant = _relevant_tokens(automaton.token_class, live, estimates.unigram)
        successor = successor[:, automaton.token_class[relevant]]
        fixed = np.where(automaton.distance == UNREACHABLE, inf, unigram_viterbi(constraint)).astype(np.float32)
        ahead = _bigram_ahead(nats[np.ix_(relevant, relevant)], successor, fixed, automaton)
        self._table = self._WEIGHT * _cheapest(nats[:, relevant], ahead)  # float32 [S between characters, V]

    def __call__(self, state: Integers, token: Integers, budget_after: int) -> Reals:
        cost = self._unigram[state]
        rows_at_boundary = np.flatnonzero(state < len(self._table))
        cost[rows_at_boundary] = self._table[state[rows_at_boundary], token[rows_at_boundary]]
        return np.asarray(cost)


def _all_successors(tables: ExplicitStates, state: Integers) -> Integers:
    """The state after one token of each class: int64 [R, C]."""
    shape = len(state), tables.tokens.classes
    row, token_class = (axis.reshape(-1) for axis in np.indices(shape))
    return np.asarray(tables.successors(state).states(row, token_class)).reshape(shape)


def _relevant_tokens(token_class: Integers, live: NDArray[np.bool_], unigram: Reals) -> Integers:
    """The most probable tokens of each live class, and of all together.

    Without the first part, states whose classes have only rare tokens would have no path.

    token_class  int [V]
    live         bool [C]
    """
    order = np.argsort(-unigram, kind="stable")
    order = order[live[token_class[order]]]
    leading = rank_in_group(token_class[order]) < _TOKENS_PER_CLASS
    return np.unique(np.concatenate([order[leading], order[:_TOKENS_IN_ALL]]))


def _bigram_ahead(
    nats: NDArray[np.float32], successor: Integers, fixed: NDArray[np.float32], automaton: TokenAutomaton
) -> NDArray[np.float32]:
    """The cost to go after each relevant token: float32 [S', J]. The state before it is between characters.

    nats       float32 [J, J]
    successor  int64 [S', J]
    fixed      float32 [S]     the cost of states inside characters; inf where dead
    """
    inside = successor >= len(successor)
    accepted = automaton.distance[: len(successor)] == 0
    last = np.arange(len(nats))
    cost = np.full(successor.shape, inf, dtype=np.float32)  # [S', J], the last index the last token
    cost[accepted] = 0.0
    while True:
        ahead = np.where(inside, fixed[successor], cost[np.where(inside, 0, successor), last])
        lower = _cheapest(nats, ahead)
        lower[accepted] = 0.0
        if not (lower < cost).any():
            return np.asarray(ahead)
        cost = np.minimum(lower, cost)


def _cheapest(nats: NDArray[np.float32], ahead: NDArray[np.float32]) -> NDArray[np.float32]:
    """The least sum of a token's cost and the cost afterwards. The result is float32 [S', N], by state and last token.

    nats   float32 [N, J]
    ahead  float32 [S', J]
    """
    minimum = np.full((len(ahead), len(nats)), inf, dtype=np.float32)
    for token in range(ahead.shape[1]):
        states = np.flatnonzero(np.isfinite(ahead[:, token]))
        minimum[states] = np.minimum(minimum[states], ahead[states, token, None] + nats[:, token])
    return minimum


COSTS_TO_GO: Mapping[str, Callable[[PriorEstimates, PreparedConstraint, int], CostToGo]] = {
    "cost to go: unigram, dense search": UnigramViterbi,
    "cost to go: unigram lookahead": UnigramLookahead,
    "cost to go: bigram": BigramViterbi,
}


class LookaheadSearch:
    """The ranking of `decoding.search.banked_search` with any cost to go; a `Generation`.

    The pool has the best candidates by log-prob minus cost. In it the r-th candidate of a distance is penalised by
    group_cost * ln r.
    """

    def __init__(self, constraint: PreparedConstraint, max_tokens: int, beams: int, cost: CostToGo) -> None:
        automaton, self._tables = explicit_parts(constraint)
        self._forced = constraint.forced
        self.size = GenerationSize(DEFAULT.rows(beams), max_tokens, 0)
        self._rows, self._cost, self._budget_after = DEFAULT.rows(beams), cost, max_tokens
        self._tokens: list[tuple[int, ...]] = [()]
        self._state = np.array([automaton.start])
        self._log_prob = np.zeros(1)
        self._parent = np.zeros(1, dtype=np.int64)
        self._best = Hypothesis(tokens=(), score=-inf, log_prob=-inf)

    @property
    def done(self) -> bool:
        return not self._tokens

    def advance(self, scores: Scores) -> list[Snapshot]:
        self._budget_after -= 1
        token_log_prob = np.maximum(scores.log_probs.numpy(), LOG_PROB_FLOOR).astype(np.float64)  # [R, V]
        log_prob = self._log_prob[:, None] + token_log_prob
        state = _all_successors(self._tables, self._state)[:, self._tables.tokens.token_class]  # [R, V]
        distance = self._tables.distance[state]
        allowed = (distance <= self._budget_after) & self._choice_mask(token_log_prob.shape[1])
        row, token = np.nonzero(allowed & (distance > 0) & (log_prob > self._best.log_prob))
        self._finish(np.where(allowed & (distance == 0), log_prob, -inf))
        candidates = self._select(state[row, token], token, log_prob[row, token], row)
        row, token = row[candidates], token[candidates]
        self._tokens = [(*self._tokens[at], last) for at, last in zip(row.tolist(), token.tolist(), strict=True)]
        self._state, self._log_prob, self._parent = state[row, token], log_prob[row, token], row
        return []

    def feed(self) -> tuple[Tensor, Tensor]:
        last = np.array([[tokens[-1]] for tokens in self._tokens])
        return torch.from_numpy(self._parent), torch.from_numpy(last)

    def answers(self) -> tuple[Hypothesis, ...]:
        return (self._best,)

    def _choice_mask(self, vocabulary_size: int) -> NDArray[np.bool_]:
        """Whether forced tokens allow each row each token: bool [R, V]."""
        mask = np.ones((len(self._state), vocabulary_size), dtype=bool)
        if self._forced is not None:
            forced = self._forced.tokens(self._state, self._budget_after)
            rows = np.flatnonzero(forced != NO_FORCED_TOKEN)
            mask[rows] = False
            mask[rows, forced[rows]] = True
        return mask

    def _finish(self, log_prob: Reals) -> None:
        """Update the best answer by the texts that end here.

        log_prob  float64 [R, V]  -inf: no end
        """
        row, token = np.unravel_index(log_prob.argmax(), log_prob.shape)
        best = float(log_prob[row, token])
        if best > self._best.log_prob:
            self._best = Hypothesis(tokens=(*self._tokens[row], int(token)), score=best, log_prob=best)

    def _select(self, state: Integers, token: Integers, log_prob: Reals, row: Integers) -> Integers:
        """The indices of the candidates that become the next rows, best first."""
        score = log_prob - self._cost(state, token, self._budget_after)
        count = min(DEFAULT.pool * self._rows, len(score))
        pool = np.argpartition(-score, count - 1)[:count] if count else np.zeros(0, dtype=np.int64)
        pool = pool[np.lexsort((row[pool], token[pool], -log_prob[pool], -score[pool]))]
        rank = rank_in_group(self._tables.distance[state[pool]])
        key = score[pool] - DEFAULT.group_cost * np.log1p(rank)
        return np.asarray(pool[np.argsort(-key, kind="stable")][: self._rows])
