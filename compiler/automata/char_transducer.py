"""Character transducers, and their expansion to byte transducers. Knows neither words nor patterns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from compiler.automata.byte_transducer import DEAD, NO_END, ByteTransducer
from compiler.automata.character_sets import Minterms
from compiler.automata.interning import unique_rows
from compiler.automata.minimization import refine
from compiler.automata.utf8 import expand
from compiler.limits import ResourceGuard


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
    silent = np.where(transducer.next_state == DEAD, 0, transducer.output)
    pairs = np.concatenate([[DEAD], (transducer.next_state.astype(np.int64) * outputs + silent).reshape(-1)])
    arrivals, code = np.unique(pairs, return_inverse=True)  # the dead arrival sorts first: its code is DEAD
    expanded = expand(code[1:].reshape(transducer.next_state.shape), transducer.minterms, DEAD, guard)
    target_of, emission_of = (part.astype(np.int32) for part in np.divmod(arrivals, outputs))
    completed = np.maximum(expanded.table, 0)
    target, output = target_of[completed], emission_of[completed]
    inside = expanded.table < 0
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
