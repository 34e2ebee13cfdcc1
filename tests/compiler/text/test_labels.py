"""Constraints over an alphabet of ids, and white space around texts."""

from __future__ import annotations

import itertools
import random
import re
from functools import reduce
from typing import Any

import pytest

from compiler.errors import LimitExceeded, SpecError, SpecSyntaxError, SpecUnsatisfiable, SpecUnsupported
from compiler.limits import Limits, ResourceGuard
from compiler.ltlf import parse_formula
from compiler.pipeline import compile_spec, compile_text
from compiler.spec import spec_from_json
from compiler.text import answer_text, check_labels, stripped_answer
from compiler.vocab import byte_vocabulary
from tests.references import ltlf as reference_ltlf
from tests.references.random_constraints import random_spec, unexplained
from tests.references.text import satisfies

LABELS = ["Ankle boot", "Sneaker", "Bag"]
SEQUENCES = [list(sequence) for length in range(5) for sequence in itertools.product(LABELS, repeat=length)]


def is_satisfied(constraint: dict[str, Any], labels: list[str]) -> bool:
    """The constraint of a row, straight from its meaning."""
    if "all" in constraint:
        return all(is_satisfied(part, labels) for part in constraint["all"])
    if "not" in constraint:
        return not is_satisfied(constraint["not"], labels)
    if "regex" in constraint:
        return re.fullmatch(constraint["regex"], " ".join(labels)) is not None
    if "max_words" in constraint:
        return len(labels) <= constraint["max_words"]
    if "max_chars" in constraint:
        return len(" ".join(labels)) <= constraint["max_chars"]
    if "keywords" in constraint:
        return all(word in labels for word in constraint["keywords"])
    label_sets = {"shoe": {"Ankle boot", "Sneaker"}, "Bag": {"Bag"}, "Ankle boot": {"Ankle boot"}, "S": {"Sneaker"}}
    trace = [
        frozenset(
            name
            for name, labels_of_name in label_sets.items()
            if label in labels_of_name and name in constraint["ltlf"]
        )
        or frozenset({"nomatch"})
        for label in labels
    ]
    trace += [frozenset({"eos"})] * ("eos" in constraint["ltlf"])
    return reference_ltlf.satisfies(parse_formula(constraint["ltlf"], ResourceGuard(Limits())), trace)


SHOES = {"shoe": ["ankle boot", "sneaker"], "S": {"regex": "S\\w+"}}
CONSTRAINTS: list[dict[str, Any]] = [
    {"ltlf": 'F("Ankle boot" & X(F Bag))', "propositions": {"shoe": ["sneaker"]}},
    {"ltlf": "G(shoe -> X Bag)", "propositions": {"shoe": ["ankle boot", "sneaker"]}},
    {"ltlf": 'F("S" & X eos)', "propositions": {"S": {"regex": "S\\w+"}}},
    {"ltlf": "G(nomatch | Bag)"},
    {"regex": "(Bag ?)*(Sneaker)?"},
    {"keywords": ["Bag", "Ankle boot"]},
    {"all": [{"regex": ".*Bag"}, {"max_words": 3}]},
    {"not": {"max_chars": 12}},
    {"all": [{"not": {"keywords": ["Bag"]}}, {"max_chars": 20}]},
]


@pytest.mark.parametrize("constraint", CONSTRAINTS, ids=str)
def test_sequences_satisfy_a_constraint_as_defined(constraint: dict[str, Any]) -> None:
    spec = spec_from_json({**constraint, "labels": LABELS})
    compiled = compile_spec(spec, byte_vocabulary())
    shortest = min(len(labels) for labels in SEQUENCES if is_satisfied(constraint, labels))
    assert compiled.tokens.min_tokens == shortest + 1
    for labels in SEQUENCES:
        check = check_labels(compiled.text, labels)
        assert check.satisfied == is_satisfied(constraint, labels), labels
        state = reduce(compiled.tokens.advance, map(LABELS.index, labels), compiled.tokens.start)
        assert (compiled.tokens.distance[state] == 1) == check.satisfied
        if check.violated_at is not None and check.violated_at < len(labels):
            prefix = labels[: check.violated_at + 1]
            assert not any(is_satisfied(constraint, prefix + suffix) for suffix in SEQUENCES if len(suffix) < 3)


def test_a_label_outside_the_alphabet_is_refused() -> None:
    compiled = compile_spec(spec_from_json({"ltlf": "F Bag", "labels": LABELS}), byte_vocabulary())
    with pytest.raises(SpecSyntaxError, check=lambda error: error.field == "labels.1"):
        check_labels(compiled.text, ["Bag", "Shirt"])


def test_an_unsatisfiable_label_constraint_is_refused() -> None:
    with pytest.raises(SpecUnsatisfiable):
        compile_spec(spec_from_json({"ltlf": "F Shirt", "labels": LABELS}), byte_vocabulary())


def test_an_alphabet_too_large_is_refused_with_its_limit() -> None:
    with pytest.raises(LimitExceeded, check=lambda error: error.limit == "letters_max"):
        compile_spec(spec_from_json({"ltlf": "F a0", "labels": [f"a{i}" for i in range(2_000)]}), byte_vocabulary())


def test_sentence_counts_over_labels_are_refused() -> None:
    with pytest.raises(SpecUnsupported, check=lambda error: error.construct == "sentences"):
        compile_spec(spec_from_json({"labels": ["a", "."], "sentences": 1}), byte_vocabulary())


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
    text = compile_text(spec_from_json({"regex": "a ?dog(gy )?"}))
    before = {" dog \n": "a", "gy ": "adog", "": "adog"}[raw]
    assert stripped_answer(text, raw, before) == answer


def test_stripped_answers_satisfy_whatever_the_constraint() -> None:
    draw = random.Random(31)
    stripped = 0
    for _ in range(CASES):
        spec = random_spec(draw)
        try:
            with unexplained():
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
