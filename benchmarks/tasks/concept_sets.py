"""The concept sets of CommonGen's validation split, as constraints of the systems."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.keyword_patterns import ANYTHING, ASCII, Concepts, Pattern, are_ascii
from benchmarks.quality.cases import STORY_PROMPT
from benchmarks.systems.base import TextConstraint

FAMILIES = ("CommonGen", "Ordered CommonGen")
PROMPTS = {"captions": "concepts: {concepts}\nsentence:", "stories260k": STORY_PROMPT, "tinystories-656k": STORY_PROMPT}
OTHER_PROMPT = (
    "Concepts: dog, frisbee, catch\nSentence: A dog leaps to catch a frisbee.\nConcepts: {concepts}\nSentence:"
)


@dataclass(frozen=True, slots=True)
class ConceptSet:
    """One set of concepts. `references` are the sentences that people wrote for it."""

    name: str
    prompt: str
    concepts: tuple[str, ...]
    constraint: TextConstraint
    references: tuple[str, ...]


def concept_sets(dev: Path, prompt: str, sets: int, *, ordered: bool) -> list[ConceptSet]:
    """`sets` sets, spread evenly over those with ASCII forms. `prompt` may contain {concepts}."""
    rows = [json.loads(line) for line in dev.read_text(encoding="utf-8").splitlines()]
    rows = [row for row in rows if are_ascii(_forms(row["inflections"]))]
    return [
        ConceptSet(
            str(row["concept_set_idx"]), prompt.format(concepts=", ".join(row["concepts"])), tuple(row["concepts"]),
            concept_constraint(_forms(row["inflections"]), ordered=ordered), tuple(row["references"]),
        )
        for row in (rows[at * len(rows) // sets] for at in range(sets))
    ]  # fmt: skip


def concept_constraint(concepts: Concepts, *, ordered: bool) -> TextConstraint:
    """One form of each concept occurs. The pattern's words are ASCII; its order is the weaker one of a subsequence."""
    write = Pattern(ASCII)
    if ordered:
        return TextConstraint(write.subsequence(concepts), (), concepts, ordered=True)
    head = rf"(?:{ANYTHING}{write.alphabet.not_word})?"
    parts = tuple(head + write.word(forms) + write.tail for forms in concepts)
    return TextConstraint(write.unordered(concepts), parts, concepts)


def _forms(inflections: Sequence[Sequence[str]]) -> Concepts:
    return tuple(map(tuple, inflections))
