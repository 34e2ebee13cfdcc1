"""The protocol between a generation and a language model. Token ids go in, and log-probs come out.

A session holds the rows of one generation. The protocol leaves open how a model stores their keys and values.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import torch
from torch import Tensor

from decoding.errors import PromptEmpty

SessionT = TypeVar("SessionT")
ObserveScores = Callable[[int, Tensor], None]
"""Receives the number of a token in a text, and the log-probs in its place and those after it: float32 [N, V]."""


@dataclass(frozen=True, slots=True)
class ScoredSequence:
    """The log-probs of a finished continuation, from a separate pass.

    log_probs      of each token
    max_log_probs  the best of all ids in its place
    """

    log_probs: tuple[float, ...]
    max_log_probs: tuple[float, ...]


@dataclass(frozen=True, slots=True, eq=False)
class StepInput(Generic[SessionT]):
    """One generation's part of a step: N rows in place of the session's, each m tokens longer than its parent.

    session  its rows are replaced by those of the feed
    parents  int64 [N]     the former row that each row extends
    tokens   int64 [N, m]  by which ids, m >= 1; nearly always one
    undo     the last tokens of each row that are taken back first, all of the step before; the scores then have all
             log-probs. None: none are, and the scores have those after the last token
    """

    session: SessionT
    parents: Tensor
    tokens: Tensor
    undo: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """The model's output for one feed. N rows fed m tokens each; V ids.

    log_probs        float32 [N, V]    after the last token
    token_log_probs  float32 [N, m-1]  [i, j]: of tokens[i, j+1] after tokens[i, :j+1]
    max_log_probs    float32 [N, m-1]  the best of all ids in that position
    inner            float32 [N, m-1, V]  after the tokens before the last one; None where `undo` is
    """

    log_probs: Tensor
    token_log_probs: Tensor
    max_log_probs: Tensor
    inner: Tensor | None = None

    @classmethod
    def of_prompt(cls, log_probs: Tensor) -> Scores:
        """The scores after a prompt, like those of a one-row feed. The log-probs are float32 [V]."""
        nothing = log_probs.new_empty((1, 0))
        return cls(log_probs[None], nothing, nothing)


class LanguageModel(Protocol[SessionT]):
    """A causal model. One instance serves many generations, each with a session.

    Log-probs are float32 and at most 0; -inf is allowed, NaN is not. V ids, T tokens. Dropping a session frees it.
    """

    @property
    def vocab_size(self) -> int:
        """V, the number of ids that the model scores."""

    @property
    def eos_ids(self) -> tuple[int, ...]:
        """The ids that end a text, at least one."""

    @property
    def context_length(self) -> int | None:
        """The most tokens that the model can read. None where there is no limit."""

    @property
    def device(self) -> torch.device:
        """Where the log-probs lie."""

    @property
    def tolerance(self) -> float:
        """The tolerance of log-probs between two correct computations, in nats."""

    @property
    def supports_batching(self) -> bool:
        """Whether a step reads all its feeds in one pass.

        Where such a step raises, it leaves the sessions unchanged.
        """

    def prefill(self, prompt_ids: Sequence[int]) -> tuple[SessionT, Tensor]:
        """Read the prompt into a session of one row. The log-probs of the first token are [V]."""

    @property
    def chunk_tokens(self) -> int:
        """The most tokens of a prompt that are read in one pass."""

    def prefill_chunks(self, prompt_ids: Sequence[int]) -> Iterator[tuple[SessionT, Tensor] | None]:
        """The same in steps, each with one pass: None for all but the last. Other sessions may be read between them."""

    def step(self, feeds: Sequence[StepInput[SessionT]]) -> list[Scores]:
        """Extend the rows of several generations, each with its session. The scores are in the order of the feeds.

        The scores of a feed do not depend on the others. Where a step of a model with `supports_batching` raises, the
        sessions are unchanged, and the same feeds may be read again in smaller batches; else they are undefined.
        """

    def bytes_for(self, prompt_tokens: int, rows: int, max_tokens: int, scratch_bytes: int = 0) -> int:
        """The most memory that a generation will hold: keys, values and log-probs.

        rows           read side by side, at most
        max_tokens     of each row
        scratch_bytes  that the generation makes between two passes
        """

    def score(
        self, prompt_ids: Sequence[int], tokens: Sequence[int], observe: ObserveScores | None = None
    ) -> ScoredSequence:
        """Score a finished continuation from scratch. The code is not that of `prefill` and `step`.

        observe  receives the log-probs in the place of each token
        """


class WholePrompts(ABC, Generic[SessionT]):
    """A `LanguageModel` that reads each prompt as a single chunk."""

    chunk_tokens = 2**62

    @abstractmethod
    def prefill(self, prompt_ids: Sequence[int]) -> tuple[SessionT, Tensor]:
        """As in `LanguageModel`."""

    def prefill_chunks(self, prompt_ids: Sequence[int]) -> Iterator[tuple[SessionT, Tensor] | None]:
        """As in `LanguageModel`."""
        yield self.prefill(prompt_ids)


def begin_text(model: LanguageModel[SessionT]) -> tuple[SessionT, Tensor]:
    """A session at the beginning of a text. The log-probs of the first token are float32 [V]."""
    try:
        return model.prefill(())
    except PromptEmpty:  # without a BOS id, EOS comes closest
        return model.prefill(model.eos_ids[:1])
