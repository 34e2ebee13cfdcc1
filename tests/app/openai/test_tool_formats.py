"""Calls and thoughts of model families, written and read."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, get_args

import jsonschema
import pytest

from app.formats import (
    CHAT_FORMATS,
    THINK_FORMATS,
    AnswerFormat,
    AnswerParts,
    AnswerReader,
    ChatFormat,
    Thinking,
    ToolCall,
    chat_format,
    think_format,
)
from app.models import ModelFiles
from app.openai.chats.chat_template import render_prompt
from app.openai.chats.chat_turn import answer_format
from app.openai.chats.tools import tool_use
from app.openai.requests import ChatRequest
from app.settings import InferenceSettings
from compiler.pipeline import compile_spec, compile_text
from compiler.products import LazyProduct
from compiler.spec import spec_from_json
from compiler.text import check_text
from tests.app.openai.chat_models import MARKERS, TEMPLATES, call_begin, reply_of, small_family, without_ids
from tests.fake_models import HashModel
from tests.long.fuzz_paths import PATHS, Case
from tests.servers.cluster import FULL

REFUND: dict[str, Any] = {
    "type": "object", "properties": {
        "amount": {"$ref": "#/$defs/Amount"}, "note": {"type": "string", "description": "Why"},
        "fast": {"type": "boolean"}, "to": {"enum": ["bank", "card"]}, "at": {"type": ["string", "null"]},
        "items": {"type": "array", "items": {"type": "string"}, "maxItems": 2},
    }, "required": ["amount"], "$defs": {"Amount": {"type": "integer", "minimum": 1}},
}  # fmt: skip
OPTIONAL = {"type": "object", "properties": {"a": {"type": "boolean"}, "b": {"const": "x"}, "c": {"type": "number"}}}
OPEN = {"type": "object", "properties": {"a": {"type": "integer"}}, "minProperties": 1, "maxProperties": 2}
SCHEMAS = {"refund": REFUND, "optional": OPTIONAL, "open": OPEN, "notify": {"type": "object", "maxProperties": 0}}
TOOLS = [{"type": "function", "function": {"name": name, "parameters": schema}} for name, schema in SCHEMAS.items()]
TOOLS[-1] = {"type": "function", "function": {"name": "notify"}}
QUERY = {"type": "custom", "custom": {
    "name": "query", "format": {"type": "grammar", "grammar": {
        "syntax": "lark", "definition": 'start: "(" start* ")" | "x"',
    }},
}}  # fmt: skip
SHOUT = {"type": "custom", "custom": {
    "name": "shout", "format": {"type": "grammar", "grammar": {"syntax": "regex", "definition": "[A-Z]+!"}},
}}  # fmt: skip
EXAMPLE_CALLS = (ToolCall("refund", '{"amount": 5, "note": "late"}'), ToolCall("notify", "{}"))


@pytest.fixture(params=TEMPLATES)
def files(request: pytest.FixtureRequest, family: Callable[[str], ModelFiles]) -> ModelFiles:
    return family(request.param)


@pytest.fixture(params=TEMPLATES)
def small_files(request: pytest.FixtureRequest) -> ModelFiles:
    """A family with the bytes and its markers as tokens."""
    return small_family(request.param)


@pytest.fixture(params=[name for name, family in TEMPLATES.items() if family.get("think")])
def thinking_files(request: pytest.FixtureRequest) -> ModelFiles:
    """A family that thinks."""
    return small_family(request.param)


def format_of(files: ModelFiles, thinking: Thinking | None = None, **fields: Any) -> tuple[ChatFormat, AnswerFormat]:
    body = {"messages": [{"role": "user", "content": "a"}], "tools": TOOLS, **fields}
    family = chat_format(files.chat_template)
    answer = answer_format(files, family, tool_use(ChatRequest.model_validate(body)), thinking)
    assert answer is not None
    return family, answer


def read_in_pieces(answer: AnswerFormat, text: str) -> AnswerParts:
    """What an answer contains. Each beginning contains a beginning of it."""
    former = AnswerParts()
    for end in range(len(text) + 1):
        current = answer.read(text[:end], finished=False)
        check_continues(former, current)
        former = current
    whole = answer.read(text, finished=True)
    check_continues(former, whole)
    of_job = AnswerReader.of(json.loads(json.dumps(answer.reader.as_dict())))
    assert of_job.read(text, finished=True) == whole
    return whole


def check_continues(former: AnswerParts, current: AnswerParts) -> None:
    assert current.content.startswith(former.content) and current.reasoning.startswith(former.reasoning)
    assert len(current.calls) >= len(former.calls)
    for before, call in zip(former.calls, current.calls, strict=False):
        assert call.name == before.name and call.arguments.startswith(before.arguments)


def answers_of(files: ModelFiles, answer: AnswerFormat) -> Iterator[str]:
    """Answers by all decoders, from the least budget up."""
    constraint = compile_spec(spec_from_json(answer.constraint), files.vocabulary)
    assert not isinstance(constraint.tokens, LazyProduct)
    eos = files.vocabulary.eos_ids
    for seed in range(3 if FULL else 1):
        draw = random.Random(f"{seed} {answer.constraint}")
        budget = constraint.tokens.min_tokens + draw.choice((0, 1, 5, 20, 40))
        model = HashModel(files.vocabulary.size, eos, seed=seed)
        path, _ = PATHS[draw.choice(list(PATHS))]
        for tokens in path(Case(files.vocabulary, constraint.tokens, model, eos, budget, None), draw)[:4]:
            assert len(tokens) <= budget
            text = b"".join(files.vocabulary.written[token] or b"" for token in tokens).decode()
            text = text.removeprefix(" ")
            assert check_text(constraint.text, text).satisfied, text
            yield text


def check_calls(calls: tuple[ToolCall, ...]) -> None:
    for call in calls:
        if call.custom:
            pattern = {"query": r"[()x]+", "shout": r"[A-Z]+!"}[call.name]
            assert re.fullmatch(pattern, call.arguments) and call.arguments.count("(") == call.arguments.count(")")
        else:
            jsonschema.validate(json.loads(call.arguments), SCHEMAS[call.name])


def test_the_table_has_each_name_once() -> None:
    names = [each.name for each in CHAT_FORMATS]
    assert len(set(names)) == len(names) and set(names) == set(TEMPLATES)
    assert set(get_args(InferenceSettings.model_fields["chat_format"].annotation)) == {"auto", *names}
    assert chat_format(None).name == "plain" and chat_format("", "glm").name == "glm" and think_format(None) is None
    assert all(form.mark in form.end for form in THINK_FORMATS)


def test_a_format_is_found_and_its_example_read(files: ModelFiles) -> None:
    family, answer = format_of(files)
    assert TEMPLATES[family.name]["text"] == files.chat_template
    assert (think_format(files.chat_template) is not None) == TEMPLATES[family.name].get("think", False)
    calls = EXAMPLE_CALLS if family.calls.separator is not None else EXAMPLE_CALLS[:1]
    assert read_in_pieces(answer, family.example) == AnswerParts(calls=calls)
    constraint = compile_spec(spec_from_json(answer.constraint), files.vocabulary)
    assert check_text(constraint.text, family.example).satisfied
    assert check_text(constraint.text, reply_of(family, "Done.")).satisfied
    assert read_in_pieces(answer, reply_of(family, "Done.")) == AnswerParts("Done.")


def test_templates_write_calls_as_answers_do(files: ModelFiles) -> None:
    family, _ = format_of(files)
    made = EXAMPLE_CALLS if family.calls.separator is not None else EXAMPLE_CALLS[:1]
    calls = [{"id": "c", "function": {"name": call.name, "arguments": call.arguments}} for call in made]
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "tool_calls": calls}]
    request = ChatRequest.model_validate({"messages": messages, "tools": TOOLS})
    prompt = render_prompt(files, request.messages, False, None, tools=tool_use(request), calls=family.calls)
    assert without_ids(family.example) in without_ids(prompt.text)
    assert {match.span() for match in MARKERS[family.name].finditer(prompt.text)} <= set(prompt.markers)


@pytest.mark.parametrize("text", ["no JSON", "[7]", ""])
def test_templates_write_arguments_that_are_no_object(files: ModelFiles, text: str) -> None:
    family, _ = format_of(files)
    calls = [{"id": "c", "function": {"name": "notify", "arguments": each}} for each in (text, '{"a": "b"}')]
    turns = [{"role": "user", "content": "a"}, {"role": "assistant", "tool_calls": calls}]
    request = ChatRequest.model_validate({"messages": turns, "tools": TOOLS})
    prompt = render_prompt(files, request.messages, False, None, tools=tool_use(request), calls=family.calls)
    assert text in prompt.text and "b" in prompt.text.partition("notify")[2]


@pytest.mark.parametrize("name", [name for name, family in TEMPLATES.items() if "result" in family])
def test_templates_write_results_as_the_family_does(name: str) -> None:
    files = small_family(name)
    calls = [{"id": "c", "function": {"name": "notify", "arguments": "{}"}}]
    messages = [
        {"role": "user", "content": "a"}, {"role": "assistant", "tool_calls": calls},
        {"role": "tool", "content": "done <think> " + "".join(files.markers), "tool_call_id": "c"},
    ]  # fmt: skip
    request = ChatRequest.model_validate({"messages": messages, "tools": TOOLS})
    prompt = render_prompt(
        files, request.messages, True, None, tools=tool_use(request), calls=chat_format(files.chat_template).calls
    )
    before, after = TEMPLATES[name]["result"].split("{}")
    content = str(messages[-1]["content"])
    written = before + content + after
    at = prompt.text.index(written)
    markers = [prompt.text[start:end] for start, end in prompt.markers if at <= start < at + len(written)]
    assert markers == [marker for text in (before, after) for marker in MARKERS[name].findall(text)]


def test_required_calls_satisfy_their_schemas_as_templates_write_them(small_files: ModelFiles) -> None:
    for parallel in (True, False):
        family, answer = format_of(small_files, tool_choice="required", parallel_tool_calls=parallel)
        for text in answers_of(small_files, answer):
            parts = read_in_pieces(answer, text)
            assert parts.calls and not parts.content, text
            assert len(parts.calls) == 1 or (parallel and family.calls.separator is not None)
            check_calls(parts.calls)
            sent = [{"id": "c", "function": {"name": call.name, "arguments": call.arguments}} for call in parts.calls]
            turns = [{"role": "user", "content": "a"}, {"role": "assistant", "tool_calls": sent}]
            request = ChatRequest.model_validate({"messages": turns, "tools": TOOLS})
            prompt = without_ids(render_prompt(small_files, request.messages, False, None, calls=family.calls).text)
            # Templates write no arguments as one object where the schema of `open` asks for one.
            assert without_ids(text) in prompt or any(call.name == "open" for call in parts.calls), (text, prompt)


def test_custom_tools_take_texts_of_their_grammar(small_files: ModelFiles) -> None:
    _, answer = format_of(small_files, tools=[QUERY, SHOUT], tool_choice="required")
    for text in answers_of(small_files, answer):
        parts = read_in_pieces(answer, text)
        assert parts.calls and all(call.custom for call in parts.calls), text
        check_calls(parts.calls)


def test_inputs_of_custom_tools_may_contain_ends(files: ModelFiles) -> None:
    family, answer = format_of(files, tools=[QUERY, SHOUT], tool_choice="required")
    calls = family.calls
    around = calls.parameters.around_input if calls.parameters and not calls.parameters.python else ("", "")
    ending = around[1] + calls.tail or calls.trigger
    written = [ToolCall("shout", f"A{ending}B{ending}!", custom=True), ToolCall("query", f"({ending})", custom=True)]
    if calls.separator is None:
        written = written[:1]
    begins = [call_begin(calls, call.name).removeprefix(calls.begin) for call in written]
    heads = [(begin.removesuffix(calls.opening) if around[0] else begin) + around[0] for begin in begins]
    each = [head + call.arguments + around[1] + calls.tail for head, call in zip(heads, written, strict=True)]
    text = calls.begin + (calls.separator or "").join(each) + calls.end
    assert read_in_pieces(answer, text) == AnswerParts(calls=tuple(written)), text


def test_thoughts_end_within_their_budget(thinking_files: ModelFiles) -> None:
    form = think_format(thinking_files.chat_template)
    assert form is not None
    for opened, budget in ((False, None), (False, 4), (True, 2), (True, 0)):
        family, answer = format_of(thinking_files, Thinking(form, opened, budget), tools=TOOLS[-1:])
        schema = {"json_schema": {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"],
                                  "additionalProperties": False}}  # fmt: skip
        answer = replace(answer, reply_spec=schema)
        for text in answers_of(thinking_files, answer):
            parts = read_in_pieces(answer, text)
            assert form.mark not in parts.reasoning and (budget != 0 or not parts.reasoning)
            assert parts.calls or set(json.loads(parts.content)) == {"a"}
            check_calls(parts.calls)
        text = ("" if opened else form.begin) + "hm" + form.end + reply_of(family, "x")
        assert read_in_pieces(answer, text) == AnswerParts("x", reasoning="hm")


def test_replies_and_calls_are_distinguished(small_files: ModelFiles) -> None:
    family, answer = format_of(small_files)
    for text in answers_of(small_files, answer):
        parts = read_in_pieces(answer, text)
        check_calls(parts.calls)
        assert parts.calls or text in (family.reply + parts.content, reply_of(family, parts.content))
        assert not family.calls.trigger or family.calls.trigger not in parts.content


ANY_TEXT = {"regex": r"(?s:.*)"}
ANY_OBJECT = {"json_schema": {"type": "object"}}
BRACKETS = {"grammar": 'root ::= "{" [^{}]* root? [^{}]* "}" | "[" [^{}]* "]" | "<" [^{}]* root?', "syntax": "gbnf"}


@pytest.mark.parametrize("own", [ANY_TEXT, ANY_OBJECT, BRACKETS], ids=["text", "object", "brackets"])
@pytest.mark.sample(21)
def test_no_constrained_reply_begins_as_a_call(small_files: ModelFiles, own: dict[str, Any]) -> None:
    family, answer = format_of(small_files)
    answer = replace(answer, reply_spec=own)
    text = compile_text(spec_from_json(answer.constraint))
    replies = compile_text(spec_from_json(own))
    call = call_begin(family.calls, "notify")
    assert check_text(text, family.example).satisfied
    of_calls = (call, call + "}", call + "1}}", call + '{"a": 1}}', call[:-1], call[:-1] + "}")
    for written in (*of_calls, '{"a": 1}', "[", "<"):
        is_reply = check_text(replies, written).satisfied and not (not family.reply and written.startswith(call))
        assert check_text(text, reply_of(family, written)).satisfied == is_reply, written
        if is_reply:
            assert read_in_pieces(answer, reply_of(family, written)) == AnswerParts(written)


@pytest.mark.parametrize("own", [ANY_TEXT, ANY_OBJECT, BRACKETS], ids=["text", "object", "brackets"])
@pytest.mark.sample(21)
def test_constrained_replies_satisfy_their_constraint(small_files: ModelFiles, own: dict[str, Any]) -> None:
    _, answer = format_of(small_files)
    answer = replace(answer, reply_spec=own)
    replies = compile_text(spec_from_json(own))
    for text in answers_of(small_files, answer):
        parts = read_in_pieces(answer, text)
        check_calls(parts.calls)
        assert (not parts.content) if parts.calls else check_text(replies, parts.content).satisfied


@pytest.mark.parametrize("opened", [False, True])
def test_no_constrained_reply_begins_as_a_thought(thinking_files: ModelFiles, opened: bool) -> None:
    form = think_format(thinking_files.chat_template)
    assert form is not None
    family, answer = format_of(thinking_files, Thinking(form, opened, None))
    answer = replace(answer, reply_spec=ANY_TEXT)
    text = compile_text(spec_from_json(answer.constraint))
    call, thought = call_begin(family.calls, "notify"), form.begin + "hm" + form.end
    marks = (form.begin[:1], form.begin, thought[:-1], form.end + call, "x" + thought + call)
    for before in ([thought.removeprefix(form.begin)] if opened else ["", thought]):
        for body in ("", "x", call, call + "1}", *marks):
            is_call = not family.reply and body.startswith(call)
            is_thought = not family.reply and not before and body.startswith(form.begin)
            written = before + reply_of(family, body)
            assert check_text(text, written).satisfied is not (is_call or is_thought), (before, body)
            if not (is_call or is_thought):
                parts = read_in_pieces(answer, written)
                assert parts.content == body and bool(parts.reasoning) is bool(before) and not parts.calls
