"""The cases of the quality benchmarks, and the variants of the ablation.

The constraints are concept sets of CommonGen, regexes and templates, for the ablation also JSON schemas. A variant is a
choice of heuristics.
"""

from __future__ import annotations

import json
import random
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from decoding.options import DEFAULT, Algorithm, Heuristics

CAPTION_PROMPTS = {"captions": "sentence:", "bigram": "sentence:"}
STORY_PROMPT = "One day, a girl saw"
PATTERNS = "regexes and templates"

REGEXES = (
    r"(A|The) \w+ (is|was) \w+ing (a|the) \w+\.",
    r"[A-Z][a-z]+( [a-z]+){4}\.",
    r"[A-Z][a-z]+( [a-z]+){9}\.",
    r"(two|three|four) (men|women|dogs|cats) [a-z ]{10,40}\.?",
    r"[^aeiou]*(a[^aeiou]*){3}",
    r"[a-z ]{20,40} park",
    r"(\w{3} ){5}\w{3}",
    r"(\w{1,4} ){6}\w{1,4}\.",
    r"[A-Z].* because .*\.",
    r"[A-Z].* but .* and .*\.",
    r".*(dog|cat).*(dog|cat).*",
    r".*\d{2}.*",
    r"\d{1,2} (men|people|dogs) .*",
    r"[^e]{25,}",
    r"[^t]{20,30}\.",
    r"(.*[.!?]){2}",
    r"(He|She) (runs|walks|swims), (runs|walks|swims) and (runs|walks|swims)\.",
    r"\w+, \w+, \w+ and \w+",
    r"[a-z]+ing [a-z ]+ing [a-z]+",
    r"The (red|blue|green) [a-z]+ .* the (red|blue|green) [a-z]+\.",
    r".*\?",
    r".*!",
    r"\"[A-Z][^\"]{5,30}\"",
    r"[A-Z][a-z]* (and|with) [A-Z][a-z]* .*\.",
    r"(b[a-z]* ){3}[a-z]*",
)
TEMPLATES = (
    "A <|infill_word|> is <|infill_word|> in the park.",
    "The <|infill_word|> <|infill_word|> the ball.",
    "Two <|infill_word|> stand <|infill_ngram|>.",
    "<|infill_word|> and <|infill_word|> play with a dog.",
    "A man <|infill_ngram|> in the snow.",
    "The girl <|infill_ngram|> her hair.",
    "In the <|infill_word|>, a boy <|infill_ngram|>.",
    "<|infill_sentence|> The end.",
    "It was cold. <|infill_sentence|>",
    "My dog <|infill_ngram|> because <|infill_ngram|>.",
    "The cat sat on the <|infill_word|>.",
    "A group of <|infill_word|> <|infill_ngram|>.",
    "She <|infill_word|>, he <|infill_word|>.",
    "The <|infill_word|> in the <|infill_word|> is <|infill_word|>.",
    "<|infill_ngram|> with a guitar.",
    "<|infill_ngram|> on the beach.",
    "A woman in a <|infill_word|> dress <|infill_ngram|>.",
    "Water <|infill_ngram|>.",
    "Snow <|infill_ngram|> the <|infill_word|>.",
    "The team <|infill_word|> the game.",
    "He <|infill_word|> a <|infill_word|> and a <|infill_word|>.",
    "<|infill_word|> <|infill_word|> <|infill_word|> bike.",
    "A <|infill:red|blue|green|> car <|infill_ngram|>.",
    "At night <|infill_sentence|>",
    "The kids <|infill_ngram|> a tree.",
)


@dataclass(frozen=True, slots=True)
class QualityCase:
    """One request. `references` are texts that people wrote for it, if there are any."""

    name: str
    prompt: str
    constraint: dict[str, Any]
    references: tuple[str, ...] = ()


def families(model: str, dev: Path, sets: int) -> dict[str, list[QualityCase]]:
    """The cases of a model by family, with `sets` concept sets.

    The sets are evenly spread over the lines of dev.jsonl.
    """
    rows = [json.loads(line) for line in dev.read_text(encoding="utf-8").splitlines()]
    selection = [rows[at * len(rows) // sets] for at in range(sets)]
    prompt = CAPTION_PROMPTS.get(model, STORY_PROMPT)
    by_family = {}
    for named in (True, False) if model == "captions" else (False,):
        for ordered in (False, True):
            family = ("ordered" if ordered else "unordered") + (", concepts in the prompt" if named else "")
            by_family[family] = [_concept_case(row, prompt, ordered=ordered, named=named) for row in selection]
    patterns = [("regex", pattern) for pattern in REGEXES] + [("infill", template) for template in TEMPLATES]
    by_family[PATTERNS] = [QualityCase(text, prompt, {form: text}) for form, text in patterns]
    return by_family


def drawn_families(model: str, dev: Path, sets: int, seed: int) -> dict[str, list[QualityCase]]:
    """Cases of random concept sets from dev.jsonl, in both orders. The prompt does not name the concepts."""
    lines = random.Random(seed).sample(dev.read_text(encoding="utf-8").splitlines(), sets)
    rows, prompt = [json.loads(line) for line in lines], CAPTION_PROMPTS.get(model, STORY_PROMPT)
    return {
        f"{family}, drawn": [_concept_case(row, prompt, ordered=family == "ordered", named=False) for row in rows]
        for family in ("unordered", "ordered")
    }


def _concept_case(row: dict[str, Any], prompt: str, *, ordered: bool, named: bool) -> QualityCase:
    head = f"concepts: {', '.join(row['concepts'])}\n" if named else ""
    constraint = {"keywords": row["inflections"], "ordered": ordered, "inflect": False}
    return QualityCase(str(row["concept_set_idx"]), head + prompt, constraint, tuple(row["references"]))


JSON = "JSON schemas"
MODELS = ("captions", "stories260k", "tinystories-656k", "bigram")
FIRST_STAGE = {"captions": 6, "stories260k": 9}
"""Cases of each family of a model in the first stage: 36 of captions' and 36 of stories260k's in all."""

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
class AblationTask:
    """One case of a family, with its budget in tokens."""

    family: str
    case: QualityCase
    max_tokens: int

    @property
    def key(self) -> str:
        """A name of 8 hexadecimal digits that is unique within the model."""
        return f"{zlib.crc32(f'{self.family}/{self.case.name}'.encode()):08x}"

    @property
    def held_out(self) -> bool:
        """Whether the case is held out. No decision is based on this half of the cases."""
        return int(self.key, 16) % 2 == 1


def tasks(model: str, dev: Path, sets: int) -> list[AblationTask]:
    """All cases of a model, with `sets` sets per keyword family."""
    by_family = families(model, dev, sets).items()
    ablation_tasks = [AblationTask(family, case, 32) for family, cases in by_family for case in cases]
    prompt = CAPTION_PROMPTS.get(model, STORY_PROMPT)
    for record in _RECORDS if model != "tinystories-656k" else ():  # its vocabulary has no token for a brace
        schema = {"type": "object", "properties": record, "required": list(record), "additionalProperties": False}
        constraint = {"json_schema": schema, "whitespace": "compact"}
        ablation_tasks.append(AblationTask(JSON, QualityCase(" ".join(record), prompt, constraint), 80))
    return ablation_tasks


def second_stage(all_tasks: Sequence[AblationTask]) -> Iterator[AblationTask]:
    """Up to 26 concept sets per family, all patterns and all schemas. The sets are evenly spread."""
    for tasks_of_family in _by_family(all_tasks):
        size = len(tasks_of_family)
        count = min(size, 26) if "ordered" in tasks_of_family[0].family else size
        yield from (tasks_of_family[at * size // count] for at in range(count))


def first_stage(model: str, all_tasks: Sequence[AblationTask]) -> Iterator[AblationTask]:
    """The stratified cases of the first stage, evenly spread over each family."""
    count = FIRST_STAGE.get(model, 9)
    for tasks_of_family in _by_family(all_tasks):
        yield from (tasks_of_family[at * len(tasks_of_family) // count] for at in range(count))


def _by_family(all_tasks: Sequence[AblationTask]) -> list[list[AblationTask]]:
    names = dict.fromkeys(task.family for task in all_tasks)
    return [[task for task in all_tasks if task.family == name] for name in names]


@dataclass(frozen=True, slots=True)
class Variant:
    """A search. `beams_factor` multiplies k, for comparisons at equal cost."""

    heuristics: Heuristics = DEFAULT
    beams_factor: int = 1
    algorithm: Algorithm = "banked"


def _with(**changes: object) -> Variant:
    return Variant(replace(DEFAULT, **changes))  # type: ignore[arg-type]


PRUNING_ALONE = Heuristics(
    cost_to_go="none", group_cost=0.0, rows_per_beam=1.0, endings=False, floor=False, forced=False
)
BASELINE = "kept"
VARIANTS: dict[str, Variant] = {  # the names are those of the stored figures
    BASELINE: Variant(),
    "kept without cost to go": _with(cost_to_go="none"),
    "kept without prior": _with(cost_to_go="distance"),
    "kept without group penalty": _with(group_cost=0.0),
    "kept without endings": _with(endings=False),
    "kept without floor": _with(floor=False),
    "kept without forced tokens": _with(forced=False),
    "k rows": _with(rows_per_beam=1.0),
    "2k rows": _with(rows_per_beam=2.0),
    "4k rows": _with(rows_per_beam=4.0),
    "pool of 4": _with(pool=4),
    "pool of 16": _with(pool=16),
    "plain": Variant(PRUNING_ALONE),
    "plain, cost to go": Variant(replace(PRUNING_ALONE, cost_to_go="unigram")),
    "plain, cost to go, penalty": Variant(replace(PRUNING_ALONE, cost_to_go="unigram", group_cost=DEFAULT.group_cost)),
    "abs, 3k rows": Variant(beams_factor=3, algorithm="abs"),
}
