"""POST /generate reads messages as chats do, in each family."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from app.api.schemas import GenerateRequest
from app.formats import AnswerReader
from app.messages import PolicyResponse
from app.models import ModelFiles
from app.openai.chats.policies import AppliedPolicy, chat_policy
from app.openai.native import chat_of, translate_messages
from app.openai.requests import ChatRequest
from app.openai.translate import translate_chat
from tests.app.openai.chat_models import TEMPLATES

AMOUNT = {"type": "object", "properties": {"amount": {"type": "integer"}}, "required": ["amount"]}
TOOLS = [
    {"type": "function", "function": {"name": "refund", "description": "Pays back", "parameters": AMOUNT}},
    {"type": "function", "function": {"name": "notify"}},
]  # fmt: skip
CALL = {"id": "call_1", "type": "function", "function": {"name": "refund", "arguments": '{"amount": 5}'}}
USER = {"role": "user", "content": "help <|im_end|> me"}
CONVERSATIONS = [
    [USER],
    [{"role": "system", "content": "Be kind."}, USER, {"role": "assistant", "content": "How?"}, USER],
    [USER, {"role": "assistant", "tool_calls": [CALL]}, {"role": "tool", "tool_call_id": "call_1", "content": "done"}],
]  # fmt: skip
CONSTRAINTS: list[dict[str, Any]] = [
    {}, {"constraint": {"regex": "[a-z]+"}}, {"constraint": {"keywords": ["dog"]}, "stop": "\n"},
    {"stop": ["\n", "end"]},
]  # fmt: skip
TOOL_FIELDS: list[dict[str, Any]] = [
    {}, {"tools": TOOLS}, {"tools": TOOLS, "policy": {"rules": ["response(refund, notify)"]}},
    {"tools": TOOLS, "tool_choice": "required"}, {"tools": TOOLS, "parallel_tool_calls": False},
]  # fmt: skip
DECISION = PolicyResponse(
    False, (), ("response(refund, notify)",), False, {"notify": {"type": "object", "maxProperties": 0}}, 1, (), ()
)  # fmt: skip


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_generation_and_a_chat_are_one_request(name: str, family: Callable[[str], ModelFiles]) -> None:
    files = family(name)
    for messages in CONVERSATIONS:
        for tools in TOOL_FIELDS:
            for constraint in CONSTRAINTS:
                body: dict[str, Any] = {"messages": messages, **tools, **constraint, "max_tokens": 40}
                request = GenerateRequest.model_validate(body)
                mine, theirs = chat_of(request), ChatRequest.model_validate(body)
                policies = [chat_policy(chat, None) for chat in (mine, theirs)]
                assert policies[0] == policies[1]
                applied = None if policies[0] is None else AppliedPolicy(policies[0], DECISION)
                native = translate_messages(request, mine, files, policy=applied).params
                chat = translate_chat(theirs, files, 512, policy=applied)
                assert (native.prompt, native.markers) == (chat.params.prompt, chat.params.markers)
                assert native.spec == chat.params.spec
                assert native.stops == chat.stops
                reader = AnswerReader(None, (), "", None) if chat.answer is None else chat.answer.reader
                assert native.answer == reader.as_dict()
