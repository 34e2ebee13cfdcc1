"""Combinations with grammars and nested JSON, compared with the definitions."""

from __future__ import annotations

import itertools
import json
import random
from typing import Any

import pytest

from compiler.codec import decode, encode
from compiler.errors import LimitExceeded, SpecUnsatisfiable, SpecUnsupported
from compiler.limits import Limits
from compiler.pipeline import compile_spec, compile_text
from compiler.products import LazyProduct
from compiler.pushdown import PushdownAutomaton
from compiler.spec import spec_from_json
from compiler.text import ProductText, PushdownText, TextAutomaton, answer_text, check_text
from compiler.vocab import Vocabulary, byte_vocabulary
from tests.compiler.pushdown.test_tokens import finished_text
from tests.references.random_constraints import real_vocabulary
from tests.references.text import satisfies
from tests.tables import rows, table

GRAMMARS = {
    "N": 'root ::= "a" root "b" | "ab"',  # deterministic
    "P": 'root ::= "a" root "a" | "b" root "b" | "a" | "b" | ""',  # palindromes: any number of readings
    "E": 'root ::= word (" " word)*\nword ::= "(" root ")" | [ab]',  # deterministic
}
TEXTS = ["".join(text) for length in range(5) for text in itertools.product("ab() ", repeat=length)]
TEXTS += ["aaabb", "aabbb", "ababa", "abbba", "(a b)", "a (b)", "((a))", "(a)b)", "aaabbb", "abaaba", "(a) (b)"]
DEEP = [[[[["dog"]]]]]
ANY, LIST = {"json_schema": {}}, {"json_schema": {"type": "array", "minItems": 2}}
LISTS: dict[str, Any] = {"$defs": {"a": {"type": "array", "items": {"$ref": "#/$defs/a"}}}, "$ref": "#/$defs/a"}
NOT_EMPTY: dict[str, Any] = {"$defs": {"a": {"items": {"minItems": 1}}}, "$ref": "#/$defs/a"}
JSON: dict[str, tuple[Any, Any]] = {  # combinations with JSON, and a value that they allow
    "keywords in any value": ({"all": [ANY, {"keywords": ["dog", "ball"]}]}, [DEEP, "ball"]),
    "an order of words": ({"all": [ANY, {"keywords": ["dog", "ball"], "ordered": True}]}, [DEEP, "ball"]),
    "a bound on characters": ({"all": [LIST, {"max_chars": 30}]}, [[[[[[1]]]]], 2]),
    "a formula": ({"all": [ANY, {"ltlf": "F(dog & X(F(ball))) & !F(cat)"}]}, {"dog": [[[["a", "ball"]]]]}),
    "a pattern": ({"all": [ANY, {"regex": r"\[{4}.*"}]}, [[[[5]]]]),
    "either": ({"any": [{"json_schema": {"type": "object"}}, {"regex": "no[a-z]*"}]}, {"a": DEEP}),
    "no digit": ({"all": [ANY, {"not": {"regex": r"(?s:.*)\d(?s:.*)"}}]}, DEEP),
    "two schemas": ({"all": [LIST, {"json_schema": {"items": {"type": "array"}}}]}, [[DEEP], []]),
    "references of two schemas": (
        {"all": [{"json_schema": LISTS}, {"json_schema": NOT_EMPTY}, {"max_chars": 40}]}, [[[[[[]]]]]],
    ),
}  # fmt: skip


def spec_of(constraint: str) -> Any:
    """The constraint, with grammars in place of their letters."""
    for name, grammar in GRAMMARS.items():
        text = json.dumps({"grammar": grammar, "syntax": "gbnf"})
        for before, behind in ("[]", "[,", " ]", " ,", " }"):
            constraint = constraint.replace(f"{before}{name}{behind}", f"{before}{text}{behind}")
    return spec_from_json(json.loads(constraint))


COMBINED = table("context_free_combinations")["constraints"]


@pytest.mark.parametrize("constraint", COMBINED)
@pytest.mark.sample(6)
def test_a_combination_accepts_exactly_the_texts_of_its_definition(constraint: str) -> None:
    spec = spec_of(constraint)
    text = compile_text(spec)
    assert isinstance(text, PushdownText)
    assert {each for each in TEXTS if accepts(text, each)} == {each for each in TEXTS if satisfies(spec, each)}


def accepts(text: PushdownText, each: str) -> bool:
    """The verdict of `check_text`, without the place of a violation."""
    reader = text.reader()
    reader.read(each.encode())
    return reader.end() is not None


@pytest.mark.parametrize("constraint", COMBINED)
@pytest.mark.sample(4)
def test_the_least_budget_is_that_of_the_shortest_text(constraint: str) -> None:
    spec = spec_of(constraint)
    vocabulary = Vocabulary((b"a", b"b", b"(", b")", b" ", b"ab", b"b)", b"((", None), (8,))
    compiled = decode(encode(compile_spec(spec, vocabulary), b"secret"), b"secret", vocabulary.fingerprint)
    # Tokens of two characters are enough for the texts here; longer texts than TEXTS has take more tokens.
    least = min((spelled(each) for each in TEXTS if satisfies(spec, each)), default=9)
    assert compiled.tokens.min_tokens == least + 1


def spelled(text: str) -> int:
    """The fewest tokens of the vocabulary above."""
    steps = [0]
    for end in range(1, len(text) + 1):
        steps.append(1 + min(steps[end - 1], steps[end - 2] if text[end - 2 : end] in ("ab", "b)", "((") else 99))
    return steps[-1]


@pytest.mark.parametrize("name", JSON)
@pytest.mark.sample(4)
def test_answers_satisfy_all_parts_of_combinations_with_json(name: str) -> None:
    constraint, value = JSON[name]
    spec = spec_from_json(constraint)
    vocabulary = real_vocabulary("gpt2", 50_257, 50_256) or byte_vocabulary()
    compiled = compile_spec(spec, vocabulary)
    assert isinstance(compiled.tokens, PushdownAutomaton)
    assert check_text(compiled.text, json.dumps(value)).satisfied
    draw = random.Random(name)
    for slack in (0, 0, 0, 1, 2, 4, 8, 16, 32):
        text = answer_text(compiled.text, finished_text(compiled.tokens, vocabulary, draw, slack))
        assert satisfies(spec, text), text
        assert check_text(compiled.text, text).satisfied


def test_small_closed_schemas_stay_automata_in_combinations() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": False}
    text = compile_text(spec_from_json({"all": [{"json_schema": schema}, {"max_chars": 9}]}))
    assert isinstance(text, TextAutomaton)


def test_a_schema_beside_a_grammar_nests_three_levels() -> None:
    grammar = {"grammar": 'root ::= "[" root "]" | "[]" | "1"', "syntax": "gbnf"}
    text = compile_text(spec_from_json({"all": [grammar, {"json_schema": {}}]}))
    assert all(check_text(text, each).satisfied for each in ("[[[]]]", "[[1]]"))
    assert not any(check_text(text, each).satisfied for each in ("[[[[]]]]", "[[[]]"))
    # A bound of ours is no proof.
    deep = {"grammar": 'root ::= "[[[[" "]]]]"', "syntax": "gbnf"}
    with pytest.raises(LimitExceeded, match="max_depth = 3"):
        compile_text(spec_from_json({"all": [deep, {"json_schema": {}}]}))


def test_contradicting_parts_are_named() -> None:
    grammar = {"grammar": GRAMMARS["N"], "syntax": "gbnf"}
    with pytest.raises(SpecUnsatisfiable) as caught:
        compile_text(spec_from_json({"all": [grammar, {"max_words": 3}, {"regex": "b.*"}, {"max_chars": 9}]}))
    assert [each.partition(" ")[0] for each in caught.value.conflict] == ["'all.0'", "'all.2'"]


def test_an_empty_grammar_leaves_the_other_parts_of_any() -> None:
    empty = {"grammar": 'root ::= "a" root', "syntax": "gbnf"}
    text = compile_text(spec_from_json({"any": [empty, {"grammar": GRAMMARS["N"], "syntax": "gbnf"}]}))
    assert check_text(text, "aabb").satisfied and not check_text(text, "aab").satisfied


@pytest.mark.parametrize(("constraint", "construct"), rows("text", "what_no_stack_decides_is_refused_by_name"))
def test_what_no_stack_decides_is_refused_by_name(constraint: str, construct: str) -> None:
    with pytest.raises(SpecUnsupported, check=lambda error: error.construct == construct):
        compile_text(spec_of(constraint))


def test_parts_of_large_products_are_followed_side_by_side() -> None:
    spec = spec_from_json({"all": [{"grammar": GRAMMARS["E"], "syntax": "gbnf"}, {"max_chars": 300}]})
    exact = compile_spec(spec, byte_vocabulary())
    compiled = compile_spec(spec, byte_vocabulary(), Limits(exit_distances_max=20_000))
    assert isinstance(compiled.text, ProductText) and isinstance(compiled.tokens, LazyProduct)
    assert compiled.tokens.min_tokens_at_least == exact.tokens.min_tokens == compiled.tokens.min_tokens


def test_a_machine_that_is_too_large_alone_is_refused() -> None:
    spec = spec_from_json({"all": [{"grammar": GRAMMARS["E"], "syntax": "gbnf"}, {"max_chars": 300}]})
    with pytest.raises(LimitExceeded, check=lambda error: error.limit == "dfa_states_max"):
        compile_spec(spec, byte_vocabulary(), Limits(dfa_states_max=5))


def test_json_of_three_levels_takes_over_where_products_are_large() -> None:
    spec = spec_from_json({"all": [{"json_schema": {"type": "array", "items": {"type": "array"}}}, {"max_chars": 30}]})
    compiled = compile_spec(spec, byte_vocabulary(), Limits(exit_distances_max=50))
    assert isinstance(compiled.text, TextAutomaton)
    assert check_text(compiled.text, "[[[[]]]]").satisfied
    assert not check_text(compiled.text, "[[[[[]]]]]").satisfied


def test_schemas_that_are_written_in_two_ways_still_hold_together() -> None:
    parts = [{"json_schema": {"type": "array"}, "whitespace": "any"}, {"json_schema": {"minItems": 1}}]
    text = compile_text(spec_from_json({"all": parts}))
    assert not check_text(text, "[[[[[[1]]]]]]").satisfied  # the second one has a bound
    assert check_text(text, "[[1, 2]]").satisfied and not check_text(text, "[ 1]").satisfied


BRACKETS = {"json_schema": {"type": "array", "items": {"$ref": "#"}}, "leading_space": "forbid"}
NESTED = {"grammar": 'root ::= "[[[[[]]]]]" | "[]"', "syntax": "gbnf", "leading_space": "forbid"}
TENTH_LAST = {"regex": r"(?s).*\[.{9}", "leading_space": "forbid"}  # has 1,024 states
OF_GRAMMAR = {"all": [NESTED, BRACKETS, TENTH_LAST]}  # beside the grammar, brackets nest three levels


def test_a_bound_is_named_where_parts_have_no_text() -> None:
    limits = Limits(dfa_states_max=1_100, budget_expansions_max=60)
    with pytest.raises(LimitExceeded, match="max_depth = 3"):
        compile_spec(spec_from_json(OF_GRAMMAR), byte_vocabulary(), limits)
    either = spec_from_json({"any": [OF_GRAMMAR, {"all": [BRACKETS, TENTH_LAST]}]})
    assert compile_spec(either, byte_vocabulary(), limits).tokens.min_tokens == 11
    contradiction = spec_from_json({"all": [*OF_GRAMMAR["all"], {"regex": r"[^\[]*", "leading_space": "forbid"}]})
    with pytest.raises(SpecUnsatisfiable, match=r"all\.2.*all\.3"):
        compile_spec(contradiction, byte_vocabulary(), limits)
