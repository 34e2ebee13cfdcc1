"""Generation without a server answers as the service does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest
import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

import decoding
from compiler.errors import BudgetTooSmall, CompileError, SpecSyntaxError, SpecUnsupported, VocabularyError
from compiler.pipeline import compile_spec
from compiler.spec import spec_from_json
from compiler.vocab import byte_vocabulary
from decoding import ConstrainedModel, SamplingOptions, SearchOptions, generate, vocabulary_of
from decoding.errors import DecodeError, ModelUnavailable, OptionsInvalid, PromptTooLong, VocabularyMismatch
from decoding.prepared_constraint import PreparedConstraint
from tests.decoding.random_models import llama_of
from tests.references.random_constraints import real_tokenizer
from tests.references.text import satisfies
from tests.servers.service_process import ServiceProcess

PROMPT = "concepts: dog, frisbee\nsentence:"
REQUESTS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"keywords": ["dog", ["catch", "catches"]], "ordered": True}, {"beams": 8}),
    ({"regex": r"[A-Z][a-z ]+\."}, {"beams": 4, "n": 3}),
    ({"ltlf": "F(dog) & G(!the)"}, {"beams": 4, "algorithm": "abs", "rank_by": "score"}),
    ({"json_schema": {"type": "object", "properties": {"a": {"enum": [1, 22]}}, "required": ["a"]}}, {"beams": 4}),
    ({"json_schema": {"type": "array", "items": {"enum": [1, 2]}, "minItems": 1, "unknown": 1}}, {"beams": 4}),
    ({"grammar": 'root ::= "a " [a-z]+ " dog"', "syntax": "gbnf"}, {"beams": 4}),
    ({"all": [{"keywords": ["dog"]}, {"max_words": 5}]}, {"beams": 4, "repetition_penalty": 1.3}),
    ({"sequence": ["A ", {"capture": "animal", "part": {"choice": ["dog", "cat"]}}, {"capture": "rest", "part": {
        "regex": " [a-z ]{3,20}"}}, "."]}, {"beams": 4}),
    ({"keywords": ["park"]}, {"algorithm": "sample", "seed": 5, "n": 3, "temperature": 0.8, "top_k": 40}),
]


@pytest.fixture(scope="module")
def model(captions_dir: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(captions_dir, dtype=torch.float32)


@pytest.fixture(scope="module")
def constrained(model: Any, captions_dir: Path) -> ConstrainedModel:
    return ConstrainedModel(model, AutoTokenizer.from_pretrained(captions_dir))


def options_of(fields: dict[str, Any]) -> SearchOptions | SamplingOptions:
    own = {name: value for name, value in fields.items() if name != "algorithm"}
    if fields.get("algorithm") == "sample":
        return SamplingOptions(24, **own)
    return SearchOptions(24, **fields)


@pytest.mark.parametrize(("constraint", "fields"), REQUESTS, ids=str)
def test_answers_are_those_of_the_service(
    constraint: dict[str, Any], fields: dict[str, Any], constrained: ConstrainedModel, running_service: ServiceProcess
) -> None:
    body = {"prompt": PROMPT, "constraint": constraint, "max_tokens": 24, "trace": True, **fields}
    sent = httpx2.post(f"{running_service.url}/generate", json=body, timeout=60, trust_env=False)
    response = sent.raise_for_status().json()
    choices = response["choices"]
    answers = constrained.generate(PROMPT, constraint, options_of(fields))
    assert [answer.text for answer in answers] == [choice["text"] for choice in choices]
    for answer, choice in zip(answers, choices, strict=True):
        assert answer.satisfied and choice["satisfied"]
        assert (list(answer.not_enforced), list(answer.approximate)) == (
            response["not_enforced"], response["approximate"]
        )  # fmt: skip
        assert answer.log_prob == pytest.approx(choice["log_prob"], abs=1e-2)
        assert answer.raw_text == (choice["raw_text"] or choice["text"])
        captured = [(each["name"], each["text"]) for each in choice["captures"] or ()]
        assert list(answer.captures or ()) == captured
        assert bool(captured) == ("sequence" in constraint)
        for token, shown in zip(answer.trace, choice["trace"], strict=True):
            assert (token.token, token.text, token.distance) == (shown["token"], shown["text"], shown["distance"])
            assert (token.state, [list(each) for each in token.propositions]) == (shown["state"], shown["propositions"])


@pytest.mark.parametrize(("name", "wrapped"), [("stories260k", False), ("gpt2", False), ("mistral_v1_32k", True)])
@pytest.mark.sample(1)
def test_random_models_satisfy_with_real_tokenizers(name: str, wrapped: bool, shared: Path) -> None:
    text = real_tokenizer(name)
    assert text is not None
    tokenizer = Tokenizer.from_str(text)
    given = PreTrainedTokenizerFast(tokenizer_object=tokenizer) if wrapped else tokenizer
    size = tokenizer.get_vocab_size()
    random = llama_of(vocab_size=size, eos_token_id=2 if name != "gpt2" else size - 1, max_position_embeddings=128)
    constraint = {"all": [{"regex": "[A-Z][a-z ]{4,30}[.]"}, {"keywords": ["dog", "cat"], "ordered": True}]}
    answer = generate(random, given, "Once", constraint, max_tokens=16, beams=2)
    assert answer.satisfied and satisfies(spec_from_json(constraint), answer.text)
    assert len(answer.trace) <= 16 and answer.trace[-1].distance == 0


def test_a_callers_model_writes_the_same_afterwards(captions_dir: Path) -> None:
    own = llama_of(vocab_size=4_096, eos_token_id=0, max_position_embeddings=64)
    tokenizer = AutoTokenizer.from_pretrained(captions_dir)
    prompt = tokenizer(PROMPT, return_tensors="pt")
    layers = [type(layer) for layer in own.modules()]

    def written() -> list[int]:
        ids = own.generate(**prompt, max_new_tokens=12, do_sample=False, pad_token_id=0)
        return ids[0].tolist()  # type: ignore[no-any-return]

    before = written()
    ConstrainedModel(own, tokenizer)
    assert written() == before
    assert [type(layer) for layer in own.modules()] == layers


@pytest.mark.parametrize(
    ("constraint", "max_tokens", "error", "message"),
    [
        ({"regex": "a{40}"}, 3, BudgetTooSmall, "max_tokens is 3"),
        ({"regex": "("}, 3, SpecSyntaxError, "missing )"),
        ({"key_words": ["dog"]}, 3, SpecSyntaxError, "keywords"),
        ({"labels": ["a"], "ltlf": "F a"}, 3, SpecUnsupported, "no texts"),
        ({"keywords": ["dog"]}, 0, OptionsInvalid, "max_tokens must be at least 1"),
        ({"keywords": ["dog"]}, 5_000, PromptTooLong, "context"),
    ],
)
def test_a_faulty_request_raises_an_error_that_says_why(
    constraint: dict[str, Any], max_tokens: int, error: type[Exception], message: str, constrained: ConstrainedModel
) -> None:
    with pytest.raises(error, match=message.replace("(", "[(]").replace(")", "[)]")):
        constrained.generate(PROMPT, constraint, SearchOptions(max_tokens))
    assert issubclass(error, CompileError | DecodeError)


def test_ids_beyond_the_vocabulary_are_refused(constrained: ConstrainedModel) -> None:
    with pytest.raises(OptionsInvalid, match="prompt"):
        constrained.generate([99_999], {"keywords": ["dog"]}, SearchOptions(8))


def test_a_prompt_may_be_ids_and_a_constraint_compiled(constrained: ConstrainedModel, captions_dir: Path) -> None:
    compiled = constrained.compile({"keywords": ["dog"]})
    ids = AutoTokenizer.from_pretrained(captions_dir)(PROMPT).input_ids
    by_ids = constrained.generate(ids, compiled, SearchOptions(16, beams=4))
    assert by_ids == constrained.generate(PROMPT, {"keywords": ["dog"]}, SearchOptions(16, beams=4))


def test_a_constraint_of_another_vocabulary_is_refused(constrained: ConstrainedModel) -> None:
    other = compile_spec(spec_from_json({"keywords": ["dog"]}), byte_vocabulary())
    with pytest.raises(OptionsInvalid, match="compiled for this model"):
        constrained.generate(PROMPT, other, SearchOptions(16))


def test_a_tokenizer_of_another_kind_or_model_is_refused(model: Any, captions_dir: Path) -> None:
    with pytest.raises(VocabularyError, match="load it by AutoTokenizer"):
        vocabulary_of(model, object())
    with pytest.raises(VocabularyMismatch, match="61"):
        vocabulary_of(llama_of(), AutoTokenizer.from_pretrained(captions_dir))
    nameless = llama_of(vocab_size=4_096, eos_token_id=None)
    with pytest.raises(ModelUnavailable, match="no token that ends"):
        vocabulary_of(nameless, AutoTokenizer.from_pretrained(captions_dir))


def test_a_constraint_is_prepared_once(constrained: ConstrainedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = constrained.compile({"choice": ["a dog", "a cat"]})
    first = constrained.generate(PROMPT, compiled, SearchOptions(24, beams=4))
    monkeypatch.setattr(PreparedConstraint, "prepare", None)
    assert constrained.generate(PROMPT, compiled, SearchOptions(24, beams=4)) == first


def test_every_name_of_the_package_is_importable() -> None:
    assert all(getattr(decoding, name).__module__.startswith("decoding.") for name in decoding.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = decoding.nothing  # type: ignore[attr-defined]


def test_importing_the_package_loads_no_torch() -> None:
    code = "import sys, decoding; from decoding import errors; assert not {'torch', 'transformers'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
