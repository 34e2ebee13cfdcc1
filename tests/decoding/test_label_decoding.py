"""Decoding a matrix of label log-probs. All sequences and a slow reference of the beams are enumerated."""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from compiler.lifting import UNREACHABLE, TokenAutomaton, from_table
from compiler.pipeline import compile_spec
from compiler.spec import spec_from_json
from compiler.text import check_labels
from compiler.vocab import byte_vocabulary
from decoding.errors import Cancelled, LengthImpossible, ModelOutputInvalid, OptionsInvalid, VocabularyMismatch
from decoding.label_decoding import BeamOptions, beam_bytes, beam_labels, best_labels
from decoding.options import push_up, pushed
from decoding.tensors import LOG_PROB_FLOOR
from tests.decoding.random_automata import all_texts

Labels = tuple[int, ...]
Matrix = NDArray[np.float64]


def random_labels(random: np.random.Generator) -> TokenAutomaton:
    """A live automaton of at most six states and four labels."""
    while True:
        states, columns = int(random.integers(1, 7)), int(random.integers(1, 4))
        labels = int(random.integers(max(2, columns), 5))
        table = random.integers(0, states, (states, columns))
        ids = np.append(random.permutation(np.arange(labels) % columns), 0)
        automaton = from_table(ids, table, random.random(states) < 0.4, int(random.integers(states)), eos_ids=(labels,))
        if automaton.min_tokens != UNREACHABLE:
            return automaton


def random_matrix(random: np.random.Generator, rows: int, labels: int) -> Matrix:
    """Random log-probs in quarters, some of them -inf. Sums are exact, and ties are common."""
    matrix = -random.integers(0, 9, (rows, labels)) / 4
    matrix[random.random((rows, labels)) < 0.15] = -math.inf
    return matrix


def to_go(automaton: TokenAutomaton, state: int) -> float:
    """Fewest labels to acceptance; infinite if unreachable or after the end."""
    tokens = int(automaton.distance[state])
    return tokens - 1 if 0 < tokens < UNREACHABLE else math.inf


def total(matrix: Matrix, labels: Labels) -> float:
    return sum(max(float(row[label]), LOG_PROB_FLOOR) for row, label in zip(matrix, labels, strict=True))


def accepted(automaton: TokenAutomaton, rows: int) -> list[Labels]:
    every: list[tuple[Labels, int]] = [((), automaton.start)]
    for _ in range(rows):
        names = range(automaton.vocabulary_size - 1)
        every = [((*labels, name), automaton.advance(state, name)) for labels, state in every for name in names]
    return [labels for labels, state in every if to_go(automaton, state) == 0]


def accepted_lengths(automaton: TokenAutomaton, length_max: int) -> list[int]:
    """The accepted lengths up to `length_max`, from the sets of reachable states."""
    lengths, states = [], {automaton.start}
    for length in range(length_max + 1):
        if any(to_go(automaton, state) == 0 for state in states):
            lengths.append(length)
        names = range(automaton.vocabulary_size - 1)
        states = {automaton.advance(state, label) for state in states for label in names}
    return lengths


def cases(count: int, rows_max: int) -> Iterator[tuple[TokenAutomaton, Matrix]]:
    for seed in range(count):
        random = np.random.default_rng(seed)
        automaton = random_labels(random)
        yield automaton, random_matrix(random, int(random.integers(1, rows_max + 1)), automaton.vocabulary_size - 1)


def slow_beams(matrix: Matrix, automaton: TokenAutomaton, options: BeamOptions) -> tuple[Labels, float, float] | None:
    """Algorithm 1 over a matrix in plain Python. Returns None if no row can be extended."""
    rows = [((), automaton.start, 0.0, 0.0)]
    steps, names = len(matrix), range(automaton.vocabulary_size - 1)
    successors = {state: [automaton.advance(state, label) for label in names] for state in range(automaton.states)}
    possible = [{state for state in successors if to_go(automaton, state) == 0}]
    for _ in range(steps):
        possible.append({state for state in successors if any(target in possible[-1] for target in successors[state])})
    for step, line in enumerate(matrix):
        row_log_probs = [max(float(value), LOG_PROB_FLOOR) for value in line]
        result = []
        for number, (labels, state, score, log_prob) in enumerate(rows):
            distance = to_go(automaton, state)
            for label in names:
                target = successors[state][label]
                if target in possible[steps - step - 1]:
                    alpha = push_up(int(distance), steps - step, options.alpha_min, options.gamma)
                    gains = to_go(automaton, target) < distance
                    step_score = (
                        pushed(row_log_probs[label], max(row_log_probs), alpha) if gains else row_log_probs[label]
                    )
                    key = (
                        -(score + step_score),
                        -(log_prob + row_log_probs[label]),
                        -row_log_probs[label],
                        label,
                        number,
                    )
                    result.append(
                        (key, ((*labels, label), target, score + step_score, log_prob + row_log_probs[label]))
                    )
        rows = [row for _, row in sorted(result)[: options.beams]]
    if not rows:
        return None
    labels, _, score, log_prob = min(rows, key=lambda row: (-row[3], -row[2]))
    return labels, log_prob, score


def test_the_best_sequence_is_the_best_of_all() -> None:
    found_count = 0
    for automaton, matrix in cases(100, 6):
        every = accepted(automaton, len(matrix))
        if not every:
            with pytest.raises(LengthImpossible):
                best_labels(matrix, automaton)
            continue
        found_count += 1
        best = max(total(matrix, labels) for labels in every)
        path = best_labels(matrix, automaton)
        assert path.labels == min(labels for labels in every if total(matrix, labels) == best)
        assert path.log_prob == path.score == best
    assert 33 < found_count < 100


def test_beams_choose_the_labels_of_the_reference() -> None:
    comparisons = 0
    for number, (automaton, matrix) in enumerate(cases(400, 8)):
        options = BeamOptions((1, 2, 3, 8)[number % 4], (0.0, 0.5, 1.0)[number % 3], (1.0, 0.5)[number % 2])
        expected = slow_beams(matrix, automaton, options)
        if expected is None:
            with pytest.raises(LengthImpossible):
                beam_labels(matrix, automaton, options)
            continue
        comparisons += 1
        path = beam_labels(matrix, automaton, options)
        assert path.labels == expected[0]
        assert (path.log_prob, path.score) == pytest.approx(expected[1:])
    assert comparisons > 150


def test_unpruned_beams_find_the_best_sequence() -> None:
    for automaton, matrix in cases(80, 5):
        if accepted(automaton, len(matrix)):
            path = beam_labels(matrix, automaton, BeamOptions(4**5))
            assert path.log_prob == best_labels(matrix, automaton).log_prob


def test_one_beam_respects_the_exact_sequence_length() -> None:
    automaton = from_table(np.array([0, 0, 0]), np.array([[1], [0]]), np.array([True, False]), 0, eos_ids=(2,))
    assert len(beam_labels(np.log([[0.9, 0.1]] * 6), automaton, BeamOptions(1)).labels) == 6
    with pytest.raises(LengthImpossible, check=lambda error: (error.rows, error.lengths) == (7, (6, 8))):
        beam_labels(np.log([[0.9, 0.1]] * 7), automaton, BeamOptions(1))


def test_the_lengths_named_are_the_nearest_that_are_accepted() -> None:
    refused = 0
    for automaton, matrix in cases(200, 6):
        rows = len(matrix)
        lengths = accepted_lengths(automaton, 40)
        if rows in lengths:
            continue
        refused += 1
        with pytest.raises(LengthImpossible) as excinfo:
            best_labels(matrix, automaton)
        near = excinfo.value.lengths
        shorter = [length for length in lengths if length < rows]
        longer = [length for length in lengths if length > rows]
        assert near == (*shorter[-1:], *longer[:1])
    assert refused > 20


@pytest.mark.parametrize(
    "constraint",
    [
        {"ltlf": "F(boot & X F Bag) & G(Shirt -> X !Shirt)"}, {"keywords": ["Bag", "boot"], "ordered": True},
        {"regex": "(boot|Bag) .*Shirt"}, {"not": {"ltlf": "F Bag"}}, {"ltlf": "G(eos -> true) & F boot"},
    ],
    ids=str,
)  # fmt: skip
def test_decoded_labels_satisfy_a_compiled_constraint(constraint: dict[str, object]) -> None:
    names = ["boot", "Bag", "Shirt", "Coat"]
    compiled = compile_spec(spec_from_json({**constraint, "labels": names}), byte_vocabulary())
    text, automaton = compiled.text, compiled.tokens
    matrix = np.log(np.random.default_rng(4).dirichlet(np.ones(4) / 3, 12))
    exact = best_labels(matrix, automaton)
    assert check_labels(text, [names[label] for label in exact.labels]).satisfied
    previous = -math.inf
    for beams in (1, 4, 64):
        path = beam_labels(matrix, automaton, BeamOptions(beams))
        assert check_labels(text, [names[label] for label in path.labels]).satisfied
        assert path.log_prob <= exact.log_prob + 1e-9
        previous = max(previous, path.log_prob)
    assert previous == pytest.approx(exact.log_prob, abs=1.0)


def test_a_table_of_many_states_is_read_block_by_block() -> None:
    states = 70_000
    chain = np.stack([np.minimum(np.arange(states) + 1, states - 1), np.zeros(states, dtype=int)], axis=1)
    accepting = np.zeros(states, dtype=bool)
    accepting[[3, 65_000]] = True
    automaton = from_table(np.array([0, 1, 1, 1, 1, 0]), chain, accepting, 64_998, eos_ids=(5,))
    matrix = np.log(np.full((2, 5), 0.2))
    assert best_labels(matrix, automaton).labels == beam_labels(matrix, automaton, BeamOptions(2)).labels == (0, 0)


@pytest.mark.parametrize("rows, labels, beams", [(12, 64, 500), (3, 300, 2_000), (400, 3, 3_000)])
def test_beams_take_at_most_the_estimated_memory(rows: int, labels: int, beams: int) -> None:
    matrix, automaton = np.log(np.random.default_rng(5).dirichlet(np.ones(labels), rows)), all_texts(labels + 1)
    tracemalloc.start()
    try:
        beam_labels(matrix, automaton, BeamOptions(beams))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    tables = 4 * matrix.nbytes
    assert peak <= beam_bytes(rows, labels, beams) + tables <= 4 * peak + tables


def test_faulty_input_is_refused() -> None:
    any_two = all_texts(3)
    for value in (math.nan, math.inf):
        with pytest.raises(ModelOutputInvalid):
            best_labels(np.array([[value, 0.0]]), any_two)
    with pytest.raises(VocabularyMismatch):
        best_labels(np.zeros((3, 3)), any_two)
    for field, value in (("beams", 0), ("alpha_min", 1.5), ("alpha_min", math.nan), ("gamma", 0.0)):
        with pytest.raises(OptionsInvalid) as excinfo:
            BeamOptions(**{"beams": 2, field: value})  # type: ignore[arg-type]
        assert excinfo.value.field == field


def test_a_cancelled_decode_stops() -> None:
    any_two = all_texts(3)
    with pytest.raises(Cancelled):
        best_labels(np.zeros((3, 2)), any_two, lambda: True)
    with pytest.raises(Cancelled):
        beam_labels(np.zeros((3, 2)), any_two, BeamOptions(2), lambda: True)
