"""JSON Schema, drafts 4 to 2020-12, to an automaton over characters.

A schema document is read into nodes, with its references resolved. Each node becomes a value set, one automaton per
JSON type, and value sets are combined by Boolean operations. An assembler links the automata of objects, arrays,
strings and numbers into one over the text. It depends on automata and patterns alone.
"""

from __future__ import annotations

from compiler.json_schema.decimals import read_decimal
from compiler.json_schema.dialects import report
from compiler.json_schema.formats import FORMATS
from compiler.json_schema.numbers import NumberSpelling
from compiler.json_schema.reader import SchemaReader
from compiler.json_schema.references import public_pointer
from compiler.json_schema.rules import LetteredTexts, SchemaRules
from compiler.json_schema.translation import schema_dfa, schema_texts
from compiler.json_schema.validation import SchemaViolation, schema_violation

__all__ = [
    "FORMATS", "LetteredTexts", "NumberSpelling", "SchemaReader", "SchemaRules", "SchemaViolation", "public_pointer",
    "read_decimal", "report", "schema_dfa", "schema_texts", "schema_violation",
]  # fmt: skip
