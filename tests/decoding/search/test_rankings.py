"""Rankings of given items, in every order and within the fewest tokens."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import pytest

from app.models import ModelFiles
from compiler.artifact import CompiledConstraint
from compiler.errors import BudgetTooSmall
from compiler.pipeline import compile_spec
from compiler.products import LazyProduct
from compiler.spec import spec_from_json
from compiler.text import answer_text, check_text
from decoding.options import SearchOptions
from decoding.prepared_constraint import PreparedConstraint
from decoding.replay import replay
from decoding.sampling import Sampling, SamplingOptions
from decoding.search import drive, search_of
from tests.decoding.differential import ALGORITHMS, CPU
from tests.fake_models import HashModel
from tests.references.json_validator import is_valid

LETTERS = [chr(ord("A") + number) for number in range(10)]
WORDS = ["dog", "cat", "boat", "man", "tree", "red", "umbrella", "piano", "a bird", "the fish"]
SENTENCES = [f"{' '.join(random.Random(number).choices(WORDS, k=12))[:54]}." for number in range(7)]
TAGS = [f"{first}-{second}" for first in WORDS[:6] for second in WORDS[:5]]


def ranking(values: list[str], count: int) -> dict[str, Any]:
    return {"type": "array", "items": {"enum": values}, "uniqueItems": True, "minItems": count, "maxItems": count}


def with_reason(array: dict[str, Any]) -> dict[str, Any]:
    properties = {"why": {"type": "string", "maxLength": 9}, "ranking": array, "again": array}
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


SCHEMAS = {
    "ten letters": ranking(LETTERS, 10),
    "sentences": ranking(SENTENCES, 7),
    "five of thirty tags": ranking(TAGS, 5),
    "thirty tags": ranking(TAGS, 30),
    "two properties": with_reason(ranking(LETTERS, 10)),
}


@pytest.fixture(scope="module", params=SCHEMAS)
def schema(request: pytest.FixtureRequest) -> dict[str, Any]:
    return SCHEMAS[request.param]


@pytest.fixture(scope="module")
def compiled(schema: dict[str, Any], files: ModelFiles) -> CompiledConstraint:
    return compile_spec(spec_from_json({"json_schema": schema}), files.vocabulary)


def test_samples_have_several_orders(schema: dict[str, Any], compiled: CompiledConstraint, files: ModelFiles) -> None:
    assert compiled.approximate == ()
    model = HashModel(files.vocabulary.size, files.vocabulary.eos_ids, seed=3, spread=0.5)
    constraint, count = PreparedConstraint.prepare(compiled.tokens, CPU), 3 if len(str(schema)) < 700 else 2
    run = Sampling(constraint, SamplingOptions(600, seed=1, n=count))
    texts = [text_of(answer.tokens, compiled, files) for answer in drive(model, (1,), run)]
    assert len(set(texts)) == count and all(is_valid(schema, text) for text in texts), texts


def test_the_least_budget_is_exact_and_enough(
    schema: dict[str, Any], compiled: CompiledConstraint, files: ModelFiles
) -> None:
    tokens = compiled.tokens
    assert isinstance(tokens, LazyProduct) and tokens.min_tokens_at_least == tokens.min_tokens
    model = HashModel(files.vocabulary.size, files.vocabulary.eos_ids, seed=4)
    constraint = PreparedConstraint.prepare(tokens, CPU, prior=model.prior)
    with pytest.raises(BudgetTooSmall):
        constraint.refuse_early(model, 1, tokens.min_tokens - 1)
    sampling = SamplingOptions(tokens.min_tokens, seed=1)
    searches = [SearchOptions(tokens.min_tokens, beams=2, algorithm=algorithm) for algorithm in ALGORITHMS]
    runs: list[tuple[Any, Any]] = [(sampling, Sampling(constraint, sampling))]
    runs += [(each, search_of(constraint, each)) for each in searches if len(str(schema)) < 500]
    for options, run in runs:
        for answer in drive(model, (1,), run):
            replay(tokens, answer, model.score((1,), answer.tokens), options, tolerance=model.tolerance)
            assert is_valid(schema, text_of(answer.tokens, compiled, files))


@pytest.mark.parametrize(
    ("pattern", "orders"), [(r'.*"A"\]', 1), (r'.*"F".*"B".*"A".*', 2), (r'\[("."(, )?|,){4}\s*"E".*', 2)]
)
def test_a_ranking_holds_beside_a_pattern(pattern: str, orders: int, files: ModelFiles) -> None:
    schema = SCHEMAS["ten letters"]
    compiled = compile_spec(spec_from_json({"all": [{"json_schema": schema}, {"regex": pattern}]}), files.vocabulary)
    model = HashModel(files.vocabulary.size, files.vocabulary.eos_ids, seed=3, spread=0.5)
    options = SamplingOptions(compiled.tokens.min_tokens, seed=1, n=orders)
    run = Sampling(PreparedConstraint.prepare(compiled.tokens, CPU), options)
    texts = [text_of(answer.tokens, compiled, files) for answer in drive(model, (1,), run)]
    assert len(set(texts)) == orders
    assert all(is_valid(schema, text) and re.fullmatch(pattern, text) for text in texts), texts


def text_of(ids: tuple[int, ...], compiled: CompiledConstraint, files: ModelFiles) -> str:
    raw = b"".join(files.vocabulary.tokens[token] or b"" for token in ids).decode()
    assert check_text(compiled.text, answer_text(compiled.text, raw)).satisfied
    return json.dumps(json.loads(raw), ensure_ascii=False)
