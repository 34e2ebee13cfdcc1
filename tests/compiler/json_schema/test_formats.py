"""Formats: random texts that their automata accept, against the checkers of `jsonschema`."""

from __future__ import annotations

import json
import random

import pytest
from jsonschema import Draft202012Validator

from compiler.automata import steps_to
from compiler.json_schema import FORMATS
from tests.compiler.json_schema.test_random_schemas import compiled, random_text


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_texts_that_a_format_accepts_are_valid(name: str) -> None:
    rng = random.Random(name)
    schema = {"type": "string", "format": name}
    automaton = compiled(schema, depth=1)
    steps_to_end = steps_to(automaton.dfa.next_state, automaton.dfa.accepting)
    checker = Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER)
    for _ in range(300):
        text = random_text(rng, automaton, steps_to_end)
        assert checker.is_valid(json.loads(text)), text
