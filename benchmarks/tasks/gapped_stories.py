"""Stories with gaps, after the protocol of ILM (Donahue et al., 2020). Regexes describe their completions.

Spans of a story's first sentences are masked until a given share of the words is: a sentence, a run of two to eight
words, or a word, each with probability one third. The first words remain, as the prompt.
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
    """A story with gaps. `pattern` is a regex of the text after the prompt; `text`, the original, matches it."""

    prompt: str
    pattern: str
    text: str
    masked: float  # the share of the words


def gapped_stories(path: Path, count: int, share: float) -> list[Story]:
    """The first `count` suitable stories, each with its own seed. Raises ValueError if there are fewer."""
    stories: list[Story] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        fields = json.loads(line)
        sentences = _first_sentences(fields["text"])
        if sentences and len(stories) < count:
            stories.append(mask(sentences, share, random.Random(fields["id"])))
    if len(stories) < count:
        raise ValueError(f"{path} has {len(stories)} suitable stories, fewer than {count}")
    return stories


def _first_sentences(text: str) -> list[list[str]]:
    """The sentences before the first line break.

    They have up to WORDS_MAX words; the list is empty if they are unsuitable or too few.
    """
    first = text.partition("\n")[0]
    if not re.fullmatch(r"[A-Za-z' ,.!?-]+", first):
        return []
    sentences: list[list[str]] = []
    for sentence in re.findall(r"[^.!?]+[.!?]", first):
        if sum(map(len, sentences)) + len(sentence.split()) <= WORDS_MAX:
            sentences.append(sentence.split())
    is_suitable = all(re.fullmatch(GAPS["sentence"], " ".join(words)) for words in sentences)
    return sentences if is_suitable and len(sentences) > 1 and len(sentences[0]) > PROMPT_WORDS + 1 else []


def mask(sentences: list[list[str]], share: float, random_source: random.Random) -> Story:
    """A story in which about `share` of the words are masked."""
    words = [word for sentence in sentences for word in sentence]
    ends = [sum(map(len, sentences[: at + 1])) for at in range(len(sentences))]
    gap: list[str] = [""] * len(words)  # by word: the kind of the gap that starts there, "-" inside one
    for _ in range(1000):
        if sum(map(bool, gap)) >= share * len(words):
            break
        kind = random_source.choice(("word", "ngram", "sentence"))
        begin, end = _span(kind, ends, random_source)
        if begin >= PROMPT_WORDS and not any(gap[max(0, begin - 1) : end + 1]):
            is_suitable = kind == "sentence" or all(re.fullmatch(_WORD, word) for word in words[begin:end])
            if is_suitable and sum(map(bool, gap)) + end - begin <= share * len(words) + 1:
                gap[begin:end] = [kind, *["-"] * (end - begin - 1)]
    parts = [GAPS[gap[at]] if gap[at] else re.escape(word) for at, word in enumerate(words) if gap[at] != "-"]
    return Story(
        " ".join(words[:PROMPT_WORDS]), " " + " ".join(parts[PROMPT_WORDS:]), " " + " ".join(words[PROMPT_WORDS:]),
        sum(map(bool, gap)) / len(words),
    )  # fmt: skip


def _span(kind: str, ends: list[int], random_source: random.Random) -> tuple[int, int]:
    """The bounds of a random span of a kind, within one sentence."""
    sentence = random_source.randrange(len(ends))
    first, last = ends[sentence - 1] if sentence else 0, ends[sentence]
    if kind == "sentence":
        return first, last
    length = 1 if kind == "word" else random_source.randint(2, NGRAM_WORDS_MAX)
    begin = random_source.randrange(first, max(first + 1, last - length))
    return begin, min(begin + length, last)
