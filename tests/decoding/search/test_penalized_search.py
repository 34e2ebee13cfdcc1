"""A search with biases and penalties against all changed texts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from compiler.lifting import TokenAutomaton
from decoding.errors import ModelOutputInvalid
from decoding.options import SearchOptions
from decoding.penalties import PenalizedScores, Penalties
from decoding.replay import replay
from decoding.search import generate
from tests.decoding.random_automata import random_table
from tests.decoding.test_sampling import CPU, PROMPT, even_number_of_b
from tests.fake_models import HashModel, PrefixModel

Text = tuple[int, ...]
CHOICES: list[dict[str, Any]] = [
    {"frequency_penalty": 1.5}, {"presence_penalty": -2.0}, {"presence_penalty": 2.0}, {"repetition_penalty": 3.0},
    {"repetition_penalty": 0.2}, {"logit_bias": {1: -100.0, 3: 4.0}}, {"logit_bias": {0: 2.5}},
    {"frequency_penalty": -1.0, "presence_penalty": 0.5, "repetition_penalty": 1.3, "logit_bias": {2: -1.0, 0: 1.0}},
]  # fmt: skip


def slow_log_probs(model: PrefixModel, text: Text, options: SearchOptions) -> list[float]:
    """The changed model's log-probs after a text, in plain Python."""
    changed = []
    for token, log_prob in enumerate(model.log_probs((*PROMPT, *text)).tolist()):
        count = text.count(token)
        value = max(log_prob, -1e4) * (options.repetition_penalty if count or token in PROMPT else 1.0)
        value -= options.frequency_penalty * count + options.presence_penalty * (count > 0)
        changed.append(value + options.logit_bias.get(token, 0.0))
    best = max(changed)
    total = best + math.log(sum(math.exp(value - best) for value in changed))
    return [value - total for value in changed]


def all_texts(model: PrefixModel, automaton: TokenAutomaton, options: SearchOptions) -> dict[Text, float]:
    """The changed model's log-prob of each text within the budget."""
    finished, open_texts = dict[Text, float](), [((), automaton.start, 0.0)]
    while open_texts:
        text, state, total = open_texts.pop()
        budget_after = options.max_tokens - len(text) - 1
        for token, log_prob in enumerate(slow_log_probs(model, text, options)):
            target = automaton.advance(state, token)
            if automaton.distance[target] == 0:
                finished[*text, token] = total + log_prob
            elif automaton.distance[target] <= budget_after:
                open_texts.append(((*text, token), target, total + log_prob))
    return finished


def value(log_prob: float, text: Text, options: SearchOptions) -> float:
    return log_prob / len(text) ** options.length_power


@pytest.mark.parametrize("algorithm", ["banked", "abs"])
@pytest.mark.parametrize("choice", CHOICES, ids=str)
def test_a_wide_search_finds_the_best_changed_text(choice: dict[str, Any], algorithm: Any) -> None:
    for seed in range(2):
        model, automaton = HashModel(4, (2, 3), seed=seed), even_number_of_b()
        more = {"alpha_min": 0.0, "gamma": 50.0} if algorithm == "abs" else {}  # pushes nothing until the last tokens
        options = SearchOptions(5, beams=400, n=3, algorithm=algorithm, **more, **choice)
        texts = all_texts(model, automaton, options)
        ranked = sorted(texts, key=lambda text: -value(texts[text], text, options))
        distinct = dict[Text, Text]()
        for text in ranked:
            distinct.setdefault(text[:-1], text)  # whatever EOS ends it
        ranked = list(distinct.values())
        answers = generate(model, PROMPT, automaton, options)
        found = [value(answer.log_prob, answer.tokens, options) for answer in answers]
        assert found == pytest.approx([value(texts[text], text, options) for text in ranked[:3]], abs=1e-4)
        assert [answer.log_prob for answer in answers] == pytest.approx([texts[a.tokens] for a in answers], abs=1e-4)


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.sample(16)
def test_a_narrow_search_satisfies_and_its_gap_holds(seed: int) -> None:
    random = np.random.default_rng(seed)
    automaton = random_table(random, ids=6)
    model = HashModel(6, automaton.eos_ids, seed=seed, zeros=0.3 if seed % 3 else 0.0)
    options = SearchOptions(automaton.min_tokens + seed % 4, beams=1 + seed % 3, **CHOICES[seed % len(CHOICES)])
    texts = all_texts(model, automaton, options)
    (answer,) = generate(model, PROMPT, automaton, options)
    assert answer.log_prob == pytest.approx(texts[answer.tokens], rel=1e-5, abs=1e-4)
    best = max(value(log_prob, text, options) for text, log_prob in texts.items())
    assert answer.proven_gap is not None
    assert best - value(answer.log_prob, answer.tokens, options) <= answer.proven_gap + 1e-4 * max(1.0, abs(best))


@pytest.mark.parametrize("choice", CHOICES, ids=str)
def test_an_answer_replays_in_the_changed_model(choice: dict[str, Any]) -> None:
    model, automaton = HashModel(4, (2, 3), seed=2), even_number_of_b()
    options = SearchOptions(6, beams=3, **choice)
    (answer,) = generate(model, PROMPT, automaton, options)
    penalties = Penalties.of_options(options, PROMPT, 4, CPU)
    assert penalties is not None
    scores = PenalizedScores(penalties, answer.tokens)
    model.score(PROMPT, answer.tokens, scores)
    steps = replay(automaton, answer, scores.scored, options, tolerance=1e-4)
    assert sum(step.log_prob for step in steps) == pytest.approx(answer.log_prob, abs=1e-4)


def test_options_without_effect_change_nothing() -> None:
    model, automaton = HashModel(4, (2, 3), seed=2), even_number_of_b()
    neutral = {"frequency_penalty": 0.0, "presence_penalty": 0.0, "repetition_penalty": 1.0, "logit_bias": {}}
    options = SearchOptions(6, **neutral), SearchOptions(6)
    first, second = (generate(model, PROMPT, automaton, each) for each in options)
    assert first == second


def test_a_row_without_a_finite_log_prob_is_an_error() -> None:
    class Broken(HashModel):
        def log_probs(self, prefix: tuple[int, ...]) -> torch.Tensor:
            return torch.full((4,), -math.inf)

    with pytest.raises(ModelOutputInvalid):
        generate(Broken(4, (2, 3)), PROMPT, even_number_of_b(), SearchOptions(6, presence_penalty=1.0))
