"""The search that learns on its way: against its twin, in a crowd, and what it has learned."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from compiler.token_automaton import UNREACHABLE, TokenAutomaton, from_table
from decoding import estimate, lessons
from decoding.constraint import Constraint
from decoding.engine import Engine
from decoding.estimate import Prior, class_costs, corrected, cost_to_go
from decoding.forced import FREE
from decoding.options import SearchOptions
from decoding.runs import Hypothesis, StepEvent
from decoding.search import BeamSearch, drive, generate
from tests.decoding.random_automata import random_factored, random_table
from tests.decoding.test_estimate import cheapest
from tests.decoding.twins import CPU, MAKERS, MODELS
from tests.fakes import HashModel, ScriptedModel
from tests.reference import Row, Settings, answers, beam_search


def _case(seed: int, kind: str, maker: str = "factored") -> tuple[HashModel, Constraint, SearchOptions]:
    random = np.random.default_rng([seed, *kind.encode()])
    automaton: TokenAutomaton = MAKERS[maker](random)
    prior = torch.from_numpy(random.normal(scale=3.0, size=automaton.vocabulary_size)).log_softmax(dim=0)
    beams = int(random.integers(1, 9))
    options = SearchOptions(
        automaton.min_tokens + int(random.integers(0, 6)), beams, n=int(random.integers(1, beams + 1)),
        length_penalty=float(random.choice([0.0, 0.5])),
    )
    model = HashModel(automaton.vocabulary_size, automaton.eos_ids, seed=seed, **MODELS[kind])
    return model, Constraint.prepare(automaton, CPU, prior=Prior.of_tokens(prior)), options


@pytest.mark.parametrize("maker", ["table", "factored"])
@pytest.mark.parametrize("kind", MODELS)
def test_what_is_told_and_answered_is_the_twins(kind: str, maker: str) -> None:
    for seed in range(10):
        model, constraint, options = _case(seed, kind, maker)
        automaton = constraint.automaton
        assert constraint.estimate is not None and constraint.class_cost is not None
        events: list[StepEvent] = []
        found = generate(model, (1, 2), constraint, options, on_step=events.append)
        twin = beam_search(
            lambda ids, m=model: m.log_probs((1, 2, *ids)).tolist(), automaton,
            Settings(
                options.max_tokens, options.beams, "banked", n=options.n, length_penalty=options.length_penalty,
                estimate=constraint.estimate.tolist(), class_cost=constraint.class_cost.tolist(),
            ),
        )
        assert [event.step_number for event in events] == list(range(1, len(events) + 1))
        for event, rows in zip(events, twin, strict=False):
            assert [(row.tokens, row.state, row.score, row.log_prob) for row in event.rows] == [
                (row.ids, row.state, row.score, row.log_prob) for row in rows
            ]
        assert all(not rows for rows in twin[len(events) :])
        assert _told(found) == _expected([row for rows in twin for row in rows], automaton, options)


def _told(found: tuple[Hypothesis, ...]) -> list[tuple[tuple[int, ...], float, float]]:
    return [(answer.tokens, answer.score, answer.log_prob) for answer in found]


def _expected(
    rows: list[Row], automaton: TokenAutomaton, options: SearchOptions
) -> list[tuple[tuple[int, ...], float, float]]:
    finished = [row for row in rows if automaton.distance[row.state] == 0]
    return answers(finished, automaton, n=options.n, length_penalty=options.length_penalty)


def test_a_crowd_in_which_all_learn_gives_the_answers_of_each_alone() -> None:
    _, constraint, _ = _case(4, "smooth")
    size, eos_ids = constraint.automaton.vocabulary_size, constraint.automaton.eos_ids
    model, least = HashModel(size, eos_ids, seed=4), constraint.automaton.min_tokens
    orders = [(SearchOptions(least + at % 7, 1 + at % 5), (at,)) for at in range(24)]

    def ask(engine: Engine, options: SearchOptions, prompt: tuple[int, ...]) -> tuple[Hypothesis, ...]:
        return engine.generate(lambda: BeamSearch(constraint, options), prompt, options.beams, options.max_tokens)

    with Engine(model, 10**9) as engine, ThreadPoolExecutor(len(orders)) as callers:
        together = [one.result() for one in [callers.submit(ask, engine, *order) for order in orders]]
    model = HashModel(size, eos_ids, seed=4)
    alone = [drive(model, prompt, BeamSearch(constraint, options)) for options, prompt in orders]
    assert together == alone


def _two_ways() -> TokenAutomaton:
    """Texts 0 2 2 ... 2 EOS or 1 3 EOS: five tokens after 0, one after 1. EOS is id 4."""
    table = np.full((9, 5), 8)
    table[0, 0], table[0, 1] = 1, 6
    for state in range(1, 5):
        table[state, 2] = state + 1
    table[6, 3] = 5
    return from_table(np.array([0, 1, 2, 3, 4]), table, np.arange(9) == 5, 0, (4,))


def test_a_search_knows_what_it_has_seen() -> None:
    """After 0 token 2 is certain, though dear at large."""
    automaton = _two_ways()
    certain = {(0,) + (2,) * times: {2: 40.0} for times in range(4)} | {(0, 2, 2, 2, 2): {4: 40.0}}
    model = ScriptedModel(5, (4,), {(): {0: 1.0, 1: 1.1}, (1,): {2: 3.0}, (1, 3): {2: 2.0}, **certain})
    prior = torch.tensor([-1.0, -1.0, -3.0, -2.0, -2.0], dtype=torch.float64)
    constraint = Constraint.prepare(automaton, CPU, prior=Prior.of_tokens(prior))
    run = BeamSearch(constraint, SearchOptions(8, 2))
    (answer,) = drive(model, (), run)
    assert answer.tokens == (0, 2, 2, 2, 2, 4)
    price, state = run._plan.estimates(), automaton.advance(automaton.start, 0)
    for _ in range(4):
        after = automaton.advance(state, 2)
        assert price[state] - price[after] == pytest.approx(1.5)  # the mean of the prior's 3 and of 0
        state = after


def test_estimates_are_made_ever_more_seldom_and_where_some_row_may_choose() -> None:
    _, constraint, _ = _case(6, "smooth")
    assert constraint.class_cost is not None and constraint.estimate is not None
    tables, prior = constraint.tables.for_search(), constraint.estimate.numpy()
    learned = lessons.Lessons(constraint.automaton, tables, constraint.class_cost, prior)
    states = np.array([constraint.automaton.start])
    leader = tables.best_of_chunks(torch.full((1, constraint.automaton.vocabulary_size), -0.5))
    made = []
    for at in range(1, 40):
        learned.learn(states, leader, np.array([1 if at in (1, 13) else FREE]))
        if learned.estimate(at) is not None:
            made.append(at)
    assert made == [2, 3, 4, 6, 9, 14, 21, 31]


def test_corrected_costs_are_the_cheapest_ways_by_the_new_costs() -> None:
    random = np.random.default_rng(3)
    for _ in range(60):
        automaton = random_table(random)  # all of whose states are between characters
        prior = torch.from_numpy(random.normal(scale=3.0, size=automaton.vocabulary_size)).log_softmax(dim=0)
        other = torch.from_numpy(random.normal(scale=3.0, size=automaton.vocabulary_size)).log_softmax(dim=0)
        before = cost_to_go(automaton, prior)
        assert before is not None
        cost = np.tile(class_costs(automaton, other)[: automaton.edge_outer.shape[1]], (len(automaton.edge_outer), 1))
        wanted = [one if one != float("inf") else 0.0 for one in cheapest(automaton, other.tolist())]
        np.testing.assert_allclose(corrected(automaton, cost, before.numpy()), wanted, rtol=1e-12, atol=1e-12)


def test_where_correcting_would_take_too_long_the_prior_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    automaton = random_factored(np.random.default_rng(5))
    before = cost_to_go(automaton, torch.zeros(automaton.vocabulary_size, dtype=torch.float64) - 1.0)
    assert before is not None
    monkeypatch.setattr(estimate, "_CORRECTING_WORK_MAX", -1)
    after = corrected(automaton, np.full(automaton.edge_outer.shape, 3.0), before.numpy())
    assert (after[automaton.distance != UNREACHABLE] == before.numpy()[automaton.distance != UNREACHABLE]).all()


def test_of_a_large_automaton_and_without_a_prior_nothing_is_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    options = SearchOptions(8, 4)
    prior = Prior.of_tokens(torch.full((5,), -1.6, dtype=torch.float64))
    constraint = Constraint.prepare(_two_ways(), CPU, prior=prior)
    assert BeamSearch(constraint, options)._lessons is not None
    assert BeamSearch(Constraint.prepare(_two_ways(), CPU), options)._lessons is None
    assert BeamSearch(constraint, SearchOptions(8, 4, "abs"))._lessons is None
    monkeypatch.setattr(lessons, "_CELLS_MAX", 1)
    assert BeamSearch(constraint, options)._lessons is None


def test_rows_that_are_told_what_to_write_teach_nothing() -> None:
    _, constraint, _ = _case(6, "smooth")
    assert constraint.class_cost is not None and constraint.estimate is not None
    tables, before = constraint.tables.for_search(), constraint.estimate.numpy()
    learned = lessons.Lessons(constraint.automaton, tables, constraint.class_cost, before)
    states = np.array([constraint.automaton.start] * 2)
    leader = tables.best_of_chunks(torch.full((2, constraint.automaton.vocabulary_size), -0.5))
    learned.learn(states, leader, np.array([1, 2]))
    assert learned.estimate(1) is None
    assert not learned._count.any() and not learned._total.any()
    learned.learn(states, leader, np.array([FREE, 2]))
    after = learned.estimate(1)
    assert after is not None and not np.allclose(after, before)
    assert learned._count.sum() == 1
