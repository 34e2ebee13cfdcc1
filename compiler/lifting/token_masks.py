"""Masks of allowed tokens, as the bits that inference engines take.

A mask has a bit for each of up to 200,000 ids. Few token classes have most ids: their bits are packed once. The bits of
the other ids are added up. Where these are many, those that are allowed are marked one by one, or those that are not if
they are fewer.
"""

from __future__ import annotations

import numpy as np

from compiler.automata import spread, stable_order
from compiler.lifting.token_automaton import UNREACHABLE, TokenAutomaton

_LARGE = 1_024  # ids of a class whose bits are packed once; one of 200,000 ids has at most 195 such classes
_WORD_BITS = 32
_FEW = 1 << 14  # ids of all other classes whose bits cost less to add up than to choose and mark
_MASKS_KEPT = 64  # by their classes, which repeat from token to token; each has a bit for every id


class TokenMasks:
    """The masks of one automaton, for one thread. A mask is uint32 [ceil(V / 32)]: id i is bit i % 32 of word i // 32.

    >>> from compiler.lifting import from_table
    >>> table, accepting = np.array([[1], [1]]), np.array([False, True])  # at least one token of id 0, then EOS (id 1)
    >>> masks = TokenMasks(from_table(np.array([0, 0]), table, accepting, start=0, eos_ids=(1,)))
    >>> masks.of_state(1).tolist(), masks.of_state(2).tolist(), masks.of_state(2, tokens_left=0).tolist()
    ([1], [3], [2])
    """

    def __init__(self, automaton: TokenAutomaton) -> None:
        self._automaton = automaton
        token_class, classes = automaton.token_class, automaton.classes
        # The ids of class c stand at ids[first[c]] .. ids[first[c + 1] - 1].
        self._ids = stable_order(token_class)
        self._first = np.searchsorted(token_class[self._ids], np.arange(classes + 1))
        self._count = np.diff(self._first)
        self._marks = np.zeros(-(-len(token_class) // _WORD_BITS) * _WORD_BITS, dtype=bool)
        is_large = self._count >= _LARGE
        self._large = [(number, self._packed(np.array([number]))) for number in np.flatnonzero(is_large).tolist()]
        self._small = np.flatnonzero(~is_large & (self._count > 0))
        self._small_ids = self._packed(self._small)
        self._half = int(self._count[self._small].sum()) // 2
        # The ids of small classes: their classes, words and bits.
        ids = np.flatnonzero(~is_large[token_class])
        bit = np.uint32(1) << (ids % _WORD_BITS).astype(np.uint32)
        self._bits = token_class[ids].astype(np.intp), ids // _WORD_BITS, bit
        self._kept: dict[bytes, np.ndarray] = {}

    def of_state(self, state: int, tokens_left: int = UNREACHABLE - 1) -> np.ndarray:
        """The tokens behind which `tokens_left` more are enough, EOS included."""
        return self.of_classes(self._automaton.distance[self._automaton.successors(state)] <= tokens_left)

    def of_classes(self, allowed: np.ndarray) -> np.ndarray:
        """The tokens of some classes. `allowed` is bool [C]; the mask is read-only."""
        key = allowed.tobytes()
        mask = self._kept.get(key)
        if mask is None:
            if len(self._kept) == _MASKS_KEPT:
                self._kept.clear()
            mask = self._kept[key] = self._of_classes(allowed)
            mask.flags.writeable = False
        return mask

    def _of_classes(self, allowed: np.ndarray) -> np.ndarray:
        token_class, word, bit = self._bits
        if len(word) <= _FEW:
            mask = np.zeros(len(self._small_ids), dtype=np.uint32)
            np.add.at(mask, word, bit * allowed.take(token_class))
        else:
            mask = self._marked(allowed[self._small])
        for number, bits in self._large:
            if allowed[number]:
                mask |= bits
        return mask

    def _marked(self, small: np.ndarray) -> np.ndarray:
        """The bits of small classes, bool by their places."""
        if int(self._count[self._small] @ small) > self._half:
            return np.asarray(self._small_ids & ~self._packed(self._small[~small]))
        return self._packed(self._small[small])

    def _packed(self, classes: np.ndarray) -> np.ndarray:
        """The bits of the ids of some classes."""
        ids = self._ids[spread(self._first[classes], self._first[classes + 1])[0]]
        self._marks[ids] = True
        bits: np.ndarray = np.packbits(self._marks, bitorder="little").view("<u4")
        self._marks[ids] = False
        return bits
