"""Changes the model's log-probs before they are masked.

There are biases, and penalties on tokens that occurred.

Masks come last, so no value of these options allows a token that the constraint forbids, or leaves a row without one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from decoding.errors import OptionsInvalid
from decoding.tensors import LOG_PROB_FLOOR

BIAS_MAX = 100.0  # as OpenAI's


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Penalties:
    """The changes of a request. V ids.

    bias        float64 [V]  added to each log-prob; None: 0
    prompt      bool [V]     ids of the prompt, which count as repetitions; None: they do not matter
    frequency   taken off for each time that the row has written the id
    presence    taken off once if the row has written the id
    repetition  the factor of the log-prob of ids in the prompt or the row, as in a beam search of transformers

    >>> penalties = Penalties(bias=None, prompt=None, frequency=0.5, presence=1.0, repetition=1.0)
    >>> penalties.changed(torch.tensor([[-1.0, -2.0, -3.0]]), torch.tensor([[1, 1, 2]])).tolist()
    [[-1.0, -4.0, -4.5]]
    """

    bias: Tensor | None
    prompt: Tensor | None
    frequency: float
    presence: float
    repetition: float

    @classmethod
    def of(
        cls, *, logit_bias: Mapping[int, float], frequency: float, presence: float, repetition: float,
        prompt_ids: Iterable[int], vocab_size: int, device: torch.device,
    ) -> Penalties | None:
        """The changes by these options, None if there are none.

        Raises OptionsInvalid for ids that do not exist.
        """
        if not logit_bias and frequency == presence == 0.0 and repetition == 1.0:
            return None
        bias = prompt = None
        if logit_bias:
            if not all(0 <= token < vocab_size for token in logit_bias):
                raise OptionsInvalid("logit_bias", f"about the ids 0 to {vocab_size - 1}")
            bias = torch.zeros(vocab_size, dtype=torch.float64)
            bias[list(logit_bias)] = torch.tensor(list(logit_bias.values()), dtype=torch.float64)
            bias = bias.to(device)
        if repetition != 1.0:
            prompt = torch.zeros(vocab_size, dtype=torch.bool)
            prompt[list(prompt_ids)] = True
            prompt = prompt.to(device)
        return cls(bias=bias, prompt=prompt, frequency=frequency, presence=presence, repetition=repetition)

    def changed(self, log_probs: Tensor, written: Tensor) -> Tensor:
        """The changed log-probs: float64 [R, V].

        log_probs  float32 [R, V]  the model's, no NaN
        written    int64   [R, t]  all ids of each row
        """
        changed = log_probs.clamp(min=LOG_PROB_FLOOR).double()
        count = torch.zeros_like(changed).scatter_add_(1, written, torch.ones_like(written, dtype=torch.float64))
        if self.prompt is not None:
            changed = torch.where((count > 0) | self.prompt, changed * self.repetition, changed)
        changed -= self.frequency * count
        changed -= self.presence * (count > 0)
        return changed if self.bias is None else changed.add_(self.bias)


def most_probable(weight: Tensor, count: int) -> Tensor:
    """Remove all weights but the `count` highest of each row.

    Weights are int64 [R, V]; of equal ones the lowest ids come first.

    >>> most_probable(torch.tensor([[5, 1, 3, 3]]), 2).tolist()
    [[5, 0, 3, 0]]
    """
    if count >= weight.shape[1]:
        return weight
    least = weight.topk(count, dim=1).values[:, -1:]  # [R, 1]
    above, tie_mask = weight > least, weight == least
    ties = count - above.sum(dim=1, keepdim=True)
    return weight.where(above | (tie_mask & (tie_mask.cumsum(dim=1) <= ties)), 0)
