"""Finds the tokens that tell a transducer state from its base.

The base is another state. Between the brackets and names of JSON, or within a choice, a state has a handful of tokens:
its base is the dead state. Within a key, a state has most of its tokens in common with the state of any other key. The
tokens in which the two differ are found by following the bytes in which they differ down the trie. So a state costs
what these tokens cost, whatever the size of the vocabulary.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from compiler.automata import DEAD, ByteTransducer, distinct, spread
from compiler.lifting.effects import IDENTITY, Effects
from compiler.limits import ResourceGuard
from compiler.vocab import PLAIN_CHARACTERS, Trie

TOKENS_MAX = 16  # of a state without a row of its own
_DIFFERENCES_MAX = 512  # of a state whose row is a copy of its base's but for these
_LISTED_MAX = 1 << 20  # tokens of all states from which on no state has more than TOKENS_MAX
_BYTES_MAX = 64  # that are followed from a sparse state at one depth
_NARROW_MIN = 100  # narrow states for which a walk of their own costs less than wider rows
_ASCII_END = 0x80
_CODES = 1 << 32  # more than there are effects


class SparseTokens(NamedTuple):
    """The tokens of sparse states, and which states are not sparse. N tokens, B states.

    source  int64 [N]  the state
    ids     int32 [N]  tokens that act otherwise than in the base
    effect  int32 [N]  what they do, which may be the dead effect
    base    int64 [B]  the base of each sparse state; DEAD for the others
    copied  bool [B]   sparse states with many tokens: they get a row, a copy of their base's but for these
    plain   bool [B]   states with more such tokens, and bases, where all plain characters act alike
    counts_plain       whether the number of plain characters matters in some of these
    narrow  bool [B]   others with more such tokens, but few bytes that can follow
    wide    bool [B]   all others with more such tokens, and bases
    """

    source: np.ndarray
    ids: np.ndarray
    effect: np.ndarray
    base: np.ndarray
    copied: np.ndarray
    plain: np.ndarray
    counts_plain: bool
    narrow: np.ndarray
    wide: np.ndarray


def sparse_tokens(effects: Effects, transducer: ByteTransducer, trie: Trie, *, guard: ResourceGuard) -> SparseTokens:
    """The tokens of the sparse ones among the transducer states between characters. Raises LimitExceeded."""
    sources = np.arange(transducer.boundary_states, dtype=np.int32)
    base, wide = _bases(transducer)
    dense, token_count = np.zeros(len(sources), dtype=bool), np.zeros(len(sources), dtype=np.int64)
    dense[base] = True  # a base has a row of its own
    dense[DEAD] = False
    effect = effects.of(sources, np.full_like(sources, IDENTITY))
    wide |= dense
    source = np.flatnonzero((effect != effect[base]) & ~dense)
    effect, base_effect, node = effect[source], effect[base[source]], np.zeros(len(source), dtype=np.int64)
    found = [(source[:0], trie.ids[:0], effect[:0])]
    differences, most = _Differences(effects, transducer), np.where(base == DEAD, TOKENS_MAX, _DIFFERENCES_MAX)
    while source.size:
        guard.check_time()
        differing = differences.of(effect, base_effect)
        dense |= np.bincount(source, weights=differing.total, minlength=len(sources)) > _BYTES_MAX
        # Dense states are left out first: their bytes may be thousands of times those of the others.
        entry, byte = differing.listed(np.flatnonzero(~dense[source]))
        # Bytes without a child in the trie end here.
        key = 256 * node[entry] + byte
        child = np.minimum(np.searchsorted(trie.key, key), len(trie.key) - 1)
        hit = trie.key[child] == key
        entry, node, column = entry[hit], child[hit], transducer.byte_class[byte[hit]]
        source, effect, base_effect = (
            source[entry], effects.after(effect[entry], column), effects.after(base_effect[entry], column)
        )  # fmt: skip
        place, count = spread(trie.first_id[node], trie.first_id[node + 1])
        found.append((np.repeat(source, count), trie.ids[place], np.repeat(effect, count)))
        token_count += np.bincount(found[-1][0], minlength=len(sources))
        dense |= token_count > (most if token_count.sum() < _LISTED_MAX else TOKENS_MAX)
    source, ids, effect = map(np.concatenate, zip(*found, strict=True))
    kept = ~dense[source]
    base[dense] = DEAD
    plain, counts = plain_states(transducer.next_state, transducer.output, transducer.byte_class, wide)
    narrow = dense & ~wide
    plain &= dense
    if np.count_nonzero(narrow) < _NARROW_MIN:
        narrow[:] = False
    copied = ~dense & (token_count > TOKENS_MAX)
    return SparseTokens(
        source=source[kept], ids=ids[kept], effect=effect[kept], base=base, copied=copied, plain=plain,
        counts_plain=bool((plain & counts).any()), narrow=narrow, wide=dense & ~plain & ~narrow,
    )  # fmt: skip


def plain_states(
    next_state: np.ndarray, output: np.ndarray, byte_class: np.ndarray, candidates: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The candidates in which all plain characters act alike.

    They do so in the states behind them, too. The second array names those in which the second such character acts
    otherwise than the first. All are bool [B]; the others are arrays of a `ByteTransducer`.
    """
    states, space = np.arange(len(candidates)), byte_class[ord(" ")]
    after, written_after = next_state[states, space], output[states, space]
    read = candidates.copy()
    read[after[candidates]] = read[DEAD] = True
    states = np.flatnonzero(read)
    for character in PLAIN_CHARACTERS:
        alike, at = np.ones(len(states), dtype=bool), states
        for number, (first, last) in enumerate(character, 1):
            columns = distinct(byte_class[first : last + 1])
            targets, outputs = next_state[at][:, columns], output[at][:, columns]
            ends = number == len(character)  # the last byte writes
            written = written_after[states] if ends else np.zeros(len(states))
            alike &= ((targets == targets[:, :1]) & (outputs == written[:, None])).all(axis=1)
            at = targets[:, 0]
        states = states[alike & (at == after[states])]
    plain = np.zeros_like(candidates)
    plain[states] = True
    after = np.where(plain, after, DEAD)
    counts = (after[after] != after) | (written_after[after] != 0)
    for _ in range(len(plain).bit_length()):  # the states behind 1, 2, 4, ... characters
        plain &= plain[after]
        after = after[after]
    return plain & candidates, plain & candidates & counts


def _bases(transducer: ByteTransducer) -> tuple[np.ndarray, np.ndarray]:
    """The base of each state, and whether many bytes can follow it.

    States are those between characters: int64 [B], DEAD where no other state is nearer, and bool [B]. A base is the
    state after a byte that few states tell from others. It leads to itself there, so that it has no base.
    """
    ascii_bytes = np.bincount(transducer.byte_class[:_ASCII_END], minlength=transducer.next_state.shape[1])
    columns = np.bincount(transducer.byte_class, minlength=len(ascii_bytes))
    states = np.arange(transducer.boundary_states)
    table, output = transducer.next_state[states], transducer.output[states]
    live = table != DEAD
    after = table[:, np.argmax(ascii_bytes * np.count_nonzero(live, axis=0))].astype(np.int64)
    base = np.where((after < len(states)) & (after[np.minimum(after, len(states) - 1)] == after), after, DEAD)
    base[base == states] = DEAD
    near, count = np.flatnonzero(base), live @ columns
    differs = (table[near] != table[base[near]]) | (output[near] != output[base[near]])
    base[near[differs @ columns >= count[near]]] = DEAD
    return base, count > _BYTES_MAX


class _Differences:
    """Finds the bytes in which effects differ."""

    def __init__(self, effects: Effects, transducer: ByteTransducer) -> None:
        self._effects = effects
        # The bytes of each column stand side by side.
        self._columns = np.bincount(transducer.byte_class, minlength=transducer.next_state.shape[1])
        self._byte = np.argsort(transducer.byte_class, kind="stable")
        self._end = np.cumsum(self._columns)

    def of(self, effect: np.ndarray, base_effect: np.ndarray) -> _DifferingBytes:
        """The bytes in which each of N pairs differs. They are known for pairs with at most _BYTES_MAX of them."""
        codes = effect * np.int64(_CODES) + base_effect
        pairs = distinct(codes)  # they repeat below the first byte
        differ = self._effects.rows(pairs // _CODES) != self._effects.rows(pairs % _CODES)
        count = differ @ self._columns  # of integers, so not by BLAS
        pair, column = (differ & (count <= _BYTES_MAX)[:, None]).nonzero()
        end = self._end[column]
        place, listed = spread(end - self._columns[column], end)
        first = np.searchsorted(np.repeat(pair, listed), np.arange(len(pairs) + 1))
        number = np.searchsorted(pairs, codes)
        return _DifferingBytes(count[number], number, first, self._byte[place])


class _DifferingBytes(NamedTuple):
    """The bytes in which each of N pairs differs.

    total   int64 [N]  how many there are
    number  int64 [N]  the row of each pair below
    first   int64 [pairs + 1]  where the bytes of each row begin
    bytes   int64 [...]  of all rows
    """

    total: np.ndarray
    number: np.ndarray
    first: np.ndarray
    bytes: np.ndarray

    def listed(self, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The bytes of the pairs at some places.

        Returns an entry for each: the place of its pair, and the byte.
        """
        number = self.number[places]
        at, counts = spread(self.first[number], self.first[number + 1])
        return np.repeat(places, counts), self.bytes[at]
