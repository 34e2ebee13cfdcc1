"""The search steps, compared with their slow reference.

Ties, the layout of ids, and the successors are tested separately.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from compiler.lifting import TokenAutomaton, from_table
from decoding.forced_tokens import NO_FORCED_TOKEN
from decoding.generation import BeamStep, Hypothesis
from decoding.options import DEFAULT, Algorithm, SearchOptions
from decoding.prepared_constraint import PreparedConstraint
from decoding.search import abs_search, generate
from decoding.search.banked_search import Ranking, jump_forward, step
from decoding.search.beams import DEAD_SCORE, Beams
from decoding.tensors import (
    Array,
    ExplicitStates,
    TokenStates,
    arange,
    like,
    rank_in_group,
    top_k_stable,
    top_k_unordered,
)
from tests.decoding.differential import ALGORITHMS, CPU, MODELS, Case, differences
from tests.decoding.random_automata import all_texts, random_factored, random_table
from tests.servers.cluster import FULL

ARRAYS = ("numpy", "torch")
CASES = {"table": 25, "factored": 20, "wide": 3} if FULL else {"table": 12, "factored": 10, "wide": 2}


@pytest.mark.parametrize("maker", CASES)
@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.sample(8)
def test_every_beam_equals_that_of_the_reference(algorithm: Algorithm, kind: str, maker: str) -> None:
    for seed in range(CASES[maker]):
        assert differences(Case(maker, kind, algorithm, seed)) == []


@pytest.mark.parametrize("maker", ["table", "factored"])
def test_beams_of_many_rows_equal_those_of_the_reference(maker: str) -> None:
    cases = [Case(maker, kind, "banked", seed) for kind in MODELS for seed in range(1, 4)]
    for case in cases:
        case.options = replace(case.options, beams=64)
        assert differences(case) == []
    assert max(len(beam.rows) for case in cases for beam in case.fast()) > 128


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_arrays_of_an_accelerator_give_the_same_beams(algorithm: Algorithm) -> None:
    for kind in MODELS:
        for maker, seed in [*(("factored", seed) for seed in range(8 if FULL else 4)), ("wide", 1)]:
            assert differences(Case(maker, kind, algorithm, seed), like_an_accelerator=True) == []


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_both_libraries_give_the_same_answers(algorithm: Algorithm, monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [Case("factored", kind, algorithm, seed) for kind in MODELS for seed in range(6)]

    def searched(case: Case) -> tuple[tuple[Hypothesis, ...], list[BeamStep]]:
        events: list[BeamStep] = []
        return generate(case.model, (), case.constraint, case.options, on_step=events.append), events

    by_numpy = [searched(case) for case in cases]
    monkeypatch.setattr(ExplicitStates, "for_search", lambda tables: tables)
    assert [searched(case) for case in cases] == by_numpy


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_random_cases_exercise_every_part(algorithm: Algorithm) -> None:
    """Otherwise the comparisons above would compare little."""
    counts = {"tied": 0, "finished early": 0, "several rows": 0}
    if algorithm == "banked":
        counts |= {"forced": 0, "endings": 0, "dropped": 0}
    for case in [Case("table", kind, algorithm, seed) for kind in MODELS for seed in range(16)]:
        for number, beam in enumerate(case.slow()[:-1], start=1):
            distance = [int(case.automaton.distance[row.state]) for row in beam.rows]
            counts["tied"] += len({row.score for row in beam.rows}) < len(beam.rows)
            counts["finished early"] += 0 in distance and any(distance)
            counts["several rows"] += len(beam.rows) > 2
            if algorithm == "banked":
                budget = case.options.max_tokens - number - 1
                counts["forced"] += any(case.forced_token(row.state, budget) is not None for row in beam.rows)
                counts["dropped"] += beam.lost > DEAD_SCORE
                counts["endings"] += any(
                    row.score > row.log_prob - case.problem.cost(row.state) + 1e-9
                    for row in beam.rows
                    if case.automaton.distance[row.state] == 1
                )
    assert min(counts.values()) > 10, counts


def test_the_choice_under_ties_is_that_of_a_full_sort() -> None:
    for seed in range(300):
        random = np.random.default_rng(seed)
        size = int(random.integers(1, 60)) * (1 + seed % 9)
        keys = [random.integers(0, 1 + seed % 4, size).astype(float) for _ in range(3)]
        keys[0][random.random(size) < 0.3] = -np.inf
        order = random.permutation(size)
        count = int(random.integers(1, size // (1 + seed % 9) + 1))
        expected = sorted(range(size), key=lambda index, k=keys, o=order: ([-key[index] for key in k], o[index]))
        for kind in (np.array, torch.tensor):
            rank, arrays = kind(order).__getitem__, [kind(key) for key in keys]
            assert top_k_stable(arrays, rank, count).tolist() == expected[:count]
            assert sorted(top_k_unordered(arrays, rank, count).tolist()) == sorted(expected[:count])


def test_ranks_within_groups_are_those_of_a_plain_loop() -> None:
    for seed in range(100):
        random = np.random.default_rng(seed)
        group = random.integers(0, 4, int(random.integers(1, 40)))
        expected = [group[:index].tolist().count(number) for index, number in enumerate(group.tolist())]
        for kind in (np.array, torch.tensor):
            assert rank_in_group(kind(group)).tolist() == expected


@pytest.mark.parametrize("maker", [random_table, random_factored])
def test_successors_on_the_device_equal_the_automatons(
    maker: Callable[[np.random.Generator], TokenAutomaton],
) -> None:
    for seed in range(40):
        automaton = maker(np.random.default_rng(seed))
        state, token_class = (
            torch.from_numpy(axis.reshape(-1)) for axis in np.indices((automaton.states, automaton.classes))
        )
        found = _states(automaton, "torch").successors(torch.arange(automaton.states))
        expected = np.stack([automaton.successors(state) for state in range(automaton.states)])
        assert np.array_equal(found.states(state, token_class), expected.reshape(-1))
        assert np.array_equal(found.distance, automaton.distance[expected])


@pytest.mark.parametrize("library", ARRAYS)
@pytest.mark.parametrize("maker", [random_table, random_factored])
def test_one_token_per_row_gives_the_automatons_successor(
    maker: Callable[[np.random.Generator], TokenAutomaton], library: str
) -> None:
    for seed in range(20):
        random = np.random.default_rng(seed)
        automaton = maker(random)
        automaton_states = _states(automaton, library)
        states, tokens = (random.integers(0, end, 60) for end in (automaton.states, automaton.vocabulary_size))
        arrays = (like(automaton_states.tokens.token_class, torch.from_numpy(values)) for values in (states, tokens))
        result: Array = automaton_states.after(*arrays)
        pairs = zip(states.tolist(), tokens.tolist(), strict=True)
        assert result.tolist() == [automaton.advance(*pair) for pair in pairs]


@pytest.mark.parametrize(("size", "classes", "eos"), [(1, 1, 1), (5, 3, 5), (700, 2, 1), (700, 650, 3), (999, 30, 200)])
def test_every_id_has_one_slot_in_a_chunk(size: int, classes: int, eos: int) -> None:
    random = np.random.default_rng(size + classes)
    eos_ids = tuple(int(token) for token in random.choice(size, eos, replace=False))
    automaton = from_table(
        random.integers(0, classes, size), np.zeros((1, classes), dtype=np.int64), np.array([True]), 0, eos_ids=eos_ids
    )
    tables = ExplicitStates.from_automaton(automaton, CPU).tokens
    assert sorted(tables.chunk_id[~tables.spare].tolist()) == list(range(size))
    chunks = zip(tables.chunk_id.tolist(), tables.chunk_class.tolist(), tables.spare.tolist(), strict=True)
    for chunk, (row, column, spare) in enumerate(chunks):
        assert {int(automaton.token_class[token]) for token in row} == {column}
        real = [token for token, repeat in zip(row, spare, strict=True) if not repeat]
        assert real == sorted(real)
        assert set(row) == set(real)
        assert tables.token_chunk[real].tolist() == [chunk] * len(real)
    log_probs = torch.tensor(random.normal(size=(3, size)), dtype=torch.float32)
    assert torch.equal(tables.best_of_chunks(log_probs), log_probs[:, tables.chunk_id].amax(dim=2))
    assert np.array_equal(tables.for_search().best_of_chunks(log_probs), tables.best_of_chunks(log_probs))


def _states(automaton: TokenAutomaton, library: str) -> TokenStates:
    return PreparedConstraint.prepare(automaton, CPU).begin_states(heuristics=DEFAULT, tensors=library == "torch")


def _banked(
    states: TokenStates, start: Beams, log_probs: Tensor, budget: int, beams: int = 3, forced: int | None = None,
    floor: float = DEAD_SCORE,
) -> Beams:
    tokens = None if forced is None else like(start.token, torch.tensor([forced]))
    ranking = Ranking.of(states.tokens, beams, DEFAULT)
    return step(start, log_probs, states, ranking, budget_before=budget, forced=tokens, floor=floor)[0]


def _abs(states: TokenStates, start: Beams, log_probs: Tensor, budget: int, beams: int = 3) -> Beams:
    options = SearchOptions(max_tokens=9, beams=beams, algorithm="abs")
    return abs_search.step(start, log_probs, states, options, budget_before=budget, count=beams)


STEPS: dict[str, Callable[[TokenStates, Beams, Tensor, int], Beams]] = {"abs": _abs, "banked": _banked}


@pytest.mark.parametrize("library", ARRAYS)
def test_live_rows_at_or_below_the_floor_are_dropped(library: str) -> None:
    automaton = all_texts(4)
    states = _states(automaton, library)
    start, log_probs = Beams.start(automaton.start, states.tokens.token_class), torch.tensor([[-1.0, -2.0, -3.0, -4.0]])
    beams = _banked(states, start, log_probs, 9, floor=-2.0)
    retained_rows = beams.select(arange(beams.score, 2))
    assert (beams.score != DEAD_SCORE).tolist() == [True, True, *[False] * (len(beams.score) - 2)]
    assert retained_rows.token.tolist() == [0, 3]  # 3 is EOS
    assert states.distances(retained_rows.state).tolist() == [1, 0]
    assert retained_rows.log_prob.tolist() == [-1.0, -4.0]


@pytest.mark.parametrize("library", ARRAYS)
def test_jump_forward_gives_the_rows_of_single_steps(library: str) -> None:
    """Few levels of log-probs: rows tie. The order and the last bit of the scores may differ."""
    comparisons = 0
    for seed in range(40):
        random = np.random.default_rng(seed)
        automaton = random_table(random)
        states, size, budget = _states(automaton, library), automaton.vocabulary_size, 9 + automaton.min_tokens
        beam, ranking = Beams.start(automaton.start, states.tokens.token_class), Ranking.of(states.tokens, 5, DEFAULT)
        beam, _ = step(
            beam, torch.tensor(random.integers(-2, 0, (1, size))).float(), states, ranking, budget_before=budget
        )
        live = np.flatnonzero(np.asarray((beam.score != DEAD_SCORE) & (states.distances(beam.state) != 0)))
        if not len(live):
            continue
        beam = beam.select(like(states.tokens.token_class, torch.from_numpy(live)))
        log_probs = torch.tensor(random.integers(-2, 0, (len(live), size))).float()
        tokens = torch.tensor([_live_token(automaton, state, budget - 2) for state in beam.state.tolist()])
        token_log_probs, peak = log_probs.gather(1, tokens[:, None])[:, 0], log_probs.amax(dim=1)
        arrays = (like(beam.token, values) for values in (tokens, token_log_probs, peak))
        forced, token_log_probs, peak = arrays
        slow, _ = step(beam, log_probs, states, ranking, budget_before=budget - 1, forced=forced)
        fast = jump_forward(beam, forced, token_log_probs, peak, states=states)
        assert _rows(slow) == _rows(fast)
        comparisons += 1
    assert comparisons > 20


def _live_token(automaton: TokenAutomaton, state: int, budget_after: int) -> int:
    """The first non-EOS id after which acceptance is within the budget."""
    distance = automaton.distance[automaton.successors(state)[automaton.token_class]]
    allowed = np.setdiff1d(np.flatnonzero(distance <= budget_after), automaton.eos_ids)
    return int(allowed[0])


def _rows(beams: Beams) -> list[tuple[int, int, int, float]]:
    rows = zip(*(column.tolist() for column in (beams.parent, beams.token, beams.state, beams.log_prob)), strict=True)
    return sorted(row for row, score in zip(rows, beams.score.tolist(), strict=True) if score != DEAD_SCORE)


def test_a_finished_row_comes_before_a_live_one_that_ties() -> None:
    automaton = all_texts(3)
    states = _states(automaton, "torch")
    start = Beams.start(automaton.start, states.tokens.token_class)
    beam = _abs(states, start, torch.tensor([[-1.0, -9.0, -1.0]]), 2, beams=2)
    assert beam.token.tolist() == [0, 2]  # 2 is EOS
    successor = _abs(states, beam, torch.tensor([[-9.0, -9.0, 0.0]]), 1, beams=2)
    assert successor.score.tolist() == [-1.0, -1.0]
    assert successor.parent.tolist() == [1, 0]


@pytest.mark.parametrize("library", ARRAYS)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_all_scores_are_nan_where_the_model_gives_no_number(bad: float, algorithm: str, library: str) -> None:
    automaton = all_texts(5)
    states = _states(automaton, library)
    log_probs = torch.full((1, 5), -1.0)
    log_probs[0, 2 if bad != float("-inf") else slice(None)] = bad
    start = Beams.start(automaton.start, states.tokens.token_class)
    successor = STEPS[algorithm](states, start, log_probs, 9)
    assert len(successor.score) > 0
    assert np.isnan(np.asarray(successor.score)).all()
    tensors = (torch.tensor([0]), log_probs[:, 0], log_probs.amax(1))
    token, token_log_probs, peak = (like(states.tokens.token_class, tensor) for tensor in tensors)
    forced = jump_forward(start, token, token_log_probs, peak, states=states)
    assert np.isnan(np.asarray(forced.score)).all()


@pytest.mark.parametrize("library", ARRAYS)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_only_eos_is_left_at_the_last_step(algorithm: str, library: str) -> None:
    automaton = all_texts(5)
    states = _states(automaton, library)
    start = Beams.start(automaton.start, states.tokens.token_class)
    successor = STEPS[algorithm](states, start, torch.full((1, 5), -1.0), 1)
    assert successor.token[successor.score != DEAD_SCORE].tolist() == [4]


@pytest.mark.parametrize("library", ARRAYS)
def test_a_forced_token_out_of_budget_leaves_no_row(library: str) -> None:
    automaton = all_texts(5)
    states = _states(automaton, library)
    start, log_probs = Beams.start(automaton.start, states.tokens.token_class), torch.full((1, 5), -1.0)
    assert (_banked(states, start, log_probs, 1, forced=2).score == DEAD_SCORE).all()
    unforced = _banked(states, start, log_probs, 2, forced=NO_FORCED_TOKEN)
    assert unforced.token.tolist() == _banked(states, start, log_probs, 2).token.tolist()
