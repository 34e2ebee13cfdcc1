"""The requests of the load benchmark, with a check of their answers by `re` alone."""

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

ConstraintCheck = tuple[dict[str, Any], Callable[[str], bool]]  # a constraint, and whether a text satisfies it


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """The body of a request. `satisfies` says whether a text satisfies its constraint."""

    body: bytes
    satisfies: Callable[[str], bool]


def keywords(words: tuple[str | tuple[str, ...], ...]) -> ConstraintCheck:
    """Ordered keywords. The check is weaker than the service's definition: they occur in this order somewhere."""
    forms = [(word,) if isinstance(word, str) else word for word in words]

    def satisfies(text: str) -> bool:
        units = iter(re.findall(r"\w+|[^\w\s]", text.lower()))
        return all(any(unit in form for unit in units) for form in forms)

    return {"keywords": [list(form) for form in forms], "ordered": True}, satisfies


def pattern(source: str) -> ConstraintCheck:
    """A regex."""
    return {"regex": source}, lambda text: re.fullmatch(source, text) is not None


def common_requests(count: int, rng: random.Random) -> list[LoadRequest]:
    """Small requests that many callers repeat, half of them with keywords."""
    requests = []
    for number in range(count):
        if number % 2:
            constraint = keywords((*rng.sample(NOUNS, 2), rng.choice(VERBS)))
        else:
            constraint = pattern(PATTERNS[number // 2 % len(PATTERNS)])
        requests.append(_load_request(constraint, rng))
    return requests


def cold_request(rng: random.Random) -> LoadRequest:
    """A request whose constraint is almost certainly new to the service."""
    return _load_request(pattern(rf"[A-Z][a-z]+( [a-z]+){{2,5}}, number {rng.randrange(10**6)}\."), rng)


def _load_request(constraint: ConstraintCheck, rng: random.Random) -> LoadRequest:
    body = {
        "prompt": rng.choice(PROMPTS), "constraint": constraint[0], "max_tokens": rng.choice((24, 28, 32)),
        "beams": rng.choice((2, 4, 8)),
    }  # fmt: skip
    return LoadRequest(json.dumps(body).encode(), constraint[1])
