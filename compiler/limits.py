"""The budgets of one compilation, and the guard that enforces them. Knows no stage by name."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any

from compiler.errors import CompileCancelled, LimitExceeded


def _cap(default: float, description: str) -> Any:
    """A field of Limits; docs/settings.md shows its description."""
    return field(default=default, metadata={"description": description})


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of one compilation."""

    formula_chars_max: int = _cap(4_096, "length of a formula")
    pattern_chars_max: int = _cap(32_768, "length of a pattern")
    keyword_chars_max: int = _cap(16_384, "length of all keywords and all words of propositions together")
    choice_chars_max: int = _cap(
        2_000_000, "length of all choices together, or of the strings and numbers that `enum` lists in a schema"
    )
    template_chars_max: int = _cap(65_536, "length of a template, or of the texts of a sequence")
    schema_chars_max: int = _cap(262_144, "length of a schema, without the strings and numbers that `enum` lists")
    grammar_chars_max: int = _cap(65_536, "length of a grammar")
    integer_digits_max: int = _cap(19, "digits of an integer that an answer to a schema may hold")
    formulas_chars_max: int = _cap(
        65_536, "length of all formulas and all patterns of propositions, which are read to hash a constraint"
    )
    unordered_properties_max: int = _cap(
        9, "declared properties of an object with `property_order` any: each set of them has states"
    )
    parts_max: int = _cap(256, "constraints in one combination")
    sequence_parts_max: int = _cap(50_000, "parts of all sequences together")
    nesting_depth_max: int = _cap(64, "depth of nested brackets, operators, schemas and references")
    propositions_max: int = _cap(32, "propositions of a formula")
    letters_max: int = _cap(1_024, "sets of propositions that can hold together, and labels")
    bdd_nodes_max: int = _cap(500_000, "BDD nodes of a formula's translation")
    nfa_positions_max: int = _cap(10_000, "positions of a pattern's Glushkov automaton")
    dfa_states_max: int = _cap(120_000, "states of any automaton")
    check_steps_max: int = _cap(
        10_000_000, "steps in which the parser of a grammar reads one text; an ambiguous text takes many for each byte"
    )
    exit_distances_max: int = _cap(
        500_000,
        "distances between two places of one rule, of a pushdown automaton, beyond one for each state; products with "
        "counts have many",
    )
    budget_expansions_max: int = _cap(
        500, "states that each search for the least budget expands, where a constraint is too large for one automaton"
    )
    table_bytes_max: int = _cap(128 * 2**20, "size of each table of an automaton")
    # 500 tools take 17 s on an idle core; a request waits for 60 s by default.
    compile_s_max: float = _cap(40.0, "wall time of a compilation")
    compile_memory_bytes_max: int = _cap(
        2**30, "memory of a compilation beyond the loaded vocabulary; the compile process enforces it"
    )


DEFAULT_LIMITS = Limits()
LISTED_ITEMS = "unique_items_states"  # names the bound of arrays whose items come in the order of a list
SIZE_LIMITS = ("dfa_states_max", "table_bytes_max", "exit_distances_max")  # which another construction may keep to


class ResourceGuard:
    """Enforces the limits of one compilation. Each stage reports its sizes, and the first size over its cap stops the
    compilation.

    >>> guard = ResourceGuard(Limits(dfa_states_max=100))
    >>> guard.check("dfa_states_max", 101)
    Traceback (most recent call last):
        ...
    compiler.errors.LimitExceeded: the constraint needs more than the limit dfa_states_max = 100
    """

    def __init__(self, limits: Limits, cancelled: Callable[[], bool] | None = None) -> None:
        self.limits = limits
        self._cancelled = cancelled
        # Wall time, since a caller waits for it; monotonic, since clocks may be set.
        self._started = time.monotonic()

    def with_limits(self, **limits: Any) -> ResourceGuard:
        """A guard with other limits and the same clock."""
        guard = copy(self)
        guard.limits = replace(self.limits, **limits)
        return guard

    def check(self, limit: str, value: int) -> None:
        """Raise LimitExceeded when `value` exceeds the limit named `limit`."""
        # By name, so that the error names the setting.
        cap = getattr(self.limits, limit)
        # A cap is the largest value allowed.
        if value > cap:
            raise LimitExceeded(limit, cap, value)

    def check_table(self, states: int, columns: int, entry_bytes: int = 4) -> None:
        """Check an automaton's number of states and its table's size."""
        self.check("dfa_states_max", states)
        self.check("table_bytes_max", states * columns * entry_bytes)

    @contextmanager
    def recursion(self) -> Iterator[None]:
        """Turn a recursion that is too deep into LimitExceeded over `nesting_depth_max`."""
        try:
            yield
        except RecursionError:
            cap = self.limits.nesting_depth_max
            raise LimitExceeded("nesting_depth_max", cap, cap + 1) from None

    def check_time(self) -> None:
        """Raise LimitExceeded past `compile_s_max` (wall seconds), CompileCancelled after a cancellation."""
        # Cancellation first: a cancelled compilation is not reported as one that was too slow.
        if self._cancelled is not None and self._cancelled():
            raise CompileCancelled("the compilation was cancelled")
        elapsed = time.monotonic() - self._started
        if elapsed > self.limits.compile_s_max:
            raise LimitExceeded("compile_s_max", self.limits.compile_s_max, elapsed)
