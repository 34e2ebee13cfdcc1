"""The white space that generation writes in JSON texts."""

from __future__ import annotations

import json
import random
import re
from typing import get_args

import pytest
from jsonschema import Draft202012Validator

from compiler.automata import steps_to
from compiler.errors import LimitExceeded, SpecUnsupported
from compiler.json_schema.fragments import Whitespace
from tests.compiler.json_schema.test_random_schemas import compiled, random_schema, random_text, random_value
from tests.references.json_instances import write_instance
from tests.tables import rows

PARTS = re.compile(r'"(?:[^"\\]|\\.)*"|[][{},:]|[^][{},:"]+')
OPEN = ("[", "{")
SCHEMA = {
    "type": "object", "required": ["a"], "additionalProperties": False,
    "properties": {"a": {"type": "array", "items": {"type": "number"}}, "b": {"enum": [{"c": [1]}, None]}},
}  # fmt: skip


def spread(rng: random.Random, text: str, kind: Whitespace) -> str:
    """The compact text with random white space of a kind."""
    parts = PARTS.findall(text)
    written = ""
    for before, part in zip(["", *parts], parts, strict=False):
        empty = before in OPEN and part in ("]", "}")
        inner = bool(before) and not empty and (kind == "any" or before in (*OPEN, ",", ":") or part in ("]", "}"))
        choices = ("", " ", "\n\n\t  ", "\r\n") if kind == "any" else ("", " ", "\n", "\n      ")
        written += (rng.choice(choices) if inner else "") + part
    return written


@pytest.mark.parametrize("kind", ["flexible", "any"])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.sample(2)
def test_free_white_space_changes_no_verdict(kind: Whitespace, seed: int) -> None:
    rng, accepted = random.Random(seed), 0
    for _ in range(25):
        schema = random_schema(rng, 2)
        validator = Draft202012Validator(schema)
        try:
            automaton = compiled(schema, kind)
        except (SpecUnsupported, LimitExceeded):
            continue
        for value in (random_value(rng, 2) for _ in range(15)):
            text = spread(rng, write_instance(schema, value), kind)
            assert automaton.accepts(text) == validator.is_valid(value), (schema, text)
            accepted += automaton.accepts(text)
        steps = steps_to(automaton.dfa.next_state, automaton.dfa.accepting)
        if steps[automaton.dfa.start] < automaton.dfa.states:
            for _ in range(8):
                text = random_text(rng, automaton, steps)
                assert validator.is_valid(json.loads(text)), (schema, text)
    assert accepted > 30


@pytest.mark.parametrize(("text", "kinds"), rows("json_schema", "each_white_space_allows_its_texts"))
def test_each_white_space_allows_its_texts(text: str, kinds: str) -> None:
    assert [kind for kind in get_args(Whitespace) if compiled(SCHEMA, kind).accepts(text)] == kinds.split()


def test_any_white_space_needs_few_states_more() -> None:
    assert compiled(SCHEMA, "any").dfa.states <= compiled(SCHEMA).dfa.states + 10
