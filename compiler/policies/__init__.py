"""Policies: rules in LTLf over the events of a conversation, and which event may come next.

Rules are read into formulas over propositions of events, these into one automaton. A game on it tells how many calls
the model needs until a reply satisfies all rules.
"""

from __future__ import annotations

from compiler.policies.declare import TEMPLATES, read_decl
from compiler.policies.events import Event, EventCondition, EventKind, EventProposition, read_proposition
from compiler.policies.letters import Writable, writable_within
from compiler.policies.policy import BrokenRule, NextEvents, Policy, compile_policy
from compiler.policies.rules import Rule, read_rules

__all__ = [
    "TEMPLATES",
    "BrokenRule",
    "Event",
    "EventCondition",
    "EventKind",
    "EventProposition",
    "NextEvents",
    "Policy",
    "Rule",
    "Writable",
    "compile_policy",
    "read_decl",
    "read_proposition",
    "read_rules",
    "writable_within",
]  # fmt: skip
