"""Constraint objects: parsing, refusals with their position, and one hash per meaning."""

from __future__ import annotations

from typing import Any

import pytest

from compiler.errors import SpecSyntaxError
from compiler.spec import KeywordsSpec, LtlfSpec, Proposition, RegexSpec, spec_from_json, spec_hash, spec_to_json
from tests.tables import rows

GOOD: list[dict[str, Any]] = [
    {"ltlf": "F dog"},
    {
        "ltlf": "F p",
        "propositions": {"p": ["a", "b c"], "q": {"regex": "x+"}, "r": {"words": ["X"], "case_sensitive": True}},
    },
    {"regex": "a|b"},
    {"regex": "", "leading_space": "forbid"},
    {"keywords": ["dog", ["catch", "catches"]]},
    {"keywords": [["a"]], "ordered": True, "case_sensitive": True},
    {"keywords": ["a", ["b", "c"]], "none": True},
]


@pytest.mark.parametrize("constraint", GOOD, ids=str)
def test_the_canonical_object_reads_back_as_the_same_spec(constraint: dict[str, Any]) -> None:
    spec = spec_from_json(constraint)
    copy = spec_from_json(spec_to_json(spec))
    assert copy == spec
    assert spec_hash(copy) == spec_hash(spec)


def test_different_constraints_have_different_hashes() -> None:
    assert len({spec_hash(spec_from_json(constraint)) for constraint in GOOD}) == len(GOOD)


def test_the_order_of_declarations_does_not_matter() -> None:
    left = spec_from_json({"ltlf": "F p", "propositions": {"p": ["a"], "q": ["b"]}})
    right = spec_from_json({"propositions": {"q": ["b"], "p": ["a"]}, "ltlf": "F p"})
    assert spec_hash(left) == spec_hash(right)


@pytest.mark.parametrize(("constraint", "field"), [
    *rows("spec", "an_invalid_constraint_is_refused_with_its_field"), (None, "constraint"),
    ({"regex": "\ud800"}, "regex"), ({"ltlf": "\udfff"}, "ltlf"), ({"keywords": ["a", ["b", None]]}, "keywords.1.1"),
    ({"max_chars": None}, "max_words"), ({"keywords": ["\ud83d"]}, "keywords.0"),
], ids=str)
def test_an_invalid_constraint_is_refused_with_its_field(constraint: object, field: str) -> None:
    with pytest.raises(SpecSyntaxError, check=lambda error: error.field == field):
        spec_from_json(constraint)


def test_specs_built_in_python_are_validated() -> None:
    with pytest.raises(SpecSyntaxError):
        KeywordsSpec(((),))
    with pytest.raises(SpecSyntaxError):
        Proposition()
    with pytest.raises(SpecSyntaxError):
        LtlfSpec("p", (("p", Proposition(("a",))), ("p", Proposition(("b",)))))
    with pytest.raises(SpecSyntaxError):
        RegexSpec("a", "sometimes")  # type: ignore[arg-type]


def test_an_error_repeats_no_long_name() -> None:
    secret = "SECRET" * 20
    for constraint in ({"ltlf": "a", secret: 1}, {"ltlf": "a", "propositions": {secret: 3}}):
        with pytest.raises(SpecSyntaxError, check=lambda error: "SECRET" not in str(error) + error.field):
            spec_from_json(constraint)
