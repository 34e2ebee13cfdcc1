"""Forced tokens for jump-forward decoding. They are the tokenizer's spelling of bytes that every satisfying text
continues with.

Many splits of a forced text satisfy too ("dog" as d, o, g), but they are rare in the model's training texts, and rows
that differ only in the split fill a beam. A forced stretch is read in one forward pass.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Sequence
from copy import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding, Tokenizer

from compiler.lifting import UNREACHABLE
from decoding.tensors import HostStates

NO_FORCED_TOKEN = -1  # no token is forced here
_NO_BYTES, _END = 256, 257  # in place of a first byte: of an id without bytes, and of EOS
_NOT_COMPUTED = -2
_LINE = "\n"
_OPEN_IDS = 3
_STRETCH_BYTES_MAX = 512  # how far ahead a stretch is followed
_CHOICE, _ENDS, _FIRST_BYTE = 1, 2, 3  # codes of `_step_byte`; 0 where a state's is not computed yet

Retokenize = Callable[[bytes, bool], Sequence[int]]
"""The tokenizer's ids of a text: all of them where the text ends there (True), else those that no continuation of the
text can change. Empty where the bytes are no text, or the ids stand for other bytes."""


class TokenBytes:
    """The bytes of a vocabulary, for forced stretches.

    tokens    the bytes of each id, None or empty where it has none
    eos_ids   the ids that end a text
    spell     the tokenizer

    >>> token_bytes = TokenBytes([b"a", b"bc", None], [2], lambda text, ends: [0, 1] if text == b"abc" else [])
    >>> token_bytes.first_byte.tolist(), token_bytes.byte_id
    ([97, 98, 257], {b'a': 0})
    """

    def __init__(self, tokens: Sequence[bytes | None], eos_ids: Sequence[int], spell: Retokenize) -> None:
        self.spell, self.eos_ids = spell, frozenset(eos_ids)
        first = np.array([token[0] if token else _NO_BYTES for token in tokens], dtype=np.int64)
        first[list(eos_ids)] = _END
        self.first_byte = first  # int64 [V]
        self.byte_id = {token: id for id, token in enumerate(tokens) if token and len(token) == 1}


class Speller:
    """Tokenizes a forced text; obeys `Retokenize`.

    tokens  the bytes of each id; a tokenization with other bytes than the text is discarded
    """

    def __init__(self, tokenizer: Tokenizer, tokens: Sequence[bytes | None]) -> None:
        self._tokenizer, self._tokens = tokenizer, tokens

    def __call__(self, text: bytes, closed: bool) -> tuple[int, ...]:
        try:
            # A text that is not closed may end inside a character.
            decoded = codecs.getincrementaldecoder("utf-8")().decode(text, closed)
        except UnicodeDecodeError:
            return ()
        for before in ("", _LINE):  # some tokenizers prepend a space to the text
            encoding = self._tokenizer.encode(before + decoded, add_special_tokens=False)
            first = self._starting_at(encoding.ids, before.encode(), decoded.encode())
            if first is not None:
                return tuple(encoding.ids[first : len(encoding.ids) if closed else _certain(encoding)])
        return ()

    def _starting_at(self, ids: Sequence[int], before: bytes, text: bytes) -> int | None:
        """The index of the first id of the text. None if the ids do not spell it."""
        if any(token >= len(self._tokens) for token in ids):
            return None
        pieces = [self._tokens[token] or b"" for token in ids]
        # The prefix takes at most two ids: a space of the tokenizer, and the line break.
        for first in range(3):
            if b"".join(pieces[first:]) == text and b"".join(pieces[:first]).strip(b" ") == before:
                return first
        return None


def _certain(encoding: Encoding) -> int:
    """The number of ids that a continuation of the text rarely changes. They are the ids before its last word.

    For a tokenizer without words the last ids are excluded instead. A merge that reaches further back costs
    probability, but never violates the constraint.
    """
    words = encoding.word_ids
    first = words.index(words[-1]) if words else 0
    return first or max(0, len(words) - _OPEN_IDS)


class ForcedTokens:
    """The forced token of each automaton state, computed on first use. An instance is not thread-safe."""

    def __init__(self, states: HostStates, token_bytes: TokenBytes) -> None:
        starts = np.zeros((states.classes, _END + 1), dtype=bool)
        starts[states.token_class, token_bytes.first_byte] = True
        self._starts = starts  # bool [C, 258]: with which bytes the tokens of a class begin
        self._token_bytes = token_bytes
        self._begin(states)

    def over(self, states: HostStates) -> ForcedTokens:
        """The forced tokens of other states over the same token classes."""
        other = copy(self)
        other._begin(states)
        return other

    def _begin(self, states: HostStates) -> None:
        # A forced token depends on the state alone, so no answer depends on earlier requests.
        self._states, self._arrays = states, list[NDArray[Any]]()
        self._reserve(states.states)

    def _reserve(self, states: int) -> None:
        """Make room for this many states in the arrays by state."""
        before = self._arrays
        size = len(before[0]) if before else 0
        if states > size:
            rows = max(states, 2 * size)
            self._token = np.full(rows, _NOT_COMPUTED, dtype=np.int32)
            self._after = np.zeros(rows, dtype=np.int32)
            self._next_byte = np.zeros(rows, dtype=np.int16)  # zeros take memory only once they are written
            self._after_byte = np.zeros(rows, dtype=np.int32)
            self._arrays = [self._token, self._after, self._next_byte, self._after_byte]
            for array, values in zip(self._arrays, before, strict=False):
                array[:size] = values

    @property
    def nbytes(self) -> int:
        """The bytes of the arrays by state, on the host."""
        return sum(int(array.nbytes) for array in self._arrays)

    def tokens(self, states: NDArray[np.int64], budget_after: int) -> NDArray[np.int64]:
        """The token forced in each state: int64 [N].

        NO_FORCED_TOKEN where there is none or it could not finish in time.

        budget_after  the tokens left after this one
        """
        self._reserve(self._states.states)
        for state in set(states[self._token[states] == _NOT_COMPUTED].tolist()):
            token = self._forced_token(state)
            after = state if token == NO_FORCED_TOKEN else self._states.advance(state, token)
            self._token[state], self._after[state] = token, after
        late = self._states.distances(self.after(states)) > budget_after
        return np.where(late, NO_FORCED_TOKEN, self._token[states].astype(np.int64))

    def ends(self, tokens: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of these ids end a text: bool [N]."""
        return np.asarray(self._token_bytes.first_byte[tokens] == _END)

    def after(self, states: NDArray[np.int64]) -> NDArray[np.int64]:
        """The states after the forced tokens of these: int64 [N]. Each state must have one."""
        return self._after[states].astype(np.int64)

    def _forced_token(self, state: int) -> int:
        text, ends = self._forced_bytes(state)
        if not text and ends:  # the end is forced; of several EOS ids the step takes the best
            return NO_FORCED_TOKEN if len(self._token_bytes.eos_ids) > 1 else next(iter(self._token_bytes.eos_ids))
        ids = self._token_bytes.spell(text, ends) if text else ()
        if not ids:
            return NO_FORCED_TOKEN
        # A token to the dead state is never forced, whatever the tokenizer answers.
        after = self._states.advance(state, ids[0])
        return NO_FORCED_TOKEN if self._states.distance_of(after) == UNREACHABLE else int(ids[0])

    def _forced_bytes(self, state: int) -> tuple[bytes, bool]:
        """The bytes forced from a state on.

        The second value is True where the text ends after them. Each byte is computed once.
        """
        text = bytearray()
        while len(text) < _STRETCH_BYTES_MAX:
            code = int(self._next_byte[state]) or self._step_byte(state)
            if code in (_CHOICE, _ENDS):
                return bytes(text), code == _ENDS
            text.append(code - _FIRST_BYTE)
            state = int(self._after_byte[state])
        return bytes(text), False

    def _step_byte(self, state: int) -> int:
        """The code of a state. It is _FIRST_BYTE plus the only byte that can follow, or _ENDS where the text must end.

        _CHOICE where several bytes can follow, none, or one that has no token or cannot be written alone.
        """
        states, byte_id = self._states, self._token_bytes.byte_id
        live, after = states.live_classes(state)  # [C]
        begins = np.flatnonzero(self._starts[live].any(axis=0))
        code = _CHOICE
        if len(begins) == 1 and begins[0] == _END:
            code = _ENDS
        elif len(begins) == 1 and begins[0] != _NO_BYTES and bytes([begins[0]]) in byte_id:
            token_class = int(states.token_class[byte_id[bytes([begins[0]])]])
            if live[token_class]:
                code, state_after = int(begins[0]) + _FIRST_BYTE, after(token_class)
                self._reserve(states.states)
                self._after_byte[state] = state_after
        self._next_byte[state] = code
        return code
