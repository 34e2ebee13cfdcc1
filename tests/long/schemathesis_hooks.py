"""What schemathesis cannot guess: constraints that mean something, so that requests get past the reading of them.

Most requests that are meant to be right get one; the rest keep what was made up, as do all that are meant to be wrong.
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
    """Make three of four requests that are meant to be right so; of those, have a third not wait for the answer."""
    meta, body = case.meta, case.body
    if meta is None or meta.generation.mode is not GenerationMode.POSITIVE or not isinstance(body, dict):
        return
    number = zlib.crc32(json.dumps(body, sort_keys=True, default=str).encode())
    if number % 4 == 0 or case.operation.path not in BODIES:
        return
    case.body = {"constraint": CONSTRAINTS[number % len(CONSTRAINTS)], **BODIES[case.operation.path]}
    if number % 3 == 0 and case.operation.path != "/check":
        case.headers = {**(case.headers or {}), "prefer": "respond-async"}
