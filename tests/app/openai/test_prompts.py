"""Several prompts, prompts of token ids, echoes and suffixes of completions."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from starlette.testclient import TestClient

from app.errors import InvalidRequest
from app.messages import GenerationOptions
from app.models import open_model_files
from app.models.tokenizer import open_tokenizer
from app.openai.requests import CompletionRequest
from app.openai.translate import infill_tokens, translations
from app.requests import seeded_apart
from app.settings import BUILT_IN_MODEL

FILES = open_model_files(BUILT_IN_MODEL)
TOKENIZER = open_tokenizer(FILES.tokenizer_file, FILES.vocabulary.size)
PROMPTS = ["sentence:", "a dog runs"]
OPTIONS: list[dict[str, Any]] = [
    {"seed": 3, "n": 2}, {"regex": "[a-z ]{3,30}", "n": 3}, {"seed": 1, "n": 2, "best_of": 3, "stop": " a"},
    {"regex": "[a-z ]{3,30}", "logprobs": 0, "temperature": 1.0, "seed": 2}, {"echo": True, "seed": 3},
]  # fmt: skip


def complete(client: TestClient, prompt: Any, **options: Any) -> Any:
    response = client.post("/v1/completions", json={"prompt": prompt, "max_tokens": 12, **options})
    assert response.status_code == 200, response.text
    return response.json()


def streamed(client: TestClient, prompt: Any, **options: Any) -> tuple[dict[int, str], Any]:
    """The texts of a stream by index, and its usage."""
    body = {"prompt": prompt, "max_tokens": 12, "stream": True, "stream_options": {"include_usage": True}, **options}
    text = client.post("/v1/completions", json=body).text
    lines = [line[6:] for line in text.splitlines() if line.startswith("data:")]
    assert lines.pop() == "[DONE]"
    texts, usage = dict[int, str](), None
    for chunk in map(json.loads, lines):
        usage = chunk["usage"] or usage
        for choice in chunk["choices"]:
            texts[choice["index"]] = texts.get(choice["index"], "") + choice["text"]
    return texts, usage


def alone(client: TestClient, number: int, options: dict[str, Any]) -> Any:
    """The answers to a prompt by itself. Its seed is that among several."""
    if "seed" in options:
        sampled = GenerationOptions(max_tokens=12, algorithm="sample", seed=options["seed"])
        options = options | {"seed": seeded_apart(sampled, number).seed}
    return complete(client, PROMPTS[number], **options)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_several_prompts_are_answered_as_one_by_one(options: dict[str, Any], client: TestClient) -> None:
    together, n = complete(client, PROMPTS, **options), options.get("n", 1)
    apart = [alone(client, number, options) for number in range(len(PROMPTS))]
    expected = {
        choice["index"] + n * number: choice | {"index": choice["index"] + n * number}
        for number, answer in enumerate(apart)
        for choice in answer["choices"]
    }
    assert {choice["index"]: choice for choice in together["choices"]} == expected
    assert together["usage"] == {name: sum(answer["usage"][name] for answer in apart) for name in together["usage"]}
    if "best_of" not in options:
        texts, usage = streamed(client, PROMPTS, **options)
        assert texts == {index: choice["text"] for index, choice in expected.items()} and usage == together["usage"]


def test_one_seed_repeats_the_answers_to_all_prompts(client: TestClient) -> None:
    first = complete(client, PROMPTS)
    assert complete(client, PROMPTS, seed=first["seed"])["choices"] == first["choices"]


def test_equal_prompts_draw_by_themselves(client: TestClient) -> None:
    answers = [complete(client, 4 * PROMPTS[:1], seed=5, temperature=1.0) for _ in range(2)]
    assert answers[0]["choices"] == answers[1]["choices"]
    assert len({choice["text"] for choice in answers[0]["choices"]}) > 1


def test_an_idempotency_key_repeats_all_prompts(client: TestClient) -> None:
    def ask(prompts: list[str]) -> Any:
        body = {"prompt": prompts, "max_tokens": 6}
        return client.post("/v1/completions", json=body, headers={"idempotency-key": "prompts-1"})

    one, two = ask(PROMPTS), ask(PROMPTS)
    assert one.json()["choices"] == two.json()["choices"] and one.headers["x-job-id"] == two.headers["x-job-id"]
    assert len(one.headers["x-job-id"].split(", ")) == len(PROMPTS)
    assert ask(PROMPTS[:1]).json()["error"]["code"] == "idempotency_mismatch"


@pytest.mark.parametrize("options", [{"seed": 3}, {"regex": "[a-z ]{3,30}", "n": 2}, {"seed": 3, "echo": True}])
def test_token_ids_are_answered_as_their_text(options: dict[str, Any], client: TestClient) -> None:
    ids = [TOKENIZER.encode(prompt).ids for prompt in PROMPTS]
    by_text = complete(client, PROMPTS, **options)
    assert complete(client, ids, **options)["choices"] == by_text["choices"]
    assert complete(client, ids[0], **options)["choices"] == complete(client, PROMPTS[0], **options)["choices"]
    assert complete(client, [ids[0], PROMPTS[1]], **options)["choices"] == by_text["choices"]


def test_a_failing_prompt_fails_the_request(client: TestClient) -> None:
    response = client.post("/v1/completions", json={"prompt": [PROMPTS[0], "a dog " * 2_000], "max_tokens": 12})
    assert response.status_code == 400 and response.json()["error"]["code"] == "context_length_exceeded"


@pytest.mark.parametrize(
    "options",
    [{}, {"regex": "[a-z]+( [a-z]+)*"}, {"stop": ["q", " a"]}, {"temperature": 1.0, "seed": 4, "n": 3}],
)
def test_an_answer_fits_between_prompt_and_suffix(options: dict[str, Any], client: TestClient) -> None:
    suffix = " on the beach."
    answer = complete(client, "a dog", suffix=suffix, logprobs=0, **options)
    for choice in answer["choices"]:
        text = choice["text"]
        assert "".join(choice["logprobs"]["tokens"]).lstrip() == text.lstrip() and choice["finish_reason"] == "stop"
        assert not options.get("regex") or re.fullmatch(options["regex"], text)
        assert not any(stop in text for stop in options.get("stop", ()))
        assert suffix not in text
    texts, usage = streamed(client, "a dog", suffix=suffix, **options)
    assert texts == {choice["index"]: choice["text"] for choice in answer["choices"]} and usage == answer["usage"]


def test_an_infilled_text_is_the_best_with_its_suffix(client: TestClient) -> None:
    suffix, regex = " on the beach.", " (runs|sleeps|qqq)"
    answer = complete(client, "a dog", suffix=suffix, regex=regex)["choices"][0]["text"]
    spec = {"sequence": [{"regex": regex}, suffix]}
    body = {"prompt": "a dog", "constraint": spec, "max_tokens": 24, "beams": 16}
    assert client.post("/generate", json=body).json()["choices"][0]["text"].removesuffix(suffix) == answer


def test_a_model_with_infill_tokens_reads_the_suffix_first() -> None:
    names = {"<|fim_prefix|>": 1, "<|fim_suffix|>": 2, "<|fim_middle|>": 3}
    files = replace(FILES, vocabulary=replace(FILES.vocabulary, names=names))
    assert infill_tokens(FILES) is None and infill_tokens(files) is not None
    request = CompletionRequest.model_validate({"prompt": ["a", "b"], "suffix": "c"})
    first, second = translations(request, files, 64)
    assert first.params.prompt == "<|fim_prefix|>a<|fim_suffix|>c<|fim_middle|>"
    assert second.params.prompt == "<|fim_prefix|>b<|fim_suffix|>c<|fim_middle|>" and not first.suffix
    with pytest.raises(InvalidRequest, match="suffix"):
        translations(CompletionRequest.model_validate({"prompt": [1, 2], "suffix": "c"}), files, 64)
