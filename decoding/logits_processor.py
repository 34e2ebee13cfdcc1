"""The guarantee inside the transformers library's own `generate`: greedy, sampling and beams.

The logits processor masks all tokens after which a text can no longer be finished in time. The mask of a row depends
on its ids alone. So the library may reorder or drop rows between two calls: each row is found again by its ids.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import LogitsProcessor

from decoding.errors import ModelOutputInvalid, VocabularyMismatch
from decoding.options import require
from decoding.prepared_constraint import Automaton, PreparedConstraint, require_budget
from decoding.tensors import LOG_PROB_FLOOR, TokenStates

_DEAD_STATE = 0
_MULTIPLIER = 0x9E3779B97F4A7C15 - 2**64  # odd; its powers weigh the positions of a row in the row's hash


@dataclass(frozen=True, slots=True, eq=False)
class _LastCall:
    """The rows of the last call and their states. R rows of N ids.

    ids    int64 [R, N]
    key    int64 [R]     a hash of the row's ids
    state  int64 [R]     the automaton's, after what was generated
    """

    ids: Tensor
    key: Tensor
    state: Tensor


class ConstraintLogitsProcessor(LogitsProcessor):
    """Masks each row so that it satisfies a constraint within the budget.

        model.generate(**inputs, max_new_tokens=32, logits_processor=[ConstraintLogitsProcessor(automaton, 32)])

    automaton       of any kind, compiled for the model's ids; `generate` stops at its EOS ids
    max_new_tokens  T, that of `generate` or less; EOS among them
    prompt_length   ids before the first generated one, padding on the left included; None takes it from the first call
    extra_ids       how many ids the model scores beyond the automaton's, where its table is padded: never written

    Raises BudgetTooSmall where no text that short satisfies, Undecided where none is known, OptionsInvalid for values
    out of range; when called, VocabularyMismatch, ModelOutputInvalid for NaN, and OptionsInvalid for rows that do not
    begin with the prompt.
    One processor serves one `generate`. With beams use one answer (`num_return_sequences`): the library fills
    up the others with unfinished rows. No later processor may lift -inf, as `remove_invalid_values` does.
    """

    def __init__(
        self, automaton: Automaton, max_new_tokens: int, *, prompt_length: int | None = None,
        extra_ids: int = 0,
    ) -> None:
        require(max_new_tokens >= 1, "max_new_tokens", "at least 1")
        require(prompt_length is None or prompt_length >= 0, "prompt_length", "at least 0")
        require(extra_ids >= 0, "extra_ids", "at least 0")
        require_budget(automaton, max_new_tokens)
        self._automaton, self._extra_ids = automaton, extra_ids
        self._max_new_tokens, self._prompt_length = max_new_tokens, prompt_length
        self._token_class = torch.as_tensor(automaton.token_class, dtype=torch.int64)
        self._states: TokenStates | None = None
        self._prompt_key: Tensor | None = None
        self._last_call: _LastCall | None = None

    @torch.no_grad()
    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """The scores [R, V] for the next token after `input_ids`.

        `input_ids` is int64 [R, N]; a forbidden token scores -inf.
        """
        if scores.shape[1] != self._automaton.vocabulary_size + self._extra_ids:
            raise VocabularyMismatch(self._automaton.vocabulary_size, scores.shape[1])
        if bool(scores.isnan().any()):
            raise ModelOutputInvalid("the model's scores hold NaN")
        if self._states is None or self._token_class.device != scores.device:
            self._states = PreparedConstraint.prepare(self._automaton, scores.device).begin_states(tensors=True)
            self._last_call = None
            self._token_class = self._token_class.to(scores.device)
        generated = self._generated_count(input_ids)
        state = self._reached(self._states, input_ids, generated)
        self._last_call = _LastCall(input_ids, _keys(input_ids), state)
        allowed = self._allowed(self._states.successors(state).distance, self._max_new_tokens - generated - 1)
        mask = torch.nn.functional.pad(allowed[:, self._token_class], (0, self._extra_ids))  # [R, V]
        return scores.clamp(min=LOG_PROB_FLOOR).masked_fill(~mask, float("-inf"))

    def _generated_count(self, input_ids: Tensor) -> int:
        """How many ids of each row were generated. Raises OptionsInvalid where the rows belong to another prompt."""
        if self._prompt_length is None:
            self._prompt_length = input_ids.shape[1]
        generated = input_ids.shape[1] - self._prompt_length
        key = _keys(input_ids[:, : self._prompt_length])
        if self._prompt_key is None or generated == 0:
            self._prompt_key = key  # [R]: all later rows must begin with one of the first call's prompts
        is_continuation = generated >= 0 and bool(torch.isin(key, self._prompt_key).all())
        require(is_continuation, "input_ids", "a continuation of the first call's: make a processor for each generate")
        return generated

    def _reached(self, states: TokenStates, input_ids: Tensor, generated: int) -> Tensor:
        """The automaton's state after what each row has generated: int64 [R]."""
        start = torch.full((len(input_ids),), states.start, device=input_ids.device)
        if generated == 0:
            return start
        last = self._last_call
        if last is not None and last.ids.shape[1] + 1 == input_ids.shape[1]:
            # One token more than in the last call: each row continues the row whose ids are its own without the last.
            # A hash finds it, and a comparison of the ids confirms it.
            before = input_ids[:, :-1]
            parent = (last.key[None] == _keys(before)[:, None]).byte().argmax(dim=1)  # [R]; 0 where there is none
            if torch.equal(last.ids[parent], before):
                return self._after(states, last.state[parent], input_ids[:, -1])
        # The library took a step back, as it does in assisted decoding: the states are computed from the prompt on.
        state = start
        for position in range(input_ids.shape[1] - generated, input_ids.shape[1]):
            state = self._after(states, state, input_ids[:, position])
        return state

    def _after(self, states: TokenStates, state: Tensor, token: Tensor) -> Tensor:
        """The states after one token more. A finished row stays in its state: the library pads it."""
        in_vocabulary = token < self._automaton.vocabulary_size
        after = states.after(state, token.where(in_vocabulary, 0))
        return state.where(states.distances(state) == 0, after.where(in_vocabulary, _DEAD_STATE))

    def _allowed(self, distances: Tensor, budget_after: int) -> Tensor:
        """Which classes each row may write: bool [R, C]."""
        # A row without an allowed class is finished, or pads a beam at score -inf. It gets EOS: with all scores -inf
        # the library's softmax would give NaN.
        allowed: Tensor = distances <= budget_after
        eos = torch.zeros_like(allowed[0])
        eos[self._token_class[self._automaton.eos_ids[0]]] = True
        return allowed | (~allowed.any(dim=1, keepdim=True) & eos)


def _keys(ids: Tensor) -> Tensor:
    """A hash of each row of ids. The ids are int64 [R, N], the hashes int64 [R]; sums and products wrap."""
    weight = torch.full((ids.shape[1],), _MULTIPLIER, device=ids.device).cumprod(dim=0)
    return ((ids + 1) * weight).sum(dim=1)
