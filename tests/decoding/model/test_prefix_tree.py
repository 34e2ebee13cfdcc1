"""The tree of nodes against rows that are kept as plain lists."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from decoding.model.prefix_tree import PrefixTree, slots_at_most


def _random_tree(seed: int, rows_max: int, steps: int, stretch_max: int) -> tuple[PrefixTree, int, int]:
    """Grows a random prefix tree and checks the ancestors of every node.

    Each node's key is its number. Returns (tree, largest number of rows, T).
    """
    random = np.random.default_rng(seed)
    tree = PrefixTree(torch.device("cpu"))
    prompt = torch.arange(-3.0, 0.0).view(3, 1, 1)
    tree.begin(3)
    for layer in (0, 1):
        tree.store_prompt(layer, 0, prompt[:1], 10 * prompt[:1])
        tree.store_prompt(layer, 1, prompt[1:], 10 * prompt[1:])
    rows: list[list[int]] = [[]]
    count_of_nodes, row_count_max = 0, 1
    for _ in range(steps):
        count = int(random.integers(1, stretch_max + 1))
        row_count = int(random.integers(1, rows_max + 1))
        parents = random.integers(0, min(len(rows), int(random.integers(1, rows_max + 1))), row_count).tolist()
        new_nodes = [[count_of_nodes + row * count + index for index in range(count)] for row in range(row_count)]
        count_of_nodes += row_count * count
        slots, visible = tree.extend(torch.tensor(parents), count)
        keys = torch.tensor(new_nodes, dtype=torch.float32).view(1, -1, 1)
        for layer in (0, 1):
            result, values = tree.store(layer, slots, keys, 10 * keys)
            assert torch.equal(result[:3], prompt)
            assert len(result) == len(values) == 3 + visible.shape[1]
            for row, parent in enumerate(parents):
                for index in range(count):
                    row_visible = visible[row * count + index]
                    key_numbers, value_numbers = (
                        result[3:, 0, 0][row_visible].tolist(),
                        values[3:, 0, 0][row_visible].tolist(),
                    )
                    assert sorted(key_numbers) == rows[parent] + new_nodes[row][: index + 1]
                    assert sorted(value_numbers) == [10 * number for number in sorted(key_numbers)]
        rows = [rows[parent] + new_ids for parent, new_ids in zip(parents, new_nodes, strict=True)]
        ordered = [rows[row] for row in tree.path_order().tolist()]
        assert sorted(map(tuple, ordered)) == sorted(map(tuple, rows))
        for index in range(len(rows[0])):  # who shares its first tokens lies together
            runs = [key for key, _ in itertools.groupby(tuple(row[: index + 1]) for row in ordered)]
            assert len(runs) == len(set(runs))
        row_count_max = max(row_count_max, row_count)
        assert (tree.rows, tree.length) == (row_count, 3 + len(rows[0]))
    return tree, row_count_max, len(rows[0])


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.sample(10)
def test_every_node_sees_its_own_ancestors_and_nothing_else(seed: int) -> None:
    random = np.random.default_rng(seed)
    _random_tree(seed, rows_max=int(random.integers(1, 9)), steps=40, stretch_max=int(random.integers(1, 4)))


@pytest.mark.parametrize("seed", range(10))
def test_a_tree_uses_no_more_slots_than_declared(seed: int) -> None:
    tree, rows, tokens = _random_tree(seed, rows_max=7, steps=30, stretch_max=3)
    assert tree.nbytes <= (3 + slots_at_most(rows, rows * tokens)) * 2 * 2 * 4


def test_slots_of_pruned_rows_are_reused() -> None:
    tree = PrefixTree(torch.device("cpu"))
    tree.begin(1)
    tree.store_prompt(0, 0, torch.zeros(1, 1, 1), torch.zeros(1, 1, 1))
    tree.extend(torch.zeros(4, dtype=torch.int64), 1)
    for _ in range(500):  # all rows go on from one: 4 nodes a step are new, 3 of them dead a step later
        slots, visible = tree.extend(torch.zeros(4, dtype=torch.int64), 1)
        tree.store(0, slots, torch.zeros(1, 4, 1), torch.zeros(1, 4, 1))
    assert 504 <= visible.shape[1] < 1.7 * 504
