"""Context-free constraints over tokens, with exact distances.

A grammar's rules become a network of automata that call each other, and the network a pushdown machine over bytes. The
machine is lifted to the tokens of a vocabulary, and saturation computes the fewest tokens through each part of a stack.
`Configurations` are the states that one generation meets; a `Recognizer` reads a text without a vocabulary. Machines
are united, complemented and multiplied with regular ones.
"""

from __future__ import annotations

from compiler.pushdown.budgets import counting_states
from compiler.pushdown.configurations import DEAD_STATE, MEMBERS_MAX, Configurations, Stacks
from compiler.pushdown.grammar import (
    END_SYMBOL,
    Grammar,
    call,
    calls_of,
    derives,
    derives_empty,
    named_token,
    replace_calls,
    symbol_of,
    text_of_one_token,
)
from compiler.pushdown.machine import (
    ACCEPTED,
    BOTTOM,
    END,
    NOWHERE,
    SPENT_BYTE,
    PushdownMachine,
    Recognizer,
    StackNodes,
    after_space,
    machine_from_arrays,
    with_leading_space,
)
from compiler.pushdown.network import (
    INLINE_GROWTH_MAX,
    SPENT,
    TEXT_END,
    RuleDfa,
    build_machine,
    network_machine,
    rule_dfa,
    words_rule,
)
from compiler.pushdown.preparation import prepared_rules, productive_rules
from compiler.pushdown.products import complement, intersect, regular_machine, unite
from compiler.pushdown.pushdown_automaton import PushdownAutomaton, from_arrays, lift_to_tokens
from compiler.pushdown.rule_sharing import distinct_rules, equal_rules
from compiler.pushdown.saturation import ExitDistances, saturate
from compiler.pushdown.stack_vectors import ExitCosts
from compiler.pushdown.tables import ACCEPTED_PENDING, PushdownTables

__all__ = [
    "ACCEPTED", "ACCEPTED_PENDING", "BOTTOM", "DEAD_STATE", "END", "END_SYMBOL", "INLINE_GROWTH_MAX", "MEMBERS_MAX",
    "NOWHERE", "SPENT", "SPENT_BYTE", "TEXT_END", "Configurations", "ExitCosts", "ExitDistances", "Grammar",
    "PushdownAutomaton", "PushdownMachine", "PushdownTables", "Recognizer", "RuleDfa", "StackNodes", "Stacks",
    "after_space", "build_machine", "call", "calls_of", "complement", "counting_states", "derives", "derives_empty",
    "distinct_rules", "equal_rules", "from_arrays", "intersect", "lift_to_tokens", "machine_from_arrays",
    "named_token", "network_machine", "prepared_rules", "productive_rules", "regular_machine", "replace_calls",
    "rule_dfa", "saturate", "symbol_of", "text_of_one_token", "unite", "with_leading_space", "words_rule",
]  # fmt: skip
