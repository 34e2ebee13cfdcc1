"""The regexes that the compile benchmark gives to another engine mean what it says they mean."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest

from benchmarks.keyword_cases import ASCII, UNICODE, Concepts, Pattern, keyword_sets
from compiler.pipeline import compile_text
from compiler.spec import KeywordsSpec
from compiler.text_automaton import check_text

CONCEPTS: Concepts = (("dog", "dogs"), ("kick", "kicked"), ("ball",))
WORDS = ("dog", "Dogs", "dogsled", "do", "KICK", "kicked", "kicker", "ball", "balls", "a", "café", "été", "_dog", "x1")
WORDS += ("\u212aick",)  # the Kelvin sign is a K in another case
GAPS = (" ", ", ", ".", "\n", "-", "’", " 日本 ", "")


def texts(count: int) -> list[str]:
    """Sentences of words near the keywords; a third of them hold every keyword, so that both verdicts occur."""
    dice, found = random.Random(7), ["", "dog", "dog kick ball", "ball kick dog", "dog. dog kicked-balls ball"]
    for number in range(count):
        words = dice.choices(WORDS, k=dice.randrange(1, 7))
        if number % 3 == 0:
            words += [dice.choice(forms) for forms in CONCEPTS]
        if number % 2:
            dice.shuffle(words)
        found.append("".join(word + dice.choice(GAPS) for word in words))
    return found


@pytest.mark.parametrize("ordered", [True, False])
def test_the_equal_pattern_has_exactly_the_language_of_the_keywords(ordered: bool) -> None:
    write = Pattern(UNICODE)
    pattern = re.compile(write.ordered(CONCEPTS) if ordered else write.unordered(CONCEPTS))
    automaton = compile_text(KeywordsSpec(CONCEPTS, ordered))
    verdicts = []
    for text in texts(600):
        verdicts.append(check_text(automaton, text).satisfied)
        assert (pattern.fullmatch(text) is not None) == verdicts[-1], text
    assert 50 < sum(verdicts) < len(verdicts) - 50


def test_the_simpler_ordered_pattern_leaves_nothing_out() -> None:
    exact, simpler = (re.compile(one(CONCEPTS)) for one in (Pattern(UNICODE).ordered, Pattern(UNICODE).subsequence))
    accepted = [text for text in texts(600) if exact.fullmatch(text)]
    assert accepted and all(simpler.fullmatch(text) for text in accepted)
    assert simpler.fullmatch("ball dog kick ball") and not exact.fullmatch("ball dog kick ball")


def test_the_ascii_pattern_agrees_on_ascii_texts() -> None:
    unicode, ascii_only = (re.compile(Pattern(alphabet).unordered(CONCEPTS)) for alphabet in (UNICODE, ASCII))
    for text in filter(str.isascii, texts(600)):
        assert (unicode.fullmatch(text) is None) == (ascii_only.fullmatch(text) is None), text


def test_keyword_sets_are_plain_words_that_belong_to_one_concept_each(tmp_path: Path) -> None:
    rows = [
        [["a", "b"], ["c"], ["d"]],
        [["a"], ["a"], ["b"]],  # a form in two concepts
        [["t-shirt"], ["b"], ["c"]],  # not one word
        [["e"], ["f"], ["g"], ["h"], ["i"]],
    ]
    dev = tmp_path / "dev.jsonl"
    dev.write_text("\n".join(json.dumps({"inflections": row}) for row in rows), encoding="utf-8")
    assert keyword_sets(dev, 3, 1) == [(("a", "b"), ("c",), ("d",))]
    assert keyword_sets(dev, 8, 1) == [(("e",), ("f",), ("g",), ("h",), ("i",), ("a", "b"), ("c",), ("d",))]
    with pytest.raises(ValueError, match="2 were asked for"):
        keyword_sets(dev, 3, 2)
