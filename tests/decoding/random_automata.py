"""Token automata for search tests: simple ones, random tables and factored ones."""

from __future__ import annotations

import numpy as np

from compiler.lifting import UNREACHABLE, TokenAutomaton, from_table
from compiler.lifting.distances import distances
from compiler.lifting.token_automaton import entry_rows


def all_texts(size: int, *eos_ids: int) -> TokenAutomaton:
    """All texts over `size` ids. Only the last id is EOS by default."""
    zeros = np.zeros(size, dtype=np.int64)
    return from_table(zeros, np.zeros((1, 1), dtype=np.int64), np.array([True]), 0, eos_ids=eos_ids or (size - 1,))


def of_length(length: int, size: int, *eos_ids: int) -> TokenAutomaton:
    """All texts of `length` ids before EOS."""
    chain = np.minimum(np.arange(length + 2) + 1, length + 1)[:, None]
    return from_table(np.zeros(size, dtype=np.int64), chain, np.arange(length + 2) == length, 0, eos_ids=eos_ids)


def random_wide(random: np.random.Generator) -> TokenAutomaton:
    """A `random_table` whose classes fill several chunks of the search's layout.

    It has enough ids for that, EOS ids too.
    """
    return random_table(random, ids=int(random.integers(300, 600)), columns_max=3, eos_max=20)


def random_table(
    random: np.random.Generator, ids: int | None = None, columns_max: int = 6, eos_max: int = 3
) -> TokenAutomaton:
    """A live automaton of one to eight states. It has one to `eos_max` EOS ids, and up to 30 ids by default."""
    while True:
        states, columns = int(random.integers(1, 9)), int(random.integers(1, columns_max + 1))
        size = ids or int(random.integers(columns + 1, 30))
        eos_count = int(random.integers(1, min(eos_max + 1, size)))
        eos_ids = tuple(int(eos) for eos in random.choice(size, eos_count, replace=False))
        token_class = random.permutation(np.arange(size) % columns)
        read = np.delete(token_class, list(eos_ids))
        if len(set(read.tolist())) < columns:  # distances would count columns that no id reads
            continue
        automaton = from_table(
            token_class,
            random.integers(0, states, (states, columns)),
            random.random(states) < 0.3,
            int(random.integers(states)),
            eos_ids=eos_ids,
        )
        if automaton.min_tokens != UNREACHABLE:
            return automaton


def random_factored(random: np.random.Generator) -> TokenAutomaton:
    """A live automaton of transducer states times letter states. It has states inside a character and two tables."""
    while True:
        boundary, inside, letters = int(random.integers(3, 6)), int(random.integers(1, 3)), int(random.integers(1, 5))
        outer, inner = int(random.integers(2, 6)), int(random.integers(1, 4))
        end, eos_class = boundary - 1, outer - 1
        function = random.integers(0, letters, (4, letters)).astype(np.int32)
        function[0] = np.arange(letters)
        edges = int(random.integers(4, 12))
        target = random.integers(0, boundary + inside, edges).astype(np.int32)
        effect = random.integers(0, 4, edges).astype(np.int32)
        target[0], effect[0], target[1], effect[1] = 0, 0, end, 0
        target[2:][target[2:] == end] = 0
        edge_boundary = random.integers(0, edges, (boundary, outer))
        edge_boundary[edge_boundary == 1] = 0
        edge_boundary[0] = edge_boundary[end] = 0
        edge_boundary[1:, eos_class] = 1
        edge_midchar = random.integers(2, edges, (inside + 1, inner))
        edge_midchar[0] = 0
        accepting = np.zeros((boundary + inside, letters), dtype=bool)
        accepting[end] = random.random(letters) < 0.5
        pairs = [(row, edge) for row in range(boundary) for edge in set(edge_boundary[row]) if edge]
        pairs += [(boundary + row, edge) for row in range(inside) for edge in set(edge_midchar[row + 1]) if edge]
        source, used = np.array(sorted(pairs)).T
        distance = distances(source, used, target, effect, function=function, accepting=accepting).reshape(-1)
        token_class = random.integers(0, outer + inner, 24)
        token_class[token_class == eos_class] = 0
        token_class[7] = eos_class
        for row in range(1, boundary - 1):
            start = row * letters
            missing = set(range(outer + inner)) - set(token_class.tolist())
            if not missing and distance[start] not in (UNREACHABLE, 0):
                # Class 0 is dead in every state: the others move by one.
                edge_boundary = np.column_stack([np.zeros(boundary, dtype=np.int64), edge_boundary])
                dense = np.arange(boundary) % 2 == 1  # every other state has a row
                state, column = (edge_boundary * ~dense[:, None]).nonzero()
                edges = edge_boundary[state, column].astype(np.int16)
                first, sparse_class, sparse_edge = entry_rows(state, column, edges, states=boundary)
                return TokenAutomaton(
                    token_class=(1 + token_class).astype(np.int32),
                    edge_boundary=(edge_boundary * dense[:, None]).astype(np.int16),
                    dense_row=(np.arange(boundary) * dense).astype(np.int32), sparse_first=first,
                    sparse_class=sparse_class, sparse_edge=sparse_edge, edge_midchar=edge_midchar.astype(np.int16),
                    edge_target=target, edge_function=effect, function=function, distance=distance, start=start,
                    eos_ids=(7,),
                )
