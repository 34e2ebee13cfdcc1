"""The parts of one step: the exact choice under ties, the layout of ids, the factored successors."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from compiler.token_automaton import from_table
from decoding.beams import Tables
from decoding.step import top_in_order
from tests.decoding.random_automata import random_factored, random_table


def test_the_choice_is_that_of_a_full_sort_whatever_the_ties() -> None:
    for seed in range(300):
        random = np.random.default_rng(seed)
        size = int(random.integers(1, 60))
        keys = [random.integers(0, 1 + seed % 4, size).astype(float) for _ in range(3)]
        keys[0][random.random(size) < 0.3] = -np.inf
        keys.append(random.permutation(size).astype(float))
        count = int(random.integers(1, size + 1))
        expected = sorted(range(size), key=lambda place, k=keys: [-key[place] for key in k])[:count]
        assert top_in_order([torch.tensor(key) for key in keys], count).tolist() == expected


@pytest.mark.parametrize("maker", [random_table, random_factored])
def test_successors_on_the_device_are_those_of_the_automaton(maker: object) -> None:
    for seed in range(40):
        automaton = maker(np.random.default_rng(seed))
        states = torch.arange(automaton.states)
        found = Tables.from_automaton(automaton, torch.device("cpu")).successors(states)
        assert found.tolist() == [automaton.successors(state).tolist() for state in range(automaton.states)]


@pytest.mark.parametrize(("size", "classes", "eos"), [(1, 1, 1), (5, 3, 5), (700, 2, 1), (700, 650, 3), (999, 30, 200)])
def test_every_id_has_one_slot_in_a_chunk_of_its_class_and_all_eos_ids_share_a_chunk(
    size: int, classes: int, eos: int
) -> None:
    random = np.random.default_rng(size + classes)
    eos_ids = tuple(int(token) for token in random.choice(size, eos, replace=False))
    automaton = from_table(
        random.integers(0, classes, size), np.zeros((1, classes), dtype=np.int64), np.array([True]), 0, eos_ids
    )
    tables = Tables.from_automaton(automaton, torch.device("cpu"))
    ids = tables.slot_id.view(tables.spare.shape)
    assert sorted(ids[~tables.spare].tolist()) == list(range(size))
    for row, column, spare in zip(ids.tolist(), tables.chunk_class.tolist(), tables.spare.tolist(), strict=True):
        assert {int(automaton.token_class[token]) for token in row} == {column}
        real = [token for token, repeat in zip(row, spare, strict=True) if not repeat]
        assert real == sorted(real)
        assert set(row) == set(real)
    assert set(ids[tables.eos_chunk].tolist()) == set(eos_ids)
