"""The pushdown automaton over model tokens, with exact distances.

It is what a store keeps and decoding needs.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compiler.lifting import UNREACHABLE
from compiler.limits import ResourceGuard
from compiler.pushdown.budgets import with_budgets
from compiler.pushdown.lift import lift_machine
from compiler.pushdown.machine import PushdownMachine
from compiler.pushdown.saturation import ExitDistances, saturate
from compiler.pushdown.stack_vectors import ExitCosts
from compiler.pushdown.tables import ACCEPTED_PENDING, PushdownTables
from compiler.vocab import Vocabulary

_NUMBERS = ("symbols", "pendings", "start", "eos_ids")  # fields of the tables that are no arrays


@dataclass(frozen=True, eq=False)
class PushdownAutomaton:
    """A pushdown automaton over tokens, with its distances. Raises ValueError where the two do not fit.

    Its states are configurations, without end; `Configurations` numbers those that a generation meets.
    """

    tables: PushdownTables
    distances: ExitDistances

    def __post_init__(self) -> None:
        self.distances.check(self.tables)

    @property
    def token_class(self) -> np.ndarray:
        """The class of each id: int32 [V]."""
        return self.tables.token_class

    @property
    def states(self) -> int:
        """How many control states there are."""
        return self.tables.states

    @property
    def classes(self) -> int:
        return self.tables.classes

    @property
    def table_bytes(self) -> int:
        """Bytes of everything but the map from ids to classes. The arrays that `Configurations` look up count."""
        tables = self.tables
        stored = sum(int(array.nbytes) for name, array in self.arrays().items() if name != "token_class")
        lookups = 8 * len(tables.landing_below) + 4 * tables.symbols * tables.pendings
        return stored + lookups + self.exit_costs.nbytes

    @property
    def vocabulary_size(self) -> int:
        return len(self.tables.token_class)

    @property
    def eos_ids(self) -> tuple[int, ...]:
        return self.tables.eos_ids

    @property
    def min_tokens(self) -> int:
        """d(start), the fewest tokens that satisfy the constraint. EOS is counted. A smaller budget is impossible."""
        found = (self.distances.landing == self.tables.start) & (self.distances.pending == ACCEPTED_PENDING)
        return int(self.distances.within[found].min(initial=UNREACHABLE))

    @cached_property
    def exit_costs(self) -> ExitCosts:
        """The distances, arranged for `Configurations`."""
        return ExitCosts(self.tables, self.distances)

    @cached_property
    def exits(self) -> int:
        """How many distances are finite, from control states and from pendings."""
        return int(self.exit_costs.landings.first[self.states]) + self.exit_costs.entries

    @cached_property
    def entry_at(self) -> NDArray[np.int32]:
        """The arrivals of pendings behind symbols, by symbol * X + pending.

        -1 where the pending is dead.
        """
        tables = self.tables
        found = np.full(tables.symbols * tables.pendings, -1, dtype=np.int32)
        found[tables.entry_symbol.astype(np.int64) * tables.pendings + tables.entry_pending] = tables.entry_arrival
        return found

    @cached_property
    def landing_height(self) -> NDArray[np.int64]:
        """How many symbols each landing pushes."""
        below, height = self.tables.landing_below, np.zeros(len(self.tables.landing_below), dtype=np.int64)
        for landing in range(self.tables.states, len(below)):  # each stands behind the one without its deepest symbol
            height[landing] = height[below[landing]] + 1
        return height

    def token_costs(self, nats: NDArray[np.float64]) -> ExitCosts:
        """The costs to acceptance from costs of ids.

        nats  float64 [V]  above 0
        """
        tables, least = self.tables, np.full(self.classes, np.inf)
        np.minimum.at(least, tables.token_class, nats)
        return ExitCosts(tables, saturate(tables, None, least))

    def with_own_classes(self, ids: NDArray[np.int64]) -> PushdownAutomaton:
        """The same automaton with a class for each of these ids. `ids` is int64 [n]."""
        tables = self.tables
        token_class = tables.token_class.copy()
        token_class[ids] = np.arange(self.classes, self.classes + len(ids))
        # Every edge of the class of such an id is an edge of its own class, too.
        number, edge = np.nonzero(tables.token_class[ids][:, None] == tables.edge_class)
        row = np.append(tables.row_of_edge, tables.row_of_edge[edge])
        edge_class = np.append(tables.edge_class, self.classes + number).astype(np.int32)
        order = np.lexsort((edge_class, row))
        split = replace(
            tables, token_class=token_class, edge_class=edge_class[order],
            edge_slot=np.append(tables.edge_slot, tables.edge_slot[edge])[order],
            row_first=np.searchsorted(row[order], np.arange(len(tables.row_first))),
        )  # fmt: skip
        return PushdownAutomaton(split, self.distances)

    def arrays(self) -> dict[str, np.ndarray]:
        """All arrays, by the names of their fields. A store keeps them beside `numbers`."""
        parts = self.tables, self.distances
        names = [(part, field.name) for part in parts for field in fields(part) if field.name not in _NUMBERS]
        return {name: np.ascontiguousarray(getattr(part, name)) for part, name in names}

    def numbers(self) -> dict[str, Any]:
        """The other fields, as JSON holds them."""
        return {name: getattr(self.tables, name) for name in _NUMBERS}


def from_arrays(arrays: dict[str, np.ndarray], numbers: dict[str, Any]) -> PushdownAutomaton:
    """The automaton that gave these arrays and numbers. Raises ValueError, KeyError or TypeError if none did."""
    values = {**arrays, **numbers, "eos_ids": tuple(numbers["eos_ids"])}
    tables = PushdownTables(**{field.name: values.pop(field.name) for field in fields(PushdownTables)})
    return PushdownAutomaton(tables, ExitDistances(**values))


def lift_to_tokens(machine: PushdownMachine, vocabulary: Vocabulary, guard: ResourceGuard) -> PushdownAutomaton:
    """The automaton of a machine over a vocabulary, with its distances. Raises LimitExceeded as its parts do.

    Tokens that the machine names stand for these names alone, and its budgets count tokens. Over the bytes that texts
    are checked with, both are left to the bytes that stand in no text.

    >>> from compiler.limits import DEFAULT_LIMITS
    >>> from compiler.pushdown import Grammar, build_machine, call
    >>> from compiler.regex import Concat, Repeat, literal_node
    >>> guard = ResourceGuard(DEFAULT_LIMITS)
    >>> nested = Concat((literal_node("(", False), Repeat(call(0), 0, 1), literal_node(")", False)))
    >>> vocabulary = Vocabulary((b"(", b")", b"))", None), (3,))
    >>> lift_to_tokens(build_machine(Grammar(("s",), (nested,)), guard), vocabulary, guard).min_tokens  # "(", ")", EOS
    3
    """
    if vocabulary.checks_texts or not machine.silent_bytes:
        tables = lift_machine(machine, vocabulary, guard)
    else:
        tables = with_budgets(lift_machine(machine, vocabulary.marked(machine.marks), guard), machine, guard)
    return PushdownAutomaton(tables, saturate(tables, guard))
