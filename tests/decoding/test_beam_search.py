"""The search against its slow twin, and the laws that hold for every answer."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest
import torch

from compiler.token_automaton import UNREACHABLE, TokenAutomaton, from_table
from decoding.errors import (
    BudgetTooSmall,
    Cancelled,
    ModelOutputInvalid,
    OptionsInvalid,
    PromptTooLong,
    SearchExhausted,
    VocabularyMismatch,
)
from decoding.options import SearchOptions
from decoding.runs import Hypothesis, StepEvent, TextOf
from decoding.search import generate
from tests.decoding.random_automata import random_table
from tests.decoding.twins import MAKERS, MODELS
from tests.fakes import HashModel, PrefixModel, ScriptedModel
from tests.reference import Row, Settings, answers, beam_search

ALGORITHMS = ("abs", "banked")
CASES = {"table": 12, "factored": 12, "wide": 3}


def _options(random: np.random.Generator, automaton: TokenAutomaton, algorithm: str) -> SearchOptions:
    beams = int(random.integers(1, 9))
    return SearchOptions(
        max_tokens=automaton.min_tokens + int(random.integers(0, 6)),
        beams=beams,
        algorithm=algorithm,
        alpha_min=float(random.choice([0.0, 0.25, 0.5, 1.0])),
        gamma=float(random.choice([0.5, 1.0, 2.0, 3.7])),
        n=int(random.integers(1, beams + 1)),
        rank_by=str(random.choice(["score", "log_prob"])),
        length_penalty=float(random.choice([0.0, 0.0, 0.7])),
    )


def _settings(options: SearchOptions) -> Settings:
    return Settings(
        options.max_tokens, options.beams, options.algorithm, options.alpha_min, options.gamma, options.n,
        options.length_power,
    )


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("maker", CASES)
@pytest.mark.parametrize("kind", MODELS)
def test_every_beam_and_every_answer_equal_those_of_the_slow_twin_to_the_last_bit(
    kind: str, maker: str, algorithm: str
) -> None:
    for seed in range(CASES[maker]):
        random = np.random.default_rng([seed, *kind.encode()])
        automaton = MAKERS[maker](random)
        options = _options(random, automaton, algorithm)
        model = HashModel(automaton.vocabulary_size, automaton.eos_ids, seed=seed, **MODELS[kind])
        events: list[StepEvent] = []
        found = generate(model, (1, 2), automaton, options, on_step=events.append)
        twin = beam_search(
            lambda ids, m=model: m.log_probs((1, 2, *ids)).tolist(), automaton, _settings(options)
        )
        for event, rows in zip(events, twin, strict=False):
            padded = [
                row.tokens + (automaton.eos_ids[0],) * (event.step_number - len(row.tokens)) for row in event.rows
            ]
            assert padded == [row.ids for row in rows]
            assert [(row.score, row.log_prob, row.state) for row in event.rows] == [
                (row.score, row.log_prob, row.state) for row in rows
            ]
        assert _told(found) == _expected(twin, automaton, options)


def _told(found: Sequence[Hypothesis]) -> list[tuple[tuple[int, ...], float, float]]:
    return [(answer.tokens, answer.score, answer.log_prob) for answer in found]


def _expected(
    twin: Sequence[Sequence[Row]], automaton: TokenAutomaton, options: SearchOptions, text_of: TextOf | None = None
) -> list[tuple[tuple[int, ...], float, float]]:
    """The answers among the rows of the slow search: those of the last beam, or all that ever finished."""
    ended = twin[-1] if options.algorithm == "abs" else [row for rows in twin for row in rows]
    finished = [row for row in ended if automaton.distance[row.state] == 0]
    return answers(
        finished, automaton, n=options.n, rank_by=options.rank_by, length_penalty=options.length_power,
        text_of=text_of,
    )


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("kind", MODELS)
def test_every_answer_is_accepted_within_the_budget_and_all_are_distinct(kind: str, algorithm: str) -> None:
    for seed in range(25):
        random = np.random.default_rng([7, seed, *kind.encode()])
        automaton = random_table(random)
        options = _options(random, automaton, algorithm)
        model = HashModel(automaton.vocabulary_size, automaton.eos_ids, seed=seed, **MODELS[kind])
        found = generate(model, (0,), automaton, options)
        assert 1 <= len(found) <= options.n
        assert len({answer.tokens[:-1] for answer in found}) == len(found)
        for answer in found:
            state = automaton.start
            for token in answer.tokens:
                assert automaton.distance[state] != 0
                state = automaton.advance(state, token)
            assert automaton.distance[state] == 0
            assert len(answer.tokens) <= options.max_tokens


def test_answers_are_distinct_as_texts_when_the_caller_can_spell_them() -> None:
    pieces = [b"a", b"b", b"ab", b"ba", b"", b""]  # ids 4 and 5 are EOS
    automaton = from_table(np.zeros(6, dtype=np.int64), np.zeros((1, 1), dtype=np.int64), np.array([True]), 0, (4, 5))
    for seed in range(20):
        model = HashModel(6, (4, 5), seed=seed, levels=3)
        options = SearchOptions(max_tokens=4, beams=12, n=12, algorithm="abs")
        found = generate(model, (0,), automaton, options, text_of=lambda ids: b"".join(pieces[token] for token in ids))
        texts = [b"".join(pieces[token] for token in answer.tokens) for answer in found]
        assert len(set(texts)) == len(texts)
        plain = generate(model, (0,), automaton, options)
        assert len({b"".join(pieces[token] for token in answer.tokens) for answer in plain}) == len(texts)


def test_stopping_early_saves_work_and_changes_no_answer() -> None:
    """Against the twin, which runs to the end; the fast search must read fewer rows at least once."""
    pieces = [b"a", b"b", b"ab", b"ba", b"c", b""]
    automaton = from_table(
        np.array([0, 0, 0, 0, 1, 0]), np.array([[0, 1], [1, 1]]), np.array([False, True]), 0, (5,)
    )
    saved = 0
    for seed in range(40):
        model = HashModel(6, (5,), seed=seed, spread=3.0)
        for rank_by in ("score", "log_prob"):
            options = SearchOptions(9, 4, "abs", alpha_min=0.25, n=1 + seed % 3, rank_by=rank_by)
            steps: list[StepEvent] = []
            text_of = lambda ids: b"".join(pieces[token] for token in ids)  # noqa: E731
            found = generate(model, (), automaton, options, on_step=steps.append, text_of=text_of)
            twin = beam_search(model.log_probs, automaton, _settings(options))
            assert _told(found) == _expected(twin, automaton, options, text_of)
            saved += len(steps) < 9 and any(not row.finished for row in steps[-1].rows)
    assert saved > 10


def test_the_first_beam_has_no_equal_rows_and_finished_rows_are_not_read_again() -> None:
    automaton = from_table(np.zeros(9, dtype=np.int64), np.zeros((1, 1), dtype=np.int64), np.array([True]), 0, (8,))
    model = HashModel(9, (8,), seed=3)
    steps: list[StepEvent] = []
    generate(model, (0,), automaton, SearchOptions(max_tokens=5, beams=6, algorithm="abs"), on_step=steps.append)
    for event in steps:
        assert len({row.tokens for row in event.rows}) == len(event.rows) == 6
    live = sum(not row.finished for event in steps[:-1] for row in event.rows)
    assert model.rows_read == 1 + live


def test_a_finished_row_comes_before_a_live_one_that_ties_with_it_in_everything() -> None:
    """Else certain tokens, which cost exactly 0, could push an answer down after the search has stopped for it."""
    certain = {(0,) * length: {0: 1000.0} for length in range(1, 4)}
    model = ScriptedModel(3, (2,), {(): {0: 5.0, 2: 5.0}, **certain}, floor=-1000.0)
    steps: list[StepEvent] = []
    options = SearchOptions(max_tokens=4, beams=2, n=2, alpha_min=1.0, algorithm="abs")
    generate(model, (), _anything(3), options, on_step=steps.append)
    first, second = steps[1].rows
    assert (first.score, first.log_prob) == (second.score, second.log_prob)
    assert first.tokens == (2,)
    assert second.tokens[0] == 0


def test_the_least_budget_answers_and_one_less_is_refused_with_that_number() -> None:
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


def test_an_automaton_without_an_accepted_text_is_refused_before_the_first_token() -> None:
    automaton = from_table(np.zeros(4, dtype=np.int64), np.zeros((1, 1), dtype=np.int64), np.array([False]), 0, (3,))
    assert automaton.min_tokens == UNREACHABLE
    with pytest.raises(BudgetTooSmall) as refusal:
        generate(HashModel(4, (3,)), (0,), automaton, SearchOptions(max_tokens=100))
    assert refusal.value.min_tokens is None


def test_an_automaton_whose_distances_count_a_column_that_no_id_reads_is_our_fault_not_an_empty_answer() -> None:
    honest = from_table(np.array([0, 1, 0, 0]), np.array([[0, 1], [1, 1]]), np.array([False, True]), 0, (3,))
    automaton = dataclasses.replace(honest, token_class=np.array([0, 0, 0, 2], dtype=np.int32))
    assert automaton.min_tokens == 2
    with pytest.raises(SearchExhausted):
        generate(HashModel(4, (3,)), (0,), automaton, SearchOptions(max_tokens=2))


def _anything(size: int) -> TokenAutomaton:
    zeros = np.zeros(size, dtype=np.int64)
    return from_table(zeros, np.zeros((1, 1), dtype=np.int64), np.array([True]), 0, (size - 1,))


def test_prompt_and_budget_may_fill_the_context_but_not_pass_it() -> None:
    model = HashModel(5, (4,), context_length=8)
    assert generate(model, (0, 1, 2), _anything(5), SearchOptions(max_tokens=6, beams=2))
    with pytest.raises(PromptTooLong) as refusal:
        generate(model, (0, 1, 2), _anything(5), SearchOptions(max_tokens=7, beams=2))
    assert (refusal.value.prompt_tokens, refusal.value.max_tokens, refusal.value.context_length) == (3, 7, 8)


def test_an_automaton_for_another_vocabulary_is_refused() -> None:
    with pytest.raises(VocabularyMismatch):
        generate(HashModel(6, (4,)), (0,), _anything(5), SearchOptions(max_tokens=3))


def test_a_cancelled_generation_stops_before_its_next_step() -> None:
    steps: list[StepEvent] = []
    with pytest.raises(Cancelled):
        generate(
            HashModel(50, (49,)), (0,), _anything(50), SearchOptions(max_tokens=9, beams=4), on_step=steps.append,
            cancelled=lambda: len(steps) == 2,
        )
    assert len(steps) == 2


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_model_that_answers_with_no_number_is_named_as_the_fault(bad: float) -> None:
    class Broken(PrefixModel):
        def log_probs(self, prefix: tuple[int, ...]) -> torch.Tensor:
            row = torch.full((5,), -1.0)
            row[2] = bad if len(prefix) > 1 else -1.0
            return row

    with pytest.raises(ModelOutputInvalid):
        generate(Broken(5, (4,)), (0,), _anything(5), SearchOptions(max_tokens=5, beams=3))


def test_a_model_without_any_possible_token_is_named_as_the_fault() -> None:
    class Silent(PrefixModel):
        def log_probs(self, prefix: tuple[int, ...]) -> torch.Tensor:
            return torch.full((5,), float("-inf"))

    with pytest.raises(ModelOutputInvalid):
        generate(Silent(5, (4,)), (0,), _anything(5), SearchOptions(max_tokens=5, beams=3))


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
    ],
)
def test_an_option_out_of_its_range_is_refused_by_name(field: str, options: dict[str, object]) -> None:
    with pytest.raises(OptionsInvalid) as refusal:
        SearchOptions(**{"max_tokens": 5, **options})
    assert refusal.value.field == field
