"""Finds the tokens of transducer states in which few may follow.

Between the brackets and names of JSON, or within a choice, a state has a handful of tokens. They are found by following
the state's live bytes down the trie, so a state costs what its tokens cost, whatever the size of the vocabulary.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from compiler.automata import DEAD, ByteTransducer, spread
from compiler.lifting.effects import DEAD_EFFECT, IDENTITY, Effects
from compiler.limits import ResourceGuard
from compiler.vocab import Trie

TOKENS_MAX = 16  # of a sparse state
_BYTES_MAX = 64  # that are followed from a sparse state at one depth


class SparseTokens(NamedTuple):
    """The live tokens of sparse states, and which states are dense. N tokens, R states.

    source  int64 [N]  place of the state among those asked for
    ids     int32 [N]
    effect  int32 [N]
    dense   bool [R]   states with more tokens or bytes, of which nothing is listed
    """

    source: np.ndarray
    ids: np.ndarray
    effect: np.ndarray
    dense: np.ndarray


def sparse_tokens(
    effects: Effects, transducer: ByteTransducer, sources: np.ndarray, trie: Trie, *, guard: ResourceGuard
) -> SparseTokens:
    """The tokens of the sparse ones among the transducer states `sources`. Raises LimitExceeded."""
    live_bytes = _LiveBytes(transducer)
    dense, token_count = np.zeros(len(sources), dtype=bool), np.zeros(len(sources), dtype=np.int64)
    effect = effects.intern(sources, np.full_like(sources, IDENTITY))
    source = np.flatnonzero(effect != DEAD_EFFECT)
    effect, node = effect[source], np.zeros(len(source), dtype=np.int64)
    found = [(source[:0], trie.ids[:0], effect[:0])]
    while source.size:
        guard.check_time()
        state = effects.state[effect]
        dense |= np.bincount(source, weights=live_bytes.count[state], minlength=len(sources)) > _BYTES_MAX
        kept = ~dense[source]
        source, effect, node, state = source[kept], effect[kept], node[kept], state[kept]
        # One entry for each live byte; those without a child in the trie end here.
        place, count = spread(live_bytes.first[state], live_bytes.first[state + 1])
        byte, entry = live_bytes.byte[place], np.repeat(np.arange(len(source)), count)
        key = 256 * node[entry] + byte
        child = np.minimum(np.searchsorted(trie.key, key), len(trie.key) - 1)
        hit = trie.key[child] == key
        entry, child, byte = entry[hit], child[hit], byte[hit]
        after = effects.after(effect[entry], transducer.byte_class[byte])
        live = after != DEAD_EFFECT
        source, effect, node = source[entry[live]], after[live], child[live]
        place, count = spread(trie.first_id[node], trie.first_id[node + 1])
        found.append((np.repeat(source, count), trie.ids[place], np.repeat(effect, count)))
        token_count += np.bincount(found[-1][0], minlength=len(sources))
        dense |= token_count > TOKENS_MAX
    source, ids, effect = map(np.concatenate, zip(*found, strict=True))
    kept = ~dense[source]
    return SparseTokens(source[kept], ids[kept], effect[kept], dense)


class _LiveBytes:
    """The bytes that do not lead to the dead state, by state.

    count  int64 [L]     how many there are
    first  int64 [L+1]   the bytes of state l are byte[first[l] : first[l + 1]]; none are listed over _BYTES_MAX
    """

    def __init__(self, transducer: ByteTransducer) -> None:
        live = transducer.next_state != DEAD
        columns = np.bincount(transducer.byte_class, minlength=live.shape[1])
        self.count = live @ columns
        state, column = (live & (self.count <= _BYTES_MAX)[:, None]).nonzero()
        end = np.cumsum(columns)
        place, _ = spread((end - columns)[column], end[column])
        self.byte = np.argsort(transducer.byte_class, kind="stable")[place]
        listed = np.bincount(state, weights=columns[column], minlength=len(live)).astype(np.int64)
        self.first = np.concatenate([[0], np.cumsum(listed)])
