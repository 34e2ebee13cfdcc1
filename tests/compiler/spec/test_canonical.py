"""One hash for one meaning, and names that follow from the meaning."""

from __future__ import annotations

from typing import Any

import pytest

from compiler.errors import SpecSyntaxError
from compiler.exact_json import load_json
from compiler.pipeline import compile_spec, compile_text
from compiler.spec import LtlfSpec, Proposition, caller_names, in_caller_names, meaning_name, spec_from_json, spec_hash
from compiler.text import check_text
from compiler.vocab import byte_vocabulary
from tests.tables import rows, table

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
