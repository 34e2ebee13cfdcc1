"""Small deterministic language models for tests. They obey the protocol of `decoding.model.LanguageModel`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import inf

import torch
from torch import Tensor

from decoding.heuristic.unigram import PRIOR_FLOOR
from decoding.model import ObserveScores, ScoredSequence, Scores, StepInput, WholePrompts

PLACES = 2**16  # windows of random numbers


@dataclass(slots=True)
class PrefixSession:
    """The rows of one generation as full id sequences, and the prompt's."""

    rows: list[tuple[int, ...]]
    prompt: tuple[int, ...]


class PrefixModel(WholePrompts[PrefixSession]):
    """A model with log-probs for each prefix, defined by a subclass."""

    device = torch.device("cpu")
    tolerance = 1e-4
    supports_batching = True

    def __init__(self, vocab_size: int, eos_ids: tuple[int, ...], context_length: int | None = None) -> None:
        self.vocab_size = vocab_size
        self.eos_ids = eos_ids
        self.context_length = context_length
        self.rows_read = 0
        self.passes = 0

    def log_probs(self, prefix: tuple[int, ...]) -> Tensor:
        """float32 [V] after the ids of `prefix`, the prompt's among them."""
        raise NotImplementedError

    def prefill(self, prompt_ids: Sequence[int]) -> tuple[PrefixSession, Tensor]:
        self.rows_read += 1
        return PrefixSession([tuple(prompt_ids)], tuple(prompt_ids)), self.log_probs(tuple(prompt_ids))

    def step(self, feeds: Sequence[StepInput[PrefixSession]]) -> list[Scores]:
        self.passes += 1
        return [self._extend(feed) for feed in feeds]

    def _extend(self, feed: StepInput[PrefixSession]) -> Scores:
        assert len(feed.parents), "a step without a live row"
        tokens = feed.tokens.tolist()
        rows = [feed.session.rows[parent] for parent in feed.parents.tolist()]
        rows = [row[: len(row) - (feed.undo or 0)] for row in rows]
        feed.session.rows = [(*row, *ids) for row, ids in zip(rows, tokens, strict=True)]
        self.rows_read += feed.tokens.numel()
        log_probs, peak = torch.empty(len(tokens), len(tokens[0]) - 1), torch.empty(len(tokens), len(tokens[0]) - 1)
        all_inner = torch.empty(len(tokens), len(tokens[0]) - 1, self.vocab_size)
        for number, (row, ids) in enumerate(zip(rows, tokens, strict=True)):
            for index, token in enumerate(ids[1:]):
                inner = self.log_probs((*row, *ids[: index + 1]))
                log_probs[number, index], peak[number, index] = inner[token], inner.max()
                all_inner[number, index] = inner
        after = torch.stack([self.log_probs(row) for row in feed.session.rows])
        return Scores(after, log_probs, peak, None if feed.undo is None else all_inner)

    def bytes_for(self, prompt_tokens: int, rows: int, max_tokens: int, scratch_bytes: int = 0) -> int:
        return 8 * (prompt_tokens + rows * max_tokens)

    def score(
        self, prompt_ids: Sequence[int], tokens: Sequence[int], observe: ObserveScores | None = None
    ) -> ScoredSequence:
        rows = [self.log_probs((*prompt_ids, *tokens[:index])) for index in range(len(tokens))]
        if observe is not None:
            observe(0, torch.stack(rows))
        return ScoredSequence(
            tuple(float(row[token]) for row, token in zip(rows, tokens, strict=True)),
            tuple(float(row.max()) for row in rows),
        )


class HashModel(PrefixModel):
    """Pseudo-random log-probs.

    They are a window of fixed random numbers, at a place that is a hash of the prefix.

    levels  the number of different logits (0: no limit), so that exact ties are common
    memory  the number of last ids that count (None: all), so that rows tie with each other too
    zeros   the share of ids that get probability zero, log-prob -inf
    spread  standard deviation of the logits; at 100 many log-probs are exactly 0.0 in float32
    """

    def __init__(
        self, vocab_size: int, eos_ids: tuple[int, ...], *, seed: int = 0, levels: int = 0, memory: int | None = None,
        zeros: float = 0.0, spread: float = 2.0, context_length: int | None = None,
    ) -> None:
        super().__init__(vocab_size, eos_ids, context_length)
        self.parameters = (vocab_size, eos_ids, seed, levels, memory, zeros, spread, context_length)
        self._seed, self._levels, self._memory, self._zeros, self._spread = seed, levels, memory, zeros, spread

    def log_probs(self, prefix: tuple[int, ...]) -> Tensor:
        context = prefix if self._memory is None else prefix[len(prefix) - min(self._memory, len(prefix)) :]
        place = hash((self._seed, context)) % PLACES
        normal, *uniform = (numbers[place : place + self.vocab_size] for numbers in _random_numbers(self.vocab_size))
        logits = (uniform[0] * self._levels).floor() if self._levels else normal * self._spread
        if self._zeros:
            logits[uniform[1] < self._zeros] = -inf
            logits[place % self.vocab_size] = 0.0
        return logits.log_softmax(dim=0)

    @property
    def prior(self) -> Tensor:
        """A prior without the passes of `unigram_prior`."""
        return self.log_probs(()).clamp(min=PRIOR_FLOOR).double()


@cache
def _random_numbers(vocab_size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Normal numbers, and twice uniform ones, for each place and id."""
    draw, size = torch.Generator().manual_seed(vocab_size), PLACES + vocab_size
    return torch.randn(size, generator=draw), torch.rand(size, generator=draw), torch.rand(size, generator=draw)


class ScriptedModel(PrefixModel):
    """Logits written by hand: `script[prefix]`, without the prompt. Other logits are `fill[prefix]` or `floor`."""

    def __init__(
        self, vocab_size: int, eos_ids: tuple[int, ...], script: Mapping[tuple[int, ...], Mapping[int, float]], *,
        floor: float = 0.0, fill: Mapping[tuple[int, ...], float] | None = None, prompt_length: int = 0,
    ) -> None:
        super().__init__(vocab_size, eos_ids)
        self._script, self._floor, self._fill = dict(script), floor, dict(fill or {})
        self._prompt_length = prompt_length

    def log_probs(self, prefix: tuple[int, ...]) -> Tensor:
        generated = prefix[self._prompt_length :]
        logits = torch.full((self.vocab_size,), self._fill.get(generated, self._floor))
        for token, logit in self._script.get(generated, {}).items():
            logits[token] = logit
        return logits.log_softmax(dim=0)
