"""Products of automata over tokens that are not multiplied out.

A state is a tuple of the parts' states, found when it is reached. The parts' distances bound its distance from below. A
witness, a sequence of tokens that leads to acceptance, bounds it from above; every state that a generation may enter
carries one. `LazyProduct` is what a store keeps, `ProductStates` are the states that one generation meets. One kind of
part, a `DistinctAutomaton`, is itself a product of small automata over one table.
"""

from __future__ import annotations

from compiler.products.distinct import DistinctAutomaton, DistinctPart, distinct_letters, first_states
from compiler.products.distinct_tables import distinct_automaton
from compiler.products.formula import Branch, Formula, fold, from_json, parts_of, to_json
from compiler.products.product import LazyProduct, ProductStart, lazy_product
from compiler.products.product_states import EXPANSIONS_MAX, UNKNOWN, ProductStates
from compiler.products.space import Part, PartStart, ProductCosts

__all__ = [
    "EXPANSIONS_MAX", "UNKNOWN", "Branch", "DistinctAutomaton", "DistinctPart", "Formula", "LazyProduct", "Part",
    "PartStart", "ProductCosts", "ProductStart", "ProductStates", "distinct_automaton", "distinct_letters",
    "first_states", "fold", "from_json", "lazy_product", "parts_of", "to_json",
]  # fmt: skip
