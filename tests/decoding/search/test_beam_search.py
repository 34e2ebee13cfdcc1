"""The searches against a slow reference and laws, and the rows read."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

import numpy as np
import pytest
import torch

from compiler.errors import BudgetTooSmall
from compiler.lifting import UNREACHABLE, from_table
from decoding.errors import (
    Cancelled,
    ModelOutputInvalid,
    OptionsInvalid,
    PromptTooLong,
    SearchExhausted,
    VocabularyMismatch,
)
from decoding.generation import BeamStep, Hypothesis
from decoding.model import Scores, StepInput
from decoding.options import DEFAULT, Algorithm, SearchOptions
from decoding.prepared_constraint import PreparedConstraint
from decoding.search import drive, generate, rows_of, search_of
from decoding.search.beam_search import NBest
from tests.decoding.differential import ALGORITHMS, MODELS, Case, random_options
from tests.decoding.random_automata import all_texts, random_table
from tests.fake_models import HashModel, PrefixModel, PrefixSession
from tests.references.search import Answer, answers, beam_search

CASES = {"table": 12, "factored": 12, "wide": 3}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("maker", CASES)
@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.sample(8)
def test_beams_and_answers_equal_those_of_the_reference(kind: str, maker: str, algorithm: Algorithm) -> None:
    for seed in range(CASES[maker]):
        case = Case(maker, kind, algorithm, seed)
        events: list[BeamStep] = []
        search = search_of(case.constraint, case.options, heuristics=case.heuristics)
        result = drive(case.model, (), search, events.append)
        problem = case.problem
        beams = beam_search(problem)
        assert [event.step_number for event in events] == list(range(1, len(beams) + 1))
        for event, beam in zip(events, beams, strict=True):
            assert [(row.tokens, row.score, row.log_prob, row.state, row.parent) for row in event.rows] == [
                (row.ids, row.score, row.log_prob, row.state, row.parent) for row in beam.rows
            ]
        assert _fields(result) == answers(beams, problem)


@pytest.mark.parametrize("kind", MODELS)
def test_answers_distinct_as_texts_equal_those_of_the_reference(kind: str) -> None:
    for seed in range(12):
        case = Case("table", kind, "banked", seed)
        text_of = lambda ids: bytes(token % 2 for token in ids)  # noqa: E731
        search = search_of(case.constraint, case.options, text_of=text_of, heuristics=case.heuristics)
        problem = replace(case.problem, text_of=text_of)
        assert _fields(drive(case.model, (), search)) == answers(beam_search(problem), problem)


def test_dropping_rows_below_the_floor_changes_no_value() -> None:
    rows_saved = 0
    for seed in range(25):
        model = HashModel(6, (5,), seed=seed, spread=3.0)
        options = SearchOptions(9, beams=4, n=1 + seed % 3, length_penalty=0.0)
        events: dict[bool, list[BeamStep]] = {False: [], True: []}
        values = {}
        for floor, steps in events.items():
            heuristics = replace(DEFAULT, floor=floor)
            constraint = PreparedConstraint.prepare(all_texts(6), model.device)
            result = drive(model, (), search_of(constraint, options, heuristics=heuristics), steps.append)
            values[floor] = [answer.log_prob for answer in result]
        assert values[True][0] >= values[False][0]
        rows_saved += len(events[True]) < len(events[False])
    assert rows_saved > 6


def _fields(hypotheses: Sequence[Hypothesis]) -> list[Answer]:
    return [(answer.tokens, answer.score, answer.log_prob, answer.proven_gap) for answer in hypotheses]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("kind", MODELS)
def test_answers_are_accepted_within_the_budget_and_distinct(kind: str, algorithm: Algorithm) -> None:
    for seed in range(12):
        random = np.random.default_rng([7, seed, *kind.encode()])
        automaton = random_table(random)
        options = random_options(random, automaton, algorithm)
        model = HashModel(automaton.vocabulary_size, automaton.eos_ids, seed=seed, **MODELS[kind])
        result = generate(model, (0,), automaton, options)
        assert 1 <= len(result) <= options.n
        assert len({answer.tokens[:-1] for answer in result}) == len(result)
        for answer in result:
            states = list(accumulate(answer.tokens, automaton.advance, initial=automaton.start))
            assert (automaton.distance[states[:-1]] != 0).all() and automaton.distance[states[-1]] == 0
            assert len(answer.tokens) <= options.max_tokens


def test_answers_are_distinct_as_texts_with_text_of() -> None:
    pieces = [b"a", b"b", b"ab", b"ba", b"", b""]  # ids 4 and 5 are EOS
    automaton = all_texts(6, 4, 5)
    for seed in range(20):
        model = HashModel(6, (4, 5), seed=seed, levels=3)
        options = SearchOptions(max_tokens=4, beams=12, n=12, algorithm="abs")
        result = generate(model, (0,), automaton, options, text_of=lambda ids: b"".join(pieces[token] for token in ids))
        texts = [b"".join(pieces[token] for token in answer.tokens) for answer in result]
        assert len(set(texts)) == len(texts)
        answers = generate(model, (0,), automaton, options)
        assert len({b"".join(pieces[token] for token in answer.tokens) for answer in answers}) == len(texts)


def test_answers_are_excluded_only_below_the_last_of_the_best() -> None:
    best = NBest(SearchOptions(max_tokens=4, n=1), text_of=None)
    best.add(Hypothesis(tokens=(6, 0), score=-1.0, log_prob=-1.0))
    assert [best.excludes(sums, sums, 2) for sums in (-0.5, -1.0, -1.5)] == [False, False, True]


def test_no_rows_are_equal_and_finished_rows_are_not_read() -> None:
    model = HashModel(9, (8,), seed=3)
    steps: list[BeamStep] = []
    generate(model, (0,), all_texts(9), SearchOptions(max_tokens=5, beams=6, algorithm="abs"), on_step=steps.append)
    for event in steps:
        assert len({row.tokens for row in event.rows}) == len(event.rows) == 6
    live = sum(not row.finished for event in steps[:-1] for row in event.rows)
    assert model.rows_read == 1 + live


def test_a_budget_below_the_least_is_refused_with_that_number() -> None:
    random = np.random.default_rng(11)
    for _ in range(60):
        automaton = random_table(random)
        model = HashModel(automaton.vocabulary_size, automaton.eos_ids)
        least = automaton.min_tokens
        assert generate(model, (0,), automaton, SearchOptions(max_tokens=least, beams=2))
        if least > 1:
            model.rows_read = 0
            with pytest.raises(BudgetTooSmall) as refusal:
                generate(model, (0,), automaton, SearchOptions(max_tokens=least - 1, beams=2))
            assert refusal.value.min_tokens == least
            assert model.rows_read == 0


def test_an_automaton_without_an_accepted_text_is_refused() -> None:
    automaton = from_table(
        np.zeros(4, dtype=np.int64), np.zeros((1, 1), dtype=np.int64), np.array([False]), 0, eos_ids=(3,)
    )
    assert automaton.min_tokens == UNREACHABLE
    with pytest.raises(BudgetTooSmall, check=lambda error: error.min_tokens is None):
        generate(HashModel(4, (3,)), (0,), automaton, SearchOptions(max_tokens=100))


def test_an_automaton_with_wrong_distances_exhausts_the_search() -> None:
    honest = from_table(np.array([0, 1, 0, 0]), np.array([[0, 1], [1, 1]]), np.array([False, True]), 0, eos_ids=(3,))
    automaton = dataclasses.replace(honest, token_class=np.array([0, 0, 0, 2], dtype=np.int32))
    assert automaton.min_tokens == 2
    with pytest.raises(SearchExhausted):
        generate(HashModel(4, (3,)), (0,), automaton, SearchOptions(max_tokens=2))


def test_prompt_and_budget_must_fit_the_context() -> None:
    model = HashModel(5, (4,), context_length=8)
    assert generate(model, (0, 1, 2), all_texts(5), SearchOptions(max_tokens=6, beams=2))
    with pytest.raises(PromptTooLong) as refusal:
        generate(model, (0, 1, 2), all_texts(5), SearchOptions(max_tokens=7, beams=2))
    assert (refusal.value.prompt_tokens, refusal.value.max_tokens, refusal.value.context_length) == (3, 7, 8)


def test_an_automaton_for_another_vocabulary_is_refused() -> None:
    with pytest.raises(VocabularyMismatch):
        generate(HashModel(6, (4,)), (0,), all_texts(5), SearchOptions(max_tokens=3))


def test_a_cancelled_generation_stops_before_its_next_step() -> None:
    steps: list[BeamStep] = []
    with pytest.raises(Cancelled):
        generate(
            HashModel(50, (49,)), (0,), all_texts(50), SearchOptions(max_tokens=9, beams=4), on_step=steps.append,
            cancelled=lambda: len(steps) == 2,
        )
    assert len(steps) == 2


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_invalid_log_probs_are_reported(bad: float) -> None:
    class Broken(PrefixModel):
        def log_probs(self, prefix: tuple[int, ...]) -> torch.Tensor:
            row = torch.full((5,), -1.0)
            row[2 if bad != -float("inf") else slice(None)] = bad if len(prefix) > 1 else -1.0
            return row

    with pytest.raises(ModelOutputInvalid):
        generate(Broken(5, (4,)), (0,), all_texts(5), SearchOptions(max_tokens=5, beams=3))


@pytest.mark.parametrize(
    ("field", "options"),
    [
        ("max_tokens", {"max_tokens": 0}),
        ("beams", {"beams": 0}),
        ("algorithm", {"algorithm": "greedy"}),
        ("alpha_min", {"alpha_min": -0.1}),
        ("alpha_min", {"alpha_min": 1.1}),
        ("alpha_min", {"alpha_min": float("nan")}),
        ("gamma", {"gamma": 0.0}),
        ("gamma", {"gamma": float("inf")}),
        ("n", {"n": 0}),
        ("n", {"n": 5, "beams": 4}),
        ("rank_by", {"rank_by": "luck"}),
        ("length_penalty", {"length_penalty": 2.1}),
    ],
)
def test_an_option_out_of_its_range_is_refused_by_name(field: str, options: dict[str, object]) -> None:
    with pytest.raises(OptionsInvalid, check=lambda error: error.field == field):
        SearchOptions(**{"max_tokens": 5, **options})


class CountingModel(HashModel):
    """Counts the rows of each feed."""

    def __init__(self, vocab_size: int, eos_ids: tuple[int, ...], seed: int) -> None:
        super().__init__(vocab_size, eos_ids, seed=seed)
        self.rows: list[int] = []

    def step(self, feeds: Sequence[StepInput[PrefixSession]]) -> list[Scores]:
        self.rows += [len(feed.tokens) for feed in feeds]
        return super().step(feeds)


@pytest.mark.parametrize("beams", [1, 5, 64])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_search_reads_at_most_its_declared_rows(algorithm: str, beams: int) -> None:
    row_maximum, limit = 0, 0
    for seed in range(21):
        case = Case("factored", "smooth", "abs" if algorithm == "abs" else "banked", seed)
        options = SearchOptions(case.automaton.min_tokens + 6, beams=beams, algorithm=case.options.algorithm)
        model = CountingModel(case.automaton.vocabulary_size, case.automaton.eos_ids, seed)
        drive(model, (1,), search_of(case.constraint, options))
        limit = rows_of(options)
        row_maximum = max(row_maximum, *model.rows, 0)
        assert all(rows <= limit for rows in model.rows)
    assert row_maximum > 0.8 * limit


def test_rows_grow_in_proportion_to_the_beams() -> None:
    rows = [rows_of(SearchOptions(9, beams=beams)) for beams in range(1, 129)]
    assert rows == [3 * beams for beams in range(1, 129)]
    assert rows[63] / rows[62] == 64 / 63
    assert [rows_of(SearchOptions(9, beams=beams, algorithm="abs")) for beams in (1, 64)] == [1, 64]
