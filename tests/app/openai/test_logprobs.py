"""Log-probs on the OpenAI paths, and options that change probabilities."""

from __future__ import annotations

import math
from typing import Any

import pytest
from starlette.testclient import TestClient

from app.models import open_model_files
from app.models.tokenizer import open_tokenizer
from app.settings import BUILT_IN_MODEL

FILES = open_model_files(BUILT_IN_MODEL)
TOKENIZER = open_tokenizer(FILES.tokenizer_file, FILES.vocabulary.size)
USER = [{"role": "user", "content": "dog, frisbee, catch"}]
COMPLETIONS, CHATS = "/v1/completions", "/v1/chat/completions"


def ask(client: TestClient, path: str, **body: Any) -> Any:
    response = client.post(path, json={"max_tokens": 12, **body})
    assert response.status_code == 200, response.text
    return response.json()


def test_a_chat_lists_probabilities_with_and_without_constraint(client: TestClient) -> None:
    options = {"messages": USER, "regex": "(cats|dogs)( run)?", "logprobs": True}
    choice = ask(client, CHATS, **options, top_logprobs=5)["choices"][0]
    content = choice["logprobs"]["content"]
    assert b"".join(bytes(token["bytes"]) for token in content).decode() == choice["message"]["content"]
    for token in content:
        assert len(token["top_logprobs"]) == 5 and token["logprob"] <= token["constrained_logprob"] + 1e-6
        values = [other["logprob"] for other in token["top_logprobs"]]
        assert values == sorted(values, reverse=True) and max(values) >= token["logprob"] - 1e-6
    tops = [other for token in content for other in token["top_logprobs"]]
    assert any(other["constrained_logprob"] is None for other in tops)  # the model would write something else
    plain = ask(client, CHATS, **options)["choices"][0]["logprobs"]["content"]
    assert [token["logprob"] for token in plain] == [token["logprob"] for token in content]
    assert all(token["top_logprobs"] == [] and token["constrained_logprob"] is None for token in plain)


def test_alternatives_are_shown_as_they_would_stand_in_answers(client: TestClient) -> None:
    # The model writes " a", and the answer begins behind the space.
    choice = ask(client, CHATS, messages=USER, regex="a [a-z]+", logprobs=True, top_logprobs=5)["choices"][0]
    first = choice["logprobs"]["content"][0]
    assert first["token"] == "a"
    assert [other["token"] for other in first["top_logprobs"] if other["logprob"] == first["logprob"]] == ["a"]


def test_all_allowed_tokens_together_have_probability_one(client: TestClient) -> None:
    options = {"prompt": "a", "constraint": {"regex": "[ab]", "leading_space": "forbid"}, "max_tokens": 2}
    trace = ask(client, "/generate", **options, trace=True, top_log_probs=20)["choices"][0]["trace"]
    first, last = trace
    assert last["constrained_log_prob"] == pytest.approx(0.0, abs=1e-6)  # only the end may follow
    allowed = [other for other in first["top_log_probs"] if other["constrained_log_prob"] is not None]
    assert sum(math.exp(other["constrained_log_prob"]) for other in allowed) <= 1 + 1e-6


def test_a_completion_lists_the_top_tokens_and_its_own(client: TestClient) -> None:
    choice = ask(client, COMPLETIONS, prompt="sentence:", regex="( zebra| dog){2}", logprobs=3)["choices"][0]
    part = choice["logprobs"]
    for token, log_prob, top in zip(part["tokens"], part["token_logprobs"], part["top_logprobs"], strict=True):
        assert token in top and 1 <= len(top) <= 4 and max(top.values()) >= log_prob
    plain = ask(client, COMPLETIONS, prompt="a", seed=1, logprobs=0)["choices"][0]["logprobs"]
    assert plain["top_logprobs"] is plain["constrained_top_logprobs"] is plain["constrained_token_logprobs"] is None


@pytest.mark.parametrize("options", [{}, {"algorithm": "sample", "seed": 3, "temperature": 1.0, "n": 2}])
def test_completions_list_probabilities_under_the_constraint(client: TestClient, options: dict[str, Any]) -> None:
    """They are those of the trace of the same generation."""
    body = {"prompt": "sentence:", "constraint": {"regex": "( zebra| dog){2}"}, **options}
    native = ask(client, "/generate", **body, trace=True, top_log_probs=20)["choices"]
    answer = ask(client, COMPLETIONS, **body, logprobs=20, echo=True)
    prompt = client.post("/tokenize", json={"prompt": "sentence:"}).json()["tokens"]
    assert len(answer["choices"]) == options.get("n", 1)
    for choice, mine in zip(answer["choices"], native, strict=False):
        logprobs, steps = choice["logprobs"], mine["trace"][:-1]
        constrained, tops = logprobs["constrained_token_logprobs"], logprobs["constrained_top_logprobs"]
        assert constrained[: len(prompt)] == tops[: len(prompt)] == [None] * len(prompt)
        assert constrained[len(prompt) :] == pytest.approx([step["constrained_log_prob"] for step in steps], abs=1e-4)
        for number, step in enumerate(steps, len(prompt)):
            token, top, own = logprobs["tokens"][number], tops[number], logprobs["top_logprobs"][number]
            assert top.keys() <= own.keys() and top[token] >= constrained[number]
            assert all(value >= own[text] - 1e-6 for text, value in top.items())
            allowed = [other for other in step["top_log_probs"] if other["constrained_log_prob"] is not None]
            assert len(top) <= len(allowed) + 1
    assert any(len(top) < len(own) for top, own in zip(tops, logprobs["top_logprobs"], strict=True) if top)


def test_a_bias_forbids_a_token_but_not_the_constraint(client: TestClient) -> None:
    first = ask(client, COMPLETIONS, prompt="sentence:", seed=4, max_tokens=8, temperature=0.5)["choices"][0]["text"]
    ids = TOKENIZER.encode(first, add_special_tokens=False).ids
    bias = {str(token): -100 for token in ids}
    biased = ask(client, COMPLETIONS, prompt="sentence:", seed=4, max_tokens=8, temperature=0.5, logit_bias=bias)
    assert not set(TOKENIZER.encode(biased["choices"][0]["text"], add_special_tokens=False).ids) & set(ids)
    every = {str(token): -100 for token in range(1000)}
    forced = ask(client, COMPLETIONS, prompt="sentence:", regex="a dog", logit_bias=every)
    assert forced["choices"][0]["text"] == "a dog" and forced["seed"] is not None


def test_penalties_change_the_greedy_text_at_temperature_zero(client: TestClient) -> None:
    greedy: dict[str, Any] = {"prompt": "a dog a dog a dog", "temperature": 0, "algorithm": "sample", "max_tokens": 24}
    texts = [ask(client, COMPLETIONS, **greedy)["choices"][0]["text"]]
    for penalty in ({"frequency_penalty": 2}, {"presence_penalty": 2}, {"repetition_penalty": 5}):
        del greedy["algorithm"]
        texts.append(ask(client, COMPLETIONS, **greedy, **penalty)["choices"][0]["text"])
        greedy["algorithm"] = "sample"
    assert len(set(texts)) > 1
    neutral = {"frequency_penalty": 0, "presence_penalty": 0, "repetition_penalty": 1, "top_k": -1, "min_p": 0}
    assert ask(client, COMPLETIONS, **greedy, **neutral, logit_bias={})["choices"][0]["text"] == texts[0]


@pytest.mark.parametrize("option", [{"top_k": 1}, {"min_p": 1.0}, {"top_p": 0.01}])
def test_truncations_to_one_token_take_the_most_probable(option: dict[str, Any], client: TestClient) -> None:
    best = ask(client, COMPLETIONS, prompt="sentence:", temperature=0, algorithm="sample")["choices"][0]["text"]
    answer = ask(client, COMPLETIONS, prompt="sentence:", temperature=1.0, seed=9, n=2, **option)
    assert {choice["text"] for choice in answer["choices"]} == {best}


@pytest.mark.parametrize("options", [{"seed": 2}, {"regex": "[a-z ]{3,20}", "n": 2}])
def test_an_echoed_prompt_has_the_model_s_log_probs(options: dict[str, Any], client: TestClient) -> None:
    """Written tokens have the same log-probs as a part of the prompt."""
    first = {"prompt": "sentence:", "constraint": {"min_words": 3}, "algorithm": "sample", "seed": 5, "max_tokens": 9}
    written = client.post("/generate", json={**first, "trace": True}).json()["choices"][0]["trace"][:-1]
    ids = client.post("/tokenize", json={"prompt": "sentence:"}).json()["tokens"]
    prompt = [*ids, *(step["token"] for step in written)]
    answer = ask(client, COMPLETIONS, prompt=prompt, echo=True, logprobs=3, max_tokens=5, **options)
    plain = ask(client, COMPLETIONS, prompt=prompt, echo=True, max_tokens=5, **options)
    for choice, other in zip(answer["choices"], plain["choices"], strict=True):
        logprobs, text = choice["logprobs"], choice["text"]
        assert "".join(logprobs["tokens"]) == text == other["text"]
        pairs = zip(logprobs["text_offset"], logprobs["tokens"], strict=True)
        assert all(text[at : at + len(token)] == token for at, token in pairs)
        assert logprobs["token_logprobs"][0] is None and logprobs["top_logprobs"][0] is None
        found = logprobs["token_logprobs"][len(ids) : len(prompt)]
        assert found == pytest.approx([step["log_prob"] for step in written], abs=1e-3)
        for token, value, top in list(zip(logprobs["tokens"], logprobs["token_logprobs"], logprobs["top_logprobs"],
                                          strict=True))[1:]:  # fmt: skip
            assert top[token] >= value - 1e-9 and max(top.values()) >= value
    by_text = ask(client, COMPLETIONS, prompt="sentence:", echo=True, logprobs=0, max_tokens=5, **options)
    assert by_text["choices"][0]["logprobs"]["token_logprobs"][1 : len(ids)] == pytest.approx(
        answer["choices"][0]["logprobs"]["token_logprobs"][1 : len(ids)], abs=1e-3
    )


def test_a_search_takes_penalties(client: TestClient) -> None:
    """The changed model decides the text; the log-probs stay the model's own."""
    body = {"prompt": "sentence:", "regex": "([a-z]+ ){4}[a-z]+", "beams": 8, "max_tokens": 16, "logprobs": 0}
    plain = ask(client, COMPLETIONS, **body)["choices"][0]
    for penalty in ({"frequency_penalty": 2}, {"presence_penalty": 2}, {"repetition_penalty": 5}):
        choice = ask(client, COMPLETIONS, **body, **penalty)["choices"][0]
        assert len(choice["text"].split()) == 5
        assert sum(choice["logprobs"]["token_logprobs"]) <= 0
    first = client.post("/tokenize", json={"prompt": " " + plain["text"].split()[0]}).json()["tokens"]
    bias = dict.fromkeys(map(str, first), -100)
    assert ask(client, COMPLETIONS, **body, logit_bias=bias)["choices"][0]["text"] != plain["text"]
    direct = {"prompt": "sentence:", "constraint": {"regex": "([a-z]+ ){4}[a-z]+"}, "max_tokens": 16, "trace": True}
    for algorithm in ("banked", "abs"):
        for more in ({"presence_penalty": 1.5}, {"logit_bias": bias}):
            answer = client.post("/generate", json={**direct, "algorithm": algorithm, **more}).json()["choices"][0]
            assert answer["satisfied"] and answer["log_prob"] == pytest.approx(
                sum(step["log_prob"] for step in answer["trace"]), abs=1e-6
            )
