"""Compares partitions, distances and finite sets with simple computations."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import compiler.lifting.distances
from compiler.automata import (
    UNREACHABLE,
    distinct,
    hash_rows,
    hash_sparse_rows,
    minimize,
    spread,
    stable_order,
    steps_along,
    steps_to,
    texts_dfa,
    words_dfa,
)
from compiler.automata.minimization import refine
from compiler.errors import LimitExceeded
from compiler.lifting.distances import distances
from compiler.limits import Limits, ResourceGuard


def naive_partition(table: np.ndarray, block: np.ndarray) -> list[int]:
    """Moore's refinement: all states read again until no block splits."""
    numbers = block.tolist()
    while True:
        names: dict[tuple[int, ...], int] = {}
        finer = [
            names.setdefault((numbers[state], *(numbers[target] for target in row)), len(names))
            for state, row in enumerate(table.tolist())
        ]
        if len(names) == len(set(numbers)):
            return finer
        numbers = finer


def same_partition(left: list[int], right: list[int]) -> bool:
    pairs = set(zip(left, right, strict=True))
    return len(pairs) == len(set(left)) == len(set(right))


def test_a_looping_state_may_equal_its_predecessor() -> None:
    table = np.array([[1, 3], [2, 3], [2, 3], [3, 3], [4, 2]])  # 0 and 1 lead to 2, which loops; 4 only leads to it
    assert same_partition(refine(table, np.array([0, 0, 0, 1, 0])).tolist(), [0, 0, 0, 1, 2])


def chain(states: int) -> tuple[np.ndarray, np.ndarray]:
    """A chain of states whose last one alone differs. Each state leads to the next, or to the last."""
    table = np.stack([np.minimum(np.arange(states) + 1, states - 1), np.full(states, states - 1)], axis=1)
    return table, (np.arange(states) == states - 1).astype(np.int64)


def tables(rng: np.random.Generator) -> list[tuple[np.ndarray, np.ndarray]]:
    cases = [chain(states) for states in (1, 2, 40, 300)]
    for states in (1, 5, 63, 64, 65, 150, 400):
        for columns in (1, 2, 5):
            step = rng.integers(0, 3, (states, columns))
            near = np.minimum(np.arange(states)[:, None] + step, states - 1)  # long ways to few ends
            far = rng.integers(0, states, (states, columns))
            halved = rng.integers(0, states, (states // 2 + 1, columns))
            duplicates = np.concatenate([halved, halved])[:states]  # many equal states
            ends = (rng.random(states) < 0.05).astype(np.int64)
            target = near.copy()
            target[:, 0] = np.arange(states)  # every state waits for something: a loop each
            cases += [
                (table, ends) for table in (near, far, duplicates, target, np.concatenate([target, target])[:states])
            ]
    return cases


def test_the_refined_partition_is_the_coarsest_stable_one() -> None:
    finer = 0
    for table, block in tables(np.random.default_rng(3)):
        expected = naive_partition(table, block)
        assert same_partition(refine(table, block).tolist(), expected)
        finer += len(set(expected)) > 2
    assert finer > 20


def test_a_table_without_states_has_no_partition() -> None:
    assert refine(np.zeros((0, 2), dtype=np.int64), np.zeros(0, dtype=np.int64)).shape == (0,)


def test_step_counts_agree_with_a_search_per_state() -> None:
    for table, ends in tables(np.random.default_rng(4)):
        steps = np.where(ends == 1, 0, UNREACHABLE)
        for _ in range(len(table)):
            steps = np.minimum(steps, np.minimum(steps[table].min(axis=1) + 1, UNREACHABLE))
        assert steps_to(table, ends == 1).tolist() == steps.tolist()
        source = np.arange(len(table)).repeat(table.shape[1])
        assert steps_along(source, table.reshape(-1), ends == 1).tolist() == steps.tolist()


def reference_distances(
    source: np.ndarray, edge: np.ndarray, target: np.ndarray, effect: np.ndarray, function: np.ndarray, end: np.ndarray
) -> np.ndarray:
    """Relaxation until nothing changes."""
    best = np.where(end, 0.0, np.inf)
    while True:
        previous = best.copy()
        for state, number in zip(source.tolist(), edge.tolist(), strict=True):
            best[state] = np.minimum(best[state], 1 + previous[target[number], function[effect[number]]])
        if np.array_equal(best, previous):
            return np.where(np.isinf(best), UNREACHABLE, best).astype(np.int64)


@pytest.mark.parametrize("block_cells", [1, 50, 1 << 18])
@pytest.mark.parametrize("letter_states", [1, 2, 8, 63, 64, 65, 200])
def test_distances_agree_with_relaxation(letter_states: int, block_cells: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler.lifting.distances, "_BLOCK_CELLS", block_cells)
    rng, reachable_count = np.random.default_rng(letter_states), 0
    for transducer_states in (1, 3, 12, 40):
        edges = 2 * transducer_states
        function = np.concatenate(
            [[np.arange(letter_states)], rng.integers(0, letter_states, (3, letter_states))]
        ).astype(np.int32)
        target = rng.integers(0, transducer_states, edges).astype(np.int32)
        effect = rng.integers(0, 4, edges).astype(np.int32)
        source, edge = np.divmod(distinct(rng.integers(0, transducer_states * edges, 4 * transducer_states)), edges)
        end = rng.random((transducer_states, letter_states)) < 0.2
        result = distances(source, edge, target, effect, function=function, accepting=end)
        assert np.array_equal(result, reference_distances(source, edge, target, effect, function, end))
        reachable_count += np.count_nonzero((result > 0) & (result < UNREACHABLE))
    assert reachable_count > 10


def test_distinct_values_are_sorted_and_single() -> None:
    assert distinct(np.array([3, 1, 3, 2, 1])).tolist() == [1, 2, 3]
    assert distinct(np.array([], dtype=np.int64)).tolist() == []


@pytest.mark.parametrize("top", [10, 1 << 15, 1 << 20])
def test_the_order_of_keys_is_stable(top: int) -> None:
    keys = np.random.default_rng(1).integers(0, top, 5000) // 7
    assert stable_order(keys).tolist() == np.argsort(keys, kind="stable").tolist()


def test_sparse_and_dense_row_hashes_agree() -> None:
    rng = np.random.default_rng(11)
    for shape in ((1, 1), (7, 30), (40, 3)):
        rows = np.where(rng.random(shape) < 0.2, rng.integers(1, 1_000, shape), 0)
        rows[-1] = 0
        index = np.flatnonzero(rows)
        assert hash_sparse_rows(index, rows.reshape(-1)[index], *shape).tolist() == hash_rows(rows).tolist()


def test_ranges_are_written_out_one_after_the_other() -> None:
    numbers, counts = spread(np.array([5, 2, 9]), np.array([8, 2, 10]))
    assert numbers.tolist() == [5, 6, 7, 9] and counts.tolist() == [3, 0, 1]
    assert spread(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))[0].tolist() == []


TEXT = st.text(alphabet="ab é😀\n", max_size=5)


def guard(limits: Limits | None = None) -> ResourceGuard:
    return ResourceGuard(limits or Limits())


@settings(max_examples=150, deadline=None)
@given(st.lists(TEXT, max_size=8), TEXT)
def test_an_automaton_of_texts_accepts_exactly_these(texts: list[str], other: str) -> None:
    dfa = texts_dfa(texts, guard())
    assert all(dfa.accepts(text) for text in texts)
    assert dfa.accepts(other) == (other in texts)
    # The character that no text has is a symbol as well.
    assert not dfa.accepts("z")


@settings(max_examples=150, deadline=None)
@given(st.lists(st.lists(st.integers(0, 3), max_size=5), max_size=12))
def test_the_automaton_is_minimal(words: list[list[int]]) -> None:
    dfa = words_dfa(words, 4, guard())
    again = minimize(dfa)
    assert (dfa.states, dfa.next_state.tolist()) == (again.states, again.next_state.tolist())


def test_common_beginnings_and_ends_are_shared() -> None:
    texts = [f"a long beginning {number} and a long end" for number in range(100, 200)]
    assert texts_dfa(texts, guard()).dfa.states < 40


def test_texts_that_are_prefixes_of_each_other() -> None:
    dfa = texts_dfa(["ab" * length for length in range(1_200)], guard())
    assert dfa.accepts("ab" * 1_199) and dfa.accepts("") and not dfa.accepts("ab" * 1_200) and not dfa.accepts("aba")


def test_many_random_texts_fit_the_default_limits() -> None:
    rng = random.Random(0)
    texts = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=13)) for _ in range(5_000)]
    dfa = texts_dfa(texts, guard())
    assert all(dfa.accepts(text) for text in texts) and not dfa.accepts(texts[0][:-1])


def test_too_many_states_meet_the_limit() -> None:
    with pytest.raises(LimitExceeded, check=lambda error: error.limit == "table_bytes_max"):
        texts_dfa(["abc", "bcd", "cde"], guard(Limits(table_bytes_max=16)))
