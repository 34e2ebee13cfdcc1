"""JSON Schema to rules that call each other, for a pushdown machine.

The texts of arrays and objects hold letters in place of the values inside. A letter stands for the texts of a rule, so
nesting needs no bound, and what is used in many places is there once. Letters take part in products: where two objects
are combined, so are the rules under each key. What they cannot express is left to automata without rules.
"""

from __future__ import annotations

from compiler.json_schema.rules.compiler import RuleCompiler
from compiler.json_schema.rules.item_letters import LetterCompiler, LetteredTexts
from compiler.json_schema.rules.letters import OutsideRules
from compiler.json_schema.rules.network import SchemaRules, schema_rules

__all__ = ["LetterCompiler", "LetteredTexts", "OutsideRules", "RuleCompiler", "SchemaRules", "schema_rules"]
