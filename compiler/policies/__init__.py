"""Rules in LTLf over the events of a conversation.

Rules are read into formulas over propositions of events, these into one automaton. A game on it tells how many calls
the model needs until a reply satisfies all rules.
"""

from __future__ import annotations

from compiler.policies.decision import PolicyDecision, PolicyTurn, check_rules, decide, read_policy, states_of
from compiler.policies.declare import read_decl
from compiler.policies.events import Event, EventKind
from compiler.policies.policy import PolicyAutomaton

__all__ = [
    "Event", "EventKind", "PolicyAutomaton", "PolicyDecision", "PolicyTurn", "check_rules", "decide", "read_decl",
    "read_policy", "states_of",
]  # fmt: skip
