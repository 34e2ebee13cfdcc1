"""The cases of `benchmarks.ablation`: the families of `search_quality`, and JSON schemas."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.search_quality_cases import PLAIN_PROMPTS, STORY_PROMPT, Case, families

JSON = "JSON schemas"
MODELS = ("captions", "stories260k", "tinystories-656k", "bigram")
FIRST_STAGE = {"captions": 6, "stories260k": 9}
"""Cases that each family of a model gives to the first stage: 36 of captions' and 36 of stories260k's."""

_TEXT = {"type": "string", "pattern": "^[a-z]+( [a-z]+){1,3}$"}
_WORD = {"type": "string", "pattern": "^[a-z]{3,8}$"}
_COLOUR = {"enum": ["red", "green", "blue", "yellow", "black", "white"]}
_COUNT = {"type": "integer", "minimum": 1, "maximum": 99}
_RECORDS: tuple[dict[str, Any], ...] = (
    {"animal": _WORD, "colour": _COLOUR},
    {"who": _TEXT, "does": _TEXT},
    {"subject": _WORD, "count": _COUNT},
    {"colour": _COLOUR},
    {"place": _TEXT},
    {"day": {"type": "string", "format": "date"}},
    {"ok": {"type": "boolean"}, "why": _TEXT},
    {"name": {"type": "string", "pattern": "^[A-Z][a-z]{2,7}$"}, "age": _COUNT},
    {"title": {"type": "string", "minLength": 5, "maxLength": 20}},
    {"words": {"type": "array", "items": _WORD, "minItems": 2, "maxItems": 3}},
    {"kind": {"enum": ["dog", "cat", "bird"]}, "does": _TEXT},
    {"count": _COUNT, "of": _WORD},
    {"a": _WORD, "b": _WORD},
    {"at": {"type": "string", "pattern": "^[0-2][0-9]:[0-5][0-9]$"}, "what": _TEXT},
    {"tags": {"type": "array", "items": _COLOUR, "minItems": 1, "maxItems": 4}},
)


@dataclass(frozen=True, slots=True)
class Task:
    """One case of a family, with its budget in tokens."""

    family: str
    case: Case
    max_tokens: int

    @property
    def key(self) -> str:
        """A short name that is unique within the model: 8 hexadecimal digits."""
        return f"{zlib.crc32(f'{self.family}/{self.case.name}'.encode()):08x}"

    @property
    def decides(self) -> bool:
        """Whether it is of the half on which decisions are made; the other half is set apart."""
        return int(self.key, 16) % 2 == 0


def tasks(model: str, dev: Path, sets: int) -> list[Task]:
    """All cases of a model. `sets` concept sets of each family of keywords."""
    found = [
        Task(family, case, 32) for family, cases in families(model, dev, sets).items() for case in cases
    ]
    prompt = PLAIN_PROMPTS.get(model, STORY_PROMPT)
    for record in _RECORDS if model != "tinystories-656k" else ():  # which has no token for a brace
        schema = {
            "type": "object", "properties": record, "required": list(record), "additionalProperties": False,
        }
        found.append(Task(JSON, Case(" ".join(record), prompt, {"json_schema": schema}), 80))
    return found


def second_stage(every: Sequence[Task]) -> Iterator[Task]:
    """At most 26 concept sets of each family, evenly spread, and all patterns and JSON schemas."""
    for family in dict.fromkeys(task.family for task in every):
        own = [task for task in every if task.family == family]
        count = min(len(own), 26) if "ordered" in family else len(own)
        yield from (own[at * len(own) // count] for at in range(count))


def first_stage(model: str, every: Sequence[Task]) -> Iterator[Task]:
    """The stratified cases of the first stage, evenly spread over each family."""
    few = FIRST_STAGE.get(model, 9)
    for family in dict.fromkeys(task.family for task in every):
        own = [task for task in every if task.family == family]
        yield from (own[at * len(own) // few] for at in range(few))
