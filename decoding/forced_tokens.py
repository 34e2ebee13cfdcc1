"""Forced tokens: where every satisfying text goes on with the same bytes, the tokenizer's spelling of them is written.

Many splits of a forced text satisfy too ("dog" as d, o, g), but the model has hardly seen them, and rows that differ in
nothing else crowd a beam. A forced stretch is read in one forward pass (jump-forward).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from compiler.lifting import UNREACHABLE, TokenAutomaton

NO_FORCED_TOKEN = -1  # no token is forced here
_NOTHING, _END = 256, 257  # in place of a first byte: of an id without bytes, and of EOS
_UNKNOWN = -2  # not computed yet
_STRETCH_BYTES_MAX = 512  # how far ahead a stretch is followed
_CHOICE, _ENDS, _FIRST_BYTE = 1, 2, 3  # what follows a state, see `_walk`; 0 where that is not computed yet

Retokenize = Callable[[bytes, bool], Sequence[int]]
"""The tokenizer's ids of a text: all of them where the text ends there (True), else those that no continuation of the
text can change. Empty where the bytes are no text, or the ids stand for other bytes."""


class TokenBytes:
    """What forced stretches need of a vocabulary. `tokens`: the bytes of each id, None or empty where it has none."""

    def __init__(self, tokens: Sequence[bytes | None], eos_ids: Sequence[int], spell: Retokenize) -> None:
        self.spell, self.eos_ids = spell, frozenset(eos_ids)
        first = np.array([token[0] if token else _NOTHING for token in tokens], dtype=np.int64)
        first[list(eos_ids)] = _END
        self.first_byte = first  # int64 [V]
        self.byte_id = {token: id for id, token in enumerate(tokens) if token and len(token) == 1}


class ForcedTokens:
    """The forced token of each state of an automaton, computed on first use. Not thread-safe.

    It depends on the state alone, so no answer depends on earlier requests.
    """

    def __init__(self, automaton: TokenAutomaton, pieces: TokenBytes) -> None:
        self._automaton, self._pieces = automaton, pieces
        self._token = np.full(automaton.states, _UNKNOWN, dtype=np.int32)
        self._after = np.zeros(automaton.states, dtype=np.int32)
        self._next_byte = np.zeros(automaton.states, dtype=np.int16)  # zeros take memory only where they are written
        self._after_byte = np.zeros(automaton.states, dtype=np.int32)
        starts = np.zeros((automaton.classes, _END + 1), dtype=bool)
        starts[automaton.token_class, pieces.first_byte] = True
        self._starts = starts  # bool [C, 258]: with which bytes the tokens of a class begin

    @property
    def nbytes(self) -> int:
        """The memory of the arrays by state, on the host."""
        return sum(int(array.nbytes) for array in (self._token, self._after, self._next_byte, self._after_byte))

    def tokens(self, states: NDArray[np.int64], budget_after: int) -> NDArray[np.int64]:
        """The token forced in each state int64 [N], NO_FORCED_TOKEN where there is none or it could not finish in time.

        budget_after  the tokens left after this one
        """
        for state in set(states[self._token[states] == _UNKNOWN].tolist()):
            token = self._forced_token(state)
            self._token[state] = token
            self._after[state] = state if token == NO_FORCED_TOKEN else self._automaton.advance(state, token)
        late = self._automaton.distance[self._after[states]] > budget_after
        return np.where(late, NO_FORCED_TOKEN, self._token[states].astype(np.int64))

    def ends(self, tokens: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of these ids end a text: bool [N]."""
        return np.asarray(self._pieces.first_byte[tokens] == _END)

    def after(self, states: NDArray[np.int64]) -> NDArray[np.int64]:
        """The states after the forced tokens of these, int64 [N]; only for states that have one."""
        return self._after[states].astype(np.int64)

    def _forced_token(self, state: int) -> int:
        text, closed = self._stretch(state)
        if not text and closed:  # the end is forced; of several EOS ids the step takes the best
            return NO_FORCED_TOKEN if len(self._pieces.eos_ids) > 1 else next(iter(self._pieces.eos_ids))
        ids = self._pieces.spell(text, closed) if text else ()
        if not ids:
            return NO_FORCED_TOKEN
        after = self._automaton.advance(state, ids[0])
        return NO_FORCED_TOKEN if self._automaton.distance[after] == UNREACHABLE else int(ids[0])

    def _stretch(self, state: int) -> tuple[bytes, bool]:
        """The bytes forced from a state on, and whether the text ends after them. Each byte is computed once."""
        text = bytearray()
        while len(text) < _STRETCH_BYTES_MAX:
            code = int(self._next_byte[state]) or self._walk(state)
            if code in (_CHOICE, _ENDS):
                return bytes(text), code == _ENDS
            text.append(code - _FIRST_BYTE)
            state = int(self._after_byte[state])
        return bytes(text), False

    def _walk(self, state: int) -> int:
        """What follows a state: _FIRST_BYTE plus the only byte that can, or _ENDS where the text must end.

        _CHOICE where several bytes can follow, none, or one that has no token or cannot be written alone.
        """
        automaton, byte_id = self._automaton, self._pieces.byte_id
        successors = automaton.successors(state)
        live = automaton.distance[successors] != UNREACHABLE  # [C]
        begins = np.flatnonzero(self._starts[live].any(axis=0))
        code = _CHOICE
        if len(begins) == 1 and begins[0] == _END:
            code = _ENDS
        elif len(begins) == 1 and begins[0] != _NOTHING and bytes([begins[0]]) in byte_id:
            token_class = automaton.token_class[byte_id[bytes([begins[0]])]]
            code = int(begins[0]) + _FIRST_BYTE if live[token_class] else _CHOICE
            self._after_byte[state] = successors[token_class]
        self._next_byte[state] = code
        return code
