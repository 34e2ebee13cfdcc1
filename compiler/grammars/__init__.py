"""Texts of grammars to context-free grammars.

A syntax that other systems take has a module of its own here, which owns its meaning and its errors. What a grammar
becomes is `compiler.pushdown`'s. No form of constraint uses it yet.
"""

from __future__ import annotations

from compiler.grammars.gbnf import read_gbnf

__all__ = ["read_gbnf"]
