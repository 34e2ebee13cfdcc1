"""The requests of benchmarks.load, and whether an answer satisfies, judged by `re` alone."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

NOUNS = ("dog", "ball", "park", "man", "guitar", "girl", "snow", "hill", "beach", "horse", "street", "table")
VERBS = (("run", "runs", "running"), ("sit", "sits", "sitting"), ("play", "plays", "playing"))
PATTERNS = (
    r"[A-Z][a-z]+( [a-z]+){2,6}\.",
    r"(The|A) [a-z]+ (is|was) [a-z]+ing [a-z ]{3,20}\.",
    r"[a-z]+ at [1-9]:[0-5][0-9] [ap]m\.?",
)
PROMPTS = ("sentence:", "A photo of", "concepts: dog, ball\nsentence:")


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """A request's body, and what says of a text whether it satisfies."""

    body: bytes
    holds: Callable[[str], bool]


def keywords(words: tuple[str | tuple[str, ...], ...]) -> tuple[dict[str, Any], Callable[[str], bool]]:
    """Ordered keywords: none before its turn, as the service defines it; here the weaker claim that they come so."""
    forms = [(word,) if isinstance(word, str) else word for word in words]

    def holds(text: str) -> bool:
        units = iter(re.findall(r"\w+|[^\w\s]", text.lower()))
        return all(any(unit in form for unit in units) for form in forms)

    return {"keywords": [list(form) for form in forms], "ordered": True}, holds


def pattern(source: str) -> tuple[dict[str, Any], Callable[[str], bool]]:
    return {"regex": source}, lambda text: re.fullmatch(source, text) is not None


def common(count: int, dice: random.Random) -> list[LoadRequest]:
    """Small requests, half of them with keywords, as many callers ask them again and again."""
    found = []
    for number in range(count):
        given, holds = keywords((*dice.sample(NOUNS, 2), dice.choice(VERBS))) if number % 2 else pattern(
            PATTERNS[number // 2 % len(PATTERNS)]
        )
        found.append(_order(given, holds, dice))
    return found


def cold(dice: random.Random) -> LoadRequest:
    """One whose constraint hardly anyone asked for before."""
    return _order(*pattern(rf"[A-Z][a-z]+( [a-z]+){{2,5}}, number {dice.randrange(10**6)}\."), dice)


def _order(given: dict[str, Any], holds: Callable[[str], bool], dice: random.Random) -> LoadRequest:
    body = {
        "prompt": dice.choice(PROMPTS), "constraint": given, "max_tokens": dice.choice((24, 28, 32)),
        "beams": dice.choice((2, 4, 8)),
    }  # fmt: skip
    return LoadRequest(json.dumps(body).encode(), holds)
