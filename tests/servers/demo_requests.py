"""Requests that any service with the model of captions answers."""

from __future__ import annotations

from typing import Any

from app.cli.demo_questions import RECORD, RECORD_PROMPT

CATCH = {"keywords": ["dog", ["catch", "catches", "caught"], "frisbee"], "ordered": True}
PROMPT = "concepts: dog, frisbee, catch\nsentence:"
REQUESTS: tuple[dict[str, Any], ...] = (
    {"prompt": PROMPT, "constraint": CATCH, "max_tokens": 24},
    {"prompt": PROMPT, "constraint": {"all": [CATCH, {"regex": r".*[a-z]\."}]}, "max_tokens": 24},
    {"prompt": RECORD_PROMPT, "constraint": RECORD, "max_tokens": 50},
)
