"""Forced stretches: where a constraint dictates the text, the tokenizer's own spelling of it is the one that is tried.

Many splits of a dictated text satisfy as well ("dog" as d, o, g); the model has hardly seen them, and rows that differ
in nothing else crowd a beam. And what is known beforehand can go through the model in one pass.
Knows a constraint's automaton and a vocabulary's bytes; nothing of scores, beams or models.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from compiler.token_automaton import UNREACHABLE, TokenAutomaton

FREE = -1  # no token is dictated here
_NOTHING, _END = 256, 257  # in place of a first byte: of an id without bytes, and of EOS
_UNKNOWN = -2  # nobody has asked yet
_STRETCH_BYTES_MAX = 512  # how far ahead a stretch is followed
_NOT_WALKED, _CHOICE, _ENDS, _NOT_ALONE = 0, 1, 2, 3  # what is known of the next byte; see `Forced._walk`
_FIRST_BYTE = 4  # the codes from here on are bytes

Spell = Callable[[bytes, bool], Sequence[int]]
"""The tokenizer's own ids of a text, as far as they are certain: all of them where the text ends there (True), else
without those that what follows might change. Nothing where the bytes are no text, or come out as other bytes."""


class Pieces:
    """What the stretches of any constraint need of a vocabulary.

    tokens   the bytes of each id, None or empty where it has none
    eos_ids  the ids that end a text
    spell    see `Spell`
    """

    def __init__(self, tokens: Sequence[bytes | None], eos_ids: Sequence[int], spell: Spell) -> None:
        self.tokens = tokens
        self.eos_ids = frozenset(eos_ids)
        self.spell = spell
        first = np.array([token[0] if token else _NOTHING for token in tokens], dtype=np.int64)
        first[list(eos_ids)] = _END
        self.first_byte = first  # int64 [V]
        self.byte_id = {token: id for id, token in enumerate(tokens) if token and len(token) == 1}


class Forced:
    """The dictated token of each state of an automaton, worked out when it is first asked for. Not thread-safe.

    A state dictates a token where every text that still satisfies goes on with the same bytes. What it is depends
    on the state alone, so no answer depends on who asked before.
    """

    def __init__(self, automaton: TokenAutomaton, pieces: Pieces) -> None:
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
        """Of what is kept for each state, on the host."""
        kept = (self._token, self._after, self._next_byte, self._after_byte)
        return sum(int(array.nbytes) for array in kept)

    def tokens(self, states: NDArray[np.int64], budget_after: int) -> NDArray[np.int64]:
        """For each state int64 [N] the token it dictates, FREE where there is none or it could not finish in time.

        budget_after  the tokens left once this one is written
        """
        found = self._token[states].astype(np.int64)
        for state in set(states[found == _UNKNOWN].tolist()):
            self._learn(state)
            found = self._token[states].astype(np.int64)
        late = self._automaton.distance[self._after[states]] > budget_after
        return np.where(late, FREE, found)

    def ends(self, tokens: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of these ids end a text: bool [N]."""
        return np.asarray(self._pieces.first_byte[tokens] == _END)

    def after(self, states: NDArray[np.int64]) -> NDArray[np.int64]:
        """The states after the tokens that these dictate, int64 [N]; only for states that dictate one."""
        return self._after[states].astype(np.int64)

    def _learn(self, state: int) -> None:
        token = self._dictated(state)
        self._token[state] = token
        self._after[state] = state if token == FREE else self._automaton.advance(state, token)

    def _dictated(self, state: int) -> int:
        text, closed = self._stretch(state)
        if not text and closed:
            return self._only_eos()
        ids = self._pieces.spell(text, closed) if text else ()
        if not ids:
            return FREE
        after = self._automaton.advance(state, ids[0])
        return FREE if self._automaton.distance[after] == UNREACHABLE else int(ids[0])

    def _only_eos(self) -> int:
        """The end is dictated; of several EOS ids the step takes the best."""
        return FREE if len(self._pieces.eos_ids) > 1 else next(iter(self._pieces.eos_ids))

    def _stretch(self, state: int) -> tuple[bytes, bool]:
        """The bytes dictated from a state on, and whether the text ends after them.

        Each state of a long stretch asks for what lies ahead of it, so each byte is worked out once and then followed.
        """
        text = bytearray()
        while len(text) < _STRETCH_BYTES_MAX:
            code = int(self._next_byte[state])
            if code == _NOT_WALKED:
                code = self._walk(state)
            if code == _ENDS:
                return bytes(text), True
            if code == _CHOICE:
                break
            if code == _NOT_ALONE:
                return b"", False
            text.append(code - _FIRST_BYTE)
            state = int(self._after_byte[state])
        return bytes(text), False

    def _walk(self, state: int) -> int:
        """One byte on from a state, kept for whoever comes by again: what may follow, and the state after it.

        _CHOICE where more than one byte may follow, none, or one without a token; _ENDS where the text must end;
        _NOT_ALONE where the byte has a token that cannot be written alone; else _FIRST_BYTE and the byte.
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
            code = int(begins[0]) + _FIRST_BYTE if live[token_class] else _NOT_ALONE
            self._after_byte[state] = successors[token_class]
        self._next_byte[state] = code
        return code
