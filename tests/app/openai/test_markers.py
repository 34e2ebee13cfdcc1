"""Text of callers, which never becomes special tokens."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest

from app.errors import InvalidRequest
from app.formats import chat_format
from app.models import ModelFiles
from app.models.tokenizer import PromptEncoder, open_tokenizer
from app.openai.chats.chat_template import render_prompt
from app.openai.chats.markers import CallerText, RenderedPrompt
from app.openai.chats.tools import tool_use
from app.openai.requests import ChatRequest
from tests.app.openai.chat_models import TEMPLATES


@pytest.fixture(params=TEMPLATES)
def files(request: pytest.FixtureRequest, family: Callable[[str], ModelFiles]) -> ModelFiles:
    return family(request.param)


def prompt_with(files: ModelFiles, text: str) -> RenderedPrompt:
    """The prompt of a conversation with a text in all its places."""
    function = {
        "name": "refund", "description": text,
        "parameters": {"type": "object", "description": text, "properties": {text: {"const": text}}},
    }  # fmt: skip
    call = {"name": "refund", "arguments": json.dumps({"note": text})}
    body: dict[str, Any] = {
        "messages": [
            {"role": "system", "content": text}, {"role": "user", "content": [{"type": "text", "text": text}] * 2},
            {"role": "assistant", "tool_calls": [{"id": text, "function": call}]},
            {"role": "tool", "content": text, "tool_call_id": text}, {"role": "user", "content": text, "name": text},
            {"role": "assistant", "content": text}, {"role": "user", "content": f"{text} "},
        ],
        "tools": [{"type": "function", "function": function}],
    }  # fmt: skip
    request = ChatRequest.model_validate(body)
    calls = chat_format(files.chat_template).calls
    return render_prompt(files, request.messages, True, {"title": text}, tools=tool_use(request), calls=calls)


def test_markers_in_all_places_of_a_request_are_text(files: ModelFiles) -> None:
    size = files.vocabulary.size
    tokenizer = open_tokenizer(files.tokenizer_file, size)
    encode = PromptEncoder(tokenizer, files.tokenizer_file, files.markers, size)
    names = {number: name for name, number in files.vocabulary.names.items()}

    def marker_names(prompt: RenderedPrompt) -> list[str]:
        ids = encode(prompt.text, prompt.markers)
        assert tokenizer.decode(ids, skip_special_tokens=False) == prompt.text
        return [names[token] for token in ids if token in names]

    harmless = prompt_with(files, "here")
    expected = [harmless.text[start:end] for start, end in harmless.markers]
    assert marker_names(harmless) == expected and expected
    for attack in (*files.markers, "".join(files.markers), "<" + files.markers[-1] + "|im_end|>"):
        prompt = prompt_with(files, attack)
        assert attack in prompt.text and marker_names(prompt) == expected


def test_a_text_cannot_become_a_marker_beside_the_templates_text() -> None:
    names = ("<a>", "<<a>>", "<|b|>", "[c]", "d", "<e")
    for before, after in itertools.product(("", "<", "<<a>", "<|", "["), (">", "|>", "b|>", "a>", "]", "")):
        text = CallerText(names, [before, after], "")
        fixed = "<a>[c]d<e"
        prompt = text.uncovered(fixed + text.covered(before) + fixed + text.covered(after) + fixed)
        assert [prompt.text[start:end] for start, end in prompt.markers] == ["<a>", "[c]", "<e"] * 3
        assert prompt.text == fixed + before + fixed + after + fixed


def test_a_text_that_contains_stand_ins_is_kept() -> None:
    sent = "".join(map(chr, range(0x20000, 0x20100))) + "<s>"
    text = CallerText(("<s>",), {"a": [sent]}, "")
    assert text.uncovered(text.covered(sent) + "<s>") == RenderedPrompt(sent + "<s>", ((259, 262),))
    with pytest.raises(InvalidRequest):
        CallerText(("<s>",), "".join(map(chr, range(0x20000, 0x2A6D0))), "")


def test_a_template_that_escapes_text_is_refused_by_name(family: Callable[[str], ModelFiles]) -> None:
    template = "{{ messages[0].content | tojson(ensure_ascii=true) }}"
    files = dataclasses.replace(family("hermes"), chat_template=template)
    request = ChatRequest.model_validate({"messages": [{"role": "user", "content": "a < b"}]})
    with pytest.raises(InvalidRequest, match="escapes"):
        render_prompt(files, request.messages)
