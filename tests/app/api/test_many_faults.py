"""Validation stops after the maximum number of reported errors.

A body with a million errors then costs no more than one with a few.
"""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from app.api.decode_request import DecodeRequest
from app.api.errors import FAULTS_MAX
from app.api.schemas import CheckRequest, CompileRequest, GenerateRequest
from app.openai.requests import ENTRIES_MAX, ChatRequest, CompletionRequest

ERRORS_COUNT = 2_000
UNKNOWN = {f"x{number}": 1 for number in range(ERRORS_COUNT)}
MESSAGE = {"role": "user", "content": "a"}
CONSTRAINT = {"regex": "a"}
BODIES: list[tuple[str, type[BaseModel], dict[str, Any]]] = [
    ("messages", ChatRequest, {"messages": [{}] * ERRORS_COUNT}),
    ("fields of a message", ChatRequest, {"messages": [MESSAGE | UNKNOWN]}),
    ("fields of a chat", ChatRequest, {"messages": [MESSAGE]} | UNKNOWN),
    ("arguments of a template", ChatRequest, {"messages": [MESSAGE], "chat_template_kwargs": {"x": [], **UNKNOWN}}),
    ("metadata", CompletionRequest, {"prompt": "a", "metadata": UNKNOWN}),
    ("choices", CompletionRequest, {"prompt": "a", "guided_choice": [1] * ERRORS_COUNT}),
    ("stream options", CompletionRequest, {"prompt": "a", "stream_options": UNKNOWN}),
    ("fields of a completion", CompletionRequest, {"prompt": "a"} | UNKNOWN),
    ("fields of a generation", GenerateRequest, {"prompt": "a", "constraint": CONSTRAINT} | UNKNOWN),
    ("fields of a compilation", CompileRequest, {"constraint": CONSTRAINT} | UNKNOWN),
    ("labels to check", CheckRequest, {"constraint": CONSTRAINT, "labels": [1] * ERRORS_COUNT}),
    ("labels to decode", DecodeRequest, {"constraint": {}, "labels": [1] * ERRORS_COUNT, "log_probs": [[-1.0]]}),
    ("a row", DecodeRequest, {"constraint": {}, "labels": ["a"], "log_probs": [["x"] * ERRORS_COUNT]}),
    ("rows", DecodeRequest, {"constraint": {}, "labels": ["a"], "log_probs": ["x"] * ERRORS_COUNT}),
]


@pytest.mark.parametrize(("model", "body"), [pytest.param(*row[1:], id=row[0]) for row in BODIES])
def test_validation_stops_at_the_maximum_number_of_errors(model: type[BaseModel], body: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as refusal:
        model.model_validate(body)
    assert 1 <= refusal.value.error_count() <= FAULTS_MAX


def test_unknown_fields_are_reported_beside_other_errors() -> None:
    body = {"constraint": CONSTRAINT, "explain": "MARKER"} | dict.fromkeys(list(UNKNOWN)[:FAULTS_MAX], 1)
    with pytest.raises(ValidationError) as refusal:
        CompileRequest.model_validate(body)
    fields = [fault["loc"][0] for fault in refusal.value.errors()]
    assert sorted(fields) == sorted(["explain", *list(UNKNOWN)[:FAULTS_MAX]])


def test_the_maximum_number_of_entries_is_accepted() -> None:
    metadata = {str(number): "a" for number in range(ENTRIES_MAX)}
    assert CompletionRequest(prompt="a", metadata=metadata).metadata == metadata
