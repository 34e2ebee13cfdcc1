"""Compares the ways in which distances are searched."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.automata import DEAD, UNREACHABLE
from compiler.lifting.distances import distances

BETWEEN, INSIDE, LETTER_STATES, EDGES = 4, 60, 5, 90


@pytest.mark.parametrize("seed", range(200))
@pytest.mark.sample(60)
def test_every_way_to_search_finds_the_same_distances(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    states = BETWEEN + INSIDE
    # Few edges lead out of the states between characters, so that some paths need those inside.
    edge_target = rng.integers(DEAD, states, EDGES).astype(np.int32)
    edge_target[0] = DEAD
    function = np.sort(rng.integers(0, LETTER_STATES, (6, LETTER_STATES)), axis=1).astype(np.int32)
    edge_function = rng.integers(0, len(function), EDGES).astype(np.int32)
    sparse = rng.random((states, EDGES)) < rng.choice([0.01, 0.05])
    sparse[:BETWEEN, edge_target < BETWEEN] |= rng.random((BETWEEN, int((edge_target < BETWEEN).sum()))) < 0.5
    sparse[:, 0] = False
    source, edge = sparse.nonzero()
    accepting = np.zeros((states, LETTER_STATES), dtype=bool)
    accepting[1, -1] = True
    arrays = (source, edge, edge_target, edge_function)
    together = distances(*arrays, function=function, accepting=accepting)
    apart = distances(*arrays, function=function, accepting=accepting, inside=BETWEEN)
    monkeypatch.setattr("compiler.lifting.distances._LONG", 0)
    monkeypatch.setattr("compiler.lifting.distances._FEW", seed % 2)
    singly = distances(*arrays, function=function, accepting=accepting)
    assert np.array_equal(apart, together) and np.array_equal(singly, together)
    assert (together != UNREACHABLE).any()
