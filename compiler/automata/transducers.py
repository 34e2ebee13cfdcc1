"""Deterministic transducers from texts to letters. They read classes of characters, or the bytes of UTF-8.

Both are subsequential: a transition writes a string of letters, and the end of the text writes one more. A constraint
is translated over characters, minimized there, and then expanded to bytes. A character of several bytes passes through
inner states. Those are shared by content, so equal ones are one, and the expansion of a minimal character table is
minimal. Surrogates, overlong forms and code points past U+10FFFF have no encoding and are dead.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from compiler.automata.characters import CODE_POINTS, NO_MINTERM, Minterms
from compiler.automata.interning import mix, ranks, unique_rows
from compiler.automata.minimization import refine
from compiler.limits import ResourceGuard

DEAD = 0  # the transducer state no text leaves
NO_END = -1  # in `final_output`: a text may not end here
_ASCII_END = 0x80
_BLOCK = 64  # code points under one last byte; also the fan-out of every other continuation byte
_CONTINUATIONS = slice(0x80, 0xC0)
_LEADS = slice(0xC2, 0xF5)  # C0 and C1 would be overlong, F5 and up past the last code point
_PAIR_BYTES = 24  # what is held for each pair of a row and a block while equal ones are found
_CHUNK = 1 << 15  # rows compared at a time, 8 MiB of them
_BYTE_WEIGHTS = mix(np.arange(_BLOCK)) | np.uint64(1)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ByteTransducer:
    """A deterministic transducer from the bytes of a text to letters. It has L states and K byte classes.

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


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
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
    """Merge the states that emit the same on every continuation. Also returns the new number of each state: int64 [S].

    The dead state stays state 0, and the first of those merged stands for all.
    """
    # States can only be equal when they write the same at each step: that is the partition to begin with. Outputs are
    # not moved towards the start, so the result is minimal for these outputs, not among all transducers.
    _, emitting = unique_rows(np.column_stack([transducer.final_output, transducer.output]))
    # the dead state comes first, so its block is block 0
    first, block = unique_rows(refine(transducer.next_state, emitting, guard).reshape(-1, 1))
    smaller = CharTransducer(
        next_state=block[transducer.next_state[first]].astype(np.int32), output=transducer.output[first],
        final_output=transducer.final_output[first], outputs=transducer.outputs, minterms=transducer.minterms,
    )
    return smaller, block


def to_byte_transducer(transducer: CharTransducer, start: int, guard: ResourceGuard) -> ByteTransducer:
    """The byte transducer that does on UTF-8 what `transducer` does on characters.

    States between characters keep their numbers; those inside one follow. Each arrival (state, output) is an
    opaque code to the expansion, which ends a character's last byte with it.
    """
    states, outputs = len(transducer.final_output), len(transducer.outputs)
    if outputs == 1:  # an arrival is a state
        expanded = expand(transducer.next_state, transducer.minterms, DEAD, guard)
        target, output = expanded.table, np.zeros_like(expanded.table)
    else:
        # The output on the way to the dead state is never read; as 0 it makes no distinction.
        silent = np.where(transducer.next_state == DEAD, 0, transducer.output)
        pairs = np.concatenate([[DEAD], (transducer.next_state.astype(np.int64) * outputs + silent).reshape(-1)])
        arrivals, code = ranks(pairs, states * outputs)  # the dead arrival sorts first: its code is DEAD
        expanded = expand(code[1:].reshape(transducer.next_state.shape), transducer.minterms, DEAD, guard)
        # An entry below 0 leads to a state inside a character, which writes nothing.
        completed = arrivals[np.maximum(expanded.table, 0)]
        target, output = (part.astype(np.int32) for part in np.divmod(completed, outputs))
        output[expanded.table < 0] = 0
    # The entry -(1 + i) stands for inner state i, which follows the states between characters.
    target = np.where(expanded.table < 0, states - 1 - expanded.table, target).astype(np.int32)
    final_output = np.concatenate([transducer.final_output, np.full(expanded.inner, NO_END)])
    return ByteTransducer(
        byte_class=expanded.byte_class.astype(np.int32), next_state=target, output=output,
        final_output=final_output.astype(np.int32), boundary_states=states, outputs=transducer.outputs, start=start,
    )


@dataclass(frozen=True, slots=True, eq=False)
class ByteTable:
    """The transitions of each byte, between characters and inside them. S boundary rows, I inner rows, K byte classes.

    byte_class  int32 [256]      the column each byte reads
    table       int32 [S+I, K]   an entry >= 0 completes a character: it is a code of the table that was expanded;
                                 an entry -(1 + i) leads to the inner state i, which is row S + i
    boundary    int              S: rows 0..S-1 are those of the expanded table, in their order
    """

    byte_class: np.ndarray
    table: np.ndarray
    boundary: int

    @property
    def inner(self) -> int:
        return len(self.table) - self.boundary


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _Layout:
    """How the characters outside ASCII fall into blocks. Entry 0 of every numbering is the one without characters.

    leaves  int [B1, 64]  the distinct blocks of 64 code points: the part under each last byte
    middle  int [B2, 64]  the distinct blocks of 64 such blocks, as indices into `leaves`
    outer   int [B3, 64]  the distinct blocks of those, as indices into `middle`
    two     int [30]      the block of `leaves` under each lead byte C2..DF
    three   int [16]      the block of `middle` under E0..EF
    four    int [5]       the block of `outer` under F0..F4
    """

    leaves: np.ndarray
    middle: np.ndarray
    outer: np.ndarray
    two: np.ndarray
    three: np.ndarray
    four: np.ndarray


def expand(table: np.ndarray, parts: Minterms, dead: int, guard: ResourceGuard) -> ByteTable:
    """The byte table of a character table. It does on a character's encoding what `table` does on its minterm.

    table  int [S, M]  entries >= 0, opaque: a next state, the number of an edge
    dead   the entry that means dead; an inner state from which everything is dead is replaced by it
    Raises LimitExceeded over `table_bytes_max`, before the inner rows are written.
    """
    wide = np.column_stack([np.full(len(table), dead), table]).astype(np.int32)  # column 0: no character
    layout, column = _layout(parts)
    # Rows that agree outside ASCII share all their inner states.
    first, row_of = unique_rows(wide[:, column])
    values = wide[first][:, column]  # [D, m]: the rows that differ outside ASCII
    leaf, leaf_rows = _intern(values, layout.leaves, dead, 0, guard=guard)
    middle, middle_rows = _intern(leaf, layout.middle, dead, len(leaf_rows), guard=guard)
    outer, outer_rows = _intern(middle, layout.outer, dead, len(leaf_rows) + len(middle_rows), guard=guard)
    # [D, 51]: the inner state behind each lead byte C2..F4.
    leads = np.concatenate([leaf[:, layout.two], middle[:, layout.three], outer[:, layout.four]], axis=1)
    inner = np.concatenate([leaf_rows, middle_rows, outer_rows])
    # The columns of the bytes that begin a character: none, U+0000 .. U+007F, C2 .. F4. Bytes of one minterm, or with
    # equal columns among the distinct rows, are one column of the large table.
    ascii_first, ascii_column = unique_rows(parts.of(np.arange(_ASCII_END))[:, None])
    lead_first, lead_column = unique_rows(leads.T)
    outside = np.concatenate([
        wide[:, :1], wide[:, 1 + parts.of(ascii_first)], leads[:, lead_first][row_of],
    ], axis=1)  # fmt: skip
    of_byte = np.concatenate([[0], 1 + ascii_column, 1 + len(ascii_first) + lead_column])
    return _assemble(outside, of_byte, inner, dead, guard=guard)


def inner_estimate(table: np.ndarray, parts: Minterms) -> int:
    """An estimate of the inner states that `expand` makes.

    They belong to the rows of a table [S, M] that differ outside ASCII.
    """
    layout, column = _layout(parts)
    used = np.unique(column[column > 0]) - 1
    rows = table[:, used]
    mixed = rows[(rows != rows[:, :1]).any(axis=1)]
    return len(unique_rows(mixed)[0]) * (len(layout.leaves) + len(layout.middle) + len(layout.outer))


def _intern(
    values: np.ndarray, blocks: np.ndarray, dead: int, offset: int, *, guard: ResourceGuard
) -> tuple[np.ndarray, np.ndarray]:
    """The inner states that read one continuation byte of each block.

    There is one for each row of values, and equal ones are shared.

    values  int32 [D, X]   what each row does on the X things a block is made of
    blocks  int [B, 64]    indices into those
    Returns int32 [D, B], the entry -(1 + offset + i) for inner state i of this level or `dead`, and the rows [I, 64].
    """
    count = len(blocks)
    guard.check("table_bytes_max", len(values) * count * _PAIR_BYTES)
    # The hash of a row of 64 entries is the sum of byte weight times value. All pairs are hashed by one matrix
    # product, so that equal rows are found before any is written out.
    weight = np.zeros((values.shape[1], count), dtype=np.uint64)
    np.add.at(weight, (blocks, np.arange(count)[:, None]), _BYTE_WEIGHTS)
    scattered = mix(values)
    hashes = (scattered @ weight).reshape(-1)  # of the row under each pair, without writing the row out
    _, first, which = np.unique(hashes, return_index=True, return_inverse=True)
    guard.check_time()
    guard.check("table_bytes_max", len(first) * _BLOCK * values.itemsize)
    rows = _rows(values, blocks, first)
    if not _rows_match(values, blocks, first, which, rows=rows):  # two rows share a hash: compare rows
        rows = _rows(values, blocks, np.arange(len(which)))
        first, which = unique_rows(rows)
        rows = rows[first]
    # An inner state from which every byte is dead is the dead state itself.
    alive = (rows != dead).any(axis=1)
    entry = np.full(len(rows), dead, dtype=np.int32)
    entry[alive] = -(1 + offset + np.arange(np.count_nonzero(alive)))
    return entry[which].reshape(len(values), count), rows[alive]


def _rows(values: np.ndarray, blocks: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """The rows under the pairs (row of values, block): [N, 64]. A pair is row * B + block."""
    return np.asarray(values[(pairs // len(blocks))[:, None], blocks[pairs % len(blocks)]])


def _rows_match(
    values: np.ndarray, blocks: np.ndarray, first: np.ndarray, which: np.ndarray, *, rows: np.ndarray
) -> bool:
    """True when each pair has the row that its hash names. Two different rows may have one hash."""
    shared = np.flatnonzero(first[which] != np.arange(len(which)))
    chunks = (shared[low : low + _CHUNK] for low in range(0, len(shared), _CHUNK))
    return all(np.array_equal(rows[which[chunk]], _rows(values, blocks, chunk)) for chunk in chunks)


def _assemble(
    outside: np.ndarray, of_byte: np.ndarray, inner: np.ndarray, dead: int, *, guard: ResourceGuard
) -> ByteTable:
    """One table from boundary rows and inner rows, equal columns merged.

    outside  int32 [S, X]   the boundary rows; column 0 is dead: it stands for the bytes that no UTF-8 text holds
    of_byte  int [1 + 128 + 51]  the column of no byte, of each ASCII byte and of each lead byte C2..F4
    inner    int32 [I, 64]  the inner rows
    """
    states = len(outside)
    # Bytes that begin a character and bytes that continue one share no class but the dead one, so their columns are
    # merged apart.
    first, merged = unique_rows(outside.T)
    outside_class = merged[of_byte]
    inside = np.concatenate([np.full((len(inner), 1), dead, dtype=np.int32), inner], axis=1)
    inside_first, inside_class = unique_rows(inside.T)
    columns = len(first)
    byte_class = np.zeros(256, dtype=np.int32)
    byte_class[:_ASCII_END] = outside_class[1 : 1 + _ASCII_END]
    byte_class[_LEADS] = outside_class[1 + _ASCII_END :]
    byte_class[_CONTINUATIONS] = np.where(inside_class[1:] == 0, 0, columns - 1 + inside_class[1:])
    rows, width = states + len(inner), columns - 1 + len(inside_first)
    guard.check("table_bytes_max", rows * width * outside.itemsize)
    table = np.full((rows, width), dead, dtype=np.int32)
    table[:states, :columns] = outside[:, first]
    table[states:, columns:] = inside[:, inside_first[1:]]
    return ByteTable(byte_class, table, states)


def _layout(parts: Minterms) -> tuple[_Layout, np.ndarray]:
    """The layout of a partition, and the minterm of its numbers.

    The array is 1 + the minterm, 0 for no character: int [m].
    """
    begin = int(np.searchsorted(parts.cuts, _ASCII_END, side="right")) - 1
    # ASCII is read by its own columns; the layout begins behind it.
    cuts = np.maximum(parts.cuts[begin:], _ASCII_END).astype(np.int32)
    first, number = unique_rows(np.concatenate([[NO_MINTERM], parts.cell[begin:]]).reshape(-1, 1))
    column = 1 + np.concatenate([[NO_MINTERM], parts.cell[begin:]])[first]
    return _blocks(cuts.tobytes(), number[1:].astype(np.int32).tobytes()), column


@lru_cache(maxsize=64)
def _blocks(cut_bytes: bytes, number_bytes: bytes) -> _Layout:
    """The layout of a partition of the bytes. Its parts are numbered by appearance, so that few distinct layouts occur.
    """
    cuts, number = np.frombuffer(cut_bytes, dtype=np.int32), np.frombuffer(number_bytes, dtype=np.int32)
    starts = np.arange(0, CODE_POINTS, _BLOCK)
    # Blocks without a cut inside hold one minterm; only the others are looked at character by character.
    block = number[np.maximum(np.searchsorted(cuts, starts, side="right") - 1, 0)].astype(np.int64)
    mixed = np.unique(cuts[cuts % _BLOCK != 0] // _BLOCK)
    points = mixed[:, None] * _BLOCK + np.arange(_BLOCK)
    uniform = np.repeat(np.arange(number.max() + 1)[:, None], _BLOCK, axis=1)
    candidates = np.concatenate([uniform, number[np.searchsorted(cuts, points, side="right") - 1]])
    first, which = unique_rows(candidates)
    block[mixed] = which[len(uniform) :]
    return _stack(candidates[first], block)


def _stack(leaves: np.ndarray, block: np.ndarray) -> _Layout:
    """The levels above the leaves. `block` int [17408] is the leaf of each 64 code points."""
    no_blocks = np.zeros((1, _BLOCK), dtype=np.int64)
    groups = np.concatenate([no_blocks, block.reshape(-1, _BLOCK)])
    # Overlong forms have no characters: their blocks are the empty one, number 0.
    groups[1, : 0x800 // _BLOCK] = 0  # under E0: what two bytes encode
    first, group = unique_rows(groups)
    middle, three, others = groups[first], group[1:17], group[17:]
    before, after = np.zeros(16, dtype=np.int64), np.zeros(48, dtype=np.int64)  # under F0: what three bytes encode
    planes = np.concatenate([no_blocks, np.concatenate([before, others, after]).reshape(5, _BLOCK)])
    first, plane = unique_rows(planes)
    two = block[2:32]
    used, renumbered = np.unique(np.concatenate([[0], two, middle.reshape(-1)]), return_inverse=True)
    return _Layout(
        leaves=leaves[used], middle=renumbered[31:].reshape(-1, _BLOCK), outer=planes[first], two=renumbered[1:31],
        three=three, four=plane[1:],
    )
