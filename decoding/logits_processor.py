"""The guarantee inside the transformers library's own `generate`: greedy, sampling and beams.

A logits processor that leaves a row only the tokens after which the text can still be finished in time. What a row may
write depends on its ids alone, which is why the library may put rows in another order between two calls, or drop some:
each row is found again by its ids. Sees every score, chooses none.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import LogitsProcessor

from compiler.errors import BudgetTooSmall
from compiler.lifting import UNREACHABLE, TokenAutomaton
from decoding.errors import ModelOutputInvalid, VocabularyMismatch
from decoding.options import require
from decoding.tensors import LOG_PROB_FLOOR, Tables

_DEAD_STATE = 0
_MULTIPLIER = 0x9E3779B97F4A7C15 - 2**64  # odd; its powers weigh the places of a row in the row's hash


@dataclass(frozen=True, slots=True, eq=False)
class _Seen:
    """What the last call saw and left behind. R rows of N ids, C classes.

    ids        int64 [R, N]
    key        int64 [R]     a hash of the row's ids
    state      int64 [R]     the automaton's, after what was generated
    successor  int64 [R, C]  after one token more
    """

    ids: Tensor
    key: Tensor
    state: Tensor
    successor: Tensor


class ConstraintLogitsProcessor(LogitsProcessor):
    """Keeps every row of one `generate` call within a constraint, and able to finish within `max_new_tokens`.

        model.generate(**inputs, max_new_tokens=32, logits_processor=[ConstraintLogitsProcessor(automaton, 32)])

    automaton       compiled for the model's ids; its EOS ids are to be those that `generate` stops at
    max_new_tokens  T, what `generate` is given, or less; EOS among them
    prompt_length   ids before the first generated one, padding on the left included; None takes it from the first call
    extra_ids       how many ids the model scores beyond the automaton's, where its table is padded: never written
    Raises BudgetTooSmall where no text that short satisfies, OptionsInvalid for what is out of range; when called,
    VocabularyMismatch, ModelOutputInvalid for NaN, and OptionsInvalid for rows that do not begin with the prompt.
    One processor serves one `generate`. With beams ask for one answer: what the library returns beyond the rows that
    finished (`num_return_sequences`) is unfinished. Nothing after it may lift -inf, as `remove_invalid_values` does.
    """

    def __init__(
        self, automaton: TokenAutomaton, max_new_tokens: int, *, prompt_length: int | None = None, extra_ids: int = 0
    ) -> None:
        require(max_new_tokens >= 1, "max_new_tokens", "at least 1")
        require(prompt_length is None or prompt_length >= 0, "prompt_length", "at least 0")
        require(extra_ids >= 0, "extra_ids", "at least 0")
        if automaton.min_tokens > max_new_tokens:
            raise BudgetTooSmall(None if automaton.min_tokens == UNREACHABLE else automaton.min_tokens, max_new_tokens)
        self._automaton, self._extra_ids = automaton, extra_ids
        self._max_new_tokens, self._prompt_length = max_new_tokens, prompt_length
        self._token_class = torch.as_tensor(automaton.token_class, dtype=torch.int64)
        self._tables: Tables | None = None
        self._prompt_key: Tensor | None = None
        self._seen: _Seen | None = None

    @torch.no_grad()
    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """The scores [R, V] for the next token after `input_ids` int64 [R, N], -inf where it may not be written."""
        if scores.shape[1] != self._automaton.vocabulary_size + self._extra_ids:
            raise VocabularyMismatch(self._automaton.vocabulary_size, scores.shape[1])
        if bool(scores.isnan().any()):
            raise ModelOutputInvalid("the model's scores hold NaN")
        if self._tables is None or self._tables.distance.device != scores.device:
            self._tables = Tables.from_automaton(self._automaton, scores.device)
            self._token_class = self._token_class.to(scores.device)
        written = self._written(input_ids)
        state = self._states(self._tables, input_ids, written)
        successor = self._tables.successors(state)  # [R, C]
        self._seen = _Seen(input_ids, _keys(input_ids), state, successor)
        allowed = self._allowed(self._tables, successor, self._max_new_tokens - written - 1)
        mask = torch.nn.functional.pad(allowed[:, self._token_class], (0, self._extra_ids))  # [R, V]
        return scores.clamp(min=LOG_PROB_FLOOR).masked_fill(~mask, float("-inf"))

    def _written(self, input_ids: Tensor) -> int:
        """How many ids of each row were generated. Raises OptionsInvalid where the rows belong to another prompt."""
        if self._prompt_length is None:
            self._prompt_length = input_ids.shape[1]
        written = input_ids.shape[1] - self._prompt_length
        key = _keys(input_ids[:, : self._prompt_length])
        if self._prompt_key is None or written == 0:
            self._prompt_key = key
        same = written >= 0 and bool(torch.isin(key, self._prompt_key).all())
        require(same, "input_ids", "a continuation of the first call's: make a processor for each generate")
        return written

    def _states(self, tables: Tables, input_ids: Tensor, written: int) -> Tensor:
        """The automaton's state after what each row has generated: int64 [R]."""
        start = torch.full((len(input_ids),), self._automaton.start, device=input_ids.device)
        if written == 0:
            return start
        seen = self._seen
        if seen is not None and seen.ids.shape[1] + 1 == input_ids.shape[1]:
            before = input_ids[:, :-1]
            parent = (seen.key[None] == _keys(before)[:, None]).byte().argmax(dim=1)  # [R]; 0 where there is none
            if torch.equal(seen.ids[parent], before):
                return self._after(tables, seen.state[parent], seen.successor[parent], input_ids[:, -1])
        state = start  # the library took a step back, as it does where a second model guesses ahead
        for place in range(input_ids.shape[1] - written, input_ids.shape[1]):
            state = self._after(tables, state, tables.successors(state), input_ids[:, place])
        return state

    def _after(self, tables: Tables, state: Tensor, successor: Tensor, token: Tensor) -> Tensor:
        """The states after one token more. After its end a row stays there: what follows is the library's padding."""
        known = token < self._automaton.vocabulary_size
        read = successor.gather(1, self._token_class[token.where(known, 0)][:, None])[:, 0]
        return state.where(tables.distance[state] == 0, read.where(known, _DEAD_STATE))

    def _allowed(self, tables: Tables, successor: Tensor, budget_after: int) -> Tensor:
        """Which classes each row may write: bool [R, C].

        Rows with nothing to write are over, or fill a place of a beam at score -inf: an end for them, and no NaN.
        """
        allowed: Tensor = tables.distance[successor] <= budget_after
        end = torch.zeros_like(allowed[0])
        end[self._token_class[self._automaton.eos_ids[0]]] = True
        return allowed | (~allowed.any(dim=1, keepdim=True) & end)


def _keys(ids: Tensor) -> Tensor:
    """A hash of each row of ids, int64 [R, N] to int64 [R]; sums and products wrap."""
    weight = torch.full((ids.shape[1],), _MULTIPLIER, device=ids.device).cumprod(dim=0)
    return ((ids + 1) * weight).sum(dim=1)
