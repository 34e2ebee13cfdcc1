"""Biases, penalties and truncations change the masked model as defined."""

from __future__ import annotations

import math
from collections import Counter
from itertools import accumulate
from typing import Any

import numpy as np
import pytest
import torch

from compiler.lifting import TokenAutomaton
from decoding.errors import OptionsInvalid
from decoding.generation import Hypothesis
from decoding.penalties import most_probable
from decoding.prepared_constraint import PreparedConstraint
from decoding.sampling import Sampling, SamplingOptions
from decoding.search import drive
from tests.decoding.random_automata import random_factored, random_table
from tests.decoding.test_sampling import CPU, PROMPT, Remembering, chi_square_deviation, even_number_of_b
from tests.fake_models import HashModel, PrefixModel

Text = tuple[int, ...]
CHOICES: list[dict[str, Any]] = [
    {"top_k": 1}, {"top_k": 2, "temperature": 2.0}, {"top_k": -1}, {"min_p": 0.4}, {"min_p": 1.0},
    {"frequency_penalty": 1.5}, {"presence_penalty": -2.0}, {"repetition_penalty": 3.0}, {"repetition_penalty": 0.2},
    {"logit_bias": {1: -100.0, 3: 4.0}}, {"logit_bias": {0: 2.5}, "temperature": 0.0},
    {"presence_penalty": 2.0, "temperature": 0.0},
    {"top_k": 3, "min_p": 0.1, "top_p": 0.8, "temperature": 1.7, "frequency_penalty": -1.0, "presence_penalty": 0.5,
     "repetition_penalty": 1.3, "logit_bias": {2: -1.0, 0: 1.0}},
]  # fmt: skip


def sample(model: PrefixModel, automaton: TokenAutomaton, options: SamplingOptions) -> tuple[Hypothesis, ...]:
    run = Sampling(PreparedConstraint.prepare(automaton, CPU), options, prompt_ids=PROMPT)
    return drive(model, PROMPT, run)


def slow_distribution(
    log_probs: list[float], allowed: list[int], text: Text, options: SamplingOptions
) -> dict[int, float]:
    """The distribution of the next token, in plain Python."""
    changed = {}
    for token in allowed:
        value, count = max(log_probs[token], -1e4), text.count(token)
        value *= options.repetition_penalty if count or token in PROMPT else 1.0
        value -= options.frequency_penalty * count + options.presence_penalty * (count > 0)
        changed[token] = value + options.logit_bias.get(token, 0.0)
    ranked = sorted(allowed, key=lambda token: (-changed[token], token))
    if options.temperature == 0.0:
        return {ranked[0]: 1.0}
    best = changed[ranked[0]]
    weights = {token: math.exp((changed[token] - best) / options.temperature) for token in ranked}
    kept = ranked[: options.top_k] if options.top_k > 0 else ranked
    kept = [token for token in kept if weights[token] >= options.min_p]
    total, nucleus, mass = sum(weights[token] for token in kept), dict[int, float](), 0.0
    for token in kept:
        if mass < options.top_p * total:
            nucleus[token] = weights[token]
        mass += weights[token]
    return {token: weight / sum(nucleus.values()) for token, weight in nucleus.items()}


def probability(model: PrefixModel, automaton: TokenAutomaton, options: SamplingOptions, text: Text) -> float:
    """The probability of a text, token by token."""
    state, result = automaton.start, 1.0
    for position, token in enumerate(text):
        targets = {each: automaton.advance(state, each) for each in range(automaton.vocabulary_size)}
        budget_after = options.max_tokens - position - 1
        allowed = [each for each, target in targets.items() if automaton.distance[target] <= budget_after]
        log_probs = model.log_probs((*PROMPT, *text[:position])).tolist()
        result *= slow_distribution(log_probs, allowed, text[:position], options).get(token, 0.0)
        state = targets[token]
    return result


@pytest.mark.parametrize("choice", CHOICES, ids=str)
def test_a_sample_has_the_probability_of_the_definition(choice: dict[str, Any]) -> None:
    automaton, model = even_number_of_b(), HashModel(4, (2, 3), seed=5)
    options = SamplingOptions(6, seed=11, n=40, **choice)
    for answer in sample(model, automaton, options):
        assert answer.score == pytest.approx(math.log(probability(model, automaton, options, answer.tokens)), abs=1e-5)
        assert answer.log_prob == pytest.approx(sum(model.score(PROMPT, answer.tokens).log_probs), abs=1e-5)


def test_frequencies_match_the_changed_model() -> None:
    automaton, model = even_number_of_b(), Remembering(seed=3, spread=1.0)
    options = SamplingOptions(6, seed=7, n=4000, **CHOICES[-1])
    result = Counter(answer.tokens for answer in sample(model, automaton, options))
    expected = {text: probability(model, automaton, options, text) for text in result}
    assert sum(expected.values()) == pytest.approx(1.0, abs=0.02) and len(result) > 5
    assert chi_square_deviation(result, expected) < 4.0


@pytest.mark.parametrize("seed", range(60))
def test_no_option_breaks_the_constraint_or_the_budget(seed: int) -> None:
    random = np.random.default_rng(seed)
    automaton = random_factored(random) if seed % 2 else random_table(random)
    model = HashModel(automaton.vocabulary_size, automaton.eos_ids, seed=seed, zeros=0.5 if seed % 3 else 0.0, levels=3)
    choice = dict(CHOICES[seed % len(CHOICES)])
    choice["logit_bias"] = {token: float(random.choice([-100, 100])) for token in range(automaton.vocabulary_size)}
    budget = automaton.min_tokens + seed % 4
    for answer in sample(model, automaton, SamplingOptions(budget, seed=seed, n=5, **choice)):
        states = list(accumulate(answer.tokens, automaton.advance, initial=automaton.start))[1:]
        assert (automaton.distance[states[:-1]] > 0).all() and automaton.distance[states[-1]] == 0
        assert len(answer.tokens) <= budget and answer.score <= 1e-9


def test_samples_of_penalties_do_not_depend_on_their_number() -> None:
    automaton, model = even_number_of_b(), HashModel(4, (2, 3), seed=1)
    together = sample(model, automaton, SamplingOptions(9, seed=123, n=30, **CHOICES[-1]))
    for count in (1, 7):
        assert sample(model, automaton, SamplingOptions(9, seed=123, n=count, **CHOICES[-1])) == together[:count]


@pytest.mark.parametrize("levels", [3, 10**9])
def test_the_most_probable_are_those_of_the_sorted_row(levels: int) -> None:
    random = np.random.default_rng(levels)
    weight = torch.tensor(random.integers(0, levels, (20, 300)))
    for count in (1, 2, 17, 299, 300, 1000):
        kept = most_probable(weight, count)
        for row, kept_row in zip(weight.tolist(), kept.tolist(), strict=True):
            best = sorted(range(300), key=lambda token: (-row[token], token))[:count]
            assert kept_row == [value if token in best else 0 for token, value in enumerate(row)]


@pytest.mark.parametrize(
    ("field", "value"),
    [("top_k", -2), ("min_p", 1.1), ("frequency_penalty", 3.0), ("presence_penalty", -2.1), ("repetition_penalty", 0.0),
     ("logit_bias", {1: 101.0})],
)  # fmt: skip
def test_values_out_of_range_are_refused(field: str, value: Any) -> None:
    with pytest.raises(OptionsInvalid, match=field):
        SamplingOptions(4, seed=0, **{field: value})


def test_a_bias_of_an_unknown_token_is_refused() -> None:
    with pytest.raises(OptionsInvalid, match="logit_bias"):
        Sampling(PreparedConstraint.prepare(even_number_of_b(), CPU), SamplingOptions(6, seed=0, logit_bias={4: 1.0}))
