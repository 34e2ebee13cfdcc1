"""Random schemas: verdicts on random values, and on random accepted texts, against the library `jsonschema`."""

from __future__ import annotations

import json
import random
from typing import Any, Literal

import numpy as np
import pytest
from jsonschema import Draft202012Validator

from compiler.automata import CharDfa, steps_to
from compiler.errors import LimitExceeded, SpecUnsupported
from compiler.json_schema import schema_dfa
from compiler.limits import Limits, ResourceGuard
from compiler.regex import pattern_dfa
from tests.references.json_instances import write_instance

NAMES = ("a", "b", "ab", "é", 'q"', "n\n")
TEXTS = ("", "a", "ab", "b", "aba", "é", 'say "x"', "\\", "\n\t\u0001", "😀", "0")
NUMBERS = (0, 1, -1, 2, 3, 5, 6, 10, 12, 100, -7, 0.5, 1.5, -2.25, 2.0, 10.5, 0.1, 3.25, 99.99, -0.0)
PATTERNS = ("a", "^a", "b$", "^[ab]*$", "é|0", "^.{2}$")


def embed(value: object, field: str) -> CharDfa:
    """A constraint of the tests: a pattern for the whole string."""
    assert isinstance(value, dict), field
    return CharDfa(*pattern_dfa(value["regex"], ResourceGuard(Limits())))


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


def number_schema(rng: random.Random) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": rng.choice(("number", "integer"))} if rng.random() < 0.7 else {}
    for keyword in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"):
        if rng.random() < 0.3:
            schema[keyword] = rng.choice(NUMBERS)
    if rng.random() < 0.25:
        schema["multipleOf"] = rng.choice((1, 2, 3, 0.5, 2.5, 7))
    return schema


def string_schema(rng: random.Random) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"} if rng.random() < 0.7 else {}
    if rng.random() < 0.4:
        schema["minLength"] = rng.randrange(3)
    if rng.random() < 0.4:
        schema["maxLength"] = rng.randrange(4)
    if rng.random() < 0.4:
        schema["pattern"] = rng.choice(PATTERNS)
    return schema


def array_schema(rng: random.Random, depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "array"} if rng.random() < 0.7 else {}
    if rng.random() < 0.6:
        schema["items"] = random_schema(rng, depth - 1)
    if rng.random() < 0.4:
        schema["prefixItems"] = [random_schema(rng, depth - 1) for _ in range(rng.randint(1, 2))]
    if rng.random() < 0.3:
        schema["contains"] = random_schema(rng, depth - 1)
        if rng.random() < 0.5:
            schema["minContains"] = rng.randrange(3)
        if rng.random() < 0.5:
            schema["maxContains"] = rng.randrange(3)
    for keyword in ("minItems", "maxItems"):
        if rng.random() < 0.25:
            schema[keyword] = rng.randrange(4)
    if rng.random() < 0.15:
        schema["items"], schema["uniqueItems"] = {"enum": rng.sample((*TEXTS[:3], 1, None, True), 3)}, True
    return schema


def object_schema(rng: random.Random, depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object"} if rng.random() < 0.7 else {}
    names = rng.sample(NAMES, rng.randint(0, 3))
    if names:
        schema["properties"] = {name: random_schema(rng, depth - 1) for name in names}
    if rng.random() < 0.5:
        schema["required"] = rng.sample(NAMES, rng.randint(0, 2))
    if rng.random() < 0.5:
        schema["additionalProperties"] = rng.choice((False, True, random_schema(rng, depth - 1)))
    if rng.random() < 0.2:
        schema["patternProperties"] = {rng.choice(PATTERNS): random_schema(rng, depth - 1)}
    if rng.random() < 0.2:
        schema["propertyNames"] = string_schema(rng)
    for keyword in ("minProperties", "maxProperties"):
        if rng.random() < 0.2:
            schema[keyword] = rng.randrange(3)
    if rng.random() < 0.1:
        schema["dependentRequired"] = {rng.choice(NAMES): rng.sample(NAMES, 1)}
    if rng.random() < 0.1:
        schema["dependentSchemas"] = {rng.choice(NAMES): random_schema(rng, depth - 1)}
    if rng.random() < 0.1:
        schema["unevaluatedProperties"] = rng.choice((False, {"type": "string"}))
    return schema


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
    some = {rng.choice(("allOf", "anyOf", "oneOf")): [random_schema(rng, depth - 1) for _ in range(rng.randint(1, 3))]}
    return {**some, **(object_schema(rng, depth - 1) if rng.random() < 0.3 and depth > 1 else {})}


def random_text(rng: random.Random, automaton: CharDfa, toward: np.ndarray) -> str:
    """A random accepted text: at random for a while, then by the shortest way."""
    dfa, parts = automaton.dfa, automaton.minterms
    state, text, patience = dfa.start, "", rng.randrange(40)
    while not dfa.accepting[state] or (rng.random() < 0.7 and patience > 0):
        patience -= 1
        following = dfa.next_state[state][dfa.symbol_class]
        alive = toward[following] < dfa.states
        if patience < 0:
            alive &= toward[following] < toward[state]
        if not alive.any():
            break
        symbol = rng.choice(np.flatnonzero(alive).tolist())
        low, high = rng.choice(parts.charset([symbol]))
        text += chr(rng.choice((low, high - 1, rng.randrange(low, high))))
        state = int(following[symbol])
    return text


def judge(rng: random.Random, schema: Any, whitespace: Literal["compact", "pretty"]) -> bool:
    """Compare all verdicts on one schema; False where it is refused."""
    validator = Draft202012Validator(schema)
    try:
        automaton = schema_dfa(schema, whitespace, 2, embed, ResourceGuard(Limits()))
    except (SpecUnsupported, LimitExceeded):
        return False
    for value in (random_value(rng, 2) for _ in range(30)):
        text = write_instance(schema, value, whitespace, ResourceGuard(Limits()))
        assert automaton.accepts(text) == validator.is_valid(value), (schema, text)
    toward = steps_to(automaton.dfa.next_state, automaton.dfa.accepting)
    if toward[automaton.dfa.start] < automaton.dfa.states:
        for _ in range(15):
            text = random_text(rng, automaton, toward)
            assert automaton.accepts(text), (schema, text)
            assert validator.is_valid(json.loads(text)), (schema, text)
    return True


@pytest.mark.parametrize("seed", range(6))
def test_random_schemas_agree_with_the_library(seed: int) -> None:
    rng, compiled = random.Random(seed), 0
    for _ in range(40):
        schema = random_schema(rng, 2)
        compiled += judge(rng, schema, rng.choice(("compact", "pretty")))
    assert compiled >= 30
