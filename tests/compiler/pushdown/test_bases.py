"""Compares states that share the edges of a base with others."""

from __future__ import annotations

import random

import numpy as np
import pytest

from compiler.lifting import UNREACHABLE
from compiler.pipeline import compile_spec
from compiler.pushdown import Configurations, PushdownAutomaton
from compiler.spec import spec_from_json
from tests.compiler.pushdown.test_lift import KEY_VOCABULARY

SCHEMA = {
    "type": "object", "properties": {"name": {"type": "integer"}, "nest": {"type": "object"}},
    "patternProperties": {"^x": False}, "required": ["nest"],
}  # fmt: skip
FREE = {"free": {"until": ["st"], "max_tokens": 3}}
OBJECT: dict[str, object] = {"json_schema": SCHEMA, "whitespace": "compact"}
CONSTRAINTS = [OBJECT, {"sequence": [FREE, OBJECT]}]


def compiled(constraint: dict[str, object]) -> PushdownAutomaton:
    tokens = compile_spec(spec_from_json(constraint), KEY_VOCABULARY).tokens
    assert isinstance(tokens, PushdownAutomaton)
    return tokens


@pytest.mark.parametrize("constraint", CONSTRAINTS, ids=["schema", "budget and schema"])
def test_states_with_a_base_act_as_without_one(constraint: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    draw, nats = random.Random(3), np.random.default_rng(3).uniform(0.5, 2, KEY_VOCABULARY.size)
    shared = compiled(constraint)
    monkeypatch.setattr("compiler.pushdown.near_states._NODES_MAX", -1)
    apart, states = compiled(constraint), np.arange(shared.states)
    assert (shared.tables.base != states).any() and (apart.tables.base == states).all()
    ids = np.array(draw.sample(range(1, KEY_VOCABULARY.size), 5))
    pairs = [
        Configurations(automaton.with_own_classes(ids), costs=automaton.token_costs(nats))
        for automaton in (shared, apart)
    ]
    for _ in range(30):
        at = [pair.start for pair in pairs]
        for _ in range(12):
            left, right = (pair.distances_after(state)[pair.token_class] for pair, state in zip(pairs, at, strict=True))
            assert np.array_equal(left, right)
            live = np.flatnonzero(left != UNREACHABLE)
            if not live.size:
                break
            token = int(draw.choice(live.tolist()))
            at = [pair.advance(state, token) for pair, state in zip(pairs, at, strict=True)]
            costs = [pair.costs(np.array([state])) for pair, state in zip(pairs, at, strict=True)]
            assert np.allclose(*costs)
