"""Compares prefix-tree attention of a generation's rows with attention row by row."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from decoding.model import tree_attention
from decoding.model.prefix_tree import PrefixTree
from decoding.model.tree_attention import Nodes, Prompt
from decoding.model.weighing import PositionBias, Weighing
from tests.servers.cluster import FULL

PROMPT, CHUNK, WIDTH, SHARING = 5, 2, 8, 2


class ReferenceTree:
    """A growing prefix tree, and the keys and values of each row.

    cap, sinks, biases  whether the layer has a soft cap, sinks, and linear biases
    """

    def __init__(
        self, group: int, seed: int, window: int | None = None, *, cap: bool = False, sinks: bool = False,
        biases: bool = False,
    ) -> None:
        self.random = np.random.default_rng(seed)
        self.slopes = torch.from_numpy(self.random.standard_normal(SHARING * group)).float()
        self.weighing = Weighing(
            scaling=0.3, window=window, cap=0.7 if cap else None,
            sinks=self.drawn(1, 1)[0, 0, : SHARING * group] if sinks else None,
            position_bias=PositionBias(self.biases) if biases else None,
        )  # fmt: skip
        self.tree = PrefixTree(torch.device("cpu"))
        self.heads, self.group = SHARING * group, group
        keys, values = self.drawn(SHARING, PROMPT), self.drawn(SHARING, PROMPT)
        query = self.drawn(self.heads, PROMPT)
        self.tree.begin(PROMPT)
        self.rows: list[tuple[Tensor, Tensor]] = [(keys, values)]
        chunks = list[Tensor]()
        for begin in range(0, PROMPT, CHUNK):
            end = min(begin + CHUNK, PROMPT)
            part = (array[:, begin:end] for array in (query, keys, values))
            chunks.append(Prompt(self.tree, begin, end).attend(0, *part, weighing=self.weighing))
        result = torch.cat(chunks, dim=1)
        for row in range(PROMPT):
            expected = self.expected(query[:, row], keys[:, : row + 1], values[:, : row + 1])
            torch.testing.assert_close(result[:, row], expected, rtol=1e-5, atol=1e-5)

    def drawn(self, heads: int, tokens: int) -> Tensor:
        return torch.from_numpy(self.random.standard_normal((heads, tokens, WIDTH))).float()

    def biases(self, tokens: int) -> Tensor:
        return self.slopes[:, None] * torch.arange(tokens)

    def expected(self, query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """The attention output of a row by the definition, [heads, width]."""
        weighing, end = self.weighing, keys.shape[1]
        first = max(0, end - (weighing.window or end))
        keys, values = (nodes[:, first:].repeat_interleave(self.group, dim=0) for nodes in (keys, values))
        scores = 0.3 * (keys @ query[:, :, None])[:, :, 0]
        if weighing.cap is not None:
            scores = weighing.cap * torch.tanh(scores / weighing.cap)
        if weighing.position_bias is not None:
            scores = scores + self.biases(end)[:, first:] - self.slopes[:, None] * end
        weights = scores.exp()
        total = weights.sum(dim=1)
        if weighing.sinks is not None:
            total = total + weighing.sinks.exp()
        return (weights[:, :, None] * values).sum(dim=1) / total[:, None]

    def step(self, rows: int, count: int) -> tuple[Nodes, Tensor, Tensor]:
        """Adds tokens to rows and returns nodes, attention and the expected result."""
        parents = np.sort(self.random.integers(0, len(self.rows), rows))[self.random.permutation(rows)]
        nodes = Nodes(self.tree, torch.from_numpy(parents), count, torch.float32)
        query = self.drawn(self.heads, rows * count)
        keys, values = self.drawn(SHARING, rows * count), self.drawn(SHARING, rows * count)
        result = nodes.attend(0, query, keys, values, weighing=self.weighing)
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
                before = [nodes[:, :end] for nodes in new_rows[row]]
                expected[:, row * count + index] = self.expected(query[:, row * count + index], *before)
        self.rows = new_rows
        return nodes, result, expected


@pytest.mark.parametrize(
    ("cap", "sinks", "biases"),
    [(False, False, False), (True, False, False), (False, True, False), (True, True, False), (False, False, True),
     (True, False, True)],
)  # fmt: skip
@pytest.mark.parametrize("window", [None, 2, 9])
@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("seed", range(4 if FULL else 1))
@pytest.mark.sample(12)
def test_rows_attend_only_to_their_path_in_any_block_split(
    group: int, seed: int, window: int | None, cap: bool, sinks: bool, biases: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree_attention, "_PAIRS_MIN", 0)
    monkeypatch.setattr(tree_attention, "_GAIN_MIN", 0.0)
    monkeypatch.setattr(tree_attention, "_BLOCK_ROWS", 5)
    tree = ReferenceTree(group, seed, window, cap=cap, sinks=sinks, biases=biases)
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
