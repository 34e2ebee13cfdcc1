"""The draw of tokens for independent rows, and the memory that it takes.

Probabilities are weights in whole numbers, so that a sum is the same in whatever order a device adds it up: the tokens
of a request depend on its seed alone, not on what shares the machine with it. Knows no automaton, only which tokens
are allowed.
"""

from __future__ import annotations

import torch
from torch import Tensor

from decoding.tensors.backend import LOG_PROB_FLOOR

_RANKED = 512  # tokens of a row that are put in order to find its nucleus
_UNIT = 2**42  # weight of the most probable token; 2**20 ids of that weight still add up within int64


def draw(
    log_probs: Tensor, allowed: Tensor, uniform: Tensor, temperature: float, top_p: float
) -> tuple[Tensor, Tensor]:
    """One token for each row, and its log-prob in the distribution it was drawn from: int64 [R], float64 [R].

    log_probs  float32 [R, V]  the model's, no NaN
    allowed    bool    [R, V]  at least one in each row
    uniform    float64 [R]     in [0, 1), turned into tokens by the inverse of the cumulative distribution
    Where the model gives probability 0 to every token allowed, they are alike.
    """
    known = log_probs.clamp(min=LOG_PROB_FLOOR).masked_fill(~allowed, float("-inf"))  # [R, V]
    best, first = known.max(dim=1, keepdim=True)  # [R, 1]; of equals the lowest id
    if temperature == 0.0:
        return first[:, 0], torch.zeros_like(uniform)
    gap = (known.double() - best.double()) / temperature  # [R, V], at most 0
    weight = (gap.exp() * _UNIT).round().long()  # [R, V]
    if top_p < 1.0:
        weight = nucleus(weight, top_p)
    cumulative = weight.cumsum(dim=1)  # [R, V]
    total = cumulative[:, -1]  # [R]
    target = torch.minimum((uniform * total).long(), total - 1)  # [R]
    token = torch.searchsorted(cumulative, target[:, None], right=True)  # [R, 1]: the first above the target
    share = gap.gather(1, token)[:, 0] - (total.double() / _UNIT).log()
    return token[:, 0], share


def nucleus(weight: Tensor, top_p: float) -> Tensor:
    """The weights int64 [R, V] without those outside the nucleus; of equal ones the lowest ids come first.

    Found without sorting all of a row where the first few hold the nucleus, as they nearly always do.
    """
    total = weight.sum(dim=1, keepdim=True)
    enough = torch.minimum((total.double() * top_p).ceil().long(), total)  # [R, 1]; the product may round above it
    ranked = weight.topk(min(_RANKED, weight.shape[1]), dim=1).values
    if not bool((ranked.sum(dim=1, keepdim=True) >= enough).all()):
        ranked = weight.sort(dim=1, descending=True).values
    place = (ranked.cumsum(dim=1) >= enough).byte().argmax(dim=1, keepdim=True)  # [R, 1]: where it is enough
    least = ranked.gather(1, place)  # [R, 1]: the lowest weight in the nucleus
    above = weight.where(weight > least, 0)
    tied = weight == least
    missing = (enough - above.sum(dim=1, keepdim=True) + least - 1) // least  # [R, 1]: tied tokens that are kept
    return above + least * (tied & (tied.cumsum(dim=1) <= missing))
