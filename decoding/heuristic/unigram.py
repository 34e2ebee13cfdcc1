"""The cost to go under the model's unigram prior. It is in nats from each state of an automaton to acceptance.

The prior is the probability of each token regardless of the text before it. With the cost to go, a row that has met an
obligation and a row that has put it off can be compared: the second still owes what the obligation costs. It is an
estimate, not a bound: a token is often more probable in its context than under the prior.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from compiler.lifting import UNREACHABLE, TokenAutomaton
from compiler.products import DistinctAutomaton, LazyProduct, ProductCosts
from compiler.pushdown import ExitCosts, PushdownAutomaton
from decoding.model import LanguageModel, StepInput, begin_text

PRIOR_FLOOR = -20.0
"""Floor under the prior's log-probs: a token that the sample gave no probability is not impossible."""

_TEXTS, _TOKENS = 64, 24  # the sample: the number of texts, and the most tokens of each
_SEED = 20_250
_CELLS = 1 << 16  # cells of a block: they fit in the processor's cache
_EDGE_CELLS_MAX = 1 << 23  # of the automaton's tables; larger ones get no cost to go
_WORK_MAX = 1 << 26  # cells examined before the remaining states are extrapolated; about a second
_EXITS_MAX = 1 << 18  # distances of a pushdown automaton; more get no cost to go, which would take over a second
_NATS_MIN = 1e-9  # of a certain token: saturation needs costs above 0

Reals = NDArray[np.float64]
Integers = NDArray[np.int64]


class EdgeList(NamedTuple):
    """The N distinct edges of an automaton, ordered by source.

    source  int64   [N]  transducer state
    edge    int64   [N]  number of the edge, in `TokenAutomaton.edge_target` and `edge_function`
    cost    float64 [N]  the least nats of all tokens that take the edge
    """

    source: Integers
    edge: Integers
    cost: Reals


@torch.inference_mode()
def unigram_prior(model: LanguageModel[Any]) -> Tensor:
    """The log-prob of each id regardless of context. The result is float64 [V] on the host, none below PRIOR_FLOOR.

    It takes as long as a request of _TEXTS rows and _TOKENS tokens.
    """
    # The mean of the model's distributions over texts that it samples after an empty prompt, with a fixed seed. It
    # has less variance than counts of the sampled tokens.
    random, (session, first) = torch.Generator().manual_seed(_SEED), begin_text(model)
    steps = _TOKENS if model.context_length is None else min(_TOKENS, model.context_length - 1)
    total, count = first.double().exp().cpu(), 1
    token = torch.multinomial(total, _TEXTS, replacement=True, generator=random)
    parents = torch.zeros(_TEXTS, dtype=torch.int64)
    ends = torch.tensor(model.eos_ids)
    for _ in range(steps):
        live = (~torch.isin(token, ends)).nonzero()[:, 0]
        if not len(live):
            break
        feed = StepInput(session, parents[live].to(model.device), token[live, None].to(model.device))
        (scores,) = model.step([feed])
        probs = scores.log_probs.double().cpu().exp()
        total += probs.sum(dim=0)
        count += len(probs)
        token = torch.multinomial(probs, 1, generator=random)[:, 0]
        parents = torch.arange(len(token))
    return (total / count).log().clamp(min=PRIOR_FLOOR)


def cost_to_go(automaton: TokenAutomaton, prior: Tensor) -> Tensor | None:
    """The cost from each state to acceptance, in nats.

    EOS is included: float64 [S] on the host, 0 where accepted and where dead.

    prior  float64 [V], from `unigram_prior`

    None where the automaton is too large.
    """
    # Shortest paths by value iteration in the manner of Bellman and Ford. A token costs minus its log prior, so only
    # the most probable token of a class counts.
    if automaton.edge_boundary.size + automaton.sparse_edge.size + automaton.edge_midchar.size > _EDGE_CELLS_MAX:
        return None
    class_cost = np.full(automaton.classes, np.inf)
    np.minimum.at(class_cost, automaton.token_class, -prior.numpy())
    blocks = [_distinct_edges(*entries, class_cost) for entries in automaton.live_entries(_CELLS)]
    edges = EdgeList(*(np.concatenate(column) for column in zip(*blocks, strict=True)))
    cost = np.where(automaton.distance.reshape(-1, automaton.letter_states) == 0, 0.0, np.inf)  # [L, Q]
    _value_iteration(automaton, edges, cost)
    cost = cost.reshape(-1)
    # Where paths are so long that the work passes its bound, the remaining states take the highest cost per token of
    # the others, times their distance.
    unfinished_states = np.isinf(cost) & (automaton.distance != UNREACHABLE)
    if unfinished_states.any():
        finished_states = np.isfinite(cost) & (automaton.distance > 0)
        rate = float((cost[finished_states] / automaton.distance[finished_states]).max(initial=0.0))
        cost[unfinished_states] = rate * automaton.distance[unfinished_states]
    return torch.from_numpy(np.where(automaton.distance == UNREACHABLE, 0.0, cost))


def exit_costs(automaton: PushdownAutomaton, prior: Tensor) -> ExitCosts | None:
    """The same for a pushdown automaton: what its parts cost, in nats. None where the automaton is too large."""
    if automaton.exits > _EXITS_MAX:
        return None
    return automaton.token_costs(np.maximum(-prior.numpy(), _NATS_MIN))


def product_costs(product: LazyProduct, prior: Tensor) -> ProductCosts | None:
    """The same for a product. None where it has alternatives, and a part is too large."""
    classes = np.full(product.classes, np.inf)
    np.minimum.at(classes, product.token_class, -prior.numpy())
    eos = -float(prior[list(product.eos_ids)].max())
    token = -float(prior[list(product.start.witness or product.eos_ids)].mean())
    if not product.has_alternatives:
        return ProductCosts(classes, eos, token)
    found = list[NDArray[np.float64] | ExitCosts]()
    for part in product.parts:
        tokens = part.tokens if isinstance(part, DistinctAutomaton) else part
        cost = exit_costs(tokens, prior) if isinstance(tokens, PushdownAutomaton) else cost_to_go(tokens, prior)
        if cost is None:
            return None
        found.append(cost.numpy() if isinstance(cost, Tensor) else cost)
    return ProductCosts(classes, eos, token, tuple(found))


def _distinct_edges(state: Integers, column: Integers, edge: Integers, class_cost: Reals) -> EdgeList:
    """The distinct edges of some states, each with its least cost.

    state, column, edge  int64 [n]  live entries of the tables: a transducer state, a token class and its edge
    """
    # Many classes of a state take the same edge, and only the cheapest counts: sorted by (state, edge), the edges of a
    # group are adjacent, and one reduction finds the least cost of each group.
    order = np.lexsort((edge, state))
    state, edge, cost = state[order], edge[order], class_cost[column[order]]
    first = np.flatnonzero((np.diff(state, prepend=-1) != 0) | (np.diff(edge, prepend=-1) != 0))
    return EdgeList(state[first], edge[first], np.minimum.reduceat(cost, first) if len(first) else cost)


def _value_iteration(automaton: TokenAutomaton, edges: EdgeList, cost: Reals) -> None:
    """Lowers the costs float64 [L, Q] to those of cheapest paths. An entry is the cost of a state (l, q); it stays inf
    where there is no path.
    """
    first = np.flatnonzero(np.diff(edges.source, prepend=-1))
    ends = np.append(first, len(edges.source))
    block = max(1, _CELLS * len(first) // max(1, len(edges.source) * automaton.letter_states))  # sources at a time
    # A sweep replaces each cost by the least of (edge + cost of its target), in place, until no cost changes. Blocks
    # later in a sweep use the costs of earlier ones, so there are fewer sweeps than the longest path has tokens.
    changed, work = True, 0
    while changed and work <= _WORK_MAX:
        changed, work = False, work + len(edges.source) * automaton.letter_states
        for begin in range(0, len(first), block):
            starts, end = first[begin : begin + block], ends[min(begin + block, len(first))]
            part, rows = slice(starts[0], end), edges.source[starts]
            after = automaton.function[automaton.edge_function[edges.edge[part]]]  # [n, Q]
            path_cost = cost[automaton.edge_target[edges.edge[part]][:, None], after] + edges.cost[part, None]  # [n, Q]
            best = np.minimum(cost[rows], np.minimum.reduceat(path_cost, starts - starts[0], axis=0))
            changed |= bool((best < cost[rows]).any())
            cost[rows] = best
