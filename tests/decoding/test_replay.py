"""The replayed trace: what an honest answer shows, and every lie that is found out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from compiler.token_automaton import TokenAutomaton, from_table
from decoding.errors import ReplayRejected
from decoding.model import Rescored
from decoding.search import Hypothesis, SearchOptions, generate
from decoding.trace import replay
from tests.decoding.random_automata import random_table
from tests.fakes import HashModel, ScriptedModel

A, B, OTHER, EOS = range(4)
OPTIONS = SearchOptions(max_tokens=6, beams=3, alpha_min=0.25)


def _a_then_b() -> TokenAutomaton:
    """"a", later "b"; b before a is dead."""
    return from_table(
        np.array([0, 1, 2, 2]), np.array([[1, 3, 0], [1, 2, 1], [2, 2, 2], [3, 3, 3]]),
        np.array([False, False, True, False]), 0, (EOS,),
    )


def _honest() -> tuple[TokenAutomaton, Hypothesis, Rescored]:
    model = HashModel(4, (EOS,), seed=5)
    (answer,) = generate(model, (0,), _a_then_b(), OPTIONS)
    return _a_then_b(), answer, model.score((0,), answer.tokens)


def test_an_honest_answer_replays_and_its_steps_add_up_to_its_sums() -> None:
    for seed in range(60):
        random = np.random.default_rng(seed)
        automaton = random_table(random)
        model = HashModel(automaton.vocabulary_size, automaton.eos_ids, seed=seed, zeros=0.3 * (seed % 2))
        options = SearchOptions(max_tokens=automaton.min_tokens + seed % 5, beams=4, n=2, alpha_min=0.3, gamma=1.7)
        for answer in generate(model, (1,), automaton, options):
            trace = replay(automaton, answer, model.score((1,), answer.tokens), options, model.tolerance)
            assert [step.token for step in trace] == list(answer.tokens)
            assert sum(step.score for step in trace) == pytest.approx(answer.score)
            assert sum(step.log_prob for step in trace) == pytest.approx(answer.log_prob)
            assert trace[-1].distance == 0
            assert [step.budget_before for step in trace] == [options.max_tokens - t for t in range(len(trace))]


def test_a_step_shows_its_push_where_it_came_closer_and_the_plain_log_prob_where_it_did_not() -> None:
    logits = {(): {OTHER: 2.0}, (OTHER,): {A: 1.0, OTHER: 2.0}, (OTHER, A): {B: 3.0}, (OTHER, A, B): {EOS: 3.0}}
    model = ScriptedModel(4, (EOS,), logits, floor=0.0)
    ids = (OTHER, A, B, EOS)
    rescored = model.score((), ids)
    z, peak = rescored.log_probs, rescored.peaks
    alphas = [0.25 + 0.75 * 3 / 4, 1.0, 1.0, 1.0]
    score = z[0] + peak[1] + peak[2] + peak[3]
    options = replace(OPTIONS, max_tokens=4)
    trace = replay(_a_then_b(), Hypothesis(ids, score, sum(z)), rescored, options, 1e-6)
    assert [step.distance for step in trace] == [3, 2, 1, 0]
    assert [step.alpha for step in trace] == pytest.approx(alphas)
    assert [step.score for step in trace] == pytest.approx([z[0], peak[1], peak[2], peak[3]])
    assert [step.log_prob for step in trace] == pytest.approx(list(z))


LIES: dict[str, Callable[[Hypothesis], Hypothesis]] = {
    "a better log-prob": lambda told: replace(told, log_prob=told.log_prob + 0.5),
    "a better score": lambda told: replace(told, score=told.score + 0.5),
    "no number": lambda told: replace(told, score=float("nan")),
    "no end": lambda told: replace(told, tokens=told.tokens[:-1]),
    "a forbidden token": lambda told: replace(told, tokens=(B, *told.tokens[1:])),
    "a token after the end": lambda told: replace(told, tokens=(*told.tokens, EOS)),
    "an early end": lambda told: replace(told, tokens=(EOS, *told.tokens[1:])),
    "no progress in time": lambda told: replace(told, tokens=(OTHER, OTHER, OTHER, OTHER, A, B)),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_rejected(lie: str) -> None:
    automaton, answer, _ = _honest()
    told = LIES[lie](answer)
    rescored = HashModel(4, (EOS,), seed=5).score((0,), told.tokens)
    with pytest.raises(ReplayRejected):
        replay(automaton, told, rescored, OPTIONS, 1e-4)


def test_an_answer_over_its_budget_or_rescored_in_part_is_rejected() -> None:
    automaton, answer, rescored = _honest()
    assert replay(automaton, answer, rescored, OPTIONS, 1e-4)
    with pytest.raises(ReplayRejected):
        replay(automaton, answer, rescored, replace(OPTIONS, max_tokens=len(answer.tokens) - 1), 1e-4)
    with pytest.raises(ReplayRejected):
        replay(automaton, answer, Rescored(rescored.log_probs[:-1], rescored.peaks[:-1]), OPTIONS, 1e-4)


def test_an_answer_that_was_ever_too_far_from_acceptance_is_rejected_though_it_arrives() -> None:
    """Then the distances that the search pruned by are wrong, and the next answer may not arrive."""
    automaton, answer, rescored = _honest()
    distance = automaton.distance.copy()
    distance[automaton.advance(automaton.start, answer.tokens[0])] += OPTIONS.max_tokens
    with pytest.raises(ReplayRejected, match="left"):
        replay(replace(automaton, distance=distance), answer, rescored, OPTIONS, 1e-4)
