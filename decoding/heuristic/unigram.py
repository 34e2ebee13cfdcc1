"""The cost to go: nats from each state of an automaton to acceptance, under the model's unigram prior.

The prior is the probability of each token regardless of the text before it. With the cost to go, a row that has met an
obligation and a row that has put it off can be compared: the second still owes what the obligation costs. It is an
estimate, not a bound: a token is often more probable in its context than under the prior.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from compiler.lifting import UNREACHABLE, TokenAutomaton
from decoding.model import LanguageModel, StepInput, begin_text

PRIOR_FLOOR = -20.0
"""Floor under the prior's log-probs: a token that the sample gave no probability is not impossible."""

_TEXTS, _TOKENS = 64, 24  # the sample: the number of texts, and the most tokens of each
_SEED = 20_250
_CELLS = 1 << 16  # cells worked on at once: they fit in the processor's cache
_EDGE_CELLS_MAX = 1 << 23  # of the automaton's tables; larger ones get no cost to go
_WORK_MAX = 1 << 26  # cells examined before the remaining states are extrapolated; about a second

Reals = NDArray[np.float64]
Wholes = NDArray[np.int64]


@torch.inference_mode()
def unigram_prior(model: LanguageModel[Any]) -> Tensor:
    """The log-prob of each id regardless of context: float64 [V] on the host, none below PRIOR_FLOOR.

    The mean of the model's distributions over texts that it samples after an empty prompt, with a fixed seed. It takes
    as long as a request of _TEXTS rows and _TOKENS tokens.
    """
    random, (session, first) = torch.Generator().manual_seed(_SEED), begin_text(model)
    steps = _TOKENS if model.context_length is None else min(_TOKENS, model.context_length - 1)
    total, count = first.double().exp().cpu(), 1
    drawn = torch.multinomial(total, _TEXTS, replacement=True, generator=random)
    parents = torch.zeros(_TEXTS, dtype=torch.int64)
    ends = torch.tensor(model.eos_ids)
    for _ in range(steps):
        live = (~torch.isin(drawn, ends)).nonzero()[:, 0]
        if not len(live):
            break
        feed = StepInput(session, parents[live].to(model.device), drawn[live, None].to(model.device))
        (scores,) = model.step([feed])
        probs = scores.log_probs.double().cpu().exp()
        total += probs.sum(dim=0)
        count += len(probs)
        drawn = torch.multinomial(probs, 1, generator=random)[:, 0]
        parents = torch.arange(len(drawn))
    return (total / count).log().clamp(min=PRIOR_FLOOR)


def cost_to_go(automaton: TokenAutomaton, prior: Tensor) -> Tensor | None:
    """Nats from each state to acceptance, EOS included: float64 [S] on the host, 0 where accepted and where dead.

    prior  float64 [V], from `unigram_prior`

    Shortest paths by Bellman and Ford, where a token costs minus its prior: of a token class only the most probable
    token counts. None where the automaton is too large. Where paths are so long that the work passes a bound, the
    remaining states take the highest cost per token of the others, times their distance.
    """
    if automaton.edge_outer.size + automaton.edge_inner.size > _EDGE_CELLS_MAX:
        return None
    class_cost = np.full(automaton.classes, np.inf)
    np.minimum.at(class_cost, automaton.token_class, -prior.numpy())
    between, outer = automaton.edge_outer.shape
    parts = [
        *_distinct_edges(automaton.edge_outer, class_cost[:outer], 0),
        *_distinct_edges(automaton.edge_inner, class_cost[outer:], between - 1),
    ]
    source, edge, edge_cost = (np.concatenate(column) for column in zip(*parts, strict=True))
    cost = np.where(automaton.distance.reshape(-1, automaton.letter_states) == 0, 0.0, np.inf)  # [L, Q]
    _relax(automaton, source, edge, edge_cost, cost)
    cost = cost.reshape(-1)
    unknown = np.isinf(cost) & (automaton.distance != UNREACHABLE)
    if unknown.any():
        known = np.isfinite(cost) & (automaton.distance > 0)
        rate = float((cost[known] / automaton.distance[known]).max(initial=0.0))
        cost[unknown] = rate * automaton.distance[unknown]
    return torch.from_numpy(np.where(automaton.distance == UNREACHABLE, 0.0, cost))


def _distinct_edges(table: NDArray[Any], class_cost: Reals, first_state: int) -> Iterator[tuple[Wholes, Wholes, Reals]]:
    """The distinct edges of blocks of labeller states: their sources, numbers, and least costs.

    table  int [n, c]  the edge that each token class takes from the states from `first_state` on, 0 for none
    """
    block = max(1, _CELLS // max(1, table.shape[1]))
    for begin in range(0, max(1, len(table)), block):
        rows, columns = table[begin : begin + block].nonzero()
        edge = table[begin + rows, columns].astype(np.int64)
        order = np.lexsort((edge, rows))
        rows, edge = rows[order], edge[order]
        first = np.flatnonzero((np.diff(rows, prepend=-1) != 0) | (np.diff(edge, prepend=-1) != 0))
        cost = class_cost[columns[order]]
        least = np.minimum.reduceat(cost, first) if len(first) else cost
        yield rows[first].astype(np.int64) + (begin + first_state), edge[first], least


def _relax(automaton: TokenAutomaton, source: Wholes, edge: Wholes, edge_cost: Reals, cost: Reals) -> None:
    """Lowers the cost of each state (l, q), float64 [L, Q], to the least over all paths; inf where there is none.

    source, edge, edge_cost  [N], ordered by source
    """
    first = np.flatnonzero(np.diff(source, prepend=-1))
    ends = np.append(first, len(source))
    block = max(1, _CELLS * len(first) // max(1, len(source) * automaton.letter_states))  # sources at a time
    changed, work = True, 0
    while changed and work <= _WORK_MAX:
        changed, work = False, work + len(source) * automaton.letter_states
        for begin in range(0, len(first), block):
            starts, end = first[begin : begin + block], ends[min(begin + block, len(first))]
            some, rows = slice(starts[0], end), source[starts]
            after = automaton.function[automaton.edge_function[edge[some]]]  # [n, Q]
            ahead = cost[automaton.edge_target[edge[some]][:, None], after] + edge_cost[some, None]  # [n, Q]
            best = np.minimum(cost[rows], np.minimum.reduceat(ahead, starts - starts[0], axis=0))
            changed |= bool((best < cost[rows]).any())
            cost[rows] = best
