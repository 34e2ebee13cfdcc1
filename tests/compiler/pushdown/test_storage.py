"""Stored pushdown automata are read again, and damaged ones refused."""

from __future__ import annotations

import json
import random
from dataclasses import fields, replace

import numpy as np
import pytest
from safetensors.numpy import load, save

from compiler.errors import LimitExceeded
from compiler.limits import DEFAULT_LIMITS, Limits, ResourceGuard
from compiler.pushdown import PushdownAutomaton, PushdownTables, build_machine, from_arrays, lift_to_tokens, saturate
from tests.compiler.pushdown.grammars import GRAMMARS
from tests.references.pushdown import toy_vocabulary


@pytest.fixture(scope="module")
def automaton() -> PushdownAutomaton:
    case, guard = GRAMMARS["arithmetic"], ResourceGuard(DEFAULT_LIMITS)
    return lift_to_tokens(build_machine(case.grammar, guard), toy_vocabulary(case, random.Random(0)), guard)


def test_automata_are_the_same_after_storing(automaton: PushdownAutomaton) -> None:
    numbers = json.loads(json.dumps(automaton.numbers()))
    stored = from_arrays(load(save(automaton.arrays())), numbers)
    assert stored.numbers() == automaton.numbers() and stored.min_tokens == automaton.min_tokens
    for name, array in automaton.arrays().items():
        assert np.array_equal(stored.arrays()[name], array) and stored.arrays()[name].dtype == array.dtype
    again = saturate(stored.tables, ResourceGuard(DEFAULT_LIMITS))
    for field in fields(again):
        assert np.array_equal(getattr(again, field.name), getattr(stored.distances, field.name))


def damaged(tables: PushdownTables) -> dict[str, object]:
    """One wrong value of each field."""
    swapped = np.arange(len(tables.entry_symbol))[::-1]
    return {
        "token_class": tables.token_class - 1,
        "edge_first": tables.edge_first[:-1],
        "edge_class": np.zeros_like(tables.edge_class),
        "edge_arrival": tables.edge_arrival + len(tables.item_first),
        "item_first": tables.item_first + 1,
        "item": tables.item - tables.pendings,
        "landing_state": tables.landing_state[::-1].copy(),
        "landing_below": np.arange(len(tables.landing_below)),
        "landing_symbol": tables.landing_symbol + tables.symbols,
        "entry_symbol": tables.entry_symbol[swapped],
        "entry_pending": np.zeros_like(tables.entry_pending),
        "entry_arrival": tables.entry_arrival[1:],
        "symbols": 1,
        "pendings": 0,
        "start": tables.states,
        "eos_ids": (),
    }


def test_damaged_tables_are_refused(automaton: PushdownAutomaton) -> None:
    values = damaged(automaton.tables)
    assert set(values) == {field.name for field in fields(PushdownTables)}
    for name, value in values.items():
        with pytest.raises(ValueError):
            replace(automaton.tables, **{name: value})


def test_damaged_distances_are_refused(automaton: PushdownAutomaton) -> None:
    distances = automaton.distances
    for name, value in (
        ("within", distances.within - 1), ("within", distances.within + (1 << 25)), ("behind", distances.behind - 1),
        ("state", distances.state[::-1]), ("pending", distances.pending + automaton.tables.pendings),
        ("symbol", distances.symbol + 1), ("left", distances.left[1:]), ("entered", np.zeros_like(distances.entered)),
    ):  # fmt: skip
        with pytest.raises(ValueError):
            PushdownAutomaton(automaton.tables, replace(distances, **{name: value}))


def test_lifting_keeps_its_limits() -> None:
    case = GRAMMARS["json"]
    machine = build_machine(case.grammar, ResourceGuard(DEFAULT_LIMITS))
    with pytest.raises(LimitExceeded) as caught:
        lift_to_tokens(machine, toy_vocabulary(case, random.Random(0)), ResourceGuard(Limits(table_bytes_max=1_000)))
    assert caught.value.limit == "table_bytes_max"
