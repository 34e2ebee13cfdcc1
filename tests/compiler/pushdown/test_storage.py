"""Stored pushdown automata, and states that share the edges of a base."""

from __future__ import annotations

import json
import random
from dataclasses import fields, replace

import numpy as np
import pytest
from safetensors.numpy import load, save

from compiler.errors import LimitExceeded
from compiler.lifting import UNREACHABLE
from compiler.limits import DEFAULT_LIMITS, Limits, ResourceGuard
from compiler.pipeline import compile_spec
from compiler.pushdown import (
    Configurations,
    PushdownAutomaton,
    PushdownMachine,
    PushdownTables,
    build_machine,
    from_arrays,
    lift_to_tokens,
    machine_from_arrays,
    saturate,
)
from compiler.spec import spec_from_json
from tests.compiler.pushdown.grammars import GRAMMARS
from tests.compiler.pushdown.test_lift import KEY_VOCABULARY
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
        "row": tables.row + len(tables.row_first),
        "row_first": tables.row_first[:-1],
        "edge_class": np.zeros_like(tables.edge_class),
        "edge_slot": tables.edge_slot + 1,
        "slot_first": tables.slot_first[:-1],
        "slot_arrival": tables.slot_arrival + len(tables.item_first),
        "base": tables.base + tables.states,
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
        ("within", distances.within - 1), ("within", distances.within + (1 << 25)), ("within", distances.within[1:]),
        ("landing", distances.landing[::-1]), ("pending", distances.pending + automaton.tables.pendings),
        ("landing", distances.landing + 1), ("pending", np.zeros_like(distances.pending)),
    ):  # fmt: skip
        with pytest.raises(ValueError):
            PushdownAutomaton(automaton.tables, replace(distances, **{name: value}))


@pytest.mark.parametrize("name", GRAMMARS)
def test_machines_are_the_same_after_storing(name: str) -> None:
    machine = build_machine(GRAMMARS[name].grammar, ResourceGuard(DEFAULT_LIMITS))
    stored = machine_from_arrays(load(save(machine.arrays())), json.loads(json.dumps(machine.numbers())))
    assert stored.numbers() == machine.numbers() and stored.arrays().keys() == machine.arrays().keys()
    for field, array in machine.arrays().items():
        assert np.array_equal(stored.arrays()[field], array) and stored.arrays()[field].dtype == array.dtype


def damaged_machine(machine: PushdownMachine) -> dict[str, object]:
    """One wrong value of each field."""
    return {
        "byte_class": machine.byte_class[:-1],
        "action": machine.action - 1,
        "choices": (*machine.choices, (((), machine.states),)),
        "pop": machine.pop.astype(np.int8),
        "code": machine.code + len(machine.rules),
        "eager": machine.eager[1:],
        "resume": machine.resume - 1,
        "start": machine.states,
        "rules": ("json",) * (len(machine.rules) + 1),
        "budgets": (1,) * (len(machine.rules) + 1),
    }


def test_damaged_machines_are_refused() -> None:
    machine = build_machine(GRAMMARS["json"].grammar, ResourceGuard(DEFAULT_LIMITS))
    values = damaged_machine(machine)
    assert set(values) == {field.name for field in fields(PushdownMachine)} - {"marks"}  # any names may stand there
    more = {"action": machine.action + 100, "resume": machine.resume + 100, "code": machine.code - 1, "rules": (),
            "pop": machine.pop[:, 1:], "choices": ((((99,), 0),),)}  # fmt: skip
    for name, value in (*values.items(), *more.items()):
        with pytest.raises(ValueError):
            replace(machine, **{name: value})


def test_machines_without_all_arrays_are_refused() -> None:
    machine = build_machine(GRAMMARS["json"].grammar, ResourceGuard(DEFAULT_LIMITS))
    arrays, numbers = machine.arrays(), machine.numbers()
    for name in arrays:
        with pytest.raises(TypeError):
            machine_from_arrays({other: arrays[other] for other in arrays if other != name}, numbers)
    for name in numbers:
        with pytest.raises(KeyError):
            machine_from_arrays(arrays, {other: numbers[other] for other in numbers if other != name})


def test_lifting_keeps_its_limits() -> None:
    case = GRAMMARS["json"]
    machine = build_machine(case.grammar, ResourceGuard(DEFAULT_LIMITS))
    with pytest.raises(LimitExceeded, check=lambda error: error.limit == "table_bytes_max"):
        lift_to_tokens(machine, toy_vocabulary(case, random.Random(0)), ResourceGuard(Limits(table_bytes_max=1_000)))


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
