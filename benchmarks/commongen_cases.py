"""What `benchmarks.commongen` asks: concept sets of CommonGen's validation split, as systems take them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.keyword_cases import ANYTHING, ASCII, Concepts, Pattern, is_plain
from benchmarks.search_quality_cases import STORY_PROMPT
from benchmarks.systems.base import Wanted

FAMILIES = ("CommonGen", "Ordered CommonGen")
PROMPTS = {"captions": "concepts: {concepts}\nsentence:", "stories260k": STORY_PROMPT, "tinystories-656k": STORY_PROMPT}
OTHER_PROMPT = (
    "Concepts: dog, frisbee, catch\nSentence: A dog leaps to catch a frisbee.\nConcepts: {concepts}\nSentence:"
)


@dataclass(frozen=True, slots=True)
class Case:
    """One set of concepts. `references` are what people wrote for it."""

    name: str
    prompt: str
    concepts: tuple[str, ...]
    wanted: Wanted
    references: tuple[str, ...]


def cases(dev: Path, prompt: str, sets: int, *, ordered: bool) -> list[Case]:
    """So many sets, spread evenly over those whose forms are plain words. `prompt` may name {concepts}."""
    rows = [json.loads(line) for line in dev.read_text(encoding="utf-8").splitlines()]
    plain = [row for row in rows if is_plain(_forms(row["inflections"]))]
    chosen = [plain[at * len(plain) // sets] for at in range(sets)]
    return [
        Case(
            str(row["concept_set_idx"]), prompt.format(concepts=", ".join(row["concepts"])), tuple(row["concepts"]),
            wanted(_forms(row["inflections"]), ordered=ordered), tuple(row["references"]),
        )
        for row in chosen
    ]  # fmt: skip


def wanted(concepts: Concepts, *, ordered: bool) -> Wanted:
    """That a form of each occurs. A regex's word characters are ASCII's, and it may say the weaker order."""
    pattern = Pattern(ASCII)
    if ordered:
        return Wanted(pattern.subsequence(concepts), (), concepts, ordered=True)
    head = rf"(?:{ANYTHING}{pattern.alphabet.not_word})?"
    parts = tuple(head + pattern.word(forms) + pattern.tail for forms in concepts)
    return Wanted(pattern.unordered(concepts), parts, concepts)


def _forms(inflections: Sequence[Sequence[str]]) -> Concepts:
    return tuple(map(tuple, inflections))
