"""A constraint prepared for the searches of one model. All requests for it share it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from compiler.errors import BudgetTooSmall
from compiler.lifting import UNREACHABLE, TokenAutomaton
from decoding.errors import PromptTooLong, VocabularyMismatch
from decoding.forced_tokens import ForcedTokens, TokenBytes
from decoding.heuristic import Endings, cost_to_go
from decoding.model import LanguageModel
from decoding.tensors import Tables


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PreparedConstraint:
    """An automaton with its tables on the model's device. S automaton states.

    cost_to_go  float64 [S]  nats from each state to acceptance under the model's unigram prior; None: no prior
    forced      the forced token of each state; None: none is forced
    endings     how the model ends its texts; None: by EOS alone

    >>> constraint = PreparedConstraint.prepare(automaton, model.device)
    >>> constraint.refuse_early(model, prompt_tokens=1, max_tokens=2)
    Traceback (most recent call last):
    compiler.errors.BudgetTooSmall: the constraint needs at least 3 tokens, max_tokens is 2
    """

    automaton: TokenAutomaton
    tables: Tables
    cost_to_go: Tensor | None = None
    forced: ForcedTokens | None = None
    endings: Endings | None = None

    @classmethod
    def prepare(
        cls, automaton: TokenAutomaton, device: torch.device, *, prior: Tensor | None = None,
        pieces: TokenBytes | None = None, endings: Endings | None = None,
    ) -> PreparedConstraint:
        """Copy the automaton's arrays to the device. It takes milliseconds for 50,000 ids, more for a cost to go.

        prior    float64 [V], log-probs from `heuristic.unigram_prior`
        pieces   the vocabulary's bytes and the tokenizer, for forced tokens
        endings  from `heuristic.find_endings`
        """
        # Ids of endings get token classes of their own, since their cost differs from that of other ids. The states are
        # the same, so the forced tokens and the cost to go come from the automaton as it was compiled.
        split = automaton if endings is None else automaton.with_own_classes(endings.ids)
        tables = Tables.from_automaton(split, device)
        forced = ForcedTokens(automaton, pieces) if pieces is not None else None
        cost = None if prior is None else cost_to_go(automaton, prior)
        return cls(
            automaton=automaton, tables=tables, cost_to_go=None if cost is None else cost.to(device), forced=forced,
            endings=endings,
        )

    def refuse_early(
        self, model: LanguageModel[Any], prompt_tokens: int, max_tokens: int, start: int | None = None
    ) -> None:
        """Raises VocabularyMismatch, BudgetTooSmall or PromptTooLong where a generation is impossible.

        start  the state before the answer; None: the automaton's own
        """
        automaton = self.automaton
        if model.vocab_size != automaton.vocabulary_size:
            raise VocabularyMismatch(automaton.vocabulary_size, model.vocab_size)
        # The distance is exact: a budget below it fails surely, and any other succeeds.
        min_tokens = int(automaton.distance[automaton.start if start is None else start])
        if min_tokens > max_tokens:
            raise BudgetTooSmall(min_tokens if min_tokens != UNREACHABLE else None, max_tokens)
        tokens_read = max(1, prompt_tokens) + max_tokens - 1  # the last token, EOS, is written but never read
        if model.context_length is not None and tokens_read > model.context_length:
            raise PromptTooLong(prompt_tokens, max_tokens, model.context_length)
