"""Speculative sampling draws the tokens that sampling draws, in fewer passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from app.models import ModelFiles
from compiler.lifting import from_table
from compiler.pipeline import compile_spec
from compiler.spec import spec_from_json
from decoding.engine import Engine
from decoding.forced_tokens import TokenBytes
from decoding.model import HuggingFaceModel
from decoding.prepared_constraint import PreparedConstraint
from decoding.sampling import Sampling, SamplingOptions
from decoding.search import drive
from decoding.speculation import SpeculativeSampling
from tests.decoding.random_automata import of_length, random_table
from tests.decoding.random_models import gpt2_of
from tests.decoding.recorded_operators import recorded_operators
from tests.fake_models import HashModel, PrefixModel
from tests.servers.cluster import FULL

CPU = torch.device("cpu")


@dataclass
class DraftCount:
    drafted: int = 0
    accepted: int = 0

    def __call__(self, drafted: int, accepted: int) -> None:
        self.drafted += drafted
        self.accepted += accepted


class RepeatingModel(PrefixModel):
    """Repeats the pair of ids before it with most of its probability."""

    def log_probs(self, prefix: tuple[int, ...]) -> torch.Tensor:
        logits = torch.zeros(self.vocab_size)
        if len(prefix) > 2:
            logits[prefix[-3]] = 4.0
        return logits.log_softmax(dim=0)


def _tokens(
    model: PrefixModel | HuggingFaceModel, constraint: PreparedConstraint, options: SamplingOptions,
    prompt: Sequence[int], count: DraftCount | None = None,
) -> tuple[tuple[int, ...], float, float]:
    sampling = Sampling(constraint, options, prompt_ids=prompt)
    (answer,) = drive(
        model, prompt, sampling if count is None else SpeculativeSampling(sampling, constraint, prompt, count)
    )
    return answer.tokens, answer.score, answer.log_prob


@pytest.mark.parametrize("kind", [HashModel, RepeatingModel])
@pytest.mark.parametrize("seed", range(40))
@pytest.mark.sample(30)
def test_the_same_tokens_are_drawn_with_drafts(kind: type[PrefixModel], seed: int) -> None:
    random = np.random.default_rng(seed)
    automaton = random_table(random, ids=10)
    budget = automaton.min_tokens + int(random.integers(0, 30))
    options = SamplingOptions(
        budget, seed=seed, temperature=float(random.choice([0.0, 1.0, 3.0])),
        top_p=float(random.choice([1.0, 0.6])), repetition_penalty=float(random.choice([1.0, 1.5])),
    )
    prompt = random.integers(0, 10, int(random.integers(1, 12))).tolist()
    constraint, model = PreparedConstraint.prepare(automaton, CPU), kind(10, automaton.eos_ids)
    count = DraftCount()
    expected = _tokens(model, constraint, options, prompt)
    assert _tokens(model, constraint, options, prompt, count) == expected
    assert count.accepted <= count.drafted


def test_repeated_texts_take_fewer_passes() -> None:
    constraint = PreparedConstraint.prepare(of_length(60, 10, 9), CPU)
    model, count, options = RepeatingModel(10, (9,)), DraftCount(), SamplingOptions(61, seed=3)
    expected = _tokens(model, constraint, options, [1, 2])
    passes, model.passes = model.passes, 0
    assert _tokens(model, constraint, options, [1, 2], count) == expected
    assert passes == 60 and model.passes == 60 - count.accepted < 45


def test_the_distribution_of_samples_is_that_of_the_masked_model() -> None:
    """All texts of two tokens, over many seeds."""
    automaton = from_table(np.array([0, 0, 0, 1]), np.array([[1, 3], [2, 3], [3, 3], [3, 3]]),
                           np.array([0, 0, 1, 0]) > 0, 0, eos_ids=(3,))  # fmt: skip
    constraint, model = PreparedConstraint.prepare(automaton, CPU), HashModel(4, (3,), seed=5, spread=1.0)
    prompt, seeds = [0, 1, 2, 0, 1], 400
    first = model.log_probs(tuple(prompt))[:3].softmax(dim=0)
    second = [model.log_probs((*prompt, a))[:3].softmax(dim=0) for a in range(3)]
    expected = {(a, b, 3): float(first[a] * second[a][b]) for a in range(3) for b in range(3)}
    found, count = dict.fromkeys(expected, 0), DraftCount()
    for seed in range(seeds):
        found[_tokens(model, constraint, SamplingOptions(3, seed=seed), prompt, count)[0]] += 1
    chi_square = sum((found[text] - seeds * share) ** 2 / (seeds * share) for text, share in expected.items())
    assert count.accepted > 16 and chi_square < 26.1  # 8 degrees of freedom: exceeded once in 1,000


@pytest.mark.parametrize("spec", [
    {"json_schema": {"type": "object", "properties": {"scene": {"type": "string", "maxLength": 9}, "people": {
        "type": "integer"}}, "required": ["scene", "people"], "additionalProperties": False}},
    {"grammar": 'root ::= "a dog runs. " root | "a cat sleeps."', "syntax": "gbnf"},
])  # fmt: skip
def test_forced_texts_are_drafted_with_a_real_model(
    spec: dict[str, object], captions: HuggingFaceModel, files: ModelFiles, pieces: TokenBytes
) -> None:
    automaton = compile_spec(spec_from_json(spec), files.vocabulary).tokens
    constraint = PreparedConstraint.prepare(automaton, CPU, pieces=pieces)
    count = DraftCount()
    for seed in range(2 if FULL else 1):
        options = SamplingOptions(40, seed=seed)
        tokens, score, log_prob = _tokens(captions, constraint, options, [5, 6, 7], count)
        expected = _tokens(captions, constraint, options, [5, 6, 7])
        assert tokens == expected[0] and (score, log_prob) == pytest.approx(expected[1:], abs=1e-3)
    assert count.accepted > 0


def test_an_engine_reads_drafts(captions: HuggingFaceModel, files: ModelFiles, pieces: TokenBytes) -> None:
    automaton = compile_spec(spec_from_json({"regex": "(a dog ){2,6}runs"}), files.vocabulary).tokens
    constraint = PreparedConstraint.prepare(automaton, CPU, pieces=pieces)
    options, prompt = SamplingOptions(30, seed=1), [5, 6, 7]

    def speculative() -> SpeculativeSampling:
        return SpeculativeSampling(Sampling(constraint, options), constraint, prompt)

    with Engine(captions, 2**30) as engine:
        (answer,) = engine.generate(speculative, prompt)
    assert answer.tokens == _tokens(captions, constraint, options, prompt)[0]


@pytest.mark.parametrize("tokens", [4, 9, 30])
@pytest.mark.sample(2)
def test_drafts_use_no_more_memory_than_estimated(tokens: int) -> None:
    model = HuggingFaceModel(gpt2_of(vocab_size=20_000, eos_token_id=19_999))
    automaton = from_table(np.arange(model.vocab_size) % 2, np.array([[0, 1], [1, 0]]), np.array([True, True]), 0,
                           eos_ids=model.eos_ids)  # fmt: skip
    constraint = PreparedConstraint.prepare(automaton, CPU)
    model.prefill([1])  # what the library keeps for later
    prompt, count = [1, 2, 3, 4, 5, 6, 7, 1, 2], DraftCount()
    sampling = Sampling(constraint, SamplingOptions(tokens, seed=1, temperature=0.0, logit_bias={3: 50.0, 4: 50.0}))
    announced = model.bytes_for(len(prompt), 1, tokens, sampling.size.scratch_bytes)
    with recorded_operators(memory=True) as recorded:
        drive(model, prompt, SpeculativeSampling(sampling, constraint, prompt, count))
    assert count.drafted and recorded.peak <= announced
