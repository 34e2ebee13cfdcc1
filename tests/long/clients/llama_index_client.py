"""LlamaIndex's model for servers with OpenAI's paths.

It reads the annotations of a function, so they are not postponed.
"""

from typing import Any, Literal

from llama_index.core.llms import ChatMessage
from llama_index.core.prompts import PromptTemplate
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike

from tests.long.clients.checks import MODEL, PROMPT, Pet, main

USER = [ChatMessage(role="user", content=PROMPT)]


def _feed(animal: Literal["dog", "cat"], grams: int) -> str:
    """Feeds an animal."""
    return f"The {animal} ate {grams} g."


TOOL = FunctionTool.from_defaults(_feed, name="feed")


def _model(url: str, **options: Any) -> OpenAILike:
    return OpenAILike(model=MODEL, api_base=url, api_key="none", is_chat_model=True, **options)


def chat(url: str) -> None:
    assert _model(url).chat(USER).message.content
    assert "".join(chunk.delta or "" for chunk in _model(url).stream_chat(USER))


def complete(url: str) -> None:
    completing = OpenAILike(model=MODEL, api_base=url, api_key="none", max_tokens=16)
    assert completing.complete("sentence:").text
    assert "".join(chunk.delta or "" for chunk in completing.stream_complete("sentence:"))


def tools(url: str) -> None:
    model = _model(url, is_function_calling_model=True)
    answer = model.chat_with_tools([TOOL], user_msg=PROMPT, tool_required=True)
    (call, *_) = model.get_tool_calls_from_response(answer)
    assert call.tool_name == "feed" and "ate" in str(TOOL(**call.tool_kwargs))


def tool_results(url: str) -> None:
    model = _model(url, is_function_calling_model=True)
    results = model.predict_and_call([TOOL], USER[0], tool_required=True).sources
    assert results and all("ate" in str(result) for result in results)
    answer = model.chat_with_tools([TOOL], user_msg=USER[0], tool_required=True)
    history = [*USER, answer.message]
    for call in model.get_tool_calls_from_response(answer):
        content = str(TOOL(**call.tool_kwargs))
        history.append(ChatMessage(role="tool", content=content, additional_kwargs={"tool_call_id": call.tool_id}))
    format_ = {"type": "json_schema", "json_schema": {"name": "Pet", "schema": Pet.model_json_schema()}}
    final = model.chat_with_tools([TOOL], chat_history=history, tool_choice="none", response_format=format_)
    assert Pet.model_validate_json(final.message.content or "")


def structured(url: str) -> None:
    for options in ({"is_function_calling_model": True}, {"should_use_structured_outputs": True}):
        model = _model(url, **options)
        assert isinstance(model.as_structured_llm(Pet).chat(USER).raw, Pet)
        assert isinstance(model.structured_predict(Pet, PromptTemplate(PROMPT)), Pet)


CHECKS = (chat, complete, tools, tool_results, structured)

if __name__ == "__main__":
    main(CHECKS)
