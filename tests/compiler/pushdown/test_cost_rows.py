"""Compares distances by class with those of successors."""

from __future__ import annotations

import random

import numpy as np
import pytest

from compiler.lifting import UNREACHABLE
from compiler.pipeline import compile_spec
from compiler.pushdown import Configurations, PushdownAutomaton
from compiler.spec import spec_from_json
from tests.compiler.pushdown.test_bases import CONSTRAINTS
from tests.compiler.pushdown.test_lift import KEY_VOCABULARY

LIMITS = [{}, {"_ROW_BYTES_MAX": 0}, {"_SLOT_COSTS_MAX": 0}, {"_CELLS_MAX": 0}]


@pytest.mark.parametrize("limits", LIMITS, ids=str)
@pytest.mark.parametrize("constraint", CONSTRAINTS, ids=["schema", "budget and schema"])
def test_distances_by_class_are_those_of_successors(
    constraint: dict[str, object], limits: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, most in limits.items():
        monkeypatch.setattr(f"compiler.pushdown.stack_vectors.{name}", most)
    tokens = compile_spec(spec_from_json(constraint), KEY_VOCABULARY).tokens
    assert isinstance(tokens, PushdownAutomaton) and (tokens.tables.base != np.arange(tokens.states)).any()
    draw, states = random.Random(7), Configurations(tokens)
    for _ in range(20):
        state = states.start
        for _ in range(12):
            found, after = states.expand(state)
            assert found.tolist() == [states.distance_of(after(each)) for each in range(tokens.classes)]
            assert np.array_equal(found, states.class_distances(np.array([state, state]))[1])
            live = np.flatnonzero(found != UNREACHABLE).tolist()
            if not live:
                break
            state = after(draw.choice(live))
    assert (len(tokens.exit_costs._rows) == 1) == ("_ROW_BYTES_MAX" in limits)
