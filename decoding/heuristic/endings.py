"""The tokens by which a model ends its texts. They matter where EOS alone is rare.

The cost to go is the same for every state that lacks only EOS. But a model may end its texts by tokens of its own: a
full stop, then a mark that it always writes, then EOS. A search finds such an ending only if its cost is lower.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf, log
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from decoding.model import LanguageModel, StepInput, begin_text

_RARE = log(1 / 84)  # EOS under the prior: fewer than a quarter of the texts end within 24 tokens
_CONTEXTS, _CONTEXT_TOKENS, _SEED = 3, 10, 20_251  # sampled beginnings of texts, after which tokens are tried
_TRIED_MAX, _LOG_PROBS_MAX = 2048, 1 << 22  # tokens tried, and log-probs in one pass
_LENGTH_MAX, _NATS_MAX = 8, 3.0  # the most tokens that follow, and the nats that they may cost together
_ENDINGS_MAX = 8  # the cheapest


@dataclass(frozen=True, slots=True, eq=False)
class Endings:
    """The tokens by which a model ends its texts. There are n of them, each with the nats from it to the end. V ids, on
    the host.

    ids    int64   [n]       ascending, without EOS
    cost   float64 [n+1, n]  nats after ids[j], EOS included: in row 0 after any other token, in row i + 1 after ids[i]
    index  int64   [V]       the row of `cost` for each id as the token before
    """

    ids: NDArray[np.int64]
    cost: NDArray[np.float64]
    index: NDArray[np.int64]


@torch.inference_mode()
def find_endings(model: LanguageModel[Any], prior: Tensor) -> Endings | None:
    """The model's endings. None where its texts mostly end by EOS, or its context is too short.

    prior  float64 [V], from `unigram_prior`
    """
    # After the beginning of a text each common token is read, then the most probable next token, as long as it is
    # nearly certain. The nats from a token to EOS along the way are the cost of the ending.
    ends = list(model.eos_ids)
    too_short = model.context_length is not None and model.context_length < _CONTEXT_TOKENS + _LENGTH_MAX + 2
    if too_short or float(prior[ends].logsumexp(0)) > _RARE:
        return None
    common = [token for token in prior.argsort(descending=True, stable=True).tolist() if token not in ends]
    candidates = common[: max(1, min(_TRIED_MAX, _LOG_PROBS_MAX // len(prior)))]
    costs_by_ending: dict[tuple[int, ...], list[float]] = {}
    for number in range(_CONTEXTS):
        for ending, costs in _endings_after(model, number, candidates):
            costs_by_ending[ending] = min(costs, costs_by_ending.get(ending, [inf]))
    cheapest = sorted(costs_by_ending, key=lambda ending: (costs_by_ending[ending], ending))[:_ENDINGS_MAX]
    ids = np.unique(np.concatenate(cheapest))
    index, cost_table = np.zeros(len(prior), dtype=np.int64), np.full((len(ids) + 1, len(ids)), np.inf)
    index[ids] = np.arange(1, len(ids) + 1)
    for ending in cheapest:
        for before, token, left in zip((0, *index[list(ending)]), ending, costs_by_ending[ending], strict=False):
            cost_table[before, index[token] - 1] = min(left, cost_table[before, index[token] - 1])
    # A pair that did not occur costs as much as its second token after any other token.
    return Endings(ids, np.minimum(cost_table, cost_table[0]), index)


def _endings_after(
    model: LanguageModel[Any], number: int, candidates: Sequence[int]
) -> Iterator[tuple[tuple[int, ...], list[float]]]:
    """The cheapest ending after each token tried after a sampled context.

    Each has its tokens, and the cost in nats left after each.
    """
    random, ends = torch.Generator().manual_seed(_SEED + number), list(model.eos_ids)
    session, first = begin_text(model)
    log_probs, rows = first[None], torch.zeros(1, dtype=torch.int64)
    for _ in range(_CONTEXT_TOKENS):
        # The context must not end, so EOS has probability 0 in it.
        probs = log_probs[0].double().cpu().exp().index_fill(0, torch.tensor(ends), 0.0)
        token = torch.multinomial(probs, 1, generator=random)
        (scores,) = model.step([StepInput(session, rows.to(model.device), token[:, None].to(model.device))])
        log_probs = scores.log_probs
    tokens, cost = torch.tensor(candidates)[:, None], torch.zeros(len(candidates), 1, dtype=torch.float64)  # [N, m]
    rows = torch.zeros(len(candidates), dtype=torch.int64)
    # Row i holds a token tried and its most probable continuation; it goes on while that stays nearly certain.
    while len(rows):
        (scores,) = model.step([StepInput(session, rows.to(model.device), tokens[:, -1:].to(model.device))])
        log_probs = scores.log_probs.double().cpu()
        left = cost[:, -1:] - log_probs[:, ends].logsumexp(1, keepdim=True) - cost
        yield from zip(map(tuple, tokens.tolist()), left.tolist(), strict=True)
        best = log_probs.index_fill(1, torch.tensor(ends), -inf).max(dim=1, keepdim=True)
        tokens, cost = torch.hstack([tokens, best.indices]), torch.hstack([cost, cost[:, -1:] - best.values])
        rows = ((cost[:, -1] < _NATS_MAX) & (tokens.shape[1] <= _LENGTH_MAX + 1)).nonzero()[:, 0]
        tokens, cost = tokens[rows], cost[rows]
