"""Context-free constraints: pushdown machines over bytes.

A grammar's rules become a network of automata that call each other, and the network a pushdown machine. No form of
constraint uses it yet.
"""

from __future__ import annotations

from compiler.pushdown.grammar import Grammar, call
from compiler.pushdown.machine import END, PushdownMachine, StackNodes
from compiler.pushdown.network import build_machine

__all__ = ["END", "Grammar", "PushdownMachine", "StackNodes", "build_machine", "call"]
