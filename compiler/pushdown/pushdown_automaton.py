"""The pushdown automaton over model tokens, with exact distances.

It is what a store keeps and decoding needs.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from compiler.lifting import UNREACHABLE
from compiler.limits import ResourceGuard
from compiler.pushdown.lift import lift_machine
from compiler.pushdown.machine import PushdownMachine
from compiler.pushdown.saturation import ExitDistances, saturate
from compiler.pushdown.tables import ACCEPTED_PENDING, PushdownTables
from compiler.vocab import Vocabulary

_NUMBERS = ("symbols", "pendings", "start", "eos_ids")  # fields of the tables that are no arrays


@dataclass(frozen=True, slots=True, eq=False)
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
    def vocabulary_size(self) -> int:
        return len(self.tables.token_class)

    @property
    def eos_ids(self) -> tuple[int, ...]:
        return self.tables.eos_ids

    @property
    def min_tokens(self) -> int:
        """d(start), the fewest tokens that satisfy the constraint. EOS is counted. A smaller budget is impossible."""
        found = (self.distances.state == self.tables.start) & (self.distances.pending == ACCEPTED_PENDING)
        return int(self.distances.within[found].min(initial=UNREACHABLE))

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

    >>> from compiler.limits import DEFAULT_LIMITS
    >>> from compiler.pushdown import Grammar, build_machine, call
    >>> from compiler.regex import Concat, Repeat, literal_node
    >>> guard = ResourceGuard(DEFAULT_LIMITS)
    >>> nested = Concat((literal_node("(", False), Repeat(call(0), 0, 1), literal_node(")", False)))
    >>> vocabulary = Vocabulary((b"(", b")", b"))", None), (3,))
    >>> lift_to_tokens(build_machine(Grammar(("s",), (nested,)), guard), vocabulary, guard).min_tokens  # "(", ")", EOS
    3
    """
    tables = lift_machine(machine, vocabulary, guard)
    return PushdownAutomaton(tables, saturate(tables, guard))
