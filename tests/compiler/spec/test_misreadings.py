"""Warnings about constraints that mean something else than they seem to."""

from __future__ import annotations

import pytest

from compiler.spec import spec_from_json, spec_warnings

LIST = {"keywords": ["dog", "cat"]}


@pytest.mark.parametrize(
    ("constraint", "fields"),
    [
        ({"not": LIST}, ["not"]),
        ({"all": [{"max_words": 9}, {"not": LIST}, {"any": [{"not": LIST}]}]}, ["all.1.not", "all.2.any.0.not"]),
        ({"not": LIST, "labels": ["dog", "cat"]}, ["not"]),
        ({"regex": "F(dog & X cat)"}, ["regex"]),
        ({"all": [{"regex": "G !dog"}, {"regex": "[a-z]+"}]}, ["all.0.regex"]),
        ({"ltlf": "Fdog"}, ["ltlf"]),
        ({"sequence": ["a", {"any": ["b", {"not": LIST}]}, {"optional": {"ltlf": "Fdog"}}]},
         ["sequence.1.any.1.not", "sequence.2.optional.ltlf"]),
        ({"ltlf": "G(Xdog | Fred)", "propositions": {"Fred": ["Fred"]}}, ["ltlf"]),
    ],
    ids=str,
)  # fmt: skip
def test_a_constraint_of_two_readings_gets_a_warning(constraint: dict[str, object], fields: list[str]) -> None:
    assert [warning.field for warning in spec_warnings(spec_from_json(constraint))] == fields


@pytest.mark.parametrize(
    "constraint",
    [
        {"not": {"keywords": ["dog"]}}, {"not": {"keywords": [["dog", "cat"]]}}, {**LIST, "none": True},
        {"not": {**LIST, "none": True}}, {"not": {**LIST, "ordered": True}}, {"not": {"any": [LIST, LIST]}},
        {"regex": "(dog|cat)"}, {"regex": "a|b"}, {"regex": "F"}, {"ltlf": "F dog & G(!cat)"}, {"ltlf": 'F("Fred")'},
        {"ltlf": "F(fred)"},
    ],
    ids=str,
)  # fmt: skip
def test_a_plain_constraint_gets_no_warning(constraint: dict[str, object]) -> None:
    assert spec_warnings(spec_from_json(constraint)) == ()


def test_the_warnings_of_one_constraint_are_few() -> None:
    assert len(spec_warnings(spec_from_json({"all": [{"not": LIST}] * 50}))) == 8
