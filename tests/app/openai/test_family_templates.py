"""Published chat templates, which are not in the repository, beside our own small ones.

The folder `data/chat_templates` of the shared data has them, with their sources and licences.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from app.formats import chat_format, think_format
from app.openai.chats.chat_template import render_prompt
from app.openai.chats.tools import tool_use
from app.openai.requests import ChatRequest
from tests.app.openai.chat_models import MARKERS, TEMPLATES, small_family, without_ids

HARMONY_CALL = "<|start|>assistant to=functions.refund<|channel|>commentary json<|message|>"
FAMILIES = [  # file, format, the thought before a call, other text of a call than that of answers
    ("qwen2.5", "hermes", "", ""),
    ("qwen3", "hermes", "<think>\nTHOUGHT\n</think>\n\n", ""),
    ("qwen3.5", "qwen-coder", "<think>\nTHOUGHT\n</think>\n\n", ""),
    ("glm-4.5", "glm", "\n<think>THOUGHT</think>\n", ""),
    ("mistral-nemo", "mistral-v7", "", ""),
    ("mistral-small-3.2", "mistral-args", "", ""),
    ("deepseek-r1-distill", "deepseek-v3", "", ""),
    ("deepseek-v3.1", "deepseek-v3.1", "", ""),
    ("gpt-oss", "harmony", "<|channel|>analysis<|message|>THOUGHT<|end|>", HARMONY_CALL),
]  # fmt: skip
TOOLS = [{"type": "function", "function": {"name": name, "description": ""}} for name in ("refund", "notify")]


@pytest.mark.parametrize(("file", "name", "thought", "head"), FAMILIES, ids=[file for file, *_ in FAMILIES])
def test_published_templates_write_what_our_formats_say(
    shared: Path, file: str, name: str, thought: str, head: str
) -> None:
    folder = shared / "data" / "chat_templates"
    if not folder.is_dir():
        pytest.skip(f"no folder {folder}")
    files = small_family(name, (folder / f"{file}.jinja").read_text(encoding="utf-8"))
    family = chat_format(files.chat_template)
    assert family.name == name and (think_format(files.chat_template) is not None or not thought)
    texts = ["Q " + "".join(files.markers), "R " + "".join(files.markers)]
    function = {"name": "notify", "arguments": "{}"}
    messages = [
        {"role": "user", "content": texts[0]},
        {"role": "assistant", "reasoning_content": "THOUGHT", "tool_calls": [{"id": "c", "function": function}]},
        {"role": "tool", "content": texts[1], "tool_call_id": "c"},
    ]  # fmt: skip
    request = ChatRequest.model_validate({"messages": messages, "tools": TOOLS})
    prompt = render_prompt(files, request.messages, True, None, tools=tool_use(request), calls=family.calls)
    result = TEMPLATES[name]["result"].replace("{}", texts[1])
    written = without_ids(prompt.text)
    assert texts[0] in written and result in written and thought in written
    call = head.replace("refund", "notify") or family.calls.begin + family.calls.head.replace("{name}", "notify")
    assert call in written
    # Everything that is written like a marker is one, except in texts of callers.
    own = [(at, at + len(text)) for text in texts for at in [prompt.text.index(text)]]
    found = [match.span() for match in MARKERS[name].finditer(prompt.text)]
    marked = [span for span in found if not any(start <= span[0] < end for start, end in own)]
    assert list(prompt.markers) == marked
