"""The replayed trace: honest answers pass, and every forged one is refused.

Forged tokens come with their true sums, so that only the checks of the states can find them; the error message
says which check did.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf, nan

import numpy as np
import pytest

from compiler.lifting import TokenAutomaton, from_table
from decoding.errors import ReplayRejected
from decoding.generation import Hypothesis
from decoding.model import ScoredSequence
from decoding.options import SearchOptions, push_up, pushed
from decoding.replay import replay
from decoding.search import generate
from tests.decoding.random_automata import random_table
from tests.fake_models import HashModel, ScriptedModel

A, B, OTHER, EOS = range(4)
OPTIONS = SearchOptions(max_tokens=6, beams=3, algorithm="abs", alpha_min=0.25)
TOLERANCE = 1e-4


def _a_then_b() -> TokenAutomaton:
    """"a", later "b"; b before a is dead."""
    return from_table(
        np.array([0, 1, 2, 2]), np.array([[1, 3, 0], [1, 2, 1], [2, 2, 2], [3, 3, 3]]),
        np.array([False, False, True, False]), 0, eos_ids=(EOS,),
    )


def _model() -> HashModel:
    return HashModel(4, (EOS,), seed=5)


def _claim(
    automaton: TokenAutomaton, tokens: tuple[int, ...], options: SearchOptions = OPTIONS
) -> tuple[Hypothesis, ScoredSequence]:
    """A hypothesis of arbitrary tokens with their true sums and model scores."""
    model_scores = _model().score((), tokens)
    distance = automaton.distance.tolist()
    score, state = 0.0, automaton.start
    columns = zip(tokens, model_scores.log_probs, model_scores.max_log_probs, strict=True)
    for index, (token, token_log_prob, peak) in enumerate(columns):
        source, state = state, automaton.advance(state, token)
        alpha = push_up(distance[source], options.max_tokens - index, options.alpha_min, options.gamma)
        score += pushed(token_log_prob, peak, alpha) if distance[state] < distance[source] else token_log_prob
    return Hypothesis(tokens=tokens, score=score, log_prob=sum(model_scores.log_probs)), model_scores


def test_a_replayed_trace_adds_up_to_the_answers_scores() -> None:
    for seed in range(60):
        random = np.random.default_rng(seed)
        automaton = random_table(random)
        model = HashModel(automaton.vocabulary_size, automaton.eos_ids, seed=seed, zeros=0.3 * (seed % 2))
        budget = automaton.min_tokens + seed % 5
        options = SearchOptions(max_tokens=budget, beams=4, n=2, algorithm="abs", alpha_min=0.3, gamma=1.7)
        for answer in generate(model, (1,), automaton, options):
            trace = replay(automaton, answer, model.score((1,), answer.tokens), options, tolerance=model.tolerance)
            assert [step.token for step in trace] == list(answer.tokens)
            assert sum(step.score for step in trace) == pytest.approx(answer.score)
            assert sum(step.log_prob for step in trace) == pytest.approx(answer.log_prob)
            assert trace[-1].distance == 0
            assert [step.budget_before for step in trace] == [options.max_tokens - t for t in range(len(trace))]


def test_a_step_scores_the_push_only_when_it_comes_closer() -> None:
    logits = {(): {OTHER: 2.0}, (OTHER,): {A: 1.0, OTHER: 2.0}, (OTHER, A): {B: 3.0}, (OTHER, A, B): {EOS: 3.0}}
    model = ScriptedModel(4, (EOS,), logits, floor=0.0)
    ids = (OTHER, A, B, EOS)
    model_scores = model.score((), ids)
    z, peak = model_scores.log_probs, model_scores.max_log_probs
    alphas = [0.25 + 0.75 * 3 / 4, 1.0, 1.0, 1.0]
    score = z[0] + peak[1] + peak[2] + peak[3]
    options = replace(OPTIONS, max_tokens=4)
    trace = replay(
        _a_then_b(), Hypothesis(tokens=ids, score=score, log_prob=sum(z)), model_scores, options, tolerance=1e-6
    )
    assert [step.distance for step in trace] == [3, 2, 1, 0]
    assert [step.alpha for step in trace] == pytest.approx(alphas)
    assert [step.score for step in trace] == pytest.approx([z[0], peak[1], peak[2], peak[3]])
    assert [step.log_prob for step in trace] == pytest.approx(list(z))


@pytest.mark.parametrize("max_tokens", [3, 4, 6])
def test_replayed_sums_equal_those_of_the_search(max_tokens: int) -> None:
    options = replace(OPTIONS, max_tokens=max_tokens, n=3)
    for answer in generate(_model(), (), _a_then_b(), options):
        hypothesis, _ = _claim(_a_then_b(), answer.tokens, options)
        assert hypothesis.score == pytest.approx(answer.score)
        assert hypothesis.log_prob == pytest.approx(answer.log_prob)


@pytest.mark.parametrize("tokens", [(A, B, EOS), (A, A, OTHER, B, EOS), (OTHER, OTHER, OTHER, A, B, EOS)])
def test_any_accepted_tokens_within_the_budget_replay(tokens: tuple[int, ...]) -> None:
    hypothesis, model_scores = _claim(_a_then_b(), tokens)
    assert [step.token for step in replay(_a_then_b(), hypothesis, model_scores, OPTIONS, tolerance=TOLERANCE)] == list(
        tokens
    )


LIES: dict[str, tuple[tuple[int, ...], str]] = {
    "no tokens": ((), "the answer stops 3 tokens short of acceptance"),
    "no end": ((A, B), "the answer stops 1 tokens short of acceptance"),
    "a forbidden token": ((B, A, B, EOS), "token 0 leads to the dead state"),
    "an early end": ((A, EOS), "token 1 leads to the dead state"),
    "a second end": ((A, B, EOS, EOS), "token 3 follows the end of the text"),
    "a token after the end": ((A, B, EOS, A), "token 3 follows the end of the text"),
    "no progress in time": ((OTHER,) * 4 + (A, B), "after token 3 acceptance is 3 tokens away, with 2 left"),
}


@pytest.mark.parametrize("fault", LIES)
def test_invalid_tokens_with_correct_sums_are_rejected(fault: str) -> None:
    tokens, words = LIES[fault]
    hypothesis, model_scores = _claim(_a_then_b(), tokens)
    with pytest.raises(ReplayRejected, match=words):
        replay(_a_then_b(), hypothesis, model_scores, OPTIONS, tolerance=TOLERANCE)


def test_an_answer_over_budget_with_correct_sums_is_rejected() -> None:
    options = replace(OPTIONS, max_tokens=4, alpha_min=1.0)  # at full push the sums are the same under any budget
    hypothesis, model_scores = _claim(_a_then_b(), (OTHER, A, B, EOS), options)
    assert replay(_a_then_b(), hypothesis, model_scores, options, tolerance=TOLERANCE)
    with pytest.raises(ReplayRejected, match="the answer has 4 tokens, the budget is 3"):
        replay(_a_then_b(), hypothesis, model_scores, replace(options, max_tokens=3), tolerance=TOLERANCE)


def test_a_trace_that_exceeds_its_remaining_budget_is_rejected() -> None:
    """Such a trace shows that the search pruned by wrong distances. The next answer may not arrive in time."""
    automaton = _a_then_b()
    distance = automaton.distance.copy()
    distance[automaton.advance(automaton.start, A)] = OPTIONS.max_tokens
    wrong = replace(automaton, distance=distance)
    hypothesis, model_scores = _claim(wrong, (A, B, EOS))
    with pytest.raises(ReplayRejected, match="after token 0 acceptance is 6 tokens away, with 5 left"):
        replay(wrong, hypothesis, model_scores, OPTIONS, tolerance=TOLERANCE)


@pytest.mark.parametrize("error", [0.5, -0.5, inf, -inf, nan])
@pytest.mark.parametrize(("field", "words"), [("log_prob", "the log-probs"), ("score", "the scores")])
def test_a_wrong_sum_of_a_true_answer_is_rejected(field: str, words: str, error: float) -> None:
    hypothesis, model_scores = _claim(_a_then_b(), (A, B, EOS))
    wrong = replace(hypothesis, **{field: getattr(hypothesis, field) + error})
    with pytest.raises(ReplayRejected, match=f"{words} of the tokens add up to"):
        replay(_a_then_b(), wrong, model_scores, OPTIONS, tolerance=TOLERANCE)


@pytest.mark.parametrize("sign", [1, -1])
def test_sums_are_accepted_within_the_tolerance_per_token(sign: int) -> None:
    hypothesis, model_scores = _claim(_a_then_b(), (A, B, EOS))
    near, far = sign * 2.9 * TOLERANCE, sign * 3.1 * TOLERANCE
    accepted_answer = replace(hypothesis, score=hypothesis.score + near, log_prob=hypothesis.log_prob - near)
    assert replay(_a_then_b(), accepted_answer, model_scores, OPTIONS, tolerance=TOLERANCE)
    for wrong_answer in (
        replace(hypothesis, score=hypothesis.score + far),
        replace(hypothesis, log_prob=hypothesis.log_prob + far),
    ):
        with pytest.raises(ReplayRejected, match="of the tokens add up to"):
            replay(_a_then_b(), wrong_answer, model_scores, OPTIONS, tolerance=TOLERANCE)


@pytest.mark.parametrize(("log_probs", "peaks"), [(2, 2), (4, 4), (2, 3), (4, 3), (3, 2), (3, 4)])
def test_an_answer_with_missing_token_scores_is_rejected(log_probs: int, peaks: int) -> None:
    hypothesis, model_scores = _claim(_a_then_b(), (A, B, EOS))
    z, best = (*model_scores.log_probs, -1.0), (*model_scores.max_log_probs, -1.0)
    with pytest.raises(ReplayRejected, match="3 tokens were rescored as"):
        replay(_a_then_b(), hypothesis, ScoredSequence(z[:log_probs], best[:peaks]), OPTIONS, tolerance=TOLERANCE)
