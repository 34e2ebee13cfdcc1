"""Rules of schemas have the texts of their automata, at any depth."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from compiler.automata import CharDfa, is_empty, steps_to
from compiler.errors import LimitExceeded, SpecUnsupported
from compiler.json_schema import SchemaRules, schema_dfa, schema_texts
from compiler.json_schema.fragments import Whitespace
from compiler.lifting import lift
from compiler.limits import Limits, ResourceGuard
from compiler.pushdown import PushdownMachine, lift_to_tokens, network_machine
from compiler.text import CharLeaf, to_text_automaton
from compiler.vocab import Vocabulary, byte_vocabulary
from tests.compiler.json_schema.test_random_schemas import embed, random_schema, random_text
from tests.compiler.pushdown.test_tokens import check_same_distances, finished_text
from tests.references.random_constraints import real_vocabulary
from tests.servers.cluster import FULL
from tests.tables import rows

WHITE_SPACE: tuple[Whitespace, ...] = ("compact", "spaced", "pretty", "flexible", "any")
TOKENS = ('{"', '":', '": ', '"}', "}}", "]]", '"},{"', '", "', "[[", "]}", "ab", "true", '{"a":', " 1", "12", "\n  ")
TREE = {
    "type": "object", "required": ["value", "children"], "additionalProperties": False,
    "properties": {"value": {"type": "string"}, "children": {"type": "array", "items": {"$ref": "#"}}},
}  # fmt: skip
LINKED_LIST = {
    "type": "object", "properties": {"head": {"type": "integer"}, "tail": {"$ref": "#"}}, "required": ["head"],
}  # fmt: skip
EXPRESSION = {
    "$defs": {
        "operation": {
            "type": "object", "required": ["op", "args"], "additionalProperties": False,
            "properties": {
                "op": {"enum": ["+", "*"]}, "args": {"type": "array", "minItems": 2, "items": {"$ref": "#"}},
            },
        },
    },
    "oneOf": [{"type": "number"}, {"$ref": "#/$defs/operation"}],
}  # fmt: skip
CHOICES = {
    "type": "object", "required": ["kind"], "properties": {"kind": {"enum": ["leaf", "node"]}, "next": {"$ref": "#"}},
    "if": {"properties": {"kind": {"const": "node"}}}, "then": {"required": ["next"]},
}  # fmt: skip
ONE_OF_TWO = {
    "type": "object", "properties": {"a": {"type": "object"}, "b": {}},
    "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
}  # fmt: skip
SOME_OBJECT = {"type": "array", "contains": {"type": "object", "required": ["a"]}, "minContains": 2}
SCHEMAS = ({}, TREE, LINKED_LIST, EXPRESSION, CHOICES, ONE_OF_TWO, SOME_OBJECT)


def guard() -> ResourceGuard:
    return ResourceGuard(Limits(compile_s_max=100))


def rules_of(schema: Any, whitespace: Whitespace = "compact", **options: Any) -> SchemaRules:
    rules = schema_texts(schema, whitespace, None, embed, guard=guard(), explicit_states_max=0, **options)
    assert isinstance(rules, SchemaRules)
    return rules


def machine_of(rules: SchemaRules) -> PushdownMachine:
    return network_machine(rules.names, rules.rules, guard())


@cache
def small_vocabulary() -> Vocabulary:
    """All single bytes, some tokens that JSON has often, and EOS."""
    tokens = [bytes([byte]) for byte in range(256)] + [token.encode() for token in TOKENS]
    return Vocabulary((*tokens, None), (len(tokens),))


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.sample(1)
def test_rules_have_the_texts_of_the_automaton(seed: int) -> None:
    draw, compared = random.Random(seed), 0
    for _ in range(25 if FULL else 12):
        schema, depth, whitespace = random_schema(draw, 3), draw.randint(1, 3), draw.choice(WHITE_SPACE)
        options: dict[str, Any] = {"guard": guard(), "any_order": draw.random() < 0.2}
        try:
            expected = schema_dfa(schema, whitespace, depth, embed, **options)
        except (SpecUnsupported, LimitExceeded):
            continue
        rules = schema_texts(schema, whitespace, depth, embed, explicit_states_max=0, **options)
        if isinstance(rules, SchemaRules):
            compared += 1
            check_same_texts(expected, machine_of(rules), draw)
        else:
            assert is_empty(rules.dfa) == is_empty(expected.dfa), schema
    assert compared >= (15 if FULL else 6)


def check_same_texts(expected: CharDfa, machine: PushdownMachine, draw: random.Random) -> None:
    text = to_text_automaton(CharLeaf(expected, None), guard())
    for vocabulary in (byte_vocabulary(), small_vocabulary()):
        automaton = lift_to_tokens(machine, vocabulary, guard())
        check_same_distances(automaton, lift(text.transducer, text.letters, vocabulary, guard()), draw)
        for slack in (0, 3, 30):
            assert expected.accepts(finished_text(automaton, vocabulary, draw, slack))
    steps_to_end = steps_to(expected.dfa.next_state, expected.dfa.accepting)
    for _ in range(10):
        assert machine.accepts(random_text(draw, expected, steps_to_end).encode())


@pytest.mark.parametrize("schema", SCHEMAS, ids=range(len(SCHEMAS)))
@pytest.mark.parametrize("whitespace", ["spaced", "any"])
@pytest.mark.sample(7)
def test_answers_to_recursive_schemas_are_valid(schema: Any, whitespace: Whitespace) -> None:
    vocabulary = real_vocabulary("gpt2", 50_257, 50_256) or small_vocabulary()
    automaton = lift_to_tokens(machine_of(rules_of(schema, whitespace)), vocabulary, guard())
    validator, draw, deepest = Draft202012Validator(schema), random.Random(0), 0
    for slack in (0, 0, 1, 2, 5, *[10, 20, 40] * 5, 160):
        value = json.loads(finished_text(automaton, vocabulary, draw, slack))
        assert validator.is_valid(value), value
        deepest = max(deepest, depth_of(value))
    assert deepest > 1


def depth_of(value: Any) -> int:
    inside: Sequence[Any] = [*value.values()] if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + max(map(depth_of, inside), default=0)


def nested(value: Any, depth: int, wrap: Any) -> Any:
    for _ in range(depth):
        value = wrap(value)
    return value


@pytest.mark.parametrize(
    ("schema", "fits", "fits_not"),
    [
        ({}, nested([], 300, lambda inside: {"a": [inside]}), None),
        (TREE, nested({"value": "", "children": []}, 200, lambda inside: {"value": "é", "children": [inside] * 1}),
         nested({"value": 0, "children": []}, 200, lambda inside: {"value": "é", "children": [inside]})),
        (LINKED_LIST, nested({"head": 0}, 300, lambda inside: {"head": 1, "tail": inside}),
         nested({"head": 0.5}, 300, lambda inside: {"head": 1, "tail": inside})),
        (EXPRESSION, nested(1, 100, lambda inside: {"op": "+", "args": [0, inside]}),
         nested(1, 100, lambda inside: {"op": "-", "args": [0, inside]})),
        (CHOICES, nested({"kind": "leaf"}, 100, lambda inside: {"kind": "node", "next": inside}),
         nested({"kind": "node"}, 100, lambda inside: {"kind": "node", "next": inside})),
        (ONE_OF_TWO, {"a": nested({}, 50, lambda inside: {"c": [inside]})}, {"a": {}, "b": [[]]}),
        (SOME_OBJECT, [1, {"a": [{}]}, [], {"a": {}}], [1, {"a": [{}]}, [{"a": 1}]]),
    ],
    ids=range(7),
)  # fmt: skip
def test_values_fit_at_any_depth(schema: Any, fits: Any, fits_not: Any) -> None:
    machine = machine_of(rules_of(schema, "spaced"))
    assert machine.accepts(json.dumps(fits, ensure_ascii=False).encode())
    assert fits_not is None or not machine.accepts(json.dumps(fits_not, ensure_ascii=False).encode())


def chain(length: int) -> dict[str, Any]:
    definitions = {
        f"d{number}": {"type": "object", "properties": {"a": {"$ref": f"#/$defs/d{number + 1}"}}, "required": ["a"]}
        for number in range(length)
    }
    return {"$defs": definitions | {f"d{length}": {"type": "integer"}}, "$ref": "#/$defs/d0"}


OPEN_OBJECT = {"type": "object", "properties": {"x": {"type": "string"}}}


@pytest.mark.parametrize(
    ("schema", "states", "text"),
    [
        ({}, 140, '{"a": [{}]}'),
        (TREE, 90, '{"value":"","children":[]}'.replace(":", ": ").replace(",", ", ")),
        ({"type": "object", "properties": {f"p{number}": OPEN_OBJECT for number in range(15)}}, 300,
         '{"p3": {"y": [[[[1]]]]}, "p5": {"x": ""}}'),
        ({"$defs": {"open": OPEN_OBJECT}, "type": "object",
          "properties": {f"p{number}": {"$ref": "#/$defs/open"} for number in range(60)}}, 800,
         '{"p3": {"y": [[[[1]]]]}, "p59": {"x": ""}}'),
        (chain(200), 6_000, '{"a": ' * 200 + "1" + "}" * 200),
    ],
    ids=("any value", "tree", "15 open objects", "60 references", "nested 200 times"),
)  # fmt: skip
def test_sizes_are_sums(schema: Any, states: int, text: str) -> None:
    machine = machine_of(rules_of(schema, "spaced"))
    assert machine.states <= states and machine.conflicts() == []
    assert machine.accepts(text.encode()) and not machine.accepts(text.encode() + b"}")


def test_schemas_without_finite_values_are_empty() -> None:
    left_out = list[LimitExceeded]()
    schema = {"type": "array", "minItems": 1, "items": {"$ref": "#"}}
    texts = schema_texts(schema, "compact", None, embed, guard=guard(), left_out=left_out)
    assert isinstance(texts, CharDfa) and is_empty(texts.dfa) and left_out == []


@pytest.mark.parametrize("schema", rows("json_schema", "small_closed_schemas_stay_automata"), ids=range(3))
def test_small_closed_schemas_stay_automata(schema: Any) -> None:
    texts = schema_texts(schema, "compact", None, embed, guard=guard())
    expected = schema_dfa(schema, "compact", 3, embed, guard=guard())
    assert isinstance(texts, CharDfa)
    assert (texts.dfa.next_state == expected.dfa.next_state).all()
