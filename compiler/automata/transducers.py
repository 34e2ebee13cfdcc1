"""Deterministic transducers from texts to letters: over classes of characters, and over the bytes of UTF-8.

Both are subsequential: a transition writes a string of letters, and the end of the text writes one more. A constraint
is translated over characters, minimized there, and then expanded to bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from compiler.automata.character_sets import Minterms
from compiler.automata.interning import unique_rows
from compiler.automata.minimization import refine
from compiler.automata.utf8 import expand
from compiler.limits import ResourceGuard

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


@dataclass(frozen=True, slots=True, eq=False)
class CharTransducer:
    """A deterministic transducer over classes of characters. S states, M minterms; state 0 is dead.

    next_state  int32 [S, M]
    output    int32 [S, M]  index into `outputs`; outputs[0] is the empty one
    final_output       int32 [S]     index into `outputs`, NO_END where a text may not end
    """

    next_state: np.ndarray
    output: np.ndarray
    final_output: np.ndarray
    outputs: tuple[tuple[int, ...], ...]
    minterms: Minterms


def minimize_transducer(transducer: CharTransducer, guard: ResourceGuard) -> tuple[CharTransducer, np.ndarray]:
    """The states that emit the same on every continuation merged, and the new number of each state: int64 [S].

    The dead state stays state 0, and the first of those merged stands for all.
    """
    # States can only be equal when they write the same at each step: that is the partition to begin with. Outputs are
    # not moved towards the start, so the result is minimal for these outputs, not among all transducers.
    _, emitting = unique_rows(np.column_stack([transducer.final_output, transducer.output]))
    # the dead state comes first, so its block is block 0
    first, block = unique_rows(refine(transducer.next_state, emitting, guard).reshape(-1, 1))
    smaller = CharTransducer(
        block[transducer.next_state[first]].astype(np.int32),
        transducer.output[first],
        transducer.final_output[first],
        transducer.outputs,
        transducer.minterms,
    )
    return smaller, block


def to_byte_transducer(transducer: CharTransducer, start: int, guard: ResourceGuard) -> ByteTransducer:
    """The byte transducer that does to the UTF-8 of a text what the transducer does to its characters.

    States between characters keep their numbers; those inside one follow. Each arrival (state, output) is an
    opaque code to the expansion, which ends a character's last byte with it.
    """
    states, outputs = len(transducer.final_output), len(transducer.outputs)
    # The output on the way to the dead state is never read; as 0 it makes no distinction.
    silent = np.where(transducer.next_state == DEAD, 0, transducer.output)
    pairs = np.concatenate([[DEAD], (transducer.next_state.astype(np.int64) * outputs + silent).reshape(-1)])
    arrivals, code = np.unique(pairs, return_inverse=True)  # the dead arrival sorts first: its code is DEAD
    expanded = expand(code[1:].reshape(transducer.next_state.shape), transducer.minterms, DEAD, guard)
    target_of, emission_of = (part.astype(np.int32) for part in np.divmod(arrivals, outputs))
    # An entry below 0 leads to a state inside a character, which writes nothing.
    completed = np.maximum(expanded.table, 0)
    target, output = target_of[completed], emission_of[completed]
    inside = expanded.table < 0
    # The entry -(1 + i) stands for inner state i, which follows the states between characters.
    target[inside] = states - 1 - expanded.table[inside]
    output[inside] = 0
    final_output = np.concatenate([transducer.final_output, np.full(expanded.inner, NO_END)])
    return ByteTransducer(
        expanded.byte_class.astype(np.int32),
        target,
        output,
        final_output.astype(np.int32),
        states,
        transducer.outputs,
        start,
    )
