"""Constraints over an alphabet of ids, against a plain evaluator."""

from __future__ import annotations

import itertools
import re
from functools import reduce
from typing import Any

import pytest

from compiler.errors import LimitExceeded, SpecSyntaxError, SpecUnsatisfiable, SpecUnsupported
from compiler.limits import Limits, ResourceGuard
from compiler.ltlf import parse_formula
from compiler.pipeline import compile_spec
from compiler.spec import spec_from_json
from compiler.text import check_labels
from compiler.vocab import byte_vocabulary
from tests.references import ltlf as reference_ltlf

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
