"""The constraints of the quality benchmarks: concept sets of CommonGen, regexes and templates, with their prompts."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
    """The cases of a model by family, with `sets` concept sets, evenly spread over the lines of dev.jsonl."""
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
    """Cases of concept sets drawn at random from dev.jsonl, in both orders, without the concepts in the prompt."""
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
