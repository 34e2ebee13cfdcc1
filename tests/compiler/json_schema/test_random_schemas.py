"""Compares random schemas with `jsonschema` on random values and accepted texts."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import numpy as np
import pytest
from jsonschema import Draft202012Validator

from compiler.automata import CharDfa, char_complement, char_intersection, is_empty, steps_to
from compiler.errors import LimitExceeded, SpecUnsupported
from compiler.json_schema import arrays, schema_dfa, value_sets
from compiler.json_schema.fragments import Whitespace
from compiler.limits import Limits, ResourceGuard
from compiler.regex import pattern_dfa
from tests.references.json_instances import write_instance
from tests.servers.cluster import FULL

NAMES = ("a", "b", "ab", "é", 'q"', "n\n")
TEXTS = ("", "a", "ab", "b", "aba", "é", 'say "x"', "\\", "\n\t", "😀", "0")
NUMBERS = (0, 1, -1, 2, 3, 5, 6, 10, 12, 100, -7, 0.5, 1.5, -2.25, 2.0, 10.5, 0.1, 3.25, 99.99, -0.0)
PATTERNS = ("a", "^a", "b$", "^[ab]*$", "é|0", "^.{2}$", "^(b|é|a)$", "^a?b$")


PATIENT = Limits(compile_s_max=100)


def embed(value: object, field: str) -> CharDfa:
    """A constraint of the tests: a pattern for the whole string."""
    assert isinstance(value, dict) and field.endswith("constraint")
    return CharDfa(*pattern_dfa(value["regex"], ResourceGuard(Limits())))


def compiled(
    schema: Any, whitespace: Whitespace = "compact", depth: int = 2, schemas: Any = None, *, any_order: bool = False,
    limits: Limits = PATIENT,
) -> CharDfa:
    guard = ResourceGuard(limits)
    return schema_dfa(schema, whitespace, depth, embed, guard=guard, schemas=schemas, any_order=any_order)


def random_value(rng: random.Random, depth: int) -> Any:
    kind = rng.randrange(8 if depth else 6)
    if kind < 1:
        return rng.choice((None, True, False))
    if kind < 3:
        return rng.choice(NUMBERS)
    if kind < 6:
        return rng.choice(TEXTS)
    if kind == 6:
        return [random_value(rng, depth - 1) for _ in range(rng.randrange(4))]
    return {rng.choice(NAMES): random_value(rng, depth - 1) for _ in range(rng.randrange(4))}


def random_keywords(rng: random.Random, **keywords: tuple[float, Callable[[], Any]]) -> dict[str, Any]:
    """Keywords and their values, each present with its probability."""
    return {keyword: value() for keyword, (share, value) in keywords.items() if rng.random() < share}


def number_schema(rng: random.Random) -> dict[str, Any]:
    bounds = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
    return random_keywords(
        rng,
        type=(0.7, lambda: rng.choice(("number", "integer"))),
        **dict.fromkeys(bounds, (0.3, lambda: rng.choice(NUMBERS))),
        multipleOf=(0.25, lambda: rng.choice((1, 2, 3, 0.5, 2.5, 7))),
    )


def string_schema(rng: random.Random) -> dict[str, Any]:
    return random_keywords(
        rng,
        type=(0.7, lambda: "string"),
        minLength=(0.4, lambda: rng.randrange(3)),
        maxLength=(0.4, lambda: rng.randrange(4)),
        pattern=(0.4, lambda: rng.choice(PATTERNS)),
    )


def array_schema(rng: random.Random, depth: int) -> dict[str, Any]:
    below = partial(random_schema, rng, depth - 1)
    schema = random_keywords(
        rng,
        type=(0.7, lambda: "array"),
        items=(0.6, below),
        prefixItems=(0.4, lambda: [below() for _ in range(rng.randint(1, 2))]),
        contains=(0.3, below),
    )
    if "contains" in schema:
        schema |= random_keywords(rng, **dict.fromkeys(("minContains", "maxContains"), (0.5, lambda: rng.randrange(3))))
    schema |= random_keywords(rng, **dict.fromkeys(("minItems", "maxItems"), (0.25, lambda: rng.randrange(4))))
    if rng.random() < 0.15:
        schema["items"], schema["uniqueItems"] = {"enum": rng.sample((*TEXTS[:3], 1, None, True), 3)}, True
    return schema


def object_schema(rng: random.Random, depth: int) -> dict[str, Any]:
    below = partial(random_schema, rng, depth - 1)
    schema = random_keywords(rng, type=(0.7, lambda: "object"))
    names = rng.sample(NAMES, rng.randint(0, 3))
    if names:
        schema["properties"] = {name: below() for name in names}
    return schema | random_keywords(
        rng,
        required=(0.5, lambda: rng.sample(NAMES, rng.randint(0, 2))),
        additionalProperties=(0.5, lambda: rng.choice((False, True, below()))),
        patternProperties=(0.2, lambda: {rng.choice(PATTERNS): below()}),
        propertyNames=(0.2, lambda: rng.choice((string_schema(rng), {"enum": rng.sample(NAMES, 3)}))),
        **dict.fromkeys(("minProperties", "maxProperties"), (0.2, lambda: rng.randrange(3))),
        dependentRequired=(0.1, lambda: {rng.choice(NAMES): rng.sample(NAMES, 1)}),
        dependentSchemas=(0.1, lambda: {rng.choice(NAMES): below()}),
        unevaluatedProperties=(0.1, lambda: rng.choice((False, {"type": "string"}))),
    )


def random_schema(rng: random.Random, depth: int) -> Any:
    kind = rng.random()
    if kind < 0.08:
        return rng.choice((True, False, {}, {"enum": [random_value(rng, 1) for _ in range(3)]}))
    if kind < 0.15:
        return {"const": random_value(rng, 1)}
    if kind < 0.3:
        return number_schema(rng)
    if kind < 0.45 or depth == 0:
        return string_schema(rng)
    if kind < 0.58:
        return array_schema(rng, depth)
    if kind < 0.75:
        return object_schema(rng, depth)
    if kind < 0.8:
        return {"not": random_schema(rng, depth - 1)}
    if kind < 0.85:
        return {keyword: random_schema(rng, depth - 1) for keyword in rng.sample(("if", "then", "else"), 3)}
    combination = {
        rng.choice(("allOf", "anyOf", "oneOf")): [random_schema(rng, depth - 1) for _ in range(rng.randint(1, 3))]
    }
    return {**combination, **(object_schema(rng, depth - 1) if rng.random() < 0.3 and depth > 1 else {})}


def random_text(rng: random.Random, automaton: CharDfa, steps_to_end: np.ndarray) -> str:
    """A random accepted text. A walk is random for some steps and then takes the shortest way."""
    dfa, parts = automaton.dfa, automaton.minterms
    state, text, steps_left = dfa.start, "", rng.randrange(40)
    while not dfa.accepting[state] or (rng.random() < 0.7 and steps_left > 0):
        steps_left -= 1
        following = dfa.next_state[state][dfa.symbol_class]
        alive = steps_to_end[following] < dfa.states
        if steps_left < 0:
            alive &= steps_to_end[following] < steps_to_end[state]
        if not alive.any():
            break
        symbol = rng.choice(np.flatnonzero(alive).tolist())
        low, high = rng.choice(parts.charset([symbol]))
        text += chr(rng.choice((low, high - 1, rng.randrange(low, high))))
        state = int(following[symbol])
    return text


def count_verdicts(rng: random.Random, schema: Any, whitespace: Literal["compact", "pretty"]) -> bool:
    """Compare all verdicts on one schema; False where it is refused."""
    validator = Draft202012Validator(schema)
    try:
        automaton = compiled(schema, whitespace)
    except (SpecUnsupported, LimitExceeded):
        return False
    for value in (random_value(rng, 2) for _ in range(30)):
        text = write_instance(schema, value, whitespace)
        assert automaton.accepts(text) == validator.is_valid(value), (schema, text)
    steps_to_end = steps_to(automaton.dfa.next_state, automaton.dfa.accepting)
    if steps_to_end[automaton.dfa.start] < automaton.dfa.states:
        for _ in range(15):
            text = random_text(rng, automaton, steps_to_end)
            assert automaton.accepts(text), (schema, text)
            assert validator.is_valid(json.loads(text)), (schema, text)
    return True


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.sample(1)
def test_random_schemas_agree_with_the_library(seed: int) -> None:
    rng, verdicts = random.Random(seed), 0
    for _ in range(40 if FULL else 25):
        schema = random_schema(rng, 2)
        verdicts += count_verdicts(rng, schema, rng.choice(("compact", "pretty")))
    assert verdicts >= (30 if FULL else 18)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.sample(1)
def test_shortened_random_schemas_write_valid_values(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "_FEW_ITEMS", 0)
    rng, shortened = random.Random(seed), 0

    def part() -> dict[str, Any]:
        values = ({"type": "string", "maxLength": 3}, {"items": {"type": "null"}, "maxItems": 3}, random_schema(rng, 1))
        return {"properties": {name: rng.choice(values) for name in ("a", "b")}}

    for _ in range(15 if FULL else 8):
        inner = {keyword: [part(), part()] for keyword in rng.sample(("allOf", "anyOf", "oneOf"), rng.randrange(2))}
        outer = {rng.choice(("allOf", "anyOf")): [{"properties": {"c": part()}}, {"properties": {"c": part() | inner}}]}
        schema = {"type": "object", "required": ["a"], "properties": {"d": False}} | part() | outer
        try:
            exact = compiled(schema)
            with monkeypatch.context() as short:
                short.setattr(value_sets, "_COUNTED_STATES", 2)
                automaton = compiled(schema)
        except (SpecUnsupported, LimitExceeded):
            continue
        left_out = char_intersection([exact, char_complement(automaton)], ResourceGuard(Limits()))
        shortened += not is_empty(left_out.dfa)
        added = char_intersection([automaton, char_complement(exact)], ResourceGuard(Limits()))
        assert is_empty(added.dfa), schema
    assert shortened >= (3 if FULL else 2)
