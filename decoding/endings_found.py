"""Finds how a model ends its texts: asks it what follows each of its common tokens, and what it goes on with by itself.

Only of a model whose own texts seldom end within what is drawn for the prior; others have shown it there.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from decoding.endings import LONGEST, Endings
from decoding.language_model import Feed, LanguageModel

_TOKENS_MAX = 2048  # that are asked about
_LOG_PROBS_MAX = 1 << 22  # of these tokens, all ids each: but 83 of 50,257
_TIMES = 3  # each is asked about so often, in another place
_BEFORE = 10  # tokens of a text before it
_TOGETHER = 128  # so many are read after the same text
_FAR = 3.0  # nats that going on may cost in all
_FIRST = 8

Reals = NDArray[np.float64]
Wholes = NDArray[np.int64]


def endings_found(
    model: LanguageModel[Any], prompt: Sequence[int], texts: Sequence[Sequence[int]], prior: Tensor
) -> Endings | None:
    """The ways to the end, on the host; None where the model cannot read as far.

    texts  that the model has written by itself after the prompt, at least one, none empty
    prior  float64 [V]: the most probable ids are asked about
    """
    if model.context_length is not None and model.context_length < _BEFORE + LONGEST + 2:
        return None
    ids = prior.argsort(descending=True, stable=True)
    ids = ids[~torch.isin(ids, torch.tensor(model.eos_ids))]
    parts = ids[: max(1, min(_TOKENS_MAX, _LOG_PROBS_MAX // len(prior)))].split(_TOGETHER)
    asked = [(text[:_BEFORE], part) for text, part in zip(cycle(texts), parts * _TIMES, strict=False)]
    together = len(parts) if model.reads_together else 1
    seen: list[_Seen] = []
    for at in range(0, len(asked), together):
        seen += _seen_of(_levels(model, prompt, asked[at : at + together]), len(prior))
    alone = _least([one for one in seen if not one.pairs], np.arange(len(prior)))
    after = [one for one in seen if one.pairs]
    pair = np.unique(np.concatenate([one.key for one in after])) if after else np.zeros(0, dtype=np.int64)
    soonest = alone[0][LONGEST]
    first = soonest.argsort(kind="stable")[:_FIRST]
    found = (*alone, pair, *_least(after, pair), np.sort(first[np.isfinite(soonest[first])]))
    return Endings(*map(torch.from_numpy, found))


class _Level(NamedTuple):
    """Ways of one length. N of them.

    parent  int64   [N]  of which way of the level before each is one token more
    token   int64   [N]  its last
    spent   float64 [N]  nats of its tokens but for the first
    end     float64 [N]  nats of EOS right after it
    """

    parent: Wholes
    token: Wholes
    spent: Reals
    end: Reals


def _levels(
    model: LanguageModel[Any], prompt: Sequence[int], asked: Sequence[tuple[Sequence[int], Tensor]]
) -> list[_Level]:
    """After each text each of the ids with it, and then what the model finds most probable, as far as that is cheap."""
    sessions, parts = [model.prefill(prompt)[0] for _ in asked], [part for _, part in asked]
    alone = torch.zeros(1, dtype=torch.int64, device=model.device)
    begun = [torch.tensor([text], device=model.device) for text, _ in asked]
    model.step([Feed(session, alone, text) for session, text in zip(sessions, begun, strict=True)])
    owner = torch.arange(len(parts)).repeat_interleave(torch.tensor([len(part) for part in parts]))
    ends = torch.tensor(model.eos_ids, device=model.device)
    token, spent = torch.cat(parts), torch.zeros(len(owner), dtype=torch.float64)
    parent = torch.arange(len(owner))
    rows = torch.zeros_like(parent)  # of their sessions: at first each has but one
    levels: list[_Level] = []
    while len(token) and len(levels) <= LONGEST:
        counts = owner.bincount(minlength=len(parts)).tolist()
        columns = zip(sessions, rows.to(model.device).split(counts), token.to(model.device).split(counts), strict=True)
        feeds = [Feed(session, own, ids[:, None]) for session, own, ids in columns if len(ids)]
        log_probs = torch.cat([scores.log_probs for scores in model.step(feeds)])
        end = -log_probs[:, ends].double().logsumexp(dim=1).cpu()
        levels.append(_Level(parent.numpy(), token.numpy(), spent.numpy(), end.numpy()))
        log_probs[:, ends] = float("-inf")
        best, following = (part.cpu() for part in log_probs.max(dim=1))
        total = spent - best.double()
        parent = (total < _FAR).nonzero()[:, 0]
        first = torch.tensor([0, *counts]).cumsum(dim=0)
        owner, token, spent = owner[parent], following[parent], total[parent]
        rows = parent - first[owner]
    return levels


class _Seen(NamedTuple):
    """What ways cost from one of their places on, with so many tokens more before EOS.

    pairs  whether the keys are of two ids, as in `Endings.pair`: what the first id of a way costs is known of any text,
           what the others cost they owe to the one before
    then   int64 [N]  the next token, -1 for EOS
    """

    pairs: bool
    more: int
    key: Wholes
    cost: Reals
    then: Wholes


def _seen_of(levels: Sequence[_Level], vocab_size: int) -> list[_Seen]:
    """Each way of each length, as if it ended there, from each of its places."""
    seen = []
    for last, level in enumerate(levels):
        row, then = np.arange(len(level.token)), np.full(len(level.token), -1)
        for place in range(last, -1, -1):
            at = levels[place]
            token, cost = at.token[row], level.spent + level.end - at.spent[row]
            row = at.parent[row]
            key = levels[place - 1].token[row] * vocab_size + token if place else token
            seen.append(_Seen(place > 0, last - place, key, cost, then))
            then = token
    return seen


def _least(seen: Sequence[_Seen], keys: Wholes) -> tuple[Reals, Wholes]:
    """The least cost of each of the keys, ascending, and what comes next for it: [M+1, K] each, by tokens at most."""
    cost: Reals = np.full((LONGEST + 1, len(keys)), np.inf)
    then: Wholes = np.full(cost.shape, -1)
    for one in seen:
        order = np.lexsort((one.cost, one.key))
        order = order[np.diff(one.key[order], prepend=-1) > 0]  # of each key the least
        column = np.searchsorted(keys, one.key[order])
        lower = one.cost[order] < cost[one.more, column]
        cost[one.more, column[lower]], then[one.more, column[lower]] = one.cost[order][lower], one.then[order][lower]
    for more in range(1, LONGEST + 1):
        dearer = cost[more - 1] < cost[more]
        cost[more, dearer], then[more, dearer] = cost[more - 1, dearer], then[more - 1, dearer]
    return cost, then
