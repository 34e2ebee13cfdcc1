"""Control states that act like another one on most tokens.

Within a key of a JSON object, a state has most tokens in common with the state of any other key, its base. So only
those tokens are looked for in which the two differ, by following the bytes in which they do down the trie.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from compiler.automata import spread
from compiler.lifting import SparseRows, SparseTable, SparseTokenClasses
from compiler.limits import ResourceGuard
from compiler.pushdown.arrivals import Arrivals
from compiler.pushdown.machine import END, PushdownMachine
from compiler.vocab import Trie

UNLIKE_DEAD = -1  # in place of an arrival: the token cannot be read, unlike in the base
_TOKENS_MAX = 512  # in which a state may differ from its base
_NODES_MAX = 64  # at one depth of the trie, at which it may
_BLOCK = 512  # states that are compared at once
_ASCII_END = 0x80


class NearStates(NamedTuple):
    """States with a base. Q control states.

    base   int [Q]  the base of each state; the state itself where it has none
    found  the tokens in which states act unlike their bases, with what they do there, which may be UNLIKE_DEAD
    """

    base: np.ndarray
    found: SparseTokenClasses


def near_states(
    machine: PushdownMachine, arrivals: Arrivals, trie: Trie, *, plain: np.ndarray, others: np.ndarray,
    guard: ResourceGuard,
) -> NearStates:
    """The states among `others` that have a base among `plain` ones. Both are bool [Q]."""
    base = _bases(machine, plain, others)
    near = np.flatnonzero(base != np.arange(machine.states))
    parts = [(near[:0], trie.ids[:0], trie.ids[:0])]
    for begin in range(0, len(near), _BLOCK):
        block = near[begin : begin + _BLOCK]
        source, ids, effect, differs_often = _differences(
            machine, arrivals, trie, states=block, base=base[block], guard=guard
        )
        base[block[differs_often]] = block[differs_often]
        kept = ~differs_often[source]
        parts.append((block[source[kept]], ids[kept], effect[kept]))
    state, ids, effect = map(np.concatenate, zip(*parts, strict=True))
    order = np.lexsort((state, ids))
    ids, count = np.unique(ids[order], return_counts=True)
    # A class for each list of states and what they do. The class of no states is dead.
    rows = SparseRows(machine.states, guard)
    first = np.concatenate([[0, 0], np.cumsum(count)])
    column = rows.add(SparseTable(first, state[order].astype(np.int32), effect[order].astype(np.int32)))
    return NearStates(base, SparseTokenClasses(rows.table, ids, column[1:]))


def _bases(machine: PushdownMachine, plain: np.ndarray, others: np.ndarray) -> np.ndarray:
    """The base of each state; the state itself where it has none.

    It is the state behind a byte that few states tell from others, if it leads to itself there.
    """
    columns = np.bincount(machine.byte_class[:END], minlength=machine.action.shape[1])
    ascii_bytes = np.bincount(machine.byte_class[:_ASCII_END], minlength=len(columns))
    inner, states = machine.inner(), np.arange(machine.states)
    read = int(np.argmax(ascii_bytes * np.count_nonzero(inner[others], axis=0)))
    after = np.where(inner[:, read], machine.action[:, read] - 1, states)
    base = np.where(others & plain[after] & (after[after] == after), after, states)
    near = np.flatnonzero(base != states)
    action, pop = machine.action[near], machine.pop[near]
    differs = (action != machine.action[base[near]]) | (pop != machine.pop[base[near]])
    far = differs @ columns >= ((action != 0) | pop) @ columns
    base[near[far]] = near[far]
    return base


def _differences(
    machine: PushdownMachine, arrivals: Arrivals, trie: Trie, *, states: np.ndarray, base: np.ndarray,
    guard: ResourceGuard,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The tokens in which states differ from their bases.

    Returns places in `states`, ids, and arrivals, int [N] each, then which states differ in too many: bool [n].
    """
    source, node = np.arange(len(states)), np.zeros(len(states), dtype=np.int64)
    effect, base_effect = (1 + states).astype(np.int32), (1 + base).astype(np.int32)
    found, tokens, often = [], np.zeros(len(states), dtype=np.int64), np.zeros(len(states), dtype=bool)
    while source.size:
        guard.check_time()
        child, counts = spread(trie.first_child[node], trie.first_child[node + 1])
        column = machine.byte_class[trie.byte[child]]
        source = np.repeat(source, counts)
        effect = arrivals.after(np.repeat(effect, counts), column)
        base_effect = arrivals.after(np.repeat(base_effect, counts), column)
        differ = effect != base_effect
        often |= np.bincount(source[differ], minlength=len(states)) > _NODES_MAX
        kept = np.flatnonzero(differ & ~often[source])
        source, effect, base_effect, node = source[kept], effect[kept], base_effect[kept], child[kept]
        place, counts = spread(trie.first_id[node], trie.first_id[node + 1])
        found.append((np.repeat(source, counts), trie.ids[place], np.repeat(effect, counts)))
        tokens += np.bincount(found[-1][0], minlength=len(states))
        often |= tokens > _TOKENS_MAX
    place, ids, reached = map(np.concatenate, zip(*found, strict=True))
    return place, ids, np.where(reached == 0, UNLIKE_DEAD, reached), often


def without_likeness(
    near: SparseTable, plain: SparseTable, *, near_column: np.ndarray, plain_column: np.ndarray, base: np.ndarray
) -> tuple[SparseTable, np.ndarray]:
    """The entries of near states without those of their bases.

    They come to be alike where arrivals turn out to be equal. The columns are those of each class, int [C]. Returns the
    rows and the new columns of near states.
    """
    count, states = len(plain.first) - 1, len(base)
    pairs, column = np.unique(near_column * np.int64(count) + plain_column, return_inverse=True)
    table = near.chosen(pairs // count)
    rows = np.repeat(np.arange(len(pairs)), np.diff(table.first))
    key = np.append(np.repeat(np.arange(count), np.diff(plain.first)) * states + plain.place, count * states)
    in_base = (pairs % count)[rows] * states + base[table.place]
    at = np.searchsorted(key, in_base)
    effect = np.append(plain.effect, UNLIKE_DEAD)[at]
    kept = np.flatnonzero(table.effect != np.where(key[at] == in_base, effect, UNLIKE_DEAD))
    first = np.searchsorted(rows[kept], np.arange(len(pairs) + 1))
    return SparseTable(first, table.place[kept], table.effect[kept]), column
