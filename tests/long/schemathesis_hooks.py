"""Gives schemathesis meaningful constraints, so that requests pass the parser.

Most requests that are meant to be valid get one. The others keep the generated value.
"""

from __future__ import annotations

import json
import zlib
from typing import Any

import schemathesis
from schemathesis import Case, GenerationMode, HookContext

CONSTRAINTS: list[dict[str, Any]] = [
    {"regex": "[a-z]{1,8}"}, {"keywords": ["dog", ["catch", "catches"]], "ordered": True}, {"choice": ["yes", "no"]},
    {"ltlf": "F(dog) & G(!cat)"}, {"json_schema": {"type": "boolean"}}, {"regex": "café|naïve"},
    {"all": [{"regex": "[a-z ]+"}, {"keywords": ["ball"]}]}, {"ltlf": "F(dog) & G(!dog)"}, {"max_chars": 12},
]
BODIES: dict[str, dict[str, Any]] = {  # what a request is, beside its constraint
    "/compile": {},
    "/check": {"text": "a dog catches the ball"},
    "/generate": {"prompt": "a dog", "max_tokens": 12, "beams": 4},
    "/v1/completions": {"prompt": "a dog", "max_tokens": 12},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "a dog"}], "max_tokens": 12},
    "/decode": {"log_probs": [[-1.0, -2.0], [-0.5, -1.5]], "constraint": {"ltlf": "F(a)", "labels": ["a", "b"]}},
}


@schemathesis.hook
def before_call(context: HookContext, case: Case, kwargs: dict[str, Any]) -> None:
    """Makes three of four requests meant to be valid really valid. A third of them do not wait for the answer."""
    meta, body = case.meta, case.body
    if meta is None or meta.generation.mode is not GenerationMode.POSITIVE or not isinstance(body, dict):
        return
    number = zlib.crc32(json.dumps(body, sort_keys=True, default=str).encode())
    if number % 4 == 0 or case.operation.path not in BODIES:
        return
    case.body = {"constraint": CONSTRAINTS[number % len(CONSTRAINTS)], **BODIES[case.operation.path]}
    if number % 3 == 0 and case.operation.path != "/check":
        case.headers = {**(case.headers or {}), "prefer": "respond-async"}
