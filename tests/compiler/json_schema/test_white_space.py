"""White space of JSON texts, and the limit of states of fragments."""

from __future__ import annotations

import dataclasses
import json
import random
import re
from typing import get_args

import pytest
from jsonschema import Draft202012Validator

from compiler.automata import steps_to, words_dfa
from compiler.errors import LimitExceeded, SpecUnsupported
from compiler.json_schema.fragments import Fragment, Whitespace, combine, fragment_of, product
from compiler.limits import DEFAULT_LIMITS, ResourceGuard
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
@pytest.mark.sample(1)
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


def guard(states: int = DEFAULT_LIMITS.dfa_states_max) -> ResourceGuard:
    """A guard of its own for each call: its time begins here."""
    return ResourceGuard(dataclasses.replace(DEFAULT_LIMITS, dfa_states_max=states))


def word(*symbols: int) -> Fragment:
    fragment = fragment_of(words_dfa([symbols], 2, guard()))
    assert fragment is not None
    return fragment


def test_a_union_has_one_dead_state() -> None:
    pairs = product([word(0), word(1)], guard(), (False, False))
    assert sorted(map(tuple, pairs.states.tolist())) == [(0, 0), (0, 2), (1, 1), (2, 0)]
    assert not pairs.table[0].any() and pairs.states[0].tolist() == [0, 0] and pairs.states[1].tolist() == [1, 1]


def test_the_states_of_a_union_count_against_the_limit() -> None:
    union = combine(word(0), word(1), "or", guard(4))
    assert union is not None and [union.run([0]), union.run([1]), union.run([0, 1])] == [1, 1, 0]
    with pytest.raises(LimitExceeded, match="dfa_states_max"):
        combine(word(0), word(1), "or", guard(3))
