"""End-to-end generation on trained models, from constraint to reference verdict.

It uses real vocabularies, the search and its trace.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from compiler.pipeline import compile_spec
from compiler.spec import KeywordsSpec, LtlfSpec, Proposition, RegexSpec, Spec
from compiler.text import answer_text
from compiler.vocab import Vocabulary, vocabulary_from_tokenizer_json
from decoding.model import HuggingFaceModel
from decoding.options import SearchOptions
from decoding.replay import replay
from decoding.search import generate
from tests.references.random_constraints import BUILT_IN
from tests.references.text import satisfies

Loaded = tuple[HuggingFaceModel, Vocabulary, list[int]]
MANY_TOKENS_A_CHARACTER: list[Spec] = [
    RegexSpec("😀{2}日本語?é"),
    RegexSpec(r"[一-龥]{3}。"),
    RegexSpec(r"\w+ – \W{2}"),
    LtlfSpec("F(日本) & F(é) & G(!nomatch)"),
    LtlfSpec('F "😀" & X X last'),
    LtlfSpec("F smile", (("smile", Proposition(regex="[😀-😏]")),)),
    KeywordsSpec((("café",), ("日本", "中文"), ("😀",)), ordered=True),
    KeywordsSpec((("naïve",), ("Ωμέγα",))),
]
PLAIN: list[Spec] = [
    LtlfSpec("(!cat & !dog) U (girl & X F cat) & F dog & F dot & G(dot -> last)"),
    RegexSpec(r"[A-Z][a-z]+( [a-z]+){3,9}\."),
    KeywordsSpec((("play", "plays", "playing"), ("park",), ("friend", "friends")), ordered=True),
    LtlfSpec("G(!the & !a) & F ball"),
]


@functools.cache
def load(folder: Path, prompt: str) -> Loaded:
    model = HuggingFaceModel.load(str(folder))
    file = folder / "tokenizer.json"
    vocabulary = vocabulary_from_tokenizer_json(file.read_text(encoding="utf-8"), model.vocab_size, model.eos_ids)
    return model, vocabulary, Tokenizer.from_file(str(file)).encode(prompt).ids


@pytest.fixture(scope="module")
def captions() -> Loaded:
    return load(BUILT_IN, "sentence:")


def check(loaded: Loaded, spec: Spec, *requests: dict[str, Any]) -> None:
    """Answers each request under one compiled constraint. `extra` are tokens beyond the least budget."""
    model, vocabulary, prompt = loaded
    compiled = compile_spec(spec, vocabulary)
    for request in requests:
        given: dict[str, Any] = {"extra": 8, "beams": 5, "n": 3, **request}
        options = SearchOptions(compiled.tokens.min_tokens + given.pop("extra"), **given)
        answers = generate(model, prompt, compiled.tokens, options)
        assert answers, request
        for answer in answers:
            raw = b"".join(vocabulary.tokens[token] or b"" for token in answer.tokens).decode()
            assert satisfies(spec, answer_text(compiled.text, raw)), (request, raw)
            assert len(answer.tokens) <= options.max_tokens, request
            scores = model.score(prompt, answer.tokens)
            steps = replay(compiled.tokens, answer, scores, options, tolerance=model.tolerance)
            assert [step.distance for step in steps][-1] == 0, request


@pytest.mark.parametrize("spec", MANY_TOKENS_A_CHARACTER, ids=str)
def test_characters_of_several_tokens_work_in_every_form(captions: Loaded, spec: Spec) -> None:
    check(captions, spec, {"extra": 0, "beams": 1, "n": 1}, {"extra": 5, "beams": 4})


@pytest.mark.parametrize("spec", PLAIN, ids=str)
def test_the_built_in_model_satisfies(captions: Loaded, spec: Spec) -> None:
    check(
        captions, spec, {"algorithm": "banked"}, {"algorithm": "banked", "length_penalty": 1.0},
        {"algorithm": "abs", "rank_by": "score"}, {"algorithm": "abs", "gamma": 2.0, "alpha_min": 0.25},
    )


@pytest.mark.parametrize("spec", PLAIN, ids=str)
@pytest.mark.parametrize("name", ["stories260k", "tinystories-656k"])
def test_small_models_of_the_other_tokenizer_families_satisfy(shared: Path, name: str, spec: Spec) -> None:
    check(load(shared / "models" / name, "One day"), spec, {})


def test_the_built_in_model_writes_a_caption_without_constraint(captions: Loaded) -> None:
    model, vocabulary, prompt = captions
    compiled = compile_spec(RegexSpec("(?s:.*)"), vocabulary)
    answer = generate(model, prompt, compiled.tokens, SearchOptions(24, beams=8, length_penalty=1.0))[0]
    text = b"".join(vocabulary.tokens[token] or b"" for token in answer.tokens).decode()
    assert text.startswith(" A ")
    assert text.endswith(".")
