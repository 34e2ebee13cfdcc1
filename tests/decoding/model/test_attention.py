"""Compares prefix-tree attention of a generation's rows with attention row by row."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from decoding.model import tree_attention
from decoding.model.prefix_tree import PrefixTree
from decoding.model.tree_attention import Nodes, Prompt

PROMPT, WIDTH, SHARING = 5, 8, 2


class ReferenceTree:
    """A growing prefix tree, and the keys and values of each row."""

    def __init__(self, group: int, seed: int, window: int | None = None) -> None:
        self.window = window
        self.random = np.random.default_rng(seed)
        self.tree = PrefixTree(torch.device("cpu"))
        self.heads, self.group = SHARING * group, group
        keys, values = self.drawn(SHARING, PROMPT), self.drawn(SHARING, PROMPT)
        Prompt(self.tree, PROMPT).attend(0, self.drawn(self.heads, PROMPT), keys, values, scaling=None, window=window)
        self.rows: list[tuple[Tensor, Tensor]] = [(keys, values)]

    def drawn(self, heads: int, tokens: int) -> Tensor:
        return torch.from_numpy(self.random.standard_normal((heads, tokens, WIDTH))).float()

    def step(self, rows: int, count: int) -> tuple[Nodes, Tensor, Tensor]:
        """Adds tokens to rows and returns nodes, attention and the expected result."""
        parents = np.sort(self.random.integers(0, len(self.rows), rows))[self.random.permutation(rows)]
        nodes = Nodes(self.tree, torch.from_numpy(parents), count, torch.float32)
        query = self.drawn(self.heads, rows * count)
        keys, values = self.drawn(SHARING, rows * count), self.drawn(SHARING, rows * count)
        result = nodes.attend(0, query, keys, values, scaling=0.3, window=self.window)
        expected = torch.empty_like(result)
        new_rows = []
        for row, parent in enumerate(parents.tolist()):
            columns = slice(row * count, (row + 1) * count)
            path = self.rows[parent]
            new_rows.append((
                torch.cat([path[0], keys[:, columns]], dim=1), torch.cat([path[1], values[:, columns]], dim=1)
            ))
            for index in range(count):
                end = new_rows[row][0].shape[1] - count + index + 1
                first = max(0, end - (self.window or end))
                visible = [nodes[:, first:end].repeat_interleave(self.group, dim=0) for nodes in new_rows[row]]
                weights = (0.3 * query[:, row * count + index, None] @ visible[0].transpose(1, 2)).softmax(-1)
                expected[:, row * count + index] = (weights @ visible[1])[:, 0]
        self.rows = new_rows
        return nodes, result, expected


@pytest.mark.parametrize("window", [None, 2, 9])
@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("seed", range(4))
def test_rows_attend_only_to_their_path_in_any_block_split(
    group: int, seed: int, window: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree_attention, "_PAIRS_MIN", 0)
    monkeypatch.setattr(tree_attention, "_GAIN_MIN", 0.0)
    monkeypatch.setattr(tree_attention, "_BLOCK_ROWS", 5)
    tree = ReferenceTree(group, seed, window)
    for _ in range(8):
        rows, count = int(tree.random.integers(1, 40)), int(tree.random.integers(1, 4))
        nodes, result, expected = tree.step(rows, count)
        assert len(nodes._blocks) == -(-rows * count // 5)
        torch.testing.assert_close(result, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("window", [None, 3])
def test_many_rows_with_little_shared_prefix_are_split_into_blocks(window: int | None) -> None:
    tree = ReferenceTree(1, 0, window)
    splits = []
    for rows in (8, 300, 300, 40, 8):
        nodes, result, expected = tree.step(rows, 1)
        torch.testing.assert_close(result, expected, rtol=1e-5, atol=1e-5)
        splits.append(len(nodes._blocks))
    assert splits[0] == splits[-1] == 1
    assert splits[1] == splits[2] == 10
