"""Texts of grammars to context-free grammars.

A syntax that other systems take has a module of its own here, which owns its meaning and its errors. What a grammar
becomes is `compiler.pushdown`'s.
"""

from __future__ import annotations

from compiler.grammars.ebnf import read_ebnf
from compiler.grammars.gbnf import read_gbnf
from compiler.grammars.rules import GrammarWarning, ParsedGrammar
from compiler.grammars.syntaxes import SYNTAXES, likely_syntax, read_grammar

__all__ = ["SYNTAXES", "GrammarWarning", "ParsedGrammar", "likely_syntax", "read_ebnf", "read_gbnf", "read_grammar"]
