"""Unknown fields are ignored and named, unless they may be a constraint."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError
from starlette.testclient import TestClient

from app.errors import InvalidRequest, UnknownField
from app.models import open_model_files
from app.openai.requests import CONSTRAINT_FIELDS, ChatRequest, CompletionRequest
from app.openai.unknown_fields import FIELDS_MAX, HEADER, edit_distance, header_of, ignored_fields
from app.settings import BUILT_IN_MODEL

MESSAGE = {"role": "user", "content": "dog, frisbee, catch"}
# Sent by clients and servers that exist, and harmless here.
HARMLESS = (
    "typical_p", "mirostat", "cache_prompt", "user_id", "title", "provider", "route", "transforms", "enable_thinking",
    "chat_id", "id", "index", "type", "request_id", "return_token_ids", "num_ctx", "keep_alive", "safe_prompt",
)  # fmt: skip


def chat(**fields: Any) -> ChatRequest:
    return ChatRequest.model_validate({"messages": [MESSAGE], **fields})


def test_fields_of_other_servers_are_named_at_every_level() -> None:
    call = {"index": 0, "type": "function", "function": {"name": "a", "arguments": "{}"}}
    turns = [MESSAGE | {"weight": 1}, {"role": "assistant", "reasoning_details": "a", "tool_calls": [call]}]
    tool = {"type": "function", "function": {"name": "a", "returns": {}}, "cache_control": {}}
    body = chat(messages=turns * 3, tools=[tool], stream_options={"every": 1}, mirostat=2)
    paths = ignored_fields(body, "ignore")
    assert set(paths) == {
        "mirostat", "messages.*.weight", "messages.*.reasoning_details", "messages.*.tool_calls.*.index",
        "tools.*.cache_control", "tools.*.function.returns", "stream_options.every",
    }
    assert header_of(paths)[HEADER].split(", ") == list(paths) and header_of(()) == {}


@pytest.mark.parametrize("name", HARMLESS)
def test_harmless_fields_are_ignored(name: str) -> None:
    assert ignored_fields(chat(**{name: 1}), "ignore") == (name,)


@pytest.mark.parametrize("name", CONSTRAINT_FIELDS)
def test_no_misspelling_of_a_constraint_is_ignored(name: str) -> None:
    variants = {name[1:], name + "s", name[0] + name[2:], name[:2] + "x" + name[2:], name[1] + name[0] + name[2:]}
    variants |= {name.upper(), name.replace("_", "-"), name.replace("_", ""), name[:-2], name + "__"}
    for variant in variants - set(ChatRequest.model_fields):
        with pytest.raises(UnknownField) as refused:
            ignored_fields(CompletionRequest.model_validate({"prompt": "a", variant: 1}), "ignore")
        assert "did you mean" in refused.value.errors[0]["message"]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("nvext", "structured_outputs"), ("bad_words", "constraint"), ("reasoning", "reasoning_effort"),
        ("max_thinking_token", "max_thinking_tokens"), ("ltlf", "constraint"), ("keywords", "constraint"),
    ],
)  # fmt: skip
def test_constraints_and_budgets_elsewhere_are_refused(name: str, meant: str) -> None:
    with pytest.raises(UnknownField, match=meant):
        ignored_fields(chat(**{name: {}}), "ignore")


@pytest.mark.parametrize(
    ("path", "fields", "field", "meant"),
    [
        ("responses", {"text": {"fromat": 1}}, "text.fromat", "format"),
        ("responses", {"txt": {}}, "txt", "text"),
        ("responses", {"max_output_token": 5}, "max_output_token", "max_output_tokens"),
        ("responses", {"reasoning": {"efort": "low"}}, "reasoning.efort", "effort"),
        ("responses", {"tools": [{"type": "custom", "name": "a", "fromat": {}}]}, "tools.*.fromat", "format"),
        ("responses", {"tools": [{"type": "custom", "name": "a", "grammar": {}}]}, "tools.*.grammar", "format"),
        ("responses", {"tools": [{"type": "function", "name": "a", "paramters": {}}]}, "tools.*.paramters",
         "parameters"),
        ("messages", {"output_confg": {}}, "output_confg", "output_config"),
        ("messages", {"output_config": {"fromat": {}}}, "output_config.fromat", "format"),
        ("messages", {"stop_sequence": ["a"]}, "stop_sequence", "stop_sequences"),
        ("messages", {"thinking": {"type": "enabled", "budget_token": 1}}, "thinking.budget_token", "budget_tokens"),
        ("messages", {"tools": [{"name": "a", "input_schem": {}}]}, "tools.*.input_schem", "input_schema"),
        ("chat/completions", {"tools": [{"type": "custom", "custom": {"name": "a", "fromat": {}}}]},
         "tools.*.custom.fromat", "format"),
        ("chat/completions", {"tools": [{"type": "custom", "custom": {"name": "a", "grammar": {}}}]},
         "tools.*.custom.grammar", "format"),
        ("chat/completions", {"extra_body": {"guided_json": {}}}, "extra_body.guided_json", "guided_json"),
        ("chat/completions", {"sampling_params": {"regex": "a"}}, "sampling_params.regex", "regex"),
        ("chat/completions", {"options": {"num_predict": 5}}, "options.num_predict", "max_tokens"),
        ("chat/completions", {"structural_tag": "{}"}, "structural_tag", "response_format"),
        ("chat/completions", {"reasoning_budget": 5}, "reasoning_budget", "max_thinking_tokens"),
        ("chat/completions", {"messages": [MESSAGE | {"regex": "a"}]}, "messages.*.regex", "regex"),
        ("chat/completions", {"functions": [{"name": "a"}]}, "functions", "tools"),
        ("chat/completions", {"function_call": {"name": "a"}}, "function_call", "tool_choice"),
        ("chat/completions", {"min_tokens": 5}, "min_tokens", "constraint"),
        ("chat/completions", {"ignore_eos": True}, "ignore_eos", "constraint"),
        ("chat/completions", {"stop_token_ids": [7]}, "stop_token_ids", "stop"),
        ("chat/completions", {"messages": [{"role": "assistant", "content": "a", "function_call": {}}, MESSAGE]},
         "messages.*.function_call", "tool_calls"),
        ("chat/completions", {"structured_outputs": {"whitespace_pattern": " ?"}},
         "structured_outputs.whitespace_pattern", "constraint"),
        ("chat/completions", {"structured_outputs": {"regx": "a"}}, "structured_outputs.regx", "regex"),
        ("chat/completions", {"response_format": {"type": "json_schema", "json_schema": {"schma": {}, "schema": {}}}},
         "response_format.json_schema.schma", "schema"),
        ("chat/completions", {"response_format": {"type": "grammar", "grammar": "a"}}, "response_format.type",
         "grammar"),
        ("chat/completions", {"response_format": {"type": "regex", "pattern": "a"}}, "response_format.type", "regex"),
        ("responses", {"min_tokens": 5}, "min_tokens", "constraint"),
        ("responses", {"max_tool_calls": 2}, "max_tool_calls", "parallel_tool_calls"),
        ("responses", {"text": {"format": {"type": "json_schema", "name": "a", "schema": {}, "schem": {}}}},
         "text.format.schem", "schema"),
        ("messages", {"stop_token_ids": [7]}, "stop_token_ids", "stop"),
    ],
)  # fmt: skip
def test_no_path_ignores_what_may_be_a_constraint(
    path: str, fields: dict[str, Any], field: str, meant: str, client: TestClient
) -> None:
    body = ({"input": "a"} if path == "responses" else {"messages": [MESSAGE], "max_tokens": 5}) | fields
    answer = client.post(f"/v1/{path}", json=body)
    error = answer.json()["error"]
    assert answer.status_code == 400 and field in error["message"] and f"did you mean `{meant}`" in error["message"]


@pytest.mark.parametrize(
    ("path", "body", "ignored"),
    [
        ("responses", {"input": [MESSAGE | {"foo": 1}], "tools": [{"type": "function", "name": "a", "returns": 1}]},
         "tools.*.returns, input.*.foo"),
        ("responses", {"input": [{"role": "user", "content": [{"type": "input_text", "text": "a", "foo": 1}]}]},
         "input.*.content.*.foo"),
        ("messages", {"messages": [MESSAGE | {"foo": 1}], "max_tokens": 30}, "messages.*.foo"),
        ("chat/completions", {"messages": [MESSAGE], "structural_tag": None, "options": {"num_ctx": 1}},
         "structural_tag, options, options.num_ctx"),
    ],
)  # fmt: skip
def test_every_path_names_what_it_ignores(path: str, body: dict[str, Any], ignored: str, client: TestClient) -> None:
    answer = client.post(f"/v1/{path}", json=body)
    assert (answer.status_code, answer.headers[HEADER]) == (200, ignored)


def test_a_near_type_of_a_format_is_named(client: TestClient) -> None:
    body = {"messages": [MESSAGE], "response_format": {"type": "jsonobject"}}
    answer = client.post("/v1/chat/completions", json=body)
    assert answer.status_code == 400 and 'did you mean "json_object"' in answer.json()["error"]["message"]


@pytest.mark.parametrize("path", ["chat/completions", "responses", "completions", "messages"])
def test_values_without_effect_are_accepted(client: TestClient, path: str) -> None:
    neutral = {"min_tokens": 0, "stop_token_ids": [], "ignore_eos": False, "seed": -1, "priority": 0, "bad_words": [],
               "logits_processors": [], "min_length": 0, "stream_options": {"continuous_usage_stats": True},
               "structured_outputs": {"regex": "[a-z]{1,3}", "whitespace_pattern": None}, "max_tokens": 9,
               "thinking": {"type": "disabled"}, "extra_body": {"bad_words": []}}  # fmt: skip
    body = {"input": "a", "max_output_tokens": 9} if path == "responses" else {"messages": [MESSAGE], "max_tokens": 9}
    body = {"prompt": "a"} if path == "completions" else body
    neutral |= {"functions": [], "function_call": "auto"} if path == "chat/completions" else {}
    if path == "responses":
        del neutral["max_tokens"]
    answer = client.post(f"/v1/{path}", json={**body, **neutral})
    assert answer.status_code == 200 and answer.json().get("seed") is None, answer.text  # a search


@pytest.mark.parametrize(
    "fields",
    [
        {"seed": -2}, {"priority": 5}, {"priority": False}, {"top_p": -1}, {"top_p": False}, {"bad_words": ["a"]},
        {"logits_processors": ["a"]}, {"json_mode": True}, {"min_length": False}, {"allowed_token_ids": []},
        {"thinking": {"type": "off"}}, {"response_schema": {}},
    ],
    ids=str,
)  # fmt: skip
def test_values_with_another_effect_stay_refused(fields: dict[str, Any]) -> None:
    with pytest.raises((ValidationError, UnknownField)):
        ignored_fields(chat(**fields), "ignore")


def test_a_nucleus_of_nothing_is_the_most_probable_token(client: TestClient) -> None:
    def text(**options: Any) -> Any:
        body = {"prompt": "sentence:", "max_tokens": 8, "seed": 5, **options}
        return client.post("/v1/completions", json=body).json()["choices"][0]["text"]

    assert text(top_p=0) == text(top_k=1) != text()


SCHEMA = {"schema": {"enum": [1]}}
NULLS = dict.fromkeys(("json_schema", "schema", "name", "strict", "description", "value", "structures"))


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("chat/completions", {"response_format": NULLS | {"type": "text"}}),
        ("chat/completions", {"response_format": NULLS | {"type": "json_object"}}),
        ("chat/completions", {"response_format": NULLS | {"type": "json_schema", "json_schema": NULLS | SCHEMA}}),
        ("responses", {"text": {"format": NULLS | {"type": "text"}}}),
        ("responses", {"text": {"format": NULLS | {"type": "json_schema"} | SCHEMA}}),
        ("messages", {"output_config": {"format": NULLS | {"type": "json_schema"} | SCHEMA}}),
    ],
)  # fmt: skip
def test_null_fields_of_a_format_are_left_out(client: TestClient, path: str, fields: dict[str, Any]) -> None:
    body = {"input": "a", "max_output_tokens": 30} if path == "responses" else {"messages": [MESSAGE], "max_tokens": 30}
    answer = client.post(f"/v1/{path}", json={**body, **fields, "seed": 1})
    assert answer.status_code == 200, answer.text


def test_ends_of_the_model_may_be_stop_tokens(client: TestClient) -> None:
    def status(path: str, ids: object) -> int:
        subject = {"input": "a"} if path == "responses" else {"messages": [MESSAGE], "max_tokens": 5}
        return client.post(f"/v1/{path}", json={**subject, "stop_token_ids": ids}).status_code

    model = open_model_files(BUILT_IN_MODEL).vocabulary
    assert 7 not in model.eos_ids
    for path in ("chat/completions", "responses", "messages"):
        assert status(path, list(model.eos_ids)) == 200
        assert status(path, [*model.eos_ids, 7]) == status(path, "x") == 400


def test_a_setting_refuses_all_unknown_fields() -> None:
    with pytest.raises(InvalidRequest) as refused:
        ignored_fields(chat(mirostat=2, title="a"), "refuse")
    assert [fault["path"] for fault in refused.value.errors] == ["mirostat", "title"]
    assert ignored_fields(chat(user="a"), "refuse") == ()


def test_a_name_never_breaks_the_header() -> None:
    name = "a\r\nX-Injected: 1.b"
    (header,) = header_of(ignored_fields(chat(**{name: 1, "é": 1}), "ignore")).values()
    assert header == "*"


def test_many_unknown_fields_are_refused_at_little_cost() -> None:
    turns = [MESSAGE | {f"x{turn}-{number}": 1 for number in range(10)} for turn in range(FIELDS_MAX)]
    with pytest.raises(InvalidRequest, match=f"more than {FIELDS_MAX} unknown"):
        ignored_fields(chat(messages=turns), "ignore")


def test_edit_distance_is_that_of_the_definition() -> None:
    def slow(left: str, right: str) -> int:
        if not left or not right:
            return len(left) + len(right)
        replaced = slow(left[1:], right[1:]) + (left[0] != right[0])
        return min(replaced, slow(left[1:], right) + 1, slow(left, right[1:]) + 1)

    words = ["", "a", "ab", "ba", "abc", "bca", "aab", "cabb", "abab"]
    assert all(edit_distance(left, right) == slow(left, right) for left in words for right in words)


@pytest.mark.parametrize("stream", [False, True])
def test_the_answer_names_what_it_ignored(stream: bool, client: TestClient) -> None:
    options = {"max_tokens": 6, "seed": 1, "stream": stream, "mirostat": 2}
    chatted = client.post("/v1/chat/completions", json={"messages": [MESSAGE | {"weight": 1}], **options})
    completed = client.post("/v1/completions", json={"prompt": "sentence:", **options})
    assert chatted.status_code == completed.status_code == 200
    assert chatted.headers[HEADER] == "mirostat, messages.*.weight" and completed.headers[HEADER] == "mirostat"
    plain = client.post("/v1/completions", json={"prompt": "sentence:", "max_tokens": 6, "seed": 1})
    assert HEADER not in plain.headers and (stream or plain.json()["choices"] == completed.json()["choices"])
