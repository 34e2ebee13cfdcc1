"""pydantic-ai: agents with each kind of output."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

from pydantic_ai import Agent, NativeOutput, PromptedOutput
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

from tests.long.clients.checks import MODEL, PROMPT, AnyObject, Pet, main


def _agent(url: str, output: Any = str, kind: Any = OpenAIChatModel) -> Agent[None, Any]:
    return Agent(kind(MODEL, provider=OpenAIProvider(base_url=url, api_key="none")), output_type=output, retries=0)


def text(url: str) -> None:
    async def run() -> str:
        async with _agent(url).run_stream(PROMPT) as answer:
            return "".join([delta async for delta in answer.stream_text(delta=True)])

    assert _agent(url).run_sync(PROMPT).output and asyncio.run(run())


def tool_output(url: str) -> None:
    assert isinstance(_agent(url, Pet).run_sync(PROMPT).output, Pet)


def native_output(url: str) -> None:
    assert isinstance(_agent(url, NativeOutput(Pet)).run_sync(PROMPT).output, Pet)


def prompted_output(url: str) -> None:
    # The request has no schema: the answer is any object.
    assert isinstance(_agent(url, PromptedOutput(AnyObject)).run_sync(PROMPT).output, AnyObject)


def output_stream(url: str) -> None:
    async def run(output: Any) -> Any:
        async with _agent(url, output).run_stream(PROMPT) as answer:
            return [result async for result in answer.stream_output()][-1]

    for output, kind in ((Pet, Pet), (NativeOutput(Pet), Pet), (PromptedOutput(AnyObject), AnyObject)):
        assert isinstance(asyncio.run(run(output)), kind)


def function_tools(url: str) -> None:
    agent, calls = _agent(url, Pet), []

    @agent.tool_plain
    def look(place: Literal["park", "house"]) -> str:
        calls.append(place)
        return "There is a dog."

    # By these rules the tool is called once, before the output.
    policy = {"rules": ["init(look)", "absence(look, 2)"]}
    pet = agent.run_sync(PROMPT, model_settings={"extra_body": {"policy": policy}}).output
    assert isinstance(pet, Pet) and len(calls) == 1


def responses(url: str) -> None:
    for output in (Pet, NativeOutput(Pet)):
        assert isinstance(_agent(url, output, OpenAIResponsesModel).run_sync(PROMPT).output, Pet)


CHECKS = (text, tool_output, native_output, prompted_output, output_stream, function_tools, responses)

if __name__ == "__main__":
    main(CHECKS)
