"""Constraint objects: parsing, refusals, hashes, names and warnings."""

from __future__ import annotations

from typing import Any

import pytest

from compiler.errors import SpecSyntaxError
from compiler.exact_json import load_json
from compiler.pipeline import compile_spec, compile_text
from compiler.spec import (
    KeywordsSpec,
    LtlfSpec,
    Proposition,
    RegexSpec,
    caller_names,
    in_caller_names,
    meaning_name,
    spec_from_json,
    spec_hash,
    spec_to_json,
    spec_warnings,
)
from compiler.text import check_text
from compiler.vocab import byte_vocabulary
from tests.tables import rows, table

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
    *({"sequence": ["a", {"regex": "b|c"}], "leading_space": spaces} for spaces in ("strip", "forbid")),
]


@pytest.mark.parametrize("constraint", GOOD, ids=str)
def test_the_canonical_object_reads_back_as_the_same_spec(constraint: dict[str, Any]) -> None:
    spec = spec_from_json(constraint)
    copy = spec_from_json(spec_to_json(spec))
    assert copy == spec
    assert spec_hash(copy) == spec_hash(spec)


def test_different_constraints_have_different_hashes() -> None:
    assert len({spec_hash(spec_from_json(constraint)) for constraint in GOOD}) == len(GOOD)


@pytest.mark.parametrize(("constraint", "field"), [
    *rows("spec", "an_invalid_constraint_is_refused_with_its_field"), (None, "constraint"),
    ({"regex": "\ud800"}, "regex"), ({"ltlf": "\udfff"}, "ltlf"), ({"keywords": ["a", ["b", None]]}, "keywords.1.1"),
    ({"max_chars": None}, "max_words"), ({"keywords": ["\ud83d"]}, "keywords.0"),
], ids=str)
def test_an_invalid_constraint_is_refused_with_its_field(constraint: object, field: str) -> None:
    with pytest.raises(SpecSyntaxError, check=lambda error: error.field == field):
        spec_from_json(constraint)


def test_specs_built_in_python_are_validated() -> None:
    for build in (
        lambda: KeywordsSpec(((),)), lambda: Proposition(),
        lambda: LtlfSpec("p", (("p", Proposition(("a",))), ("p", Proposition(("b",))))),
        lambda: RegexSpec("a", "sometimes"),  # type: ignore[arg-type]
    ):  # fmt: skip
        with pytest.raises(SpecSyntaxError):
            build()


def test_an_error_repeats_no_long_name() -> None:
    secret = "SECRET" * 20
    for constraint in ({"ltlf": "a", secret: 1}, {"ltlf": "a", "propositions": {secret: 3}}):
        with pytest.raises(SpecSyntaxError, check=lambda error: "SECRET" not in str(error) + error.field):
            spec_from_json(constraint)


HASHES = table("spec_hashes")


def hashes(pair: dict[str, str]) -> set[str]:
    return {spec_hash(spec_from_json(load_json(source))) for source in pair.values()}


@pytest.mark.parametrize("pair", HASHES["same"], ids=str)
def test_a_constraint_written_differently_has_one_hash(pair: dict[str, str]) -> None:
    assert len(hashes(pair)) == 1


@pytest.mark.parametrize("pair", HASHES["different"], ids=str)
def test_constraints_of_different_meaning_have_different_hashes(pair: dict[str, str]) -> None:
    assert len(hashes(pair)) == 2


@pytest.mark.parametrize(("constraint", "good", "bad"), rows("spec", "similar_proposition_names_do_not_collide"))
def test_similar_proposition_names_do_not_collide(constraint: dict[str, Any], good: str, bad: str) -> None:
    automaton = compile_text(spec_from_json(constraint))
    assert check_text(automaton, good).satisfied and not check_text(automaton, bad).satisfied


def test_unused_propositions_are_dropped_and_not_shown() -> None:
    spec = spec_from_json({"ltlf": "F a", "propositions": {"a": ["dog"], "z": ["secret"]}})
    compiled = compile_spec(spec, byte_vocabulary())
    assert [word.letters for word in check_text(compiled.text, "secret dog").words] == [(), ("dog",)]
    assert compiled.spec == spec_from_json({"ltlf": "F a", "propositions": {"a": ["dog"]}})


def test_a_malformed_unused_proposition_is_refused() -> None:
    with pytest.raises(SpecSyntaxError, check=lambda error: error.field == "all.0.propositions.z.regex"):
        spec_hash(spec_from_json({"all": [{"ltlf": "F a", "propositions": {"z": {"regex": "("}}}]}))


def test_a_malformed_formula_is_refused_with_its_position() -> None:
    with pytest.raises(SpecSyntaxError, check=lambda error: error.position == 4):
        spec_hash(LtlfSpec("F (a"))


def test_propositions_are_shown_under_the_callers_names() -> None:
    spec = spec_from_json({"ltlf": "F pet & F beast", "propositions": {"pet": ["dog", "cat"], "beast": ["cat", "dog"]}})
    names = caller_names(spec)
    assert names == {"cat|dog": ("beast", "pet")} or names == {"cat|dog": ("pet", "beast")}
    assert in_caller_names(("cat|dog", "bird"), names) == ("beast", "bird", "pet")
    assert caller_names(spec_from_json({"keywords": [["Runs", "run"]]})) == {"run|runs": ("Runs",)}


def test_canonical_proposition_names_are_short_and_never_reserved() -> None:
    names = [f"word{number}" for number in range(500)]
    first, second = (meaning_name(Proposition(tuple(words))) for words in (names, names[:-1]))
    assert len(first) < 80 and first != second
    assert meaning_name(Proposition(("eos",))) == "eos'"
    assert meaning_name(Proposition(("a|b",))) != meaning_name(Proposition(("a", "b")))


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
        ({"all": [{"ltlf": "F last"}, {"not": {"ltlf": "a U TRUE"}}], "labels": ["a", "Last", "true"]},
         ["all.0.ltlf", "all.1.not.ltlf"]),
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
        {"ltlf": "F(fred)"}, {"ltlf": "F(last)"}, {"ltlf": 'F(last & "last")', "labels": ["at last", "first"]},
        {"ltlf": 'F("last")', "labels": ["last"]},
    ],
    ids=str,
)  # fmt: skip
def test_a_plain_constraint_gets_no_warning(constraint: dict[str, object]) -> None:
    assert spec_warnings(spec_from_json(constraint)) == ()


def test_the_warnings_of_one_constraint_are_few() -> None:
    assert len(spec_warnings(spec_from_json({"all": [{"not": LIST}] * 50}))) == 8
