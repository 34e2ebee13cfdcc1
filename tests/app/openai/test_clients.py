"""OpenAI's own client and pydantic-ai against a real server."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import jsonschema
import openai
import pytest
from openai import AsyncOpenAI, OpenAI

from tests.app.openai.client_requests import NAMED, PATTERN, S_MAX, SCHEMA, USER, chat, chunks, complete
from tests.long.clients import openai_client
from tests.long.clients.__main__ import CLIENT_S_MAX, ROOT
from tests.long.clients.checks import Check


@pytest.mark.parametrize(
    "spelling",
    [
        {"constraint": {"regex": PATTERN}}, {"structured_outputs": {"regex": PATTERN}}, {"guided_regex": PATTERN},
        {"regex": PATTERN}, {"grammar": {"type": "regex", "value": PATTERN}},
        {"response_format": {"type": "regex", "value": PATTERN}},
    ],
    ids=lambda spelling: next(iter(spelling)),
)
def test_a_pattern_in_every_server_s_spelling(ai: OpenAI, spelling: dict[str, Any]) -> None:
    answer = complete(ai, **spelling)
    assert re.fullmatch(PATTERN, answer.choices[0].text) and answer.choices[0].finish_reason == "stop"
    assert answer.id.startswith("cmpl-") and answer.model == "captions" and answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert answer.usage.completion_tokens <= 24


@pytest.mark.parametrize(
    "spelling",
    [
        {"response_format": NAMED}, {"structured_outputs": {"json": SCHEMA}}, {"guided_json": SCHEMA},
        {"guided_json": json.dumps(SCHEMA)}, {"json_schema": json.dumps(SCHEMA)}, {"json_schema": SCHEMA},
        {"grammar": {"type": "json", "value": SCHEMA}}, {"grammar": {"type": "json_schema", "value": SCHEMA}},
        {"grammar": {"type": "json_schema", "value": {"name": "pet", "schema": SCHEMA}}},
        {"response_format": {"type": "json_object", "schema": SCHEMA}}, {"constraint": {"json_schema": SCHEMA}},
    ],
    ids=lambda spelling: "-".join([*spelling, str(next(iter(next(iter(spelling.values())))))[:6]]),
)
def test_a_schema_in_every_server_s_spelling(ai: OpenAI, spelling: dict[str, Any]) -> None:
    answer = chat(ai, max_tokens=40, **spelling)
    jsonschema.validate(json.loads(answer.choices[0].message.content or ""), SCHEMA)
    assert answer.choices[0].message.role == "assistant" and answer.object == "chat.completion"


@pytest.mark.parametrize(
    "spelling",
    [{"response_format": {"type": "json_object"}}, {"structured_outputs": {"json_object": True}}],
    ids=lambda spelling: next(iter(spelling)),
)
@pytest.mark.parametrize("max_tokens", [3, 4, 40])
def test_any_json_object_is_complete(ai: OpenAI, spelling: dict[str, Any], max_tokens: int) -> None:
    answer = chat(ai, max_tokens=max_tokens, temperature=1.0, seed=3, **spelling)
    assert isinstance(json.loads(answer.choices[0].message.content or ""), dict)
    assert answer.choices[0].finish_reason == "stop"


LARK = 'start: "a " ("dog" | "cat") (" and " start)?\n'
GBNF = LARK.replace("start", "root").replace("root:", "root ::=")


@pytest.mark.parametrize(
    "spelling",
    [
        {"structured_outputs": {"grammar": LARK}}, {"structured_outputs": {"grammar": GBNF}},
        {"guided_grammar": LARK}, {"ebnf": GBNF}, {"grammar": GBNF},
        {"constraint": {"grammar": LARK, "syntax": "lark"}},
    ],
    ids=lambda spelling: "-".join([*spelling, str(next(iter(spelling.values())))[:24]]),
)
def test_a_grammar_in_every_server_s_spelling(ai: OpenAI, spelling: dict[str, Any]) -> None:
    options: dict[str, Any] = {"max_tokens": 12, "seed": 4, "temperature": 1.0, **spelling}
    answer = complete(ai, **options)
    assert re.fullmatch("a (dog|cat)( and a (dog|cat))*", answer.choices[0].text)
    streamed = "".join(chunk.choices[0].text for chunk in chunks(ai, **options) if chunk.choices)
    assert streamed == answer.choices[0].text
    chatted = chat(ai, **options | {"max_tokens": 3}).choices[0].message.content or ""
    assert re.fullmatch("a (dog|cat)", chatted)


def test_keywords_without_effect_are_listed_also_with_strict(ai: OpenAI) -> None:
    named = {"name": "pet", "schema": {"enum": ["dog", "cat"], "enmu": []}, "strict": True}
    options: Any = {"response_format": {"type": "json_schema", "json_schema": named}}
    assert complete(ai, **options).model_extra["not_enforced"] == ["/enmu"]  # type: ignore[index]
    chat = ai.chat.completions.create(model="captions", messages=USER, max_completion_tokens=40, **options)
    assert chat.model_extra["not_enforced"] == ["/enmu"]  # type: ignore[index]
    *_, end, last = chunks(ai, stream_options={"include_usage": True}, **options)
    assert end.model_extra["not_enforced"] == last.model_extra["not_enforced"] == ["/enmu"]  # type: ignore[index]
    chat_chunks = ai.chat.completions.create(
        model="captions", messages=USER, max_completion_tokens=40, stream=True, **options
    )
    *earlier, end = [chunk.model_extra for chunk in chat_chunks]
    assert end is not None and end["not_enforced"] == ["/enmu"]
    assert earlier and all("not_enforced" not in (extra or {}) for extra in earlier)


def test_deprecated_options_work_and_are_reported(ai: OpenAI) -> None:
    create = ai.completions.with_raw_response.create
    former = create(model="captions", prompt="sentence:", extra_body={"guided_choice": ["a dog", "a cat"]})
    assert former.parse().choices[0].text in ("a dog", "a cat")
    assert re.fullmatch(r"@[0-9]+", former.headers["deprecation"]) and former.headers["x-job-id"]
    now = create(model="captions", prompt="sentence:", extra_body={"structured_outputs": {"choice": ["a dog"]}})
    assert now.parse().choices[0].text == "a dog" and "deprecation" not in now.headers


def test_an_unconstrained_text_is_sampled_and_reproducible_by_seed(ai: OpenAI) -> None:
    one, two, other_seed = (complete(ai, seed=seed).choices[0].text for seed in (7, 7, 8))
    assert one == two and one != other_seed
    draw = complete(ai)
    assert draw.model_extra and complete(ai, seed=draw.model_extra["seed"]).choices[0].text == draw.choices[0].text
    assert complete(ai, temperature=0).choices[0].text == complete(ai, temperature=0).choices[0].text
    two_words = complete(ai, max_tokens=4, seed=1)
    assert two_words.choices[0].finish_reason == "length" and two_words.usage and two_words.usage.completion_tokens == 4


def test_a_constraint_uses_search_and_a_temperature_uses_sampling(ai: OpenAI) -> None:
    first = complete(ai, regex=PATTERN)
    variants: list[dict[str, Any]] = [
        {"temperature": 0}, {"use_beam_search": True}, {"best_of": 16}, {"beams": 16}, {"temperature": 0, "top_p": 1},
    ]
    assert {complete(ai, regex=PATTERN, **options).choices[0].text for options in variants} == {first.choices[0].text}
    assert first.model_extra and first.model_extra["seed"] is None
    draw = complete(ai, regex=PATTERN, temperature=1.0, seed=5)
    assert draw.model_extra and draw.model_extra["seed"] == 5
    assert re.fullmatch(PATTERN, draw.choices[0].text)
    repetition = complete(ai, automaton=first.model_extra["automaton"])
    assert repetition.choices[0].text == first.choices[0].text


def test_n_answers_and_the_best_of_more(ai: OpenAI) -> None:
    first = complete(ai, regex=PATTERN, n=3)
    assert len({choice.text for choice in first.choices}) == 3
    assert [choice.index for choice in first.choices] == [0, 1, 2]
    draw = complete(ai, n=4, seed=3, logprobs=0)
    best = complete(ai, n=2, best_of=4, seed=3, logprobs=0)
    texts = [choice.text for choice in draw.choices]
    best_texts = [choice.text for choice in best.choices]
    assert len(best_texts) == 2 and set(best_texts) < set(texts) and best.usage == draw.usage


def test_log_probs_cover_the_tokens_of_the_text(ai: OpenAI) -> None:
    for options in ({"regex": "(café|naïve)( dog)?"}, {"seed": 1}, {"seed": 2, "stop": " a"}):
        choice = complete(ai, logprobs=0, **options).choices[0]
        part = choice.logprobs
        assert part is not None and part.tokens and part.token_logprobs and part.text_offset is not None
        assert len(part.tokens) == len(part.token_logprobs) == len(part.text_offset)
        if "regex" not in options:
            assert "".join(part.tokens) == choice.text
            for at, token in zip(part.text_offset, part.tokens, strict=True):
                assert choice.text[at:].startswith(token)
        assert all(value is not None and value <= 0 for value in part.token_logprobs)
    answer = chat(ai, regex="(café|naïve)( dog)?", logprobs=True, top_logprobs=0).choices[0]
    assert answer.logprobs and answer.logprobs.content
    assert b"".join(bytes(one.bytes or []) for one in answer.logprobs.content).decode() == answer.message.content


def test_a_stop_string_ends_the_text_and_is_excluded(ai: OpenAI) -> None:
    stop_completions = [complete(ai, seed=seed, stop=[" the", " a", "zebra"], logprobs=0) for seed in range(3, 11)]
    assert not any(stop in answer.choices[0].text for answer in stop_completions for stop in (" the", " a"))
    taken_off = 0
    for answer in stop_completions:
        logprobs = answer.choices[0].logprobs
        assert logprobs and logprobs.tokens and answer.usage and answer.choices[0].finish_reason == "stop"
        taken_off += answer.usage.completion_tokens > len(logprobs.tokens) + 1
    assert taken_off > 2  # the model wrote them, as its ends
    choices = (complete(ai, seed=seed, stop=[" the", " a", "zebra"], logprobs=0).choices[0] for seed in range(40))
    at_once = next(choice for choice in choices if not choice.text)  # it begins with one
    assert at_once.logprobs and at_once.logprobs.tokens == []
    answer_text = complete(ai, constraint={"keywords": ["dog", "ball"]}, stop=["\n", " a"]).choices[0].text
    assert {"dog", "ball"} <= set(re.findall(r"\w+", answer_text)) and " a" not in answer_text
    assert re.fullmatch(PATTERN, complete(ai, regex=PATTERN, stop=" the").choices[0].text)
    several = complete(ai, max_tokens=12, constraint={"keywords": ["dog"]}, stop=["\n", " "], n=6)
    assert len({choice.text for choice in several.choices}) == len(several.choices) > 1  # none twice for its end's sake
    assert [choice.index for choice in several.choices] == list(range(len(several.choices)))
    lines = complete(ai, constraint={"ltlf": "F(dog)"}, stop="\n").choices[0].text
    assert "dog" in lines and "\n" not in lines


def test_an_echo_is_the_prompt_followed_by_the_answer(ai: OpenAI) -> None:
    plain_text, echo_text = (complete(ai, regex=PATTERN, echo=echo).choices[0].text for echo in (False, True))
    assert echo_text == f"sentence: {plain_text}"
    text_chunks = list(complete_stream(ai, regex=PATTERN, echo=True))
    assert "".join(text_chunks) == echo_text and text_chunks[0] == "sentence:"


def complete_stream(ai: OpenAI, **options: Any) -> Iterator[str]:
    for chunk in chunks(ai, **options):
        assert chunk.object == "text_completion" and chunk.id.startswith("cmpl-")
        yield from (choice.text for choice in chunk.choices if choice.index == 0)


@pytest.mark.parametrize(
    "options",
    [
        {"seed": 3}, {"seed": 4, "n": 3}, {"regex": PATTERN}, {"regex": PATTERN, "n": 3},
        {"regex": "[^d]{3,30}", "seed": 1},
        {"constraint": {"keywords": ["dog", "ball"]}}, {"constraint": {"ltlf": "F(dog)"}, "algorithm": "abs"},
        {"seed": 5, "stop": [" a", "."]}, {"json_schema": SCHEMA}, {"regex": PATTERN, "temperature": 1.0, "seed": 2},
        {"regex": "( dog|cat)( [a-z]+){2}"}, {"response_format": {"type": "text"}, "temperature": 0},
    ],
    ids=str,
)
def test_a_stream_put_together_is_the_answer(ai: OpenAI, options: dict[str, Any]) -> None:
    full_completion = complete(ai, logprobs=0, **options)
    texts, ends, part, tokens = dict[int, str](), dict[int, str](), None, dict[int, list[str]]()
    for chunk in chunks(ai, logprobs=0, stream_options={"include_usage": True}, **options):
        for choice in chunk.choices:
            assert choice.index not in ends  # nothing comes after the end
            texts[choice.index] = texts.get(choice.index, "") + choice.text
            if choice.finish_reason:
                ends[choice.index] = choice.finish_reason
            if choice.logprobs:
                tokens[choice.index] = tokens.get(choice.index, []) + list(choice.logprobs.tokens or [])
        part = chunk.usage or part
    assert texts == {choice.index: choice.text for choice in full_completion.choices}
    assert ends == {choice.index: choice.finish_reason for choice in full_completion.choices}
    assert tokens == {choice.index: choice.logprobs.tokens for choice in full_completion.choices if choice.logprobs}
    assert part == full_completion.usage


def test_a_chat_stream_starts_with_the_role(ai: OpenAI) -> None:
    stream = ai.chat.completions.create(model="captions", messages=USER, stream=True, seed=6)
    deltas = [choice.delta for chunk in stream for choice in chunk.choices]
    assert deltas[0].role == "assistant" and all(delta.role is None for delta in deltas[1:])
    assert "".join(delta.content or "" for delta in deltas) == chat(ai, seed=6).choices[0].message.content
    assert len(deltas) > 3


def test_the_models_template_makes_the_prompt(ai: OpenAI) -> None:
    direct = complete(ai, prompt="concepts: dog, frisbee, catch\nsentence:", regex=PATTERN)
    assert chat(ai, regex=PATTERN, max_tokens=24).choices[0].message.content == direct.choices[0].text
    turns: Any = [
        {"role": "developer", "content": [{"type": "text", "text": "Captions."}]}, {"role": "user", "content": "cat"},
        {"role": "assistant", "content": "A cat sleeps."}, {"role": "user", "content": "dog"},
    ]
    prompt_text = "Captions.\nconcepts: cat\nsentence: A cat sleeps.\nconcepts: dog\nsentence:"
    direct = complete(ai, prompt=[prompt_text], regex=PATTERN)
    answer = chat(ai, turns, regex=PATTERN, max_completion_tokens=24)
    assert answer.choices[0].message.content == direct.choices[0].text


def test_the_default_budget_is_the_remaining_context(ai: OpenAI, captions_dir: Path) -> None:
    context = json.loads((captions_dir / "config.json").read_text())["max_position_embeddings"]
    words = "a dog and " * context
    prompt = words[: words.index(" ", 10 * (context // 3 - 2))]
    part = complete(ai, prompt, max_tokens=2, regex="[a-z]").usage
    assert part
    room = context - part.prompt_tokens + 1  # the last token is written, never read
    assert 2 < room < 10, "or else this shows little"
    short_sample = ai.completions.create(model="captions", prompt=prompt, seed=1, n=8)
    assert "length" in {choice.finish_reason for choice in short_sample.choices}
    assert short_sample.usage and short_sample.usage.completion_tokens <= 8 * room
    with pytest.raises(openai.BadRequestError, match="maximum context length"):
        complete(ai, prompt, max_tokens=room + 1, regex="[a-z]")


def test_default_options_of_clients_do_not_change_the_answer(ai: OpenAI) -> None:
    defaults: dict[str, Any] = {
        "best_of": 1, "frequency_penalty": 0, "presence_penalty": 0.0, "logit_bias": {}, "n": 1, "top_p": 1,
        "user": "anna", "stop": None, "suffix": None, "stream": False, "logprobs": None,
    }
    assert complete(ai, regex=PATTERN, **defaults).choices == complete(ai, regex=PATTERN).choices
    of_vllm = {
        "early_stopping": False, "stop_token_ids": [], "include_stop_str_in_output": False, "skip_special_tokens": True,
        "spaces_between_special_tokens": True, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0,
    }
    body = {"regex": PATTERN, **of_vllm}
    assert ai.completions.create(model="captions", prompt="sentence:", max_tokens=24, extra_body=body).choices
    chats: dict[str, Any] = {
        "tools": [], "tool_choice": "none", "metadata": {"a": "b"}, "store": False, "modalities": ["text"],
    }
    assert chat(ai, regex=PATTERN, **chats).choices == chat(ai, regex=PATTERN).choices


async def test_the_async_client_sends_many_requests_and_streams(url: str, ai: OpenAI) -> None:
    async with AsyncOpenAI(base_url=url, api_key="none", timeout=S_MAX) as client:
        create = partial(client.chat.completions.create, model="captions", messages=USER, max_tokens=12)
        answers = await asyncio.gather(*(create(seed=seed) for seed in range(4)))
        parts: list[str] = []
        async for chunk in await create(seed=0, stream=True):
            parts += [choice.delta.content or "" for choice in chunk.choices]
    texts = [answer.choices[0].message.content for answer in answers]
    assert texts == [chat(ai, seed=seed, max_tokens=12).choices[0].message.content for seed in range(4)]
    assert "".join(parts) == texts[0]


def test_an_error_is_the_clients_exception_with_our_code(ai: OpenAI) -> None:
    error_cases: list[tuple[type[openai.APIStatusError], str, str | None, dict[str, Any]]] = [
        (openai.UnprocessableEntityError, "budget_too_small", "max_tokens", {"regex": "a{40}", "max_tokens": 4}),
        (openai.UnprocessableEntityError, "constraint_syntax", "guided_regex", {"guided_regex": "a(b"}),
        (openai.UnprocessableEntityError, "constraint_syntax", "guided_regex", {"guided_regex": "a(b", "stop": "x"}),
        (openai.UnprocessableEntityError, "constraint_unsatisfiable", None, {"constraint": {"ltlf": "F(a) & G(!a)"}}),
        (openai.NotFoundError, "unknown_automaton", None, {"automaton": "0" * 64}),
        (openai.UnprocessableEntityError, "invalid_request", "max_tokens", {"max_tokens": 100_000}),
    ]
    for kind, code, param, options in error_cases:
        with pytest.raises(kind) as error:
            complete(ai, **options)
        assert (error.value.code, error.value.param) == (code, param), error.value.body
        assert error.value.type == "invalid_request_error"
        with pytest.raises(kind):
            complete(ai, stream=True, **options)
    with pytest.raises(openai.NotFoundError) as unknown:
        ai.completions.create(model="gpt-4", prompt="a")
    assert unknown.value.code == "unknown_model"


@pytest.mark.parametrize("check", openai_client.CHECKS, ids=lambda check: check.__name__)
def test_the_checks_of_the_openai_client_pass(check: Check, url: str) -> None:
    check(url)


@pytest.mark.long  # `make clients` runs the same checks
def test_the_checks_of_pydantic_ai_pass(url: str) -> None:
    # In a process of its own, as by `make clients`: it does not close the connections of its default client.
    command = [sys.executable, "-m", "tests.long.clients.pydantic_ai_client", url]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=CLIENT_S_MAX, check=False)
    results = [json.loads(line) for line in process.stdout.splitlines()]
    assert results, process.stderr
    assert [result for result in results if result["error"]] == []
