"""Answers have no white space around them that is not needed."""

from __future__ import annotations

import random

import pytest

from compiler.errors import LimitExceeded, SpecError
from compiler.pipeline import compile_text
from compiler.spec import spec_from_json
from compiler.text import answer_text, stripped_answer
from tests.references.random_constraints import random_spec
from tests.references.text import satisfies

CASES = 40
TEXTS = 12


@pytest.mark.parametrize(
    ("constraint", "raw", "answer"),
    [
        ({"keywords": ["dog"]}, " a dog \n", "a dog"),
        ({"regex": "[ \n]*dog[ \n]*"}, "\n dog  ", "dog"),
        ({"regex": "dog"}, " dog", "dog"),
        ({"regex": " dog"}, "  dog", " dog"),
        ({"regex": r"\s+dog\s*"}, "\n dog \n", "\n dog"),
        ({"regex": r"dog\s"}, " dog\n", "dog\n"),
        ({"infill": " <|infill_word|>\n"}, " dog\n", " dog\n"),
        ({"not": {"regex": "dog"}}, "dog ", "dog "),
        ({"max_chars": 3}, " dog"[1:], "dog"),
        ({"ltlf": "true U eos"}, "  ", ""),
    ],
    ids=str,
)
def test_white_space_is_stripped_unless_the_constraint_needs_it(
    constraint: dict[str, object], raw: str, answer: str
) -> None:
    assert stripped_answer(compile_text(spec_from_json(constraint)), raw) == answer


@pytest.mark.parametrize(("raw", "answer"), [(" dog \n", " dog"), ("gy ", "gy "), ("", "")])
def test_behind_a_prompt_white_space_joins_the_answer(raw: str, answer: str) -> None:
    text = compile_text(spec_from_json({"regex": "a? ?dog(gy )?"}))
    before = {" dog \n": "a", "gy ": "dog", "": "dog"}[raw]
    assert stripped_answer(text, raw, before) == answer


def test_stripped_answers_satisfy_whatever_the_constraint() -> None:
    draw = random.Random(31)
    stripped = 0
    for _ in range(CASES):
        spec = random_spec(draw)
        try:
            text = compile_text(spec)
        except (SpecError, LimitExceeded):
            continue
        for _ in range(TEXTS):
            core = "".join(draw.choice("ab .\né") for _ in range(draw.randint(0, 4)))
            raw = draw.choice(("", " ", "\n ", "  ")) + core + draw.choice(("", " ", "\n"))
            if not satisfies(spec, answer_text(text, raw)):
                continue
            answer = stripped_answer(text, raw)
            assert satisfies(spec, answer) and answer.strip() == raw.strip(), (spec, raw)
            assert answer == raw.strip() or not satisfies(spec, raw.strip()), (spec, raw)
            stripped += answer != raw
    assert stripped > CASES
