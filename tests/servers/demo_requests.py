"""Requests of the demo, which any service with the built-in model answers."""

from __future__ import annotations

from typing import Any

from app.cli.demo_questions import CATCH, PROMPT, RECORD, SENTENCE, SENTENCE_PROMPT

REQUESTS: tuple[dict[str, Any], ...] = (
    {"prompt": SENTENCE_PROMPT, "constraint": CATCH, "max_tokens": 24},
    {"prompt": SENTENCE_PROMPT, "constraint": SENTENCE, "max_tokens": 24},
    {"prompt": PROMPT, "constraint": RECORD, "max_tokens": 50},
)
