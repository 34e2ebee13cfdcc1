"""The tree of nodes against rows that are kept as plain lists."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from decoding.model.prefix_tree import PrefixTree, slots_at_most


def _grown(seed: int, rows_max: int, steps: int, stretch_max: int) -> tuple[PrefixTree, int, int]:
    """Grows a random prefix tree and checks the ancestors of every node.

    Each node's key is its number. Returns (tree, largest number of rows, T).
    """
    random = np.random.default_rng(seed)
    tree = PrefixTree(torch.device("cpu"))
    prompt = torch.arange(-3.0, 0.0).view(3, 1, 1)
    tree.begin(3)
    for layer in (0, 1):
        tree.store_prompt(layer, prompt.transpose(0, 1), 10 * prompt.transpose(0, 1))
    rows: list[list[int]] = [[]]
    numbered, most = 0, 1
    for _ in range(steps):
        count = int(random.integers(1, stretch_max + 1))
        kept = int(random.integers(1, rows_max + 1))
        parents = random.integers(0, min(len(rows), int(random.integers(1, rows_max + 1))), kept).tolist()
        new = [[numbered + row * count + place for place in range(count)] for row in range(kept)]
        numbered += kept * count
        slots, sees = tree.extend(torch.tensor(parents), count)
        keys = torch.tensor(new, dtype=torch.float32).view(1, -1, 1)
        for layer in (0, 1):
            found, values = tree.store(layer, slots, keys, 10 * keys)
            assert torch.equal(found[:3], prompt)
            assert len(found) == len(values) == 3 + sees.shape[1]
            for row, parent in enumerate(parents):
                for place in range(count):
                    mine = sees[row * count + place]
                    seen, read = found[3:, 0, 0][mine].tolist(), values[3:, 0, 0][mine].tolist()
                    assert sorted(seen) == rows[parent] + new[row][: place + 1]
                    assert sorted(read) == [10 * number for number in sorted(seen)]
        rows = [rows[parent] + own for parent, own in zip(parents, new, strict=True)]
        ordered = [rows[row] for row in tree.path_order().tolist()]
        assert sorted(map(tuple, ordered)) == sorted(map(tuple, rows))
        for place in range(len(rows[0])):  # who shares its first tokens lies together
            runs = [key for key, _ in itertools.groupby(tuple(row[: place + 1]) for row in ordered)]
            assert len(runs) == len(set(runs))
        most = max(most, kept)
        assert (tree.rows, tree.length) == (kept, 3 + len(rows[0]))
    return tree, most, len(rows[0])


@pytest.mark.parametrize("seed", range(30))
def test_every_node_sees_its_own_ancestors_and_nothing_else(seed: int) -> None:
    random = np.random.default_rng(seed)
    _grown(seed, rows_max=int(random.integers(1, 9)), steps=40, stretch_max=int(random.integers(1, 4)))


@pytest.mark.parametrize("seed", range(10))
def test_a_tree_uses_no_more_slots_than_declared(seed: int) -> None:
    tree, rows, tokens = _grown(seed, rows_max=7, steps=30, stretch_max=3)
    assert tree.nbytes <= (3 + slots_at_most(rows, rows * tokens)) * 2 * 2 * 4


def test_slots_of_pruned_rows_are_reused() -> None:
    tree = PrefixTree(torch.device("cpu"))
    tree.begin(1)
    tree.store_prompt(0, torch.zeros(1, 1, 1), torch.zeros(1, 1, 1))
    tree.extend(torch.zeros(4, dtype=torch.int64), 1)
    for _ in range(500):  # all rows go on from one: 4 nodes a step are new, 3 of them dead a step later
        slots, sees = tree.extend(torch.zeros(4, dtype=torch.int64), 1)
        tree.store(0, slots, torch.zeros(1, 4, 1), torch.zeros(1, 4, 1))
    assert 504 <= sees.shape[1] < 1.7 * 504
