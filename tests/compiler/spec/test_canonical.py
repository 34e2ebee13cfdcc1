"""One hash for one meaning, and names that follow from the meaning."""

from __future__ import annotations

from typing import Any

import pytest

from compiler.errors import SpecSyntaxError
from compiler.pipeline import compile_spec, compile_text
from compiler.spec import LtlfSpec, Proposition, caller_names, in_caller_names, meaning_name, spec_from_json, spec_hash
from compiler.text import check_text
from compiler.vocab import byte_vocabulary

A, B, C = {"regex": "a+"}, {"keywords": ["b"]}, {"max_chars": 9}
SAME: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"all": [A, B]}, {"all": [B, A]}),
    ({"all": [A, {"all": [B, C]}]}, {"all": [{"all": [C, A]}, B]}),
    ({"any": [A, A, B]}, {"any": [B, A]}),
    ({"all": [A]}, A),
    ({"not": {"not": A}}, A),
    ({"ltlf": "F a & G(b | c)"}, {"ltlf": "(G (c|b))   &  F(a)"}),
    ({"ltlf": "F a <-> F b"}, {"ltlf": "F b <-> F a"}),
    ({"ltlf": "F p", "propositions": {"p": ["Dog", "cat"]}}, {"ltlf": "F q", "propositions": {"q": ["cat", "dog"]}}),
    ({"ltlf": "F p", "propositions": {"p": ["dog"]}}, {"ltlf": "F dog"}),
    ({"ltlf": "F p", "propositions": {"p": ["ice  cream"]}}, {"ltlf": "F p", "propositions": {"p": ["ice cream"]}}),
    ({"ltlf": "F dot"}, {"ltlf": "F p", "propositions": {"p": ["."]}}),
    ({"ltlf": "F p", "propositions": {"p": ["a"], "unused": ["b"]}}, {"ltlf": "F a"}),
    ({"ltlf": "F p", "propositions": {"p": {"words": ["1"], "case_sensitive": True}}}, {"ltlf": 'F "1"'}),
    ({"keywords": ["a", ["b", "C"]]}, {"keywords": [["c", "b", "B"], "A"]}),
    ({"keywords": ["a"], "ordered": True}, {"keywords": [{"forms": "a"}]}),
    ({"choice": ["x", "y"]}, {"choice": ["y", "x", "x"]}),
    (
        {"json_schema": {"type": "object", "properties": {"a": {"type": "null", "title": "A"}}}},
        {"json_schema": {"properties": {"a": {"type": "null"}}, "type": "object", "description": "d"}},
    ),
    (
        {"dfa": {"start": "s", "accepting": ["t"], "transitions": [{"from": "s", "to": "t", "when": "p & dog"}]},
         "propositions": {"p": ["cat"]}},
        {"dfa": {"start": "s", "accepting": ["t"], "transitions": [{"from": "s", "to": "t", "when": "dog & cat"}]}},
    ),
]  # fmt: skip


def one(name: str) -> dict[str, Any]:
    return {"properties": {name: {"const": 1}}, "required": [name]}


def schema(**keywords: Any) -> dict[str, Any]:
    return {"json_schema": keywords}


DIFFERENT: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"all": [A, B]}, {"any": [A, B]}),
    ({"ltlf": "a U b"}, {"ltlf": "b U a"}),
    ({"ltlf": "a -> b"}, {"ltlf": "b -> a"}),
    ({"ltlf": "F a", "propositions": {"a": ["dog"]}}, {"ltlf": "F a"}),
    ({"ltlf": "F p & G nomatch", "propositions": {"p": ["a"], "q": ["b"]}}, {"ltlf": "F a & G nomatch"}),
    ({"keywords": ["a", "b"], "ordered": True}, {"keywords": ["b", "a"], "ordered": True}),
    ({"keywords": ["a"], "case_sensitive": True}, {"keywords": ["a"]}),
    ({"keywords": ["a"], "inflect": True}, {"keywords": ["a"]}),
    ({"keywords": [{"forms": "a", "min": 2}]}, {"keywords": ["a"]}),
    ({"regex": "a+"}, {"regex": "a+", "leading_space": "forbid"}),
    ({"json_schema": {"properties": {"a": {}, "b": {}}}}, {"json_schema": {"properties": {"b": {}, "a": {}}}}),
    ({"json_schema": {"const": {"title": 1}}}, {"json_schema": {"const": {}}}),
    ({"json_schema": {}}, {"json_schema": {}, "whitespace": "pretty"}),
    ({"labels": ["a", "b"], "ltlf": "F a"}, {"labels": ["b", "a"], "ltlf": "F a"}),
    ({"labels": ["a", "b"], "ltlf": "F a"}, {"ltlf": "F a"}),
    (
        {"json_schema": {"type": "object", "allOf": [one("a")], **one("b"), "maxProperties": 2}},
        {"json_schema": {"type": "object", **one("b"), "maxProperties": 2, "allOf": [one("a")]}},
    ),
    (schema(dependentRequired={"title": ["x"]}), schema()),
    (schema(dependentRequired={"a": ["b"], "b": ["a"]}), schema(dependentRequired={"b": ["a"], "a": ["b"]})),
    (
        {"json_schema": {"$ref": "#/default", "default": {"const": 1}}},
        {"json_schema": {"$ref": "#/default", "default": {"const": 2}}},
    ),
    (
        {"json_schema": {"properties": {"title": {"const": 1}}}},
        {"json_schema": {"properties": {"title": {"const": 2}}}},
    ),
    ({"keywords": ["zorx"], "inflect": True}, {"keywords": ["ZORX"], "inflect": True}),
    ({"keywords": ["日"], "inflect": True}, {"keywords": ["日"], "inflect": True, "case_sensitive": True}),
    (
        {"ltlf": "F(a) & F(b)", "propositions": {"a": ["dog (case)"], "b": {"words": ["dog"], "case_sensitive": True}}},
        {"ltlf": "F(b)", "propositions": {"b": {"words": ["dog"], "case_sensitive": True}}},
    ),
]


@pytest.mark.parametrize(("one", "other"), SAME, ids=str)
def test_a_constraint_written_differently_has_one_hash(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert spec_hash(spec_from_json(one)) == spec_hash(spec_from_json(other))


@pytest.mark.parametrize(("one", "other"), DIFFERENT, ids=str)
def test_constraints_of_different_meaning_have_different_hashes(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert spec_hash(spec_from_json(one)) != spec_hash(spec_from_json(other))


@pytest.mark.parametrize(
    ("constraint", "good", "bad"),
    [
        (
            {
                "ltlf": "F a & F b",
                "propositions": {"a": ["dog (case)"], "b": {"words": ["dog"], "case_sensitive": True}},
            },
            "dog (case)",
            "dog",
        ),
        ({"ltlf": "F a & F b", "propositions": {"a": ["/dog/"], "b": {"regex": "dog"}}}, "a /dog/", "dog"),
        ({"all": [{"keywords": ["dog~"]}, {"keywords": ["dog"], "inflect": True}]}, "dogs dog~", "dogs"),
        ({"all": [{"keywords": ["dog"], "inflect": True}, {"keywords": ["dog~"]}]}, "dogs dog~", "dogs"),
    ],
)
def test_similar_proposition_names_do_not_collide(constraint: dict[str, Any], good: str, bad: str) -> None:
    automaton = compile_text(spec_from_json(constraint))
    assert check_text(automaton, good).satisfied and not check_text(automaton, bad).satisfied


def test_unused_propositions_are_dropped_and_not_shown() -> None:
    spec = spec_from_json({"ltlf": "F a", "propositions": {"a": ["dog"], "z": ["secret"]}})
    compiled = compile_spec(spec, byte_vocabulary())
    assert [word.letters for word in check_text(compiled.text, "secret dog").words] == [(), ("dog",)]
    assert compiled.spec == spec_from_json({"ltlf": "F a", "propositions": {"a": ["dog"]}})


def test_a_malformed_unused_proposition_is_refused() -> None:
    with pytest.raises(SpecSyntaxError) as refusal:
        spec_hash(spec_from_json({"all": [{"ltlf": "F a", "propositions": {"z": {"regex": "("}}}]}))
    assert refusal.value.field == "all.0.propositions.z.regex"


def test_a_malformed_formula_is_refused_with_its_position() -> None:
    with pytest.raises(SpecSyntaxError) as refusal:
        spec_hash(LtlfSpec("F (a"))
    assert refusal.value.position == 4


def test_propositions_are_shown_under_the_callers_names() -> None:
    mine = spec_from_json({"ltlf": "F pet & F beast", "propositions": {"pet": ["dog", "cat"], "beast": ["cat", "dog"]}})
    names = caller_names(mine)
    assert names == {"cat|dog": ("beast", "pet")} or names == {"cat|dog": ("pet", "beast")}
    assert in_caller_names(("cat|dog", "bird"), names) == ("beast", "bird", "pet")
    assert caller_names(spec_from_json({"keywords": [["Runs", "run"]]})) == {"run|runs": ("Runs",)}


def test_canonical_proposition_names_are_short_and_never_reserved() -> None:
    long = [f"word{number}" for number in range(500)]
    first, second = (meaning_name(Proposition(tuple(words))) for words in (long, long[:-1]))
    assert len(first) < 80 and first != second
    assert meaning_name(Proposition(("eos",))) == "eos'"
    assert meaning_name(Proposition(("a|b",))) != meaning_name(Proposition(("a", "b")))
