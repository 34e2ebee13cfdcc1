"""The byte transducer between a text and the letters of its constraint. Knows no formula, pattern or token."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

DEAD = 0  # the transducer state no text leaves
NO_END = -1  # in `final_output`: a text may not end here


@dataclass(frozen=True, slots=True, eq=False)
class ByteTransducer:
    """A deterministic transducer: reads the bytes of a text, writes strings of letters. L states, K byte classes.

    byte_class       int32 [256]   the column each byte reads
    next_state       int32 [L, K]  row: state; state 0 is DEAD and only leads to itself
    output           int32 [L, K]  index into `outputs`: the letters written on the way
    final_output     int32 [L]     index into `outputs`: the letters written where the text ends; NO_END where it may
                                   not end
    boundary_states  int           B: states 0..B-1 lie between characters, the others inside a UTF-8 character
    outputs          the strings of letters; outputs[0] is the empty one
    start            the state before the first byte

    Raises ValueError where an index is out of range, DEAD can be left, or a text may end inside a character.
    """

    byte_class: np.ndarray
    next_state: np.ndarray
    output: np.ndarray
    final_output: np.ndarray
    boundary_states: int
    outputs: tuple[tuple[int, ...], ...]
    start: int

    def __post_init__(self) -> None:
        states, columns = self.next_state.shape
        if (
            self.byte_class.shape != (256,)
            or self.output.shape != (states, columns)
            or self.final_output.shape != (states,)
        ):
            raise ValueError("byte_class is [256], next_state and output are [L, K], final_output is [L]")
        if not (self.next_state.min() >= 0 and self.next_state.max() < states):
            raise ValueError("next_state names a state that does not exist")
        if not (self.byte_class.min() >= 0 and self.byte_class.max() < columns):
            raise ValueError("byte_class names a column that does not exist")
        if not (self.output.min() >= 0 and self.output.max() < len(self.outputs)) or self.outputs[0] != ():
            raise ValueError("output names a string that does not exist, or outputs[0] is not empty")
        if not (self.final_output.min() >= NO_END and self.final_output.max() < len(self.outputs)):
            raise ValueError("final_output names a string that does not exist")
        if not (1 <= self.boundary_states <= states and 0 <= self.start < self.boundary_states):
            raise ValueError("the start lies between characters")
        if (self.next_state[DEAD] != DEAD).any() or self.final_output[DEAD] != NO_END:
            raise ValueError("state 0 is dead: it leads nowhere and ends nothing")
        if (self.final_output[self.boundary_states :] != NO_END).any():
            raise ValueError("a text ends only on a complete character")

    @property
    def states(self) -> int:
        return len(self.final_output)

    def step(self, state: int, byte: int) -> tuple[int, tuple[int, ...]]:
        """The state after one byte and the letters emitted on the way."""
        column = self.byte_class[byte]
        return int(self.next_state[state, column]), self.outputs[self.output[state, column]]
