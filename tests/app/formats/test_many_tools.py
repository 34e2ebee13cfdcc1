"""Requests with 500 tools compile within the limits, and are answered."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from app.formats import chat_format
from app.models import ModelFiles
from app.openai.chats.chat_turn import answer_format
from app.openai.chats.tools import ToolUse
from app.openai.tool_bodies import ToolBody
from compiler.limits import Limits
from compiler.pipeline import compile_spec
from compiler.pushdown import Configurations, PushdownAutomaton
from compiler.spec import spec_from_json
from compiler.text import check_text
from compiler.vocab import Vocabulary

COUNT, BUDGET = 500, 220
PATIENT = Limits(compile_s_max=300)  # the machine may be busy; all other limits are the service's own
MARKS = ("[TOOL_CALLS]", "[ARGS]")
VOCABULARY = Vocabulary(
    (None, *(bytes([byte]) for byte in range(256)), *(None for _ in MARKS)), (0,),
    {name: 257 + number for number, name in enumerate(MARKS)},
)  # fmt: skip
TYPES = [
    {"type": "string"}, {"type": "integer"}, {"enum": ["low", "high"]}, {"type": "array", "items": {"type": "number"}}
]  # fmt: skip


def parameters(number: int) -> dict[str, Any]:
    names = [f"{word}_{number % 7}" for word in ("amount", "note", "place")[: 1 + number % 3]]
    properties = {name: TYPES[(number + place) % len(TYPES)] for place, name in enumerate(names)}
    closed = {"additionalProperties": False} if number % 4 == 0 else {}
    return {"type": "object", "properties": properties, "required": names[:1], **closed}


TOOLS = {f"{verb}_the_{number:03}_accounts_of_customers": parameters(number)
         for number in range(COUNT) for verb in (("list", "close", "merge")[number % 3],)}  # fmt: skip


@pytest.mark.sample(2)
@pytest.mark.parametrize("family", ["plain", "hermes", "gemma4", "qwen-coder", "mistral-args"])
def test_five_hundred_tools_compile_and_are_called(family: str) -> None:
    bodies = tuple(
        ToolBody.model_validate({"type": "function", "function": {"name": name, "parameters": schema}})
        for name, schema in TOOLS.items()
    )
    files = ModelFiles(Path(), VOCABULARY, None, None)
    answer = answer_format(files, chat_format(None, family), ToolUse(bodies, bodies, required=True), None)
    assert answer is not None
    compiled = compile_spec(spec_from_json(answer.constraint), VOCABULARY, PATIENT)
    assert isinstance(compiled.tokens, PushdownAutomaton) and compiled.tokens.table_bytes < 32 * 2**20
    called = set[str]()
    for seed in range(4):
        text = written(compiled.tokens, random.Random(seed))
        assert check_text(compiled.text, text).satisfied
        calls = answer.read(text, True).calls
        assert calls
        for call in calls:
            jsonschema.validate(json.loads(call.arguments), TOOLS[call.name])
            called.add(call.name)
    assert len(called) > 1


def written(automaton: PushdownAutomaton, draw: random.Random) -> str:
    """A text of random tokens that can be finished within the budget."""
    states, text = Configurations(automaton), b""
    at, spelled = states.start, {number: name.encode() for name, number in VOCABULARY.names.items()}
    for left in range(BUDGET - 1, -1, -1):
        allowed = np.flatnonzero(states.distances_after(at)[automaton.token_class] <= left)
        token = int(draw.choice(allowed.tolist()))
        if token in VOCABULARY.eos_ids:
            return text.decode().removeprefix(" ")
        text += VOCABULARY.tokens[token] or spelled[token]
        at = states.advance(at, token)
    raise AssertionError("the budget ends the text")
