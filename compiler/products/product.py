"""The product of token automata, as a store keeps it.

It is not multiplied out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from compiler.automata import unique_rows
from compiler.lifting import UNREACHABLE, TokenAutomaton
from compiler.limits import ResourceGuard
from compiler.products.formula import Formula, has_alternatives, parts_of
from compiler.products.space import Part, PartStart, ProductCosts, ProductSpace
from compiler.products.witnesses import Check, LeastBudget, least_budget
from compiler.pushdown import MEMBERS_MAX, PushdownAutomaton


class ProductStart(NamedTuple):
    """A state of a product apart from any generation, with its distance.

    parts     the parts' states
    at_least  no fewer tokens lead to acceptance, EOS included; UNREACHABLE: none do
    witness   ids that lead there; None where none were found
    """

    parts: tuple[PartStart, ...]
    at_least: int
    witness: tuple[int, ...] | None

    @property
    def min_tokens(self) -> int | None:
        """A budget that is known to be enough. None where none is known."""
        return None if self.witness is None else len(self.witness)


@dataclass(frozen=True, eq=False)
class LazyProduct:
    """Automata over one vocabulary, of which a formula must hold. Raises ValueError where they do not fit.

    Its states are tuples of the parts' states; `ProductStates` numbers those that a generation meets.
    """

    parts: tuple[Part, ...]
    formula: Formula
    start: ProductStart

    def __post_init__(self) -> None:
        count = len(self.parts)
        if sorted(set(parts_of(self.formula))) != list(range(count)) or len(self.start.parts) != count:
            raise ValueError("the formula names each part, and each has a start")
        if len({(part.vocabulary_size, part.eos_ids) for part in self.parts}) > 1:
            raise ValueError("all parts have one vocabulary")
        for part, state in zip(self.parts, self.start.parts, strict=True):
            explicit = isinstance(part, TokenAutomaton)
            if explicit is not isinstance(state, int) or (isinstance(state, int) and not 0 <= state < part.states):
                raise ValueError("a start is no state of its part")
        if any(not 0 <= token < self.vocabulary_size for token in self.start.witness or ()):
            raise ValueError("a witness has ids of the vocabulary")
        if self.start.witness is not None and not 0 <= self.start.at_least <= len(self.start.witness):
            raise ValueError("no witness is shorter than the least budget may be")

    @cached_property
    def _classes(self) -> tuple[np.ndarray, np.ndarray]:
        """The first id of each class, and the class of each id.

        They are int64 [C] and int32 [V]. Classes are numbered by their first ids: an order of classes is one of ids,
        however fine the classes are.
        """
        first, which = unique_rows(np.column_stack([part.token_class for part in self.parts]))
        return first, which.astype(np.int32)

    @property
    def token_class(self) -> np.ndarray:
        """The class of each id: int32 [V]. Ids of one class act alike in all parts."""
        return self._classes[1]

    @cached_property
    def part_class(self) -> np.ndarray:
        """The class that a class is in each part: int32 [n, C]."""
        return np.stack([part.token_class[self._classes[0]] for part in self.parts])

    @property
    def has_alternatives(self) -> bool:
        """Whether some part need not hold."""
        return has_alternatives(self.formula)

    @property
    def classes(self) -> int:
        return int(self.part_class.shape[1])

    @property
    def states(self) -> int:
        """How many states the parts have, one beside the other."""
        return sum(part.states for part in self.parts)

    @property
    def vocabulary_size(self) -> int:
        return self.parts[0].vocabulary_size

    @property
    def eos_ids(self) -> tuple[int, ...]:
        return self.parts[0].eos_ids

    @property
    def table_bytes(self) -> int:
        """Bytes of everything but the map from ids to classes."""
        maps = sum(int(part.token_class.nbytes) for part in self.parts)
        return maps + sum(part.table_bytes for part in self.parts) + 4 * len(self.parts) * self.classes

    @property
    def min_tokens(self) -> int:
        """A budget that is known to be enough. UNREACHABLE where there is none, or none is known."""
        return self.start.min_tokens or UNREACHABLE

    @property
    def min_tokens_at_least(self) -> int:
        """No smaller budget is enough."""
        return self.start.at_least

    def with_own_classes(self, ids: np.ndarray) -> LazyProduct:
        """The same product with a class for each of these ids. `ids` is int64 [n]; each begins a character."""
        return replace(self, parts=tuple(part.with_own_classes(ids) for part in self.parts))

    def space(
        self, starts: Sequence[PartStart], members_max: int = MEMBERS_MAX, costs: ProductCosts | None = None
    ) -> ProductSpace:
        """The states, from these of the parts on."""
        eos_class = int(self.token_class[self.eos_ids[0]])
        return ProductSpace(
            self.parts, self.formula, self.part_class, starts, eos_class=eos_class, members_max=members_max, costs=costs
        )  # fmt: skip

    def started_at(self, starts: Sequence[PartStart], expansions_max: int, check: Check) -> ProductStart:
        """These starts with an interval of the least budget. Each of two searches expands at most that many states."""
        space = self.space(starts)
        found: LeastBudget = least_budget(space, space.start, expansions_max, check)
        ids = None
        if found.witness is not None:
            ids = tuple(self._classes[0][list(found.witness)].tolist())
        return ProductStart(tuple(starts), found.at_least, ids)


def lazy_product(
    parts: Sequence[Part], formula: Formula, guard: ResourceGuard,
    starts: Sequence[PartStart] | None = None,
) -> LazyProduct:
    """The product of some automata, with the interval of its least budget.

    Each of two searches for the interval expands at most `budget_expansions_max` states.

    starts  the parts' starts, where they are not their own
    """
    if starts is None:
        starts = [((part.tables.start, ()),) if isinstance(part, PushdownAutomaton) else part.start for part in parts]
    product = LazyProduct(tuple(parts), formula, ProductStart(tuple(starts), 0, None))
    start = product.started_at(starts, guard.limits.budget_expansions_max, guard.check_time)
    return replace(product, start=start)
