"""LangChain's chat model for OpenAI."""

from __future__ import annotations

from typing import Any, Literal

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

from tests.long.clients.checks import MODEL, PROMPT, AnyObject, Pet, main


@tool
def feed(animal: Literal["dog", "cat"], grams: int) -> str:
    """Feeds an animal."""
    return f"The {animal} ate {grams} g."


def _model(url: str, **options: Any) -> ChatOpenAI:
    return ChatOpenAI(model=MODEL, base_url=url, api_key="none", **options)


def invoke(url: str) -> None:
    assert _model(url).invoke(PROMPT).content
    assert "".join(str(chunk.content) for chunk in _model(url).stream(PROMPT))


def bind_tools(url: str) -> None:
    assert _model(url).bind_tools([feed]).invoke(PROMPT)
    for choice in ("any", "feed"):
        model = _model(url).bind_tools([feed], tool_choice=choice)
        question = HumanMessage(PROMPT)
        answer = model.invoke([question])
        assert answer.tool_calls and not answer.invalid_tool_calls
        results = [feed.invoke(call) for call in answer.tool_calls]
        assert all(isinstance(result, ToolMessage) and "ate" in str(result.content) for result in results)
        assert _model(url).bind_tools([feed]).invoke([question, answer, *results])
        chunks = list(model.stream([question]))
        total = chunks[0]
        for chunk in chunks[1:]:
            total += chunk
        assert total.tool_calls and feed.invoke(total.tool_calls[0])


def invalid_calls(url: str) -> None:
    call: Any = {"name": "feed", "args": '{"animal": "d', "id": "call_1", "error": None, "type": "invalid_tool_call"}
    answer, result = AIMessage("", invalid_tool_calls=[call]), ToolMessage("no JSON", tool_call_id="call_1")
    assert _model(url).bind_tools([feed]).invoke([HumanMessage(PROMPT), answer, result])


def structured_json_schema(url: str) -> None:
    assert isinstance(_model(url).with_structured_output(Pet).invoke(PROMPT), Pet)


def structured_function_calling(url: str) -> None:
    structured = _model(url).with_structured_output(Pet, method="function_calling")
    assert isinstance(structured.invoke(PROMPT), Pet)


def structured_json_mode(url: str) -> None:
    # The request has no schema: the answer is any object.
    for kind, answer_type in ((None, dict), (AnyObject, AnyObject)):
        structured = _model(url).with_structured_output(kind, method="json_mode")
        assert isinstance(structured.invoke(PROMPT), answer_type)


def structured_stream(url: str) -> None:
    *_, pet = _model(url).with_structured_output(Pet).stream(PROMPT)
    assert isinstance(pet, Pet)


def responses(url: str) -> None:
    model = _model(url, use_responses_api=True)
    assert model.invoke(PROMPT).text
    assert isinstance(model.with_structured_output(Pet).invoke(PROMPT), Pet)
    assert model.bind_tools([feed], tool_choice="any").invoke(PROMPT).tool_calls


CHECKS = (
    invoke, bind_tools, invalid_calls, structured_json_schema, structured_function_calling, structured_json_mode,
    structured_stream, responses,
)  # fmt: skip

if __name__ == "__main__":
    main(CHECKS)
