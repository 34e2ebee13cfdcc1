"""Compares the word transducer with the definition of the word trace. The display of a text is checked too."""

from __future__ import annotations

import contextlib
import random
import re
from functools import reduce

import pytest

from compiler.errors import SpecUnsatisfiable
from compiler.pipeline import compile_spec, compile_text
from compiler.spec import LtlfSpec, Proposition, RegexSpec, Spec, caller_names, in_caller_names, spec_from_json
from compiler.text import TextAutomaton, answer_text, check_text, replay
from compiler.vocab import byte_vocabulary
from tests.references.random_constraints import ALPHABET, random_proposition, random_spec
from tests.references.text import satisfies, word_trace
from tests.tables import rows

PARTS = (
    *ALPHABET,
    *("a b", "ab", "b.", "\n", "\u3000", "日é", " a", "1", "İ", "ſ", "\u212a", "٣", "ß", "\u200d", "\u0301", "’"),
)


def random_text(draw: random.Random) -> str:
    return "".join(draw.choice(PARTS) for _ in range(draw.randint(0, 9)))


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.sample(10)
def test_the_letters_of_a_text_are_those_of_the_definition(seed: int) -> None:
    draw = random.Random(seed)
    names = draw.sample(("p", "q", "r", "s"), draw.randint(1, 4))
    declarations = tuple((name, random_proposition(draw)) for name in names)
    mentioned = [*names, "a", "dot", "nomatch", *(["eos"] if draw.random() < 0.4 else [])]
    spec = LtlfSpec(" | ".join(f"F {name}" for name in mentioned) + " | true", declarations)
    automaton = compile_text(spec)
    for _ in range(40):
        text = random_text(draw)
        units = re.findall(r"\w+|[^\w\s]", text)
        words = check_text(automaton, text).words
        letters = [in_caller_names(step.letters, caller_names(spec)) for step in words]
        assert letters == [tuple(sorted(letter)) for letter in word_trace(spec, text)]
        assert [step.text for step in words] == units + [""] * ("eos" in mentioned)


def satisfiable(draw: random.Random) -> tuple[Spec, TextAutomaton]:
    """A random constraint that some text satisfies."""
    while True:
        spec = random_spec(draw)
        with contextlib.suppress(SpecUnsatisfiable):
            return spec, compile_text(spec)


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.sample(15)
def test_check_agrees_with_the_definition_and_locates_the_violation(seed: int) -> None:
    draw = random.Random(seed)
    spec, automaton = satisfiable(draw)
    for _ in range(20):
        text = random_text(draw)
        check = check_text(automaton, text)
        assert check.satisfied == satisfies(spec, text)
        assert check.satisfied == (check.violated_at is None)
        if check.violated_at is not None and check.violated_at < len(text):
            broken = text[: check.violated_at + 1]
            assert not any(satisfies(spec, broken + suffix) for suffix in ("", *PARTS, "a b", ". a", "ab ab"))


def test_an_incomplete_text_is_violated_at_its_end() -> None:
    automaton = compile_text(LtlfSpec("F dog & F cat"))
    check = check_text(automaton, "a dog")
    assert (check.satisfied, check.violated_at) == (False, 5)


def test_a_violation_is_at_the_first_character_without_a_continuation() -> None:
    automaton = compile_text(LtlfSpec("G !cat"))
    assert check_text(automaton, "a cat sat").violated_at == 5  # the space makes "cat" a word
    assert check_text(automaton, "a cat").violated_at == 5  # "catalog" would still do
    assert check_text(compile_text(RegexSpec("ab+")), "abab").violated_at == 2


@pytest.mark.parametrize(("constraint", "raw", "answer"), rows("text", "an_answer_excludes_one_leading_space"))
def test_an_answer_excludes_one_leading_space(constraint: dict[str, object], raw: str, answer: str) -> None:
    assert answer_text(compile_text(spec_from_json(constraint)), raw) == answer


@pytest.mark.parametrize("raw", [" x", " y", "y", "  x", "x"])
def test_a_pattern_with_a_leading_space_allows_one_more(raw: str) -> None:
    spec = RegexSpec("( x|y)")
    automaton = compile_spec(spec, byte_vocabulary()).tokens
    state = reduce(automaton.advance, raw.encode(), automaton.start)
    expected = satisfies(spec, raw) or (raw.startswith(" ") and satisfies(spec, raw[1:]))
    assert (automaton.distance[state] == 1) == expected


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (LtlfSpec("F(é日) & F dot"), "a é日."),
        (LtlfSpec("F dog & F eos"), "dog"),
        (RegexSpec("(?:é日|😀)+ ?"), "é日😀"),
        (LtlfSpec("F p", (("p", Proposition(("a b",))),)), "x a  b"),
    ],
    ids=str,
)
def test_a_replay_is_independent_of_the_tokenization(spec: Spec, text: str) -> None:
    automaton = compile_text(spec)
    raw, draw = text.encode(), random.Random(4)
    expected = replay(automaton, [raw])
    for _ in range(20):
        cuts = sorted(draw.sample(range(1, len(raw)), min(3, len(raw) - 1)))
        pieces = [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
        steps = replay(automaton, pieces)
        assert len(steps) == len(pieces) + 1
        assert [letter for step in steps for letter in step.letters] == [
            letter for step in expected for letter in step.letters
        ]
        assert steps[-1].state == expected[-1].state
    assert check_text(automaton, text).satisfied


def test_a_replay_skips_the_optional_leading_space() -> None:
    automaton = compile_text(RegexSpec("ab"))
    with_space, without_space = replay(automaton, [b" a", b"b"]), replay(automaton, [b"a", b"b"])
    assert [step.state for step in with_space] == [step.state for step in without_space]
