"""Constraint objects: parsing, refusals with their position, and one hash per meaning."""

from __future__ import annotations

from typing import Any

import pytest

from compiler.errors import SpecSyntaxError
from compiler.spec import KeywordsSpec, LtlfSpec, Proposition, RegexSpec, spec_from_json, spec_hash, spec_to_json

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


@pytest.mark.parametrize(
    ("constraint", "field"),
    [
        (None, "constraint"),
        ([], "constraint"),
        ("F dog", "constraint"),
        ({}, "constraint"),
        ({"peg": "x"}, "constraint"),
        ({"ltlf": "a", "regex": "b"}, "constraint"),
        ({"ltlf": 3}, "ltlf"),
        ({"ltlf": True}, "ltlf"),
        ({"regex": ["a"]}, "regex"),
        ({"ltlf": "a", "props": {}}, "props"),
        ({"regex": "a", "leading_space": "maybe"}, "leading_space"),
        ({"regex": "a", "leading_space": 1}, "leading_space"),
        ({"regex": "\ud800"}, "regex"),
        ({"ltlf": "\udfff"}, "ltlf"),
        ({"keywords": []}, "keywords"),
        ({"keywords": "dog"}, "keywords"),
        ({"keywords": [[]]}, "keywords.0"),
        ({"keywords": ["a", ""]}, "keywords.1"),
        ({"keywords": [" \t"]}, "keywords.0"),
        ({"keywords": [3]}, "keywords.0"),
        ({"keywords": ["a", ["b", None]]}, "keywords.1.1"),
        ({"keywords": ["a"], "ordered": 1}, "ordered"),
        ({"keywords": ["a"], "inflect": 1}, "inflect"),
        ({"keywords": ["a"], "none": 1}, "none"),
        ({"keywords": ["a"], "none": True, "ordered": True}, "ordered"),
        ({"keywords": ["a", {"forms": ["b"], "min": 1}], "none": True}, "keywords.1"),
        ({"keywords": [{"forms": "a", "min": 2, "max": 1}]}, "keywords.0"),
        ({"keywords": [{"forms": "a", "min": -1}]}, "keywords.0"),
        ({"keywords": [{"forms": "a", "least": 1}]}, "keywords.0.least"),
        ({"keywords": ["a", {"forms": ["b", 1]}]}, "keywords.1.forms.1"),
        ({"infill": 3}, "infill"),
        ({"choice": []}, "choice"),
        ({"choice": ["a", 1]}, "choice.1"),
        ({"choice": ["a"], "leading_space": "no"}, "leading_space"),
        ({"json_schema": []}, "json_schema"),
        ({"json_schema": {}, "whitespace": "wide"}, "whitespace"),
        ({"json_schema": {}, "property_order": "alphabetic"}, "property_order"),
        ({"json_schema": {}, "property_order": ["a"]}, "property_order"),
        ({"json_schema": {}, "max_depth": -1}, "max_depth"),
        ({"max_words": -1}, "max_words"),
        ({"min_words": 3, "max_words": 2}, "min_words"),
        ({"max_chars": True}, "max_chars"),
        ({"max_chars": None}, "max_words"),
        ({"sentences": {"min": 2, "max": 1}}, "sentences"),
        ({"sentences": {"least": 2}}, "sentences.least"),
        ({"max_words": 2, "regex": "a"}, "constraint"),
        ({"all": []}, "all"),
        ({"any": [{"regex": "a"}, {"regex": 1}]}, "any.1.regex"),
        ({"all": [{"any": [{"keywords": ["a", ""]}]}]}, "all.0.any.0.keywords.1"),
        ({"all": [{"regex": "a"}], "regex": "b"}, "constraint"),
        ({"not": [{"regex": "a"}]}, "not"),
        ({"not": {"regex": "a"}, "leading_space": "strip"}, "leading_space"),
        ({"labels": ["a", "a"], "ltlf": "a"}, "labels"),
        ({"labels": [], "ltlf": "a"}, "labels"),
        ({"all": [{"labels": ["a"], "ltlf": "a"}]}, "all.0.labels"),
        ({"dfa": {"start": "s", "accepting": []}}, "dfa"),
        ({"keywords": ["\ud83d"]}, "keywords.0"),
        ({"ltlf": "a", "propositions": []}, "propositions"),
        ({"ltlf": "a", "propositions": {"eos": ["x"]}}, "propositions.eos"),
        ({"ltlf": "a", "propositions": {"nomatch": ["x"]}}, "propositions.nomatch"),
        ({"ltlf": "a", "propositions": {"TRUE": ["x"]}}, "propositions.TRUE"),
        ({"ltlf": "a", "propositions": {"last": ["x"]}}, "propositions.last"),
        ({"ltlf": "a", "propositions": {" ": ["x"]}}, "propositions"),
        ({"ltlf": "a", "propositions": {"p": []}}, "propositions"),
        ({"ltlf": "a", "propositions": {"p": "x"}}, "propositions.p"),
        ({"ltlf": "a", "propositions": {"p": {"regex": "x", "words": ["y"]}}}, "propositions"),
        ({"ltlf": "a", "propositions": {"p": {"regex": "x", "case_sensitive": True}}}, "propositions.p.case_sensitive"),
        ({"ltlf": "a", "propositions": {"p": {"word": ["x"]}}}, "propositions.p.word"),
        ({"ltlf": "a", "propositions": {"p": {}}}, "propositions"),
    ],
    ids=str,
)
def test_an_invalid_constraint_is_refused_with_its_field(constraint: object, field: str) -> None:
    with pytest.raises(SpecSyntaxError) as refusal:
        spec_from_json(constraint)
    assert refusal.value.field == field


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
        with pytest.raises(SpecSyntaxError) as refusal:
            spec_from_json(constraint)
        assert "SECRET" not in str(refusal.value) + refusal.value.field
