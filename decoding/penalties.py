"""Changes the model's log-probs before they are masked.

There are biases, and penalties on tokens that occurred.

Masks come last, so no value of these options allows a token that the constraint forbids, or leaves a row without one.

A search needs a model, whose probabilities of the next token add up to 1: its bounds rest on sums that only fall. So it
searches the changed model, which is renormalised after each row, and is as exact in it as in the model itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import nan
from typing import Protocol

import torch
from torch import Tensor

from decoding.errors import OptionsInvalid
from decoding.generation import Generation, GenerationSize, Hypothesis, Snapshot
from decoding.model import ScoredSequence, Scores
from decoding.tensors import LOG_PROB_FLOOR, rows_at_a_time, scratch_bytes


class PenaltyOptions(Protocol):
    """The options of a search or sampling that change log-probs."""

    @property
    def logit_bias(self) -> Mapping[int, float]: ...

    @property
    def frequency_penalty(self) -> float: ...

    @property
    def presence_penalty(self) -> float: ...

    @property
    def repetition_penalty(self) -> float: ...


def changes_log_probs(options: PenaltyOptions) -> bool:
    """Whether a request has biases or penalties."""
    penalties = options.frequency_penalty, options.presence_penalty, options.repetition_penalty
    return bool(options.logit_bias) or penalties != (0.0, 0.0, 1.0)


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
    ) -> Penalties:
        """The changes by these options. Raises OptionsInvalid for ids that do not exist."""
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

    @classmethod
    def of_options(
        cls, options: PenaltyOptions, prompt_ids: Iterable[int], vocab_size: int, device: torch.device
    ) -> Penalties | None:
        """The changes of a request, None if there are none. Raises OptionsInvalid for ids that do not exist."""
        if not changes_log_probs(options):
            return None
        return cls.of(
            logit_bias=options.logit_bias, frequency=options.frequency_penalty, presence=options.presence_penalty,
            repetition=options.repetition_penalty, prompt_ids=prompt_ids, vocab_size=vocab_size, device=device,
        )  # fmt: skip

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

    def renormalised(self, log_probs: Tensor, written: Tensor) -> Tensor:
        """The log-probs of the changed model: float32 [R, V]. A row without a finite one is NaN."""
        block = rows_at_a_time(log_probs.shape[1], log_probs.device)
        parts = [
            self.changed(rows, ids).log_softmax(dim=1).masked_fill_(~rows.amax(dim=1, keepdim=True).isfinite(), nan)
            for rows, ids in zip(log_probs.split(block), written.split(block), strict=True)
        ]
        return torch.cat([part.float() for part in parts])


class PenalizedSearch:
    """A search in the changed model; obeys `Search`. Its sums, ranks and bounds are those of that model.

    search  one without forced stretches: within them only the model's own log-probs of some tokens are known
    """

    def __init__(self, search: Generation, penalties: Penalties, vocab_size: int, device: torch.device) -> None:
        self._search, self._penalties = search, penalties
        self._written = torch.empty((1, 0), dtype=torch.int64, device=device)  # [R, t]: the ids of each row of the feed
        size = search.size
        scratch = 4 * size.rows * vocab_size + max(size.scratch_bytes, scratch_bytes(size.rows, vocab_size, device))
        self.size: GenerationSize = replace(size, scratch_bytes=scratch)

    @property
    def done(self) -> bool:
        """Whether the search is done."""
        return self._search.done

    def advance(self, scores: Scores) -> list[Snapshot]:
        """The steps of the search."""
        log_probs = self._penalties.renormalised(scores.log_probs, self._written)
        return self._search.advance(replace(scores, log_probs=log_probs))

    def feed(self) -> tuple[Tensor, Tensor]:
        """The feed of the search."""
        rows, tokens, *_ = self._search.feed()
        self._written = torch.cat([self._written.index_select(0, rows), tokens], dim=1)
        return rows, tokens

    def answers(self) -> tuple[Hypothesis, ...]:
        """The answers of the search. Their `log_prob` is that of the changed model."""
        return self._search.answers()


class PenalizedScores:
    """Receives the log-probs of an answer's places from `LanguageModel.score`. A place may come twice.

    tokens  of the answer, EOS among them
    """

    def __init__(self, penalties: Penalties, tokens: Sequence[int]) -> None:
        self._penalties, self._tokens = penalties, tokens
        self._places: dict[int, tuple[float, float]] = {}

    def __call__(self, begin: int, log_probs: Tensor) -> None:
        """Records the places from `begin` on. Log-probs are float32 [N, V]."""
        ids = torch.tensor([list(self._tokens)], device=log_probs.device)
        for number in range(len(log_probs)):
            place = begin + number
            row = self._penalties.renormalised(log_probs[number : number + 1], ids[:, :place])[0]
            self._places[place] = float(row[self._tokens[place]]), float(row.amax())

    @property
    def scored(self) -> ScoredSequence:
        """The log-probs of the changed model."""
        places = [self._places[place] for place in range(len(self._tokens))]
        return ScoredSequence(tuple(value for value, _ in places), tuple(best for _, best in places))


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
