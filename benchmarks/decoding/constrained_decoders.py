"""Constrained decoders on the built-in model: their time, and how many of their answers satisfy the pattern.

Every decoder gets the same patterns, prompt and budgets: a short budget, two tokens more than the shortest text of the
pattern has, and a long one. Each runs in a process and an environment of its own (`benchmarks.systems`).
"""

from __future__ import annotations

import re
from typing import Any

from app.models import open_model_files
from app.settings import BUILT_IN_MODEL
from benchmarks.systems.base import TextConstraint
from benchmarks.systems.catalogue import SYSTEMS
from benchmarks.systems.process import SystemProcess, SystemUnavailable, run_system
from compiler.pipeline import compile_spec
from compiler.spec import RegexSpec

PROMPT = "sentence:"
PATTERNS = (
    r"[A-Z][a-z]+( [a-z]+){3,9}\.",
    r"A [a-z ]*dog[a-z ]*park[a-z ]*\.",
    r"(The|A) (man|woman|girl|boy) [a-z ]+ and [a-z ]+\.",
    r"[A-Z][a-z ]{20,60}\.",
    r"[a-z ]*snow[a-z ]*hill[a-z ]*sled[a-z ]*\.",
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}: [a-z ]{10,40}\.",
    r'\{"who": "[a-z ]{3,20}", "where": "[a-z ]{3,20}"\}',
    r"([a-z]+, ){2,5}and [a-z]+",
)
SHORT_SLACK, LONG = 2, 64  # tokens beyond the shortest text; tokens
DECODERS = ("ours, 16 beams", "ours, 1 beam", "XGrammar", "outlines-core", "llguidance", "Outlines", "guidance")


def satisfies(pattern: str, text: str) -> bool:
    """Whether a text matches in full. One leading space is ignored, as some tokenizers always write it."""
    return re.fullmatch(pattern, text.removeprefix(" ")) is not None


def tokens_min(patterns: tuple[str, ...]) -> dict[str, int]:
    """The number of tokens of each pattern's shortest text, including the end-of-text token."""
    vocabulary = open_model_files(BUILT_IN_MODEL).vocabulary
    return {pattern: compile_spec(RegexSpec(pattern), vocabulary).tokens.min_tokens for pattern in patterns}


def _figures(system: SystemProcess, budgets: dict[str, int]) -> dict[str, Any]:
    answers = {pattern: system.ask(TextConstraint(pattern), PROMPT, budget) for pattern, budget in budgets.items()}
    satisfied = sum(satisfies(pattern, answer.text) and not answer.error for pattern, answer in answers.items())
    return {
        "seconds": sum(answer.ms for answer in answers.values()) / 1000, "requests": len(answers),
        "satisfied": satisfied, "texts": [answer.text for answer in answers.values()],
    }  # fmt: skip


def decoder_figures(name: str, threads: int) -> dict[str, Any]:
    """The figures of one decoder; its error if it cannot be started on this machine."""
    shortest = tokens_min(PATTERNS)
    try:
        with run_system(SYSTEMS[name], BUILT_IN_MODEL, threads) as system:
            system.ask(TextConstraint(PATTERNS[0]), PROMPT, LONG)  # the first answer of a process is slower
            short = _figures(system, {pattern: tokens + SHORT_SLACK for pattern, tokens in shortest.items()})
            long = _figures(system, dict.fromkeys(PATTERNS, LONG))
    except SystemUnavailable as error:
        return {"name": name, "error": str(error)}
    return {"name": name, "texts": len(PATTERNS), "short": short, "long": long}
