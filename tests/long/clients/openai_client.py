"""OpenAI's own client."""

from __future__ import annotations

import json
from typing import Any

import openai
from openai import OpenAI

from tests.long.clients.checks import MODEL, PROMPT, Pet, main

USER: Any = [{"role": "user", "content": PROMPT}]
TOOL: Any = openai.pydantic_function_tool(Pet, name="feed")
RESPONSE_TOOL: Any = {"type": "function", **TOOL["function"]}


def client(url: str) -> OpenAI:
    return OpenAI(base_url=url, api_key="none")


def chat(url: str) -> None:
    with client(url) as ai:
        answer = ai.chat.completions.create(model=MODEL, messages=USER)
        assert answer.choices[0].message.content and answer.usage, answer
        assert MODEL in [model.id for model in ai.models.list()]


def chat_stream(url: str) -> None:
    with client(url) as ai:
        chunks = list(
            ai.chat.completions.create(
                model=MODEL, messages=USER, stream=True, stream_options={"include_usage": True}
            )
        )
    assert "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
    assert chunks[-1].usage


def chat_parse(url: str) -> None:
    with client(url) as ai:
        answer = ai.chat.completions.parse(model=MODEL, messages=USER, response_format=Pet)
        assert isinstance(answer.choices[0].message.parsed, Pet)
        with ai.chat.completions.stream(model=MODEL, messages=USER, response_format=Pet) as stream:
            assert any(event.type == "content.delta" for event in stream)
            assert isinstance(stream.get_final_completion().choices[0].message.parsed, Pet)


def json_object(url: str) -> None:
    with client(url) as ai:
        answer = ai.chat.completions.create(model=MODEL, messages=USER, response_format={"type": "json_object"})
    assert isinstance(json.loads(answer.choices[0].message.content or ""), dict)


def tools(url: str) -> None:
    with client(url) as ai:
        for choice in ("required", {"type": "function", "function": {"name": "feed"}}):
            options: Any = {"tools": [TOOL], "tool_choice": choice}
            message = ai.chat.completions.create(model=MODEL, messages=USER, **options).choices[0].message
            assert message.tool_calls
            results = [{"role": "tool", "tool_call_id": call.id, "content": "done"} for call in message.tool_calls]
            turns: Any = [*USER, message, *results]
            reply = ai.chat.completions.create(model=MODEL, messages=turns, tools=[TOOL])
            assert reply.choices[0].message.content or reply.choices[0].message.tool_calls


def tools_parse(url: str) -> None:
    with client(url) as ai:
        options: Any = {"model": MODEL, "messages": USER, "tools": [TOOL], "tool_choice": "required"}
        answer = ai.chat.completions.parse(**options)
        (call, *_) = answer.choices[0].message.tool_calls or ()
        assert isinstance(call.function.parsed_arguments, Pet)
        with ai.chat.completions.stream(**options) as stream:
            assert any(event.type == "tool_calls.function.arguments.done" for event in stream)
            (call, *_) = stream.get_final_completion().choices[0].message.tool_calls or ()
        assert isinstance(call.function.parsed_arguments, Pet)


def completions(url: str) -> None:
    with client(url) as ai:
        answer = ai.completions.create(model=MODEL, prompt="sentence:")
        assert answer.choices[0].text and answer.usage
        chunks = list(ai.completions.create(model=MODEL, prompt="sentence:", stream=True))
    assert "".join(choice.text for chunk in chunks for choice in chunk.choices)


def responses(url: str) -> None:
    with client(url) as ai:
        assert ai.responses.create(model=MODEL, input=PROMPT).output_text
        parsed = ai.responses.parse(model=MODEL, input=PROMPT, text_format=Pet)
        assert isinstance(parsed.output_parsed, Pet)


def responses_stream(url: str) -> None:
    with client(url) as ai, ai.responses.stream(model=MODEL, input=PROMPT, text_format=Pet) as stream:
        assert any(event.type == "response.output_text.delta" for event in stream)
        assert isinstance(stream.get_final_response().output_parsed, Pet)


def responses_tools(url: str) -> None:
    with client(url) as ai:
        options: Any = {"model": MODEL, "tools": [RESPONSE_TOOL]}
        first = ai.responses.create(input=PROMPT, tool_choice="required", **options)
        (call,) = (item for item in first.output if item.type == "function_call")
        Pet.model_validate_json(call.arguments)
        output = {"type": "function_call_output", "call_id": call.call_id, "output": "done"}
        turns: Any = [{"role": "user", "content": PROMPT}, *first.output, output]
        assert ai.responses.create(input=turns, **options).output


def past_calls(url: str) -> None:
    with client(url) as ai:
        for arguments in ("", "  ", "null", '{"animal": "d', "[1]"):
            call = {"id": "call_1", "type": "function", "function": {"name": "feed", "arguments": arguments}}
            result = {"role": "tool", "tool_call_id": "call_1", "content": "wrong arguments"}
            turns: Any = [*USER, {"role": "assistant", "content": None, "tool_calls": [call]}, result]
            assert ai.chat.completions.create(model=MODEL, messages=turns, tools=[TOOL]).choices
            item = {"type": "function_call", "call_id": "call_1", "name": "feed", "arguments": arguments}
            output = {"type": "function_call_output", "call_id": "call_1", "output": "wrong arguments"}
            items: Any = [*USER, item, output]
            assert ai.responses.create(model=MODEL, input=items, tools=[RESPONSE_TOOL]).output


def developer_messages(url: str) -> None:
    developer: Any = {"role": "developer", "content": "Speak of dogs."}
    with client(url) as ai:
        for model in (model.id for model in ai.models.list()):
            turns: Any = [{"role": "system", "content": "Be brief."}, developer, *USER]
            assert ai.chat.completions.create(model=model, messages=turns, max_completion_tokens=16).choices
            items: Any = [developer, *USER]
            options: Any = {"model": model, "instructions": "Be brief.", "max_output_tokens": 16}
            assert ai.responses.create(input=items, **options).output


def tools_without_arguments(url: str) -> None:
    with client(url) as ai:
        for parameters in ({"type": "object", "properties": {}}, None):
            tool: Any = {"type": "function", "function": {"name": "stop", "parameters": parameters}}
            options: Any = {"tools": [tool], "tool_choice": "required", "temperature": 2.0}
            message = ai.chat.completions.create(model=MODEL, messages=USER, **options).choices[0].message
            (call, *_) = message.tool_calls or ()
            assert call.type == "function" and call.function.arguments == "{}"


def faulty_tools(url: str) -> None:
    parameters = {"type": "object", "properties": {"when": {"type": "datetime"}}}
    tools: Any = [TOOL, {"type": "function", "function": {"name": "book", "parameters": parameters}}]
    with client(url) as ai:
        try:
            ai.chat.completions.create(model=MODEL, messages=USER, tools=tools)
        except openai.UnprocessableEntityError as error:
            assert 'tool "book", properties.when.type' in error.message and error.param, error
        else:
            raise AssertionError("a schema with an unknown type was taken")


CHECKS = (
    chat, chat_stream, chat_parse, json_object, tools, tools_parse, completions, responses, responses_stream,
    responses_tools, past_calls, developer_messages, tools_without_arguments, faulty_tools,
)  # fmt: skip

if __name__ == "__main__":
    main(CHECKS)
