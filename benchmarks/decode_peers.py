"""Constrained decoders on the built-in model: their time, and how many of their answers satisfy.

Every decoder gets the same patterns, the same prompt and the same budgets: a short one, two tokens over the least that
the pattern needs, and a long one. Each runs in a process and an environment of its own (`systems/`). benchmarks.decode
asks them.
"""

from __future__ import annotations

import re
from typing import Any

from app.models import open_model_files
from app.settings import BUILT_IN_MODEL
from benchmarks.systems.base import Wanted
from benchmarks.systems.catalogue import SYSTEMS
from benchmarks.systems.running import NotHere, Running, running
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
SHORT_SLACK, LONG = 2, 64  # tokens over the least; tokens
PEERS = ("ours, 16 beams", "ours, 1 beam", "XGrammar", "outlines-core", "llguidance", "Outlines", "guidance")


def satisfies(pattern: str, text: str) -> bool:
    """Whether a text matches in full; one space before it is forgiven, which some tokenizers cannot but write."""
    return re.fullmatch(pattern, text.removeprefix(" ")) is not None


def least_tokens(patterns: tuple[str, ...]) -> dict[str, int]:
    """The tokens of each pattern's shortest text, the end among them."""
    vocabulary = open_model_files(BUILT_IN_MODEL).vocabulary
    return {pattern: compile_spec(RegexSpec(pattern), vocabulary).tokens.min_tokens for pattern in patterns}


def _figures(system: Running, budgets: dict[str, int]) -> dict[str, Any]:
    answers = {pattern: system.ask(Wanted(pattern), PROMPT, budget) for pattern, budget in budgets.items()}
    satisfied = sum(satisfies(pattern, one.text) and not one.error for pattern, one in answers.items())
    return {
        "seconds": sum(one.ms for one in answers.values()) / 1000, "asked": len(answers), "satisfied": satisfied,
        "texts": [one.text for one in answers.values()],
    }  # fmt: skip


def measured(name: str, threads: int) -> dict[str, Any]:
    """One decoder's figures; its error where it cannot be started here."""
    least = least_tokens(PATTERNS)
    try:
        with running(SYSTEMS[name], BUILT_IN_MODEL, threads) as system:
            system.ask(Wanted(PATTERNS[0]), PROMPT, LONG)  # the first answer is slow for reasons of its own
            short = _figures(system, {pattern: tokens + SHORT_SLACK for pattern, tokens in least.items()})
            long = _figures(system, dict.fromkeys(PATTERNS, LONG))
    except NotHere as error:
        return {"name": name, "error": str(error)}
    return {"name": name, "texts": len(PATTERNS), "short": short, "long": long}
