"""The byte transducer between a text and the letters of its constraint. Knows no formula, pattern or token."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

DEAD = 0  # the labeller state no text leaves
NO_END = -1  # in `flush`: a text may not end here


@dataclass(frozen=True, slots=True, eq=False)
class ByteTransducer:
    """A deterministic transducer: reads the bytes of a text, emits strings of letters. L states, K byte classes.

    byte_class  int32 [256]   the column each byte reads
    next_state  int32 [L, K]  row: state; state 0 is DEAD and only leads to itself
    emission    int32 [L, K]  index into `strings`: the letters emitted on the way
    flush       int32 [L]     index into `strings`: what is emitted where the text ends, NO_END where it may not end
    boundary    int           states 0..boundary-1 lie between characters, the rest inside a UTF-8 character
    strings     the letter strings; strings[0] is the empty one
    start       the state before the first byte

    Raises ValueError where an index is out of range, DEAD can be left, or a text may end inside a character.
    """

    byte_class: np.ndarray
    next_state: np.ndarray
    emission: np.ndarray
    flush: np.ndarray
    boundary: int
    strings: tuple[tuple[int, ...], ...]
    start: int

    def __post_init__(self) -> None:
        states, columns = self.next_state.shape
        if self.byte_class.shape != (256,) or self.emission.shape != (states, columns) or self.flush.shape != (states,):
            raise ValueError("byte_class is [256], next_state and emission are [L, K], flush is [L]")
        if not (self.next_state.min() >= 0 and self.next_state.max() < states):
            raise ValueError("next_state names a state that does not exist")
        if not (self.byte_class.min() >= 0 and self.byte_class.max() < columns):
            raise ValueError("byte_class names a column that does not exist")
        if not (self.emission.min() >= 0 and self.emission.max() < len(self.strings)) or self.strings[0] != ():
            raise ValueError("emission names a string that does not exist, or strings[0] is not empty")
        if not (self.flush.min() >= NO_END and self.flush.max() < len(self.strings)):
            raise ValueError("flush names a string that does not exist")
        if not (1 <= self.boundary <= states and 0 <= self.start < self.boundary):
            raise ValueError("the start lies between characters")
        if (self.next_state[DEAD] != DEAD).any() or self.flush[DEAD] != NO_END:
            raise ValueError("state 0 is dead: it leads nowhere and ends nothing")
        if (self.flush[self.boundary :] != NO_END).any():
            raise ValueError("a text ends only on a complete character")

    @property
    def states(self) -> int:
        return len(self.flush)

    def step(self, state: int, byte: int) -> tuple[int, tuple[int, ...]]:
        """The state after one byte and the letters emitted on the way."""
        column = self.byte_class[byte]
        return int(self.next_state[state, column]), self.strings[self.emission[state, column]]
