"""Searches, samplings and batches on a GPU beside the CPU's. Skipped where there is no GPU.

The models have float64 weights, so that rounding decides no choice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer

from app.models import ModelFiles
from compiler.artifact import CompiledConstraint
from compiler.pipeline import compile_spec
from compiler.pushdown import PushdownAutomaton
from compiler.spec import spec_from_json
from compiler.text import answer_text
from decoding.engine import Engine
from decoding.forced_tokens import Speller, TokenBytes
from decoding.heuristic import find_endings, unigram_prior
from decoding.model import HuggingFaceModel
from decoding.model.loading import load_model
from decoding.options import Algorithm, SearchOptions
from decoding.prepared_constraint import PreparedConstraint
from decoding.sampling import Sampling, SamplingOptions
from decoding.search import drive, generate, search_of
from decoding.tensors import CudaCapture, Graphs
from tests.compiler.pushdown.grammars import GRAMMARS
from tests.decoding.differential import ALGORITHMS
from tests.decoding.test_pushdown import lifted
from tests.references.text import satisfies

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
CONSTRAINTS = {
    "keywords": {"keywords": ["dog", "ball", "park"]},
    "ordered keywords": {"keywords": ["man", "guitar"], "ordered": True},
    "a formula": {"ltlf": "F(cat & X F(tree)) & G !dog"},
    "a pattern": {"regex": r"[A-Z][a-z ,]{10,60}\."},
    "a schema": {"json_schema": {
        "type": "object", "properties": {"scene": {"type": "string", "maxLength": 30}, "people": {"type": "integer"}},
        "required": ["scene", "people"], "additionalProperties": False,
    }},
    "a combination": {"all": [{"keywords": ["beach"]}, {"max_words": 9}, {"regex": r".*\."}]},
}  # fmt: skip
DEVICES = ("cpu", "cuda")
BUDGETS = (0, 5, 20)  # tokens beyond the least
PROMPT = "A man"


@pytest.fixture(scope="module")
def models(captions_dir: Path) -> dict[str, HuggingFaceModel]:
    return {device: HuggingFaceModel(load_model(str(captions_dir), device, "float32").double()) for device in DEVICES}


@pytest.fixture(scope="module")
def compiled(files: ModelFiles) -> dict[str, CompiledConstraint]:
    return {name: compile_spec(spec_from_json(json), files.vocabulary) for name, json in CONSTRAINTS.items()}


@pytest.fixture(scope="module")
def prepared(
    models: dict[str, HuggingFaceModel], compiled: dict[str, CompiledConstraint], files: ModelFiles,
    tokenizer: Tokenizer,
) -> dict[str, dict[str, PreparedConstraint]]:
    """The constraints and two grammars, for each device."""
    automata = {name: each.tokens for name, each in compiled.items()}
    grammars: dict[str, PushdownAutomaton] = {
        name: lifted(GRAMMARS[name].grammar, files.vocabulary) for name in ("json", "palindromes")
    }
    constraints = {}
    for device, model in models.items():
        pieces = TokenBytes(files.vocabulary.tokens, model.eos_ids, Speller(tokenizer, files.vocabulary.tokens))
        prior = unigram_prior(model)
        endings = find_endings(model, prior)
        constraints[device] = {
            name: PreparedConstraint.prepare(automaton, model.device, prior=prior, pieces=pieces, endings=endings)
            for name, automaton in (automata | grammars).items()
        }
    return constraints


def prompt_ids(tokenizer: Tokenizer) -> tuple[int, ...]:
    return tuple(tokenizer.encode(PROMPT).ids)


def text_of(files: ModelFiles, tokens: Sequence[int]) -> str:
    return b"".join(files.vocabulary.tokens[token] or b"" for token in tokens).decode()


def options_of(constraint: PreparedConstraint) -> Iterator[SearchOptions]:
    for algorithm in ALGORITHMS:
        for beams in (1, 4, 16):
            for slack in BUDGETS:
                yield SearchOptions(
                    constraint.automaton.min_tokens + slack, beams=beams, algorithm=algorithm, n=min(beams, 3)
                )


def test_a_gpu_gives_the_answers_of_the_cpu(
    models: dict[str, HuggingFaceModel], prepared: dict[str, dict[str, PreparedConstraint]], tokenizer: Tokenizer
) -> None:
    prompt = prompt_ids(tokenizer)
    for name, constraint in prepared["cpu"].items():
        for options in options_of(constraint):
            expected = generate(models["cpu"], prompt, constraint, options)
            actual = generate(models["cuda"], prompt, prepared["cuda"][name], options)
            assert [answer.tokens for answer in actual] == [answer.tokens for answer in expected], (name, options)
            for ours, theirs in zip(actual, expected, strict=True):
                assert ours.log_prob == pytest.approx(theirs.log_prob, abs=1e-4)


def test_a_gpu_batch_gives_each_request_its_answers_alone(
    models: dict[str, HuggingFaceModel], prepared: dict[str, dict[str, PreparedConstraint]], tokenizer: Tokenizer
) -> None:
    prompt, requests = prompt_ids(tokenizer), []
    for constraint in prepared["cuda"].values():
        requests += [(constraint, options) for options in options_of(constraint)][::3]
    alone = [generate(models["cuda"], prompt, *request) for request in requests]
    with Engine(models["cuda"], 2**32) as engine, ThreadPoolExecutor(16) as callers:
        together = list(callers.map(lambda each: engine.generate(lambda: search_of(*each), prompt), requests))
    assert [[answer.tokens for answer in answers] for answers in together] == [
        [answer.tokens for answer in answers] for answers in alone
    ]


def test_graphs_on_a_gpu_give_the_same_answers(
    models: dict[str, HuggingFaceModel], prepared: dict[str, dict[str, PreparedConstraint]], tokenizer: Tokenizer
) -> None:
    prompt, graphs = prompt_ids(tokenizer), Graphs(CudaCapture(models["cuda"].device))
    for name, constraint in prepared["cuda"].items():
        captured = replace(constraint, graphs=graphs)
        for options in (each for each in options_of(constraint) if each.algorithm == "banked"):
            expected = generate(models["cuda"], prompt, constraint, options)
            for _ in range(3):  # in the third run even the first step is a replay
                actual = generate(models["cuda"], prompt, captured, options)
                assert [answer.tokens for answer in actual] == [answer.tokens for answer in expected], (name, options)
                for ours, theirs in zip(actual, expected, strict=True):
                    assert ours.log_prob == pytest.approx(theirs.log_prob, abs=1e-9)
    assert graphs.replays > 500


def test_graphs_are_captured_while_answers_are_checked(
    models: dict[str, HuggingFaceModel], prepared: dict[str, dict[str, PreparedConstraint]], tokenizer: Tokenizer
) -> None:
    prompt, graphs = prompt_ids(tokenizer), Graphs(CudaCapture(models["cuda"].device), shapes_max=8)
    requests = [
        (replace(constraint, graphs=graphs), options)
        for constraint in prepared["cuda"].values() for options in [*options_of(constraint)][1::6]
    ]  # fmt: skip
    alone = [generate(models["cuda"], prompt, *request) for request in requests]
    with Engine(models["cuda"], 2**32) as engine, ThreadPoolExecutor(16) as callers:

        def answered(request: tuple[PreparedConstraint, SearchOptions]) -> list[tuple[int, ...]]:
            answers = engine.generate(lambda: search_of(*request), prompt)
            for answer in answers:
                scored = engine.check(prompt, answer.tokens)
                assert sum(scored.log_probs) == pytest.approx(answer.log_prob, abs=1e-4)
            return [answer.tokens for answer in answers]

        together = list(callers.map(answered, requests * 3))
    assert together == [[answer.tokens for answer in answers] for answers in alone] * 3
    assert graphs.replays > 100


def test_samples_on_a_gpu_satisfy_their_constraint(
    models: dict[str, HuggingFaceModel], prepared: dict[str, dict[str, PreparedConstraint]],
    compiled: dict[str, CompiledConstraint], files: ModelFiles, tokenizer: Tokenizer,
) -> None:
    constraint = prepared["cuda"]["a pattern"]
    least = constraint.automaton.min_tokens
    for seed, budget in enumerate(range(least, least + 20)):
        sampling = Sampling(constraint, SamplingOptions(budget, seed=seed, n=4))
        for answer in drive(models["cuda"], prompt_ids(tokenizer), sampling):
            assert len(answer.tokens) <= budget and answer.tokens[-1] in files.vocabulary.eos_ids
            text = answer_text(compiled["a pattern"].text, text_of(files, answer.tokens))
            assert re.fullmatch(r"[A-Z][a-z ,]{10,60}\.", text)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_on_a_gpu_satisfies_the_constraints(
    dtype: str, algorithm: Algorithm, captions_dir: Path, compiled: dict[str, CompiledConstraint], files: ModelFiles,
    tokenizer: Tokenizer,
) -> None:
    model = HuggingFaceModel(load_model(str(captions_dir), "cuda", dtype))
    for name, each in compiled.items():
        constraint = PreparedConstraint.prepare(each.tokens, model.device, prior=unigram_prior(model))
        options = SearchOptions(each.tokens.min_tokens + 4, beams=4, algorithm=algorithm)
        for answer in generate(model, prompt_ids(tokenizer), constraint, options):
            text = answer_text(each.text, text_of(files, answer.tokens))
            assert satisfies(spec_from_json(CONSTRAINTS[name]), text), (name, text)
