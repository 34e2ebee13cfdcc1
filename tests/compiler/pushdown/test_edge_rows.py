"""Rows and slots hold their edges; classes have the distances of successors."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from compiler.automata import everything
from compiler.lifting import UNREACHABLE
from compiler.limits import DEFAULT_LIMITS, ResourceGuard
from compiler.pushdown import Configurations, Grammar, PushdownTables, build_machine, call, lift_to_tokens
from compiler.pushdown.edge_rows import EdgeRows, beside, edge_rows
from compiler.pushdown.saturation import _slot_costs
from compiler.regex import Alternation, Chars, Concat, Repeat, literal_node
from compiler.vocab import Vocabulary
from tests.compiler.pushdown.test_storage import CONSTRAINTS, compiled

STATES, CLASSES = 12, 9


def edges_from(rows: EdgeRows) -> dict[tuple[int, int], int]:
    """The arrival of each state and class."""
    found = {}
    for state, row in enumerate(rows.row.tolist()):
        for edge in range(rows.row_first[row], rows.row_first[row + 1]):
            slot = rows.slot_first[state] + rows.edge_slot[edge]
            found[state, int(rows.edge_class[edge])] = int(rows.slot_arrival[slot])
    return found


def drawn(draw: random.Random, states: list[int], classes: range) -> dict[tuple[int, int], int]:
    """Edges of states that are alike in groups of three."""
    found = {}
    for state in states:
        alike = random.Random(f"{states} {state // 3}")
        found |= {(state, each): 10 * draw.randrange(5) for each in classes if alike.random() < 0.6}
        if state % 3:
            found |= {(state, each): 10 * alike.randrange(3) + state for each in classes}
    return found


def rows_of(edges: dict[tuple[int, int], int]) -> EdgeRows:
    columns = np.array([(state, each, arrival) for (state, each), arrival in sorted(edges.items())]).reshape(-1, 3).T
    return edge_rows(*columns, states=STATES, guard=ResourceGuard(DEFAULT_LIMITS))


def alike(edges: dict[tuple[int, int], int], state: int) -> tuple[tuple[int, int], ...]:
    """The classes that a state reads, each with the first like it."""
    read = {each: edges[state, each] for each in range(CLASSES) if (state, each) in edges}
    first = {arrival: each for each, arrival in reversed(read.items())}
    return tuple((each, first[arrival]) for each, arrival in read.items())


def test_rows_hold_the_edges_of_all_states() -> None:
    for seed in range(50):
        draw = random.Random(seed)
        edges = drawn(draw, draw.sample(range(STATES), 7), range(CLASSES))
        rows = rows_of(edges)
        assert edges_from(rows) == edges
        assert len(rows.row_first) - 1 <= STATES
        assert len(set(rows.row.tolist())) == len({alike(edges, state) for state in range(STATES)})


def test_states_that_tell_classes_apart_alike_share_a_row() -> None:
    rows = rows_of({(0, 2): 5, (0, 4): 6, (0, 7): 5, (3, 2): 9, (3, 4): 1, (3, 7): 9, (4, 2): 5, (4, 4): 6, (4, 7): 6})
    assert rows.row[0] == rows.row[3] != rows.row[4]
    assert rows.slot_arrival.tolist() == [5, 6, 9, 1, 5, 6]


def test_groups_beside_each_other_have_the_edges_of_all() -> None:
    for seed in range(50):
        draw = random.Random(seed)
        # Column 0 has no edges, as in token classes, and classes 0 and 5 are in it for both groups.
        columns = [np.array([0, 1, 2, 1, 0, 0, 3, 3, 0]), np.array([0, 0, 0, 0, 2, 0, 0, 0, 1])]
        groups = [drawn(draw, draw.sample(range(STATES), 8), range(1, 4)), drawn(draw, [2, 3, 7], range(1, 3))]
        expected = {
            (state, each): edges[state, int(column[each])]
            for edges, column in zip(groups, columns, strict=True)
            for state in range(STATES)
            for each in range(CLASSES)
            if (state, int(column[each])) in edges
        }
        assert edges_from(beside([rows_of(edges) for edges in groups], columns)) == expected


def tables_with_bases() -> PushdownTables:
    schema = {"type": "object", "properties": {"name": {"type": "integer"}, "nest": {"type": "object"}}}
    tables = compiled({"json_schema": schema}).tables
    assert (tables.base != np.arange(tables.states)).any()
    return tables


@pytest.mark.parametrize("costs", ["one", "drawn", "few different"])
def test_arrivals_cost_what_the_cheapest_token_costs(costs: str) -> None:
    tables, draw = tables_with_bases(), np.random.default_rng(2)
    cost = {
        "one": np.ones(tables.classes), "drawn": draw.uniform(1, 2, tables.classes),
        "few different": draw.integers(1, 3, tables.classes).astype(float),
    }[costs]  # fmt: skip
    expected = dict[tuple[int, int], float]()
    edges = tables.edges_of(np.arange(tables.states))
    for state, token_class, arrival in zip(*map(np.ndarray.tolist, edges), strict=True):
        expected[state, arrival] = min(expected.get((state, arrival), np.inf), cost[token_class])
    found = dict[tuple[int, int], float]()
    for state, arrival, least in zip(*map(np.ndarray.tolist, _slot_costs(tables, cost)), strict=True):
        found[state, arrival] = min(found.get((state, arrival), np.inf), least)
    assert found == expected


def test_rows_that_do_not_name_all_slots_are_refused() -> None:
    tables = tables_with_bases()
    with pytest.raises(ValueError, match="all slots"):
        replace(tables, edge_slot=np.zeros_like(tables.edge_slot))


LIMITS = [{}, {"_ROW_BYTES_MAX": 0}, {"_SLOT_COSTS_MAX": 0}, {"_CELLS_MAX": 0}]


@pytest.mark.parametrize("limits", LIMITS, ids=str)
@pytest.mark.parametrize("constraint", CONSTRAINTS, ids=["schema", "budget and schema"])
def test_distances_by_class_are_those_of_successors(
    constraint: dict[str, object], limits: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, most in limits.items():
        monkeypatch.setattr(f"compiler.pushdown.stack_vectors.{name}", most)
    tokens = compiled(constraint)
    assert (tokens.tables.base != np.arange(tokens.states)).any()
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


def test_a_state_that_leaves_before_each_character_is_not_dead() -> None:
    guard = ResourceGuard(DEFAULT_LIMITS)
    any_character = Chars(everything().minterms.charset([0]))
    behind_a = Concat((literal_node("a", False), any_character, Repeat(any_character, 0, None)))
    further = Alternation((any_character, literal_node(".!", False)))
    grammar = Grammar(("s", "t"), (Concat((call(1), further)), behind_a))
    machine = build_machine(grammar, guard, inline_growth_max=0)
    tokens = Vocabulary((b"a", b"b", b".", b"a.", b"b.", None), (5,))
    states = Configurations(lift_to_tokens(machine, tokens, guard))
    assert states.distance_of(states.run([0, 3])) == states.distance_of(states.run([0, 0, 2])) == 1
    assert states.members(states.run([0, 3])) == states.members(states.run([0, 0, 2]))
