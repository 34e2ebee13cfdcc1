"""Constraints built in Python equal handwritten JSON constraints."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, TypeAdapter

import abs_client
from abs_client import (
    EOS,
    FALSE,
    LAST,
    NGRAM_GAP,
    NOMATCH,
    TRUE,
    WORD_GAP,
    WX,
    AllOf,
    AnyOf,
    Choice,
    Concept,
    Constraint,
    DfaConstraint,
    F,
    Formula,
    G,
    GrammarConstraint,
    H,
    Iff,
    Implies,
    Infill,
    JsonSchema,
    Keywords,
    Length,
    Ltlf,
    M,
    Match,
    Not,
    O,
    R,
    RawConstraint,
    Regex,
    S,
    SequenceOf,
    U,
    W,
    Word,
    X,
    Y,
    capture,
    constraint_of,
    free,
    gap,
    one_of,
    optional,
    repeat,
    token,
)
from compiler.errors import SpecUnsatisfiable
from compiler.pipeline import compile_text
from compiler.spec import spec_from_json, spec_hash
from compiler.text import check_text


class Pet(BaseModel):
    name: str
    age: int


def hash_of(constraint: Constraint | dict[str, Any]) -> str:
    return spec_hash(spec_from_json(constraint_of(constraint).as_dict()))


TRANSITIONS = [{"from": "s", "to": "s", "when": "!dog"}, {"from": "s", "to": "t", "when": "dog"}]
PET = {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
       "required": ["name", "age"]}  # fmt: skip
EQUIVALENTS: list[tuple[Constraint, dict[str, Any]]] = [
    (F("dog"), {"ltlf": "F(dog)"}),
    (F("dog") & Keywords("ball", ordered=True) & Regex("[A-Z].*"),
     {"all": [{"ltlf": "F(dog)"}, {"keywords": ["ball"], "ordered": True}, {"regex": "[A-Z].*"}]}),
    (U(~Word("cat") & ~Word("toy"), Word("coffee") & X(U(~Word("toy"), Word("cat") & X(F("toy"))))),
     {"ltlf": "(!cat & !toy) U (coffee & X(!toy U (cat & X(F(toy)))))"}),
    (F("ice cream"), {"ltlf": 'F("ice cream")'}),
    (F("don't"), {"ltlf": "F(w)", "propositions": {"w": ["don't"]}}),
    (F("X") & F("GF") & F("true") & F("last"), {"ltlf": 'F("X") & F("GF") & F("true") & F("last")'}),
    (F("2nd"), {"ltlf": 'F("2nd")'}),
    (F('say "no" \\ yes'), {"ltlf": "F(w)", "propositions": {"w": ['say "no" \\ yes']}}),
    (F(".") & ~F(","), {"ltlf": "F(dot) & !F(comma)"}),
    (F("dot"), {"ltlf": "F(w)", "propositions": {"w": ["dot"]}}),
    (F("eos"), {"ltlf": "F(w)", "propositions": {"w": ["eos"]}}),
    (G(Word("dog") | NOMATCH) & F(EOS), {"ltlf": "G(dog | nomatch) & F(eos)"}),
    (G("a" >> X("b")) & Iff("c", LAST), {"ltlf": "G(a -> X b) & (c <-> last)"}),
    (Implies(TRUE, R("a", W("b", M("c", FALSE)))), {"ltlf": "true -> (a R (b W (c M false)))"}),
    (WX(X(WX("a"))), {"ltlf": "WX X WX a"}),
    (F(Word("dog", "puppy")), {"ltlf": "F(pet)", "propositions": {"pet": ["puppy", "dog"]}}),
    (F(Word("Rex", case_sensitive=True)) & F("Rex"),
     {"ltlf": "F(r) & F(Rex)", "propositions": {"r": {"words": ["Rex"], "case_sensitive": True}}}),
    (G(~Match("[0-9]+", name="number")), {"ltlf": "G(!number)", "propositions": {"number": {"regex": "[0-9]+"}}}),
    (F(Word("cat", name="dog")) & F("dog") & F(Word("cow", name="dog")),
     {"ltlf": "F(cat) & F(dog) & F(cow)"}),
    (~Keywords("cat") & Length(max_chars=80) & {"choice": ["a", "b"]},
     {"all": [{"not": {"keywords": ["cat"]}}, {"max_chars": 80}, {"choice": ["b", "a"]}]}),
    ({"regex": "a"} | F("a") | Regex("b"), {"any": [{"regex": "a"}, {"ltlf": "F(a)"}, {"regex": "b"}]}),
    (Not(F("a")), {"not": {"ltlf": "F(a)"}}),
    (Keywords("dog", ["catch", "catches"], Concept("ball", "balls", min=2, max=3), inflect=True, case_sensitive=True),
     {"keywords": ["dog", ["catches", "catch"], {"forms": ["balls", "ball"], "min": 2, "max": 3}], "inflect": True,
      "case_sensitive": True}),
    (Keywords("dog", "cat", none=True), {"keywords": ["dog", "cat"], "none": True}),
    (Infill(f"On {WORD_GAP}, {NGRAM_GAP} for {gap('[0-9]+')}.", leading_space="forbid"),
     {"infill": "On <|infill_word|>, <|infill_ngram|> for <|infill:[0-9]+|>.", "leading_space": "forbid"}),
    (Choice("yes", "no"), {"choice": ["no", "yes"]}),
    (SequenceOf("a", token("<t>"), free(until=".", max_tokens=3), optional("b"), capture("n", Regex("[0-9]+"))),
     {"sequence": ["a", {"token": "<t>"}, {"free": {"until": ["."], "max_tokens": 3}}, {"optional": "b"},
                   {"capture": "n", "part": {"regex": "[0-9]+"}}]}),
    (SequenceOf(repeat(one_of("a", free(without=["b", "c"], max_chars=9)), min=1, max=2, separator=Regex(", *"))),
     {"sequence": [{"repeat": {"any": ["a", {"free": {"without": ["b", "c"], "max_chars": 9}}]}, "min": 1, "max": 2,
                    "separator": {"regex": ", *"}}]}),
    (GrammarConstraint('root ::= "a"', "gbnf"), {"grammar": 'root ::= "a"', "syntax": "gbnf"}),
    (GrammarConstraint('start: "a"', "lark", leading_space="forbid"),
     {"grammar": 'start: "a"', "syntax": "lark", "leading_space": "forbid"}),
    (Length(min_words=0, max_words=9, sentences=(1, 2)),
     {"min_words": 0, "max_words": 9, "sentences": {"min": 1, "max": 2}}),
    (Length(sentences=2), {"sentences": 2}),
    (Length(sentences=(None, 2)), {"sentences": {"max": 2}}),
    (JsonSchema({"type": "integer"}, whitespace="pretty", property_order="any", closed_objects=True, max_depth=0),
     {"json_schema": {"type": "integer"}, "whitespace": "pretty", "property_order": "any", "closed_objects": True,
      "max_depth": 0}),
    (JsonSchema(True), {"json_schema": True}),
    (JsonSchema(Pet), {"json_schema": PET, "closed_objects": True}),
    (JsonSchema(Pet, closed_objects=False), {"json_schema": PET, "closed_objects": False}),
    (JsonSchema(TypeAdapter(list[int])),
     {"json_schema": {"type": "array", "items": {"type": "integer"}}, "closed_objects": True}),
    (DfaConstraint(start="s", accepting=["t"], transitions=TRANSITIONS, propositions={"dog": Word("dog", "puppy")}),
     {"dfa": {"start": "s", "accepting": ["t"], "transitions": TRANSITIONS},
      "propositions": {"dog": ["dog", "puppy"]}}),
    (Ltlf("F(pet) & G(!number)", {"pet": ["dog", "cat"], "number": Match("[0-9]+"), "x": "y"}),
     {"ltlf": "F(pet) & G(!number)", "propositions": {"pet": ["dog", "cat"], "number": {"regex": "[0-9]+"}}}),
    (F("Ankle boot").over("Ankle boot", "Bag"), {"ltlf": 'F("Ankle boot")', "labels": ["Ankle boot", "Bag"]}),
]  # fmt: skip


@pytest.mark.parametrize(("constraint", "json_form"), EQUIVALENTS, ids=[repr(row[0])[:60] for row in EQUIVALENTS])
def test_a_built_constraint_equals_the_handwritten_json(constraint: Constraint, json_form: dict[str, Any]) -> None:
    assert hash_of(constraint) == hash_of(json_form)
    evaluated = eval(repr(constraint), dict(vars(abs_client)))
    for duplicate in (evaluated, copy.deepcopy(constraint), RawConstraint(constraint.as_dict())):
        assert duplicate == constraint and hash(duplicate) == hash(constraint)
    assert constraint != F("something else") and constraint != constraint.as_dict()


def test_the_combined_example_has_this_json() -> None:
    constraint = F("dog") & Keywords("ball", ordered=True) & Regex("a+")
    json_text = '{"all": [{"ltlf": "F(dog)"}, {"keywords": ["ball"], "ordered": true}, {"regex": "a+"}]}'
    assert constraint.to_json() == json_text


@pytest.mark.parametrize("call", [
    lambda: Word(" "), lambda: Word(), lambda: Word("a", name=""), lambda: Length(), lambda: JsonSchema(3),
    lambda: constraint_of("F(dog)"), lambda: F(Regex("a")), lambda: F("a") & 3, lambda: Regex("a") | "b",  # type: ignore[arg-type, operator, list-item]
    lambda: F("a").over("a") & F("b"), lambda: abs_client.LabelledConstraint(F("a"), "ab"), lambda: bool(F("a")),
    lambda: F("a") and F("b"), lambda: setattr(Regex("a"), "pattern", "b"),
])  # fmt: skip
def test_an_invalid_builder_call_raises_at_once(call: Any) -> None:
    with pytest.raises((TypeError, ValueError, AttributeError)):
        call()


WORDS = st.sampled_from(["dog", "cat", "ice cream", "don't", "dot", "last", "X", "eos", "2nd", "é", "."])
LEAVES = st.one_of(
    WORDS.map(lambda word: (Word(word), {"words": [word]})),
    st.lists(WORDS, min_size=2, max_size=3, unique=True).map(
        lambda words: (Word(*words, name="dog"), {"words": words})
    ),
    WORDS.map(lambda word: (Word(word, case_sensitive=True), {"words": [word], "case_sensitive": True})),
    st.just((Match("[a-d]+"), {"regex": "[a-d]+"})),
    st.sampled_from([(TRUE, "true"), (FALSE, "false"), (LAST, "last")]),
)
UNARY = {"F": F, "G": G, "X": X, "WX": WX, "!": lambda part: ~part}
BINARY = {"U": U, "R": R, "W": W, "M": M, "->": lambda a, b: a >> b, "<->": Iff,
          "&": lambda a, b: a & b, "|": lambda a, b: a | b}  # fmt: skip


def handwritten(tree: Any, propositions: dict[str, Any]) -> str:
    """The fully bracketed formula of a tree.

    Every proposition is declared under a separate name.
    """
    if isinstance(tree, str):
        return tree
    if isinstance(tree, dict):
        name = f"p{len(propositions)}"
        propositions[name] = tree
        return name
    op, *parts = tree
    operands = [f"({handwritten(part, propositions)})" for part in parts]
    return f"{op} {operands[0]}" if len(operands) == 1 else f" {op} ".join(operands)


def apply_operator(op: str, *parts: tuple[Any, Any]) -> tuple[Any, Any]:
    function = UNARY[op] if len(parts) == 1 else BINARY[op]  # type: ignore[index]
    return function(*(formula for formula, _ in parts)), (op, *(tree for _, tree in parts))  # type: ignore[operator]


FORMULAS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(apply_operator, st.sampled_from([*UNARY]), inner),
        st.builds(apply_operator, st.sampled_from([*BINARY]), inner, inner),
    ),
    max_leaves=8,
)


@settings(max_examples=300, deadline=None)
@given(FORMULAS)
def test_a_built_formula_keeps_its_meaning_and_repr(pair: tuple[Any, Any]) -> None:
    formula, tree = pair
    propositions: dict[str, Any] = {}
    text = handwritten(_without_double_negations(tree), propositions)
    assert hash_of(formula) == hash_of({"ltlf": text, "propositions": propositions})
    assert eval(repr(formula), dict(vars(abs_client))) == formula


@pytest.mark.parametrize(
    ("formula", "text"),
    [
        (G(Implies("b", O("a"))), "G(b -> O(a))"),
        (F(Word("c") & Y(S(~Word("c"), "b"))), "F(c & Y(!c S b))"),
        (F(Word("c") & H(Word("a") | "c")), "F(c & H(a | c))"),
        (F(S(S("a", "b"), "c")), "F((a S b) S c)"),
        (F(S("a", S("b", "c"))), "F(a S (b S c))"),
        (F("O"), 'F("O")'),
        (F("HOW") & F("how"), 'F("HOW") & F(how)'),
    ],
)
def test_operators_of_the_past_are_written_and_read(formula: Formula, text: str) -> None:
    assert str(formula) == text
    assert hash_of(formula) == hash_of({"ltlf": text})
    assert eval(repr(formula), dict(vars(abs_client))) == formula


def _without_double_negations(tree: Any) -> Any:
    """The tree without double negations, as `~` builds it."""
    if isinstance(tree, str | dict):
        return tree
    op, *parts = tree
    parts = [_without_double_negations(part) for part in parts]
    if op == "!" and isinstance(parts[0], tuple) and parts[0][0] == "!":
        return parts[0][1]
    return (op, *parts)


CONSTRAINTS: dict[str, Constraint] = {
    "dog": F("dog"), "short": Length(max_words=2), "upper": Regex("[A-Z].*"), "cat": Keywords("cat"),
    "one of": Choice("A dog", "a cat", ""), "no cat": G(~Word("cat")),
}  # fmt: skip
TEXTS = ("", "dog", "A dog", "a cat", "A dog and a cat", "Cat", "B", "a cat dog")
COMBINATIONS = st.recursive(
    st.sampled_from([*CONSTRAINTS]),
    lambda inner: st.one_of(st.tuples(st.sampled_from(["&", "|"]), inner, inner), st.tuples(st.just("~"), inner)),
    max_leaves=4,
)


def combination_of(tree: Any) -> Constraint:
    if isinstance(tree, str):
        return CONSTRAINTS[tree]
    if tree[0] == "~":
        return Not(combination_of(tree[1])) if isinstance(tree[1], str) else ~combination_of(tree[1])
    first, second = combination_of(tree[1]), combination_of(tree[2])
    return first & second if tree[0] == "&" else first | second


def holds(tree: Any, leaves: dict[str, bool]) -> bool:
    if isinstance(tree, str):
        return leaves[tree]
    parts = [holds(part, leaves) for part in tree[1:]]
    return not parts[0] if tree[0] == "~" else all(parts) if tree[0] == "&" else any(parts)


def verdicts(constraint: Constraint) -> list[bool]:
    try:
        text = compile_text(spec_from_json(constraint.as_dict()))
    except SpecUnsatisfiable:
        return [False] * len(TEXTS)
    return [check_text(text, example).satisfied for example in TEXTS]


VERDICTS = {name: verdicts(constraint) for name, constraint in CONSTRAINTS.items()}


@settings(max_examples=60, deadline=None)
@given(COMBINATIONS)
def test_combinations_hold_of_the_texts_of_which_their_parts_do(tree: Any) -> None:
    constraint = combination_of(tree)
    assume(not _negates_formulas(tree))  # the result is a formula, which no empty text satisfies
    expected = [holds(tree, {name: row[index] for name, row in VERDICTS.items()}) for index in range(len(TEXTS))]
    assert verdicts(constraint) == expected, constraint


def _negates_formulas(tree: Any) -> bool:
    """Whether `~` is applied to a combination of formulas.

    Such a combination is one formula.
    """
    if isinstance(tree, str):
        return False
    operand = combination_of(tree[1]) if tree[0] == "~" and not isinstance(tree[1], str) else None
    return isinstance(operand, abs_client.Formula) or any(map(_negates_formulas, tree[1:]))


def test_combinations_are_flattened_and_double_negation_removed() -> None:
    a, b, c = Regex("a"), Regex("b"), Regex("c")
    assert (a & b & c) == AllOf(a, b, c) == (a & (b & c)) and (a | b | c) == AnyOf(a, b, c)
    assert ~~a == a and ~~F("a") == F("a") and (F("a") & F("b")).as_dict() == {"ltlf": "F(a) & F(b)"}
    assert len({a, Regex("a"), RawConstraint({"regex": "a"}), b}) == 2
