"""JSON schemas to automata: the texts of the values that a schema allows.

The properties of an object are written in the schema's order, undeclared ones behind them; strings as
`json.dumps(text, ensure_ascii=False)` writes them; white space `compact` or `pretty` (two spaces a level). Nesting is
bounded where the schema does not spell it out. `format` is asserted.
"""

from __future__ import annotations

import json
from typing import Literal

from compiler.automata import CharDfa, char_complement, coarsened, everything
from compiler.errors import LimitExceeded
from compiler.json_schema.assembler import ObjectLayout
from compiler.json_schema.compiler import SchemaCompiler
from compiler.json_schema.fragments import dfa_of
from compiler.json_schema.property_order import PropertyScope, Spaces
from compiler.json_schema.reader import SchemaReader, supported_keywords
from compiler.json_schema.strings import Embed, StringAlphabet
from compiler.json_schema.texts import Position
from compiler.limits import ResourceGuard

__all__ = ["schema_dfa", "supported_keywords", "write_instance"]
Whitespace = Literal["compact", "pretty"]


def schema_dfa(document: object, whitespace: Whitespace, max_depth: int, embed: Embed, guard: ResourceGuard) -> CharDfa:
    """The minimal DFA of the JSON texts of a schema, given as parsed JSON.

    max_depth  how deep arrays and objects may be nested where the schema says nothing of them or refers to itself;
               levels that it spells out are not counted
    embed      compiles the value of the keyword `constraint`, standing in a field, over a string's characters
    Raises SpecSyntaxError, SpecUnsupported (with the keyword as construct) and LimitExceeded.
    """
    try:
        nodes = SchemaReader(document, guard).nodes
        spaces = Spaces(nodes, guard)
        alphabet = StringAlphabet(nodes, embed, guard)
        pretty = whitespace == "pretty"
        outside = Position(spaces.space(()), 0, 0, pretty)
        compiler = SchemaCompiler(nodes, alphabet, ObjectLayout(pretty), outside, guard)
        block, _ = compiler.text((0,), Position(spaces.space((0,)), max_depth, 0, pretty))
    except RecursionError:
        cap = guard.limits.nesting_depth_max
        raise LimitExceeded("nesting_depth_max", cap, cap + 1) from None
    if block is None:
        return char_complement(everything())
    return coarsened(CharDfa(dfa_of(block, guard), alphabet.minterms))


def write_instance(document: object, instance: object, whitespace: Whitespace, guard: ResourceGuard) -> str:
    """The text of a value as a schema's automaton reads it: properties in the schema's order, then the others.

    Raises what reading the schema raises.
    """
    spaces = Spaces(SchemaReader(document, guard).nodes, guard)
    ordered = _ordered(instance, spaces.space((0,)))
    if whitespace == "pretty":
        return json.dumps(ordered, ensure_ascii=False, indent=2)
    return json.dumps(ordered, ensure_ascii=False, separators=(",", ":"))


def _ordered(instance: object, space: PropertyScope) -> object:
    """The same value with the properties in the order of the space."""
    if isinstance(instance, list):
        return [_ordered(item, space.item(index)) for index, item in enumerate(instance)]
    if not isinstance(instance, dict):
        return instance
    names = [name for name in space.names if name in instance]
    declared = {name: _ordered(instance[name], space.property(name)) for name in names}
    others = [name for name in instance if name not in declared]
    return {**declared, **{name: _ordered(instance[name], space.property(None)) for name in others}}
