"""Biases, penalties and truncations change the masked model as defined."""

from __future__ import annotations

import math
from itertools import accumulate
from typing import Any

import numpy as np
import pytest
import torch

from decoding.errors import OptionsInvalid
from decoding.penalties import most_probable
from decoding.prepared_constraint import PreparedConstraint
from decoding.sampling import Sampling, SamplingOptions
from tests.decoding.random_automata import random_factored, random_table
from tests.decoding.test_sampling import CPU, EVERY_OPTION, PROMPT, even_number_of_b, sample, texts
from tests.fake_models import HashModel

CHOICES: list[dict[str, Any]] = [
    {"temperature": 0.7, "top_p": 0.9}, {"top_k": 1}, {"top_k": 2, "temperature": 2.0}, {"top_k": -1}, {"min_p": 0.4},
    {"min_p": 1.0},
    {"frequency_penalty": 1.5}, {"presence_penalty": -2.0}, {"repetition_penalty": 3.0}, {"repetition_penalty": 0.2},
    {"logit_bias": {1: -100.0, 3: 4.0}}, {"logit_bias": {0: 2.5}, "temperature": 0.0},
    {"presence_penalty": 2.0, "temperature": 0.0},
    EVERY_OPTION,
]  # fmt: skip


@pytest.mark.parametrize("choice", CHOICES, ids=str)
def test_a_sample_has_the_probability_of_the_definition(choice: dict[str, Any]) -> None:
    automaton, model = even_number_of_b(), HashModel(4, (2, 3), seed=5)
    options = SamplingOptions(6, seed=11, n=40, **choice)
    expected = dict(texts(model, automaton, options, automaton.start))
    for answer in sample(model, automaton, options):
        assert answer.score == pytest.approx(math.log(expected[answer.tokens]), abs=1e-5)
        assert answer.log_prob == pytest.approx(sum(model.score(PROMPT, answer.tokens).log_probs), abs=1e-5)


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("penalized", [False, True])
@pytest.mark.sample(84)
def test_no_option_breaks_the_constraint_or_the_budget(penalized: bool, seed: int) -> None:
    random = np.random.default_rng(seed)
    automaton = random_factored(random) if seed % 2 else random_table(random)
    model = HashModel(automaton.vocabulary_size, automaton.eos_ids, seed=seed, zeros=0.5 if seed % 3 else 0.0, levels=3)
    choice: dict[str, Any] = {"top_p": (1.0, 0.3)[seed % 2], "temperature": (0.0, 1.0, 5.0)[seed % 3]}
    if penalized:
        bias = {token: float(random.choice([-100, 100])) for token in range(automaton.vocabulary_size)}
        choice = CHOICES[seed % len(CHOICES)] | {"logit_bias": bias}
    budget = automaton.min_tokens + seed % 4
    for answer in sample(model, automaton, SamplingOptions(budget, seed=seed, n=5, **choice)):
        states = list(accumulate(answer.tokens, automaton.advance, initial=automaton.start))[1:]
        assert (automaton.distance[states[:-1]] > 0).all() and automaton.distance[states[-1]] == 0
        assert answer.tokens[-1] in automaton.eos_ids and len(answer.tokens) <= budget
        assert answer.score <= 1e-9 and math.isfinite(answer.log_prob)


@pytest.mark.parametrize(("choice", "different"), [({}, 6), (EVERY_OPTION, 3)], ids=["no option", "every option"])
def test_a_sample_does_not_depend_on_the_number_of_samples(choice: dict[str, Any], different: int) -> None:
    automaton, model = even_number_of_b(), HashModel(4, (2, 3), seed=1)
    samples = sample(model, automaton, SamplingOptions(9, seed=123, n=40, **choice))
    for count in (1, 3, 7, 17):
        assert sample(model, automaton, SamplingOptions(9, seed=123, n=count, **choice)) == samples[:count]
    assert len(set(samples)) >= different
    assert sample(model, automaton, SamplingOptions(9, seed=124, n=40, **choice)) != samples


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
