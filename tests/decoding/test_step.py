"""The step against its slow twin, and its parts: the exact choice under ties, the layout of ids, the successors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from compiler.token_automaton import TokenAutomaton, from_table
from decoding.arrays import count_up, like
from decoding.beams import DEAD_SCORE, Beams
from decoding.forced import FREE
from decoding.options import SearchOptions
from decoding.plan import Plan
from decoding.ranking import place_in_group, repeats, top, top_in_order
from decoding.runs import Hypothesis, StepEvent
from decoding.search import generate
from decoding.step import forced_step, step
from decoding.tables import Tables
from decoding.texts import Texts
from tests.decoding.random_automata import random_factored, random_table
from tests.decoding.twins import CPU, MODELS, Case, differences

ALGORITHMS = ("abs", "banked")
ARRAYS = ("numpy", "torch")
CASES = {"table": 25, "factored": 20, "wide": 3}


@pytest.mark.parametrize("maker", CASES)
@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_beam_equals_that_of_the_slow_twin_to_the_last_bit(algorithm: str, kind: str, maker: str) -> None:
    for seed in range(CASES[maker]):
        assert differences(Case(maker, kind, algorithm, seed)) == []


@pytest.mark.parametrize("maker", ["table", "factored"])
def test_so_do_those_of_many_beams_which_keep_other_numbers_of_rows(maker: str) -> None:
    cases = [Case(maker, kind, "banked", seed) for kind in MODELS for seed in range(6)]
    for case in cases:
        case.options = replace(case.options, beams=64)
        assert differences(case) == []
    assert {case.tight for case in cases} == {0, 1, 2}
    assert max(len(rows) for case in cases[:4] for rows in case.slow()) > 512


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_way_of_an_accelerator_finds_the_same_beams(algorithm: str) -> None:
    for kind in MODELS:
        for maker, seed in [*(("factored", seed) for seed in range(8)), ("wide", 1), ("wide", 3)]:
            assert differences(Case(maker, kind, algorithm, seed), like_an_accelerator=True) == []


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_whole_search_comes_to_the_same_answers_in_either_library(
    algorithm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = [Case("factored", kind, algorithm, seed) for kind in MODELS for seed in range(6)]

    def searched(case: Case) -> tuple[tuple[Hypothesis, ...], list[StepEvent]]:
        events: list[StepEvent] = []
        return generate(case.model, (), case.automaton, case.options, on_step=events.append), events

    by_numpy = [searched(case) for case in cases]
    monkeypatch.setattr(Tables, "for_search", lambda tables: tables)
    assert [searched(case) for case in cases] == by_numpy


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_cases_have_twins_dictated_tokens_ties_and_finished_rows_in_them(algorithm: str) -> None:
    """Else the comparison above would compare little."""
    cases = [Case("table", kind, algorithm, seed) for kind in MODELS for seed in range(12)]
    seen = {"dictated": 0, "tied": 0, "finished early": 0, "several rows": 0}
    for case in cases:
        for rows in case.slow()[:-1]:
            distance = [int(case.automaton.distance[row.state]) for row in rows]
            seen["dictated"] += any(case.dictated(row.state, 99) is not None for row in rows)
            seen["tied"] += len({row.score for row in rows}) < len(rows)
            seen["finished early"] += 0 in distance and any(distance)
            seen["several rows"] += len(rows) > 2
    assert min(seen.values()) > 20, seen


def test_the_choice_is_that_of_a_full_sort_whatever_the_ties() -> None:
    for seed in range(300):
        random = np.random.default_rng(seed)
        size = int(random.integers(1, 60)) * (1 + seed % 9)
        keys = [random.integers(0, 1 + seed % 4, size).astype(float) for _ in range(3)]
        keys[0][random.random(size) < 0.3] = -np.inf
        order = random.permutation(size)
        count = int(random.integers(1, size // (1 + seed % 9) + 1))
        expected = sorted(range(size), key=lambda place, k=keys, o=order: ([-key[place] for key in k], o[place]))
        for kind in (np.array, torch.tensor):
            rank = kind(order).__getitem__
            assert top_in_order([kind(key) for key in keys], rank, count).tolist() == expected[:count]
            assert sorted(top([kind(key) for key in keys], rank, count).tolist()) == sorted(expected[:count])


def test_repeats_and_places_in_groups_are_those_of_a_plain_loop() -> None:
    for seed in range(100):
        random = np.random.default_rng(seed)
        size = int(random.integers(1, 40))
        one, other = (random.integers(0, 4, size) for _ in range(2))
        pairs = list(zip(one.tolist(), other.tolist(), strict=True))
        group = one.tolist()
        for kind in (np.array, torch.tensor):
            assert repeats(kind(one), kind(other)).tolist() == [
                pair in pairs[:place] for place, pair in enumerate(pairs)
            ]
            assert place_in_group(kind(one)).tolist() == [
                group[:place].count(number) for place, number in enumerate(group)
            ]


@pytest.mark.parametrize("maker", [random_table, random_factored])
def test_successors_on_the_device_are_those_of_the_automaton(
    maker: Callable[[np.random.Generator], TokenAutomaton],
) -> None:
    for seed in range(40):
        automaton = maker(np.random.default_rng(seed))
        states = torch.arange(automaton.states)
        found = Tables.from_automaton(automaton, CPU).successors(states)
        assert found.tolist() == [automaton.successors(state).tolist() for state in range(automaton.states)]


@pytest.mark.parametrize(("size", "classes", "eos"), [(1, 1, 1), (5, 3, 5), (700, 2, 1), (700, 650, 3), (999, 30, 200)])
def test_every_id_has_one_place_in_a_chunk_of_its_class_and_the_best_of_each_chunk_is_found(
    size: int, classes: int, eos: int
) -> None:
    random = np.random.default_rng(size + classes)
    eos_ids = tuple(int(token) for token in random.choice(size, eos, replace=False))
    automaton = from_table(
        random.integers(0, classes, size), np.zeros((1, classes), dtype=np.int64), np.array([True]), 0, eos_ids
    )
    tables = Tables.from_automaton(automaton, CPU)
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


def _plan(
    automaton: TokenAutomaton, algorithm: str, beams: int, texts: Texts | None = None, *, arrays: str = "torch"
) -> tuple[Tables, Plan]:
    tables = Tables.from_automaton(automaton, CPU)
    tables = tables.for_search() if arrays == "numpy" else tables
    return tables, Plan.prepare(tables, texts, None, SearchOptions(max_tokens=9, beams=beams, algorithm=algorithm))


def _anything(size: int) -> TokenAutomaton:
    zeros = np.zeros(size, dtype=np.int64)
    return from_table(zeros, np.zeros((1, 1), dtype=np.int64), np.array([True]), 0, (size - 1,))


def _grown(texts: Texts | None, first: Sequence[float], *later: Tensor, beams: int = 4) -> list[tuple[int, ...]]:
    """The live rows of a "banked" search over all texts, after one step for each argument."""
    automaton = _anything(len(first))
    tables, plan = _plan(automaton, "banked", beams, texts)
    beam, ids = Beams.start(automaton.start, tables.distance), [()]
    for number, log_probs in enumerate([torch.tensor([first]), *later]):
        after = step(beam, log_probs, tables, plan, 9 - number)
        beam = after.select(((after.score != DEAD_SCORE) & (tables.distance[after.state] != 0)).nonzero()[:, 0])
        ids = [(*ids[parent], token) for parent, token in zip(beam.parent.tolist(), beam.token.tolist(), strict=True)]
    return ids


def test_of_two_splits_of_one_text_only_the_more_probable_is_kept() -> None:
    pieces = [b"a", b"bc", b"ab", b"c", b""]
    first = [-1.0, -9.0, -1.5, -9.0, -9.0]  # a or ab
    second = torch.tensor([[-9.0, -1.0, -9.0, -9.0, -9.0], [-9.0, -9.0, -9.0, -1.0, -9.0]])  # a|bc and ab|c
    assert _grown(None, first, second, beams=2) == [(0, 1), (2, 3)]
    kept = _grown(Texts.of(pieces, (4,), CPU), first, second, beams=2)
    assert kept[0] == (0, 1)
    assert (2, 3) not in kept


def test_of_rows_that_end_in_the_same_three_tokens_only_the_more_probable_is_kept() -> None:
    first = [-1.0, -1.5, -9.0, -9.0]
    alike = torch.tensor([[-9.0, -9.0, -0.1, -9.0]]).expand(2, -1)
    assert _grown(None, first, alike, alike, beams=2) == [(0, 2, 2), (1, 2, 2)]
    kept = _grown(None, first, alike, alike, alike, beams=2)
    assert kept[0] == (0, 2, 2, 2)
    assert (1, 2, 2, 2) not in kept


def test_a_row_whose_last_token_ends_texts_owes_less_than_one_whose_last_token_does_not() -> None:
    automaton = _anything(4)
    tables = Tables.from_automaton(automaton, CPU)
    options, log_probs = SearchOptions(max_tokens=9, beams=1), torch.tensor([[-1.0, -1.5, -9.0, -9.0]])
    estimate = torch.where(tables.distance == 0, 0.0, 3.0).double()
    best = []
    for ends in (None, torch.tensor([float("inf"), 0.1, 0.1, 0.0]), torch.tensor([5.0, 4.0, 3.5, 0.0])):
        plan = Plan.prepare(tables, None, estimate, options, ends)
        best.append(step(Beams.start(automaton.start, tables.distance), log_probs, tables, plan.keeping(1), 9))
    assert [int(beams.token[0]) for beams in best] == [0, 1, 0]  # never more than the estimate says
    assert float(best[1].score[0]) == pytest.approx(-1.5 - 0.1 * plan.weight)
    assert float(best[1].log_prob[0]) == -1.5


@pytest.mark.parametrize("arrays", ARRAYS)
def test_live_rows_at_or_below_the_floor_are_dropped_and_those_that_finish_are_told(arrays: str) -> None:
    automaton = _anything(4)
    tables, plan = _plan(automaton, "banked", 3, arrays=arrays)
    log_probs = torch.tensor([[-1.0, -2.0, -3.0, -4.0]])
    after = step(Beams.start(automaton.start, tables.distance), log_probs, tables, plan, 9, floor=-2.0)
    kept = after.select(count_up(after.score, 2))
    assert (after.score != DEAD_SCORE).tolist() == [True, True, *[False] * (len(after.score) - 2)]
    assert kept.token.tolist() == [0, 3]  # 3 is EOS
    assert tables.distance[kept.state].tolist() == [1, 0]
    assert kept.log_prob.tolist() == [-1.0, -4.0]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_stretch_taken_at_once_comes_to_the_same_beam_as_the_step_that_may_take_nothing_else(algorithm: str) -> None:
    for seed in range(40):
        random = np.random.default_rng(seed)
        automaton = random_table(random)
        tables, plan = _plan(automaton, algorithm, 5)
        beam, budget = Beams.start(automaton.start, tables.distance), 9 + automaton.min_tokens
        plan = Plan.prepare(tables, None, None, SearchOptions(max_tokens=budget, beams=5, algorithm=algorithm))
        size = automaton.vocabulary_size
        beam = step(beam, torch.tensor(random.integers(-2, 0, (1, size))).float(), tables, plan, budget)
        beam = beam.select(((beam.score != DEAD_SCORE) & (tables.distance[beam.state] != 0)).nonzero()[:, 0])
        live = len(beam.token)
        if not live:
            continue
        log_probs = torch.tensor(random.integers(-2, 0, (live, size))).float()  # few levels: rows tie
        dictated = torch.tensor(random.integers(0, size, live))
        own, peak = log_probs.gather(1, dictated[:, None])[:, 0], log_probs.amax(dim=1)
        slow = step(beam, log_probs, tables, plan, budget - 1, dictated)
        fast = forced_step(beam, dictated, own, peak, tables, plan, budget - 1)
        for name in ("token", "parent", "state", "score", "log_prob"):
            one, other = (getattr(rows, name)[rows.score != DEAD_SCORE].tolist() for rows in (slow, fast))
            assert one == other


def test_a_finished_row_comes_before_a_live_one_that_ties_with_it_in_everything() -> None:
    automaton = _anything(3)
    tables, plan = _plan(automaton, "abs", 2)
    beam = step(Beams.start(automaton.start, tables.distance), torch.tensor([[-1.0, -9.0, -1.0]]), tables, plan, 2)
    assert beam.token.tolist() == [0, 2]  # 2 is EOS
    after = step(beam, torch.tensor([[-9.0, -9.0, 0.0]]), tables, plan, 1)
    assert after.score.tolist() == [-1.0, -1.0]
    assert after.parent.tolist() == [1, 0]


@pytest.mark.parametrize("arrays", ARRAYS)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_where_the_model_gives_no_number_every_score_says_so(bad: float, algorithm: str, arrays: str) -> None:
    automaton = _anything(5)
    tables, plan = _plan(automaton, algorithm, 3, arrays=arrays)
    log_probs = torch.full((1, 5), -1.0)
    log_probs[0, 2 if bad != float("-inf") else slice(None)] = bad
    start = Beams.start(automaton.start, tables.distance)
    after = step(start, log_probs, tables, plan, 9)
    assert len(after.score) > 0
    assert np.isnan(np.asarray(after.score)).all()
    token, own, peak = (like(tables.distance, one) for one in (torch.tensor([0]), log_probs[:, 0], log_probs.amax(1)))
    told = forced_step(start, token, own, peak, tables, plan, 9)
    assert np.isnan(np.asarray(told.score)).all()


@pytest.mark.parametrize("arrays", ARRAYS)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_where_no_row_may_go_on_in_time_no_row_is_alive(algorithm: str, arrays: str) -> None:
    automaton = _anything(5)
    tables, plan = _plan(automaton, algorithm, 3, arrays=arrays)
    start, log_probs = Beams.start(automaton.start, tables.distance), torch.full((1, 5), -1.0)
    after = step(start, log_probs, tables, plan, 1)
    assert after.token[after.score != DEAD_SCORE].tolist() == [4]
    nothing = step(start, log_probs, tables, plan, 1, like(tables.distance, torch.tensor([2])))
    assert (nothing.score == DEAD_SCORE).all()
    anything = step(start, log_probs, tables, plan, 2, like(tables.distance, torch.tensor([FREE])))
    assert anything.token.tolist() == step(start, log_probs, tables, plan, 2).token.tolist()
