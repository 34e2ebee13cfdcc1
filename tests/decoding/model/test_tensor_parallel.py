"""Two processes give the numbers and the texts of one."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer
from torch import Tensor

from app.models import ModelFiles
from compiler.pipeline import compile_spec
from compiler.spec import KeywordsSpec, LtlfSpec, RegexSpec, Spec
from decoding.engine import Engine
from decoding.errors import ModelUnavailable
from decoding.generation import Generation
from decoding.model import HuggingFaceModel, TensorParallelModel
from decoding.options import SearchOptions
from decoding.prepared_constraint import PreparedConstraint
from decoding.sampling import Sampling, SamplingOptions
from decoding.search import search_of
from tests.decoding.model.compared_steps import NATS, compare_steps

SPECS: tuple[Spec, ...] = (
    KeywordsSpec((("dog",), ("ball", "balls"))), KeywordsSpec((("park",),)), RegexSpec("[A-Z][a-z]+( [a-z]+){2,6}\\."),
    RegexSpec("(The|A) [a-z]+ is [a-z ]{5,20}"), LtlfSpec("F(dog) & G(!the)"), RegexSpec("[0-9]{4}-[01][0-9]"),
)

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def group(captions_dir: Path) -> Iterator[TensorParallelModel]:
    model = TensorParallelModel.load(str(captions_dir), size=2)
    yield model
    model.close()


@pytest.fixture(scope="module")
def single(captions_dir: Path) -> HuggingFaceModel:
    return HuggingFaceModel.load(str(captions_dir))


def test_steps_of_a_group_score_like_one_process(group: TensorParallelModel, single: HuggingFaceModel) -> None:
    assert group.supports_batching == single.supports_batching and group.ranks_alive == 2
    assert (group.vocab_size, group.eos_ids, group.context_length) == (4096, (0,), 256)
    for seed in range(4):
        compare_steps(group, single, seed)


def test_a_group_scores_texts_like_one_process(group: TensorParallelModel, single: HuggingFaceModel) -> None:
    tokens, seen = [number * 7919 % 4096 for number in range(90)], list[tuple[int, int]]()
    scored = group.score([5], tokens, lambda begin, rows: seen.append((begin, len(rows))))
    expected = single.score([5], tokens)
    for name in ("log_probs", "max_log_probs"):
        assert getattr(scored, name) == pytest.approx(getattr(expected, name), abs=NATS)
    assert seen == [(0, 64), (64, 26)]

    def fails(begin: int, rows: Tensor) -> None:
        raise ValueError("of the caller")

    with pytest.raises(ValueError, match="of the caller"):
        group.score([5], tokens, fails)
    assert group.score([5], tokens) == scored


def answers(model: Any, prompt: list[int], prepared: PreparedConstraint, budget: int) -> list[tuple[int, ...]]:
    """The answers of searches and a sample that run side by side."""

    def begin(options: SearchOptions | SamplingOptions) -> Generation:
        if isinstance(options, SamplingOptions):
            return Sampling(prepared, options, prompt_ids=prompt)
        return search_of(prepared, options, prompt_ids=prompt)

    options = (
        SearchOptions(budget, beams=8, n=2), SearchOptions(budget, beams=4, algorithm="abs"),
        SamplingOptions(budget, seed=11, n=2),
    )
    with Engine(model, 2**28) as engine, ThreadPoolExecutor(len(options)) as callers:
        found = callers.map(lambda each: engine.generate(lambda: begin(each), prompt), options)
        hypotheses = [answer for of_request in found for answer in of_request]
        for answer in hypotheses:  # checks run in another thread than the steps
            scored = engine.check(prompt, answer.tokens)
            assert sum(scored.log_probs) == pytest.approx(answer.log_prob, abs=NATS * len(answer.tokens))
    return [answer.tokens for answer in hypotheses]


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_a_group_writes_the_texts_of_one_process(
    group: TensorParallelModel, single: HuggingFaceModel, files: ModelFiles, tokenizer: Tokenizer, spec: Spec
) -> None:
    compiled = compile_spec(spec, files.vocabulary)
    prepared = PreparedConstraint.prepare(compiled.tokens, torch.device("cpu"))
    prompt, budget = tokenizer.encode("sentence:").ids, compiled.tokens.min_tokens + 12
    assert answers(group, prompt, prepared, budget) == answers(single, prompt, prepared, budget)


def test_a_process_shares_one_model_only(group: TensorParallelModel, captions_dir: Path) -> None:
    with pytest.raises(ModelUnavailable, match="one only"):
        TensorParallelModel.load(str(captions_dir), size=2)
    assert group.score([5], [6, 7]).log_probs
