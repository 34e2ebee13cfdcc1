"""Stories with gaps, after ILM's protocol (Donahue et al., 2020): which words are masked, and what may stand there.

Of a story's first sentences spans are masked until a given share of the words is: a sentence, a run of two to eight
words or a word, each a third of the time. The first words stay, as the prompt.
"""

from __future__ import annotations

import json
import random
import re
from dataclasses import dataclass
from pathlib import Path

PROMPT_WORDS = 3
WORDS_MAX = 60
NGRAM_WORDS_MAX = 8
_WORD = "[A-Za-z'-]+"
GAPS = {
    "word": _WORD, "ngram": rf"{_WORD}( {_WORD}){{1,{NGRAM_WORDS_MAX - 1}}}", "sentence": "[A-Z][A-Za-z ,'-]*[.!?]",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Story:
    """A story with gaps. `pattern` is what may follow the prompt; `text` is what did, and matches it."""

    prompt: str
    pattern: str
    text: str
    masked: float  # the share of the words


def stories(path: Path, count: int, share: float) -> list[Story]:
    """The first `count` stories of plain words, each with its own seed."""
    found: list[Story] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        told = json.loads(line)
        sentences = _first_sentences(told["text"])
        if sentences and len(found) < count:
            found.append(masked(sentences, share, random.Random(told["id"])))
    if len(found) < count:
        raise ValueError(f"{path} has {len(found)} such stories, {count} were asked for")
    return found


def _first_sentences(text: str) -> list[list[str]]:
    """The sentences before the first line break, up to WORDS_MAX words; none where they are not plain or too few."""
    first = text.partition("\n")[0]
    if not re.fullmatch(r"[A-Za-z' ,.!?-]+", first):
        return []
    found: list[list[str]] = []
    for sentence in re.findall(r"[^.!?]+[.!?]", first):
        if sum(map(len, found)) + len(sentence.split()) <= WORDS_MAX:
            found.append(sentence.split())
    plain = all(re.fullmatch(GAPS["sentence"], " ".join(words)) for words in found)
    return found if plain and len(found) > 1 and len(found[0]) > PROMPT_WORDS + 1 else []


def masked(sentences: list[list[str]], share: float, chance: random.Random) -> Story:
    """A story of these sentences in which about `share` of the words are masked."""
    words = [word for sentence in sentences for word in sentence]
    ends = [sum(map(len, sentences[: at + 1])) for at in range(len(sentences))]
    gap: list[str] = [""] * len(words)
    for _ in range(1000):
        if sum(map(bool, gap)) >= share * len(words):
            break
        kind = chance.choice(("word", "ngram", "sentence"))
        begin, end = _span(kind, ends, chance)
        if begin >= PROMPT_WORDS and not any(gap[max(0, begin - 1) : end + 1]):
            plain = kind == "sentence" or all(re.fullmatch(_WORD, word) for word in words[begin:end])
            if plain and sum(map(bool, gap)) + end - begin <= share * len(words) + 1:
                gap[begin:end] = [kind, *["-"] * (end - begin - 1)]
    shown = [GAPS[gap[at]] if gap[at] else re.escape(word) for at, word in enumerate(words) if gap[at] != "-"]
    return Story(
        " ".join(words[:PROMPT_WORDS]), " " + " ".join(shown[PROMPT_WORDS:]), " " + " ".join(words[PROMPT_WORDS:]),
        sum(map(bool, gap)) / len(words),
    )  # fmt: skip


def _span(kind: str, ends: list[int], chance: random.Random) -> tuple[int, int]:
    """Where a span of this kind begins and ends, within one sentence."""
    sentence = chance.randrange(len(ends))
    first, last = ends[sentence - 1] if sentence else 0, ends[sentence]
    if kind == "sentence":
        return first, last
    length = 1 if kind == "word" else chance.randint(2, NGRAM_WORDS_MAX)
    begin = chance.randrange(first, max(first + 1, last - length))
    return begin, min(begin + length, last)
