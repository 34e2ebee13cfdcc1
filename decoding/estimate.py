"""What acceptance will cost from each state of an automaton, in nats: the least over all ways there, under a prior.

The prior says how probable each token is when nothing is known of the text before it. With it a row that has met an
obligation and one that has put it off can be compared: the second still owes what the obligation costs. It is an
estimate, no bound: a token is often more probable in its place than at large.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from compiler.token_automaton import UNREACHABLE, TokenAutomaton
from decoding.endings import Endings
from decoding.endings_found import endings_found
from decoding.errors import PromptEmpty
from decoding.language_model import Feed, LanguageModel

LEAST_PRIOR = -20.0
"""Floor under a prior's log-probs: what the model has not thought of once is not impossible."""

_TEXTS, _TOKENS = 64, 24  # so many texts are drawn, of so many tokens
_SEED = 20_250
_LONG_SHARE = 0.75  # of the texts: where more of them have not ended, how they would is asked for
_CELLS = 1 << 16  # of rows under work at once: what stays in the processor's cache, and weighs little beside a step
_EDGE_CELLS_MAX = 1 << 23  # of the automaton's table; larger ones get no estimate
_WORK_MAX = 1 << 26  # cells looked at before the rest is left unknown; about a second
_CORRECTING_WORK_MAX = 1 << 21  # the same within a request; some milliseconds

Reals = NDArray[np.float64]
Wholes = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Prior:
    """What is known of a model at large. V ids, on the host.

    log_prob  float64 [V]  of each id wherever it stands, none below LEAST_PRIOR
    end_cost  float64 [V]  nats that the text's end costs right after each id, inf where that has not been seen
    endings   how its texts end, where few of them did in what was drawn; on the model's device, for all constraints
    """

    log_prob: Tensor
    end_cost: Tensor
    endings: Endings | None = None

    @classmethod
    def of_tokens(cls, log_prob: Tensor) -> Prior:
        """Of an end after a token nothing is known."""
        return cls(log_prob, torch.full_like(log_prob, float("inf")))


@torch.inference_mode()
def token_prior(model: LanguageModel[Any]) -> Prior:
    """What is known of a model before it is asked for anything.

    The mean of the model's distributions over texts that it writes by itself, drawn with a fixed seed; so one that has
    seen texts of one kind only has a prior of that kind. Takes as long as a request of _TEXTS beams and _TOKENS tokens;
    where these texts do not end, about three times as long, and much longer with a model that is sure of itself.
    """
    random = torch.Generator().manual_seed(_SEED)
    begin: tuple[int, ...] = ()
    try:
        session, first = model.prefill(())
    except PromptEmpty:  # the model names no token that begins a text; one that ends a text comes closest
        begin = model.eos_ids[:1]
        session, first = model.prefill(begin)
    room = _TOKENS if model.context_length is None else min(_TOKENS, model.context_length - 1)
    total, count = first.double().exp().cpu(), 1
    seen, end_cost = torch.zeros_like(total), torch.zeros_like(total)
    drawn = torch.multinomial(total, _TEXTS, replacement=True, generator=random)
    parents = torch.zeros(_TEXTS, dtype=torch.int64)
    ends = torch.tensor(model.eos_ids)
    texts = [[one] for one in drawn.tolist()]
    for _ in range(room):
        going = (~torch.isin(drawn, ends)).nonzero()[:, 0]
        if not len(going):
            break
        feed = Feed(session, parents[going].to(model.device), drawn[going, None].to(model.device))
        (scores,) = model.step([feed])
        log_probs = scores.log_probs.double().cpu()
        probs = log_probs.exp()
        seen.index_add_(0, drawn[going], torch.ones(len(going), dtype=torch.float64))
        end_cost.index_add_(0, drawn[going], -log_probs[:, ends].logsumexp(dim=1).clamp(min=LEAST_PRIOR))
        total += probs.sum(dim=0)
        count += len(probs)
        drawn = torch.multinomial(probs, 1, generator=random)[:, 0]
        parents = torch.arange(len(drawn))
        texts = [[*texts[text], one] for text, one in zip(going.tolist(), drawn.tolist(), strict=True)]
    log_prob = (total / count).log().clamp(min=LEAST_PRIOR)
    unseen = torch.full_like(total, float("inf"))
    long = [text for text, one in zip(texts, drawn.tolist(), strict=True) if one not in model.eos_ids]
    endings = endings_found(model, begin, long, log_prob) if len(long) > _LONG_SHARE * _TEXTS else None
    endings = None if endings is None else endings.beside(first)
    return Prior(log_prob, torch.where(seen > 0, end_cost / seen, unseen), endings)


def cost_to_go(automaton: TokenAutomaton, prior: Tensor) -> Tensor | None:
    """Nats from each state to acceptance, EOS included: float64 [S] on the host, 0 where accepted and where dead.

    prior  float64 [V], the log-prob of each id wherever it stands

    Shortest paths, a token costing -prior; of a class of tokens only the most probable counts. The rounds of
    `compiler.distance`, in nats: each follows the edges into whatever states the round before made cheaper. None where
    the automaton is too large for that. Where paths are so long that the work passes a bound, states not yet reached
    take the dearest cost per token of the others, times their distance.
    """
    if automaton.edge_outer.size + automaton.edge_inner.size > _EDGE_CELLS_MAX:
        return None
    accepted = automaton.distance.reshape(-1, automaton.letter_states) == 0
    cost = np.where(accepted, 0.0, np.inf)
    _relax(automaton, _Moves.everywhere(automaton, class_costs(automaton, prior)), cost, _WORK_MAX)
    cost = cost.reshape(-1)
    unknown = np.isinf(cost) & (automaton.distance != UNREACHABLE)
    if unknown.any():
        known = np.isfinite(cost) & (automaton.distance > 0)
        rate = float((cost[known] / automaton.distance[known]).max(initial=0.0))
        cost[unknown] = rate * automaton.distance[unknown]
    return torch.from_numpy(np.where(automaton.distance == UNREACHABLE, 0.0, cost))


def class_costs(automaton: TokenAutomaton, prior: Tensor) -> Reals:
    """What the most probable token of each class costs under a prior, float64 [V]: float64 [C]."""
    cost = np.full(automaton.classes, np.inf)
    np.minimum.at(cost, automaton.token_class, -prior.numpy())
    return cost


def corrected(automaton: TokenAutomaton, cost: Reals, estimate: Reals) -> Reals:
    """An estimate, float64 [S], with other costs between characters; inside characters it stays as it is.

    cost  float64 [B, C0]  of each class of tokens after each labeller state between characters
    All of it stays as it is where the work passes a bound.
    """
    between, letter_states = len(automaton.edge_outer), automaton.letter_states
    alive = automaton.distance.reshape(-1, letter_states) != UNREACHABLE
    accepted = automaton.distance.reshape(-1, letter_states) == 0
    found = np.where(alive, estimate.reshape(-1, letter_states), np.inf)
    found[:between] = np.where(accepted[:between], 0.0, np.inf)
    _relax(automaton, _Moves.between_characters(automaton, cost), found, _CORRECTING_WORK_MAX)
    if (np.isinf(found) & alive).any():
        return estimate
    return np.where(alive, found, 0.0).reshape(-1)


class _Moves:
    """The distinct edges that leave each labeller state, by where they lead. N of them.

    source  int64 [N]    the labeller state left
    edge    int64 [N]    the edge
    cost    float64 [N]  of the cheapest class of tokens that takes it
    """

    @classmethod
    def everywhere(cls, automaton: TokenAutomaton, class_cost: Reals) -> _Moves:
        """By the same costs in all states, float64 [C]."""
        between, outer = automaton.edge_outer.shape
        parts = [
            *_distinct(automaton.edge_outer, class_cost[:outer], 0),
            *_distinct(automaton.edge_inner, class_cost[outer:], between - 1),
        ]
        source, edge, cost = (np.concatenate(column) for column in zip(*parts, strict=True))
        return cls(automaton, source, edge, cost)

    @classmethod
    def between_characters(cls, automaton: TokenAutomaton, cost: Reals) -> _Moves:
        """Only those that leave states between characters; float64 [B, C0]."""
        rows, columns = automaton.edge_outer.nonzero()
        edge = automaton.edge_outer[rows, columns].astype(np.int64)
        return cls(automaton, rows.astype(np.int64), edge, cost[rows, columns])

    def __init__(self, automaton: TokenAutomaton, source: Wholes, edge: Wholes, cost: Reals) -> None:
        between = len(automaton.edge_outer)
        key = automaton.edge_target[edge] * np.int64(len(automaton.edge_target)) + edge
        key = key * (between + len(automaton.edge_inner)) + source  # by target, then edge, then source
        order = key.argsort(kind="stable")
        first = np.flatnonzero(np.diff(key[order], prepend=-1))
        self.cost: Reals = np.minimum.reduceat(cost[order], first) if len(first) else cost[:0]
        self.source: Wholes = source[order[first]]
        self.edge: Wholes = edge[order[first]]
        labeller_states = between + len(automaton.edge_inner) - 1
        self._first = np.searchsorted(automaton.edge_target[self.edge], np.arange(labeller_states + 1))

    def into(self, targets: Wholes) -> Wholes:
        """The numbers of the moves that lead into these labeller states, ordered by what they leave."""
        begin, end = self._first[targets], self._first[targets + 1]
        count = end - begin
        found = np.repeat(begin - (count.cumsum() - count), count) + np.arange(count.sum())
        return np.asarray(found[self.source[found].argsort(kind="stable")])


def _distinct(table: NDArray[Any], class_cost: Reals, first_state: int) -> Iterator[tuple[Wholes, Wholes, Reals]]:
    """The distinct edges of some labeller states after another: their sources, numbers, and least costs.

    table  int [n, c]  the edge that each class of tokens takes from the states from `first_state` on, 0 for none
    """
    few = max(1, _CELLS // max(1, table.shape[1]))
    for begin in range(0, max(1, len(table)), few):
        rows, columns = table[begin : begin + few].nonzero()
        edge = table[begin + rows, columns].astype(np.int64)
        order = np.lexsort((edge, rows))
        rows, edge = rows[order], edge[order]
        first = np.flatnonzero((np.diff(rows, prepend=-1) != 0) | (np.diff(edge, prepend=-1) != 0))
        cost = class_cost[columns[order]]
        least = np.minimum.reduceat(cost, first) if len(first) else cost
        yield rows[first].astype(np.int64) + (begin + first_state), edge[first], least


def _relax(automaton: TokenAutomaton, moves: _Moves, cost: Reals, work_max: int) -> None:
    """Lowers the cost of each state (l, q), float64 [L, Q], to the least that the moves allow; inf where none does.

    work_max  cells looked at before the rest is left as it is
    """
    letter_states = automaton.letter_states
    changed = np.flatnonzero(np.isfinite(cost).any(axis=1))
    work = 0
    while len(changed) and work <= work_max:
        found = moves.into(changed)
        work += len(found) * letter_states
        lower = np.zeros(len(cost), dtype=bool)
        for some in _blocks(moves.source[found], max(1, _CELLS // letter_states)):
            source, best = _best_of(automaton, moves, found[some], cost)
            lower[source] |= (best < cost[source]).any(axis=1)
            cost[source] = np.minimum(best, cost[source])
        changed = np.flatnonzero(lower)


def _blocks(source: Wholes, few: int) -> Iterator[slice]:
    """Stretches of about `few` moves; one source may be spread over two of them."""
    return (slice(begin, begin + few) for begin in range(0, len(source), few))


def _best_of(automaton: TokenAutomaton, moves: _Moves, some: Wholes, cost: Reals) -> tuple[Wholes, Reals]:
    """The labeller states that `some` moves leave, ascending, and what their letter states cost that way: [n, Q]."""
    edge = moves.edge[some]
    after = automaton.function[automaton.edge_function[edge]]  # [m, Q]
    ahead = cost[automaton.edge_target[edge][:, None], after] + moves.cost[some, None]  # [m, Q]
    source = moves.source[some]
    first = np.flatnonzero(np.diff(source, prepend=-1))
    return source[first], np.minimum.reduceat(ahead, first, axis=0)
