"""Translates JSON schemas to automata over the texts of allowed values.

The properties of an object are written in the schema's order, undeclared ones behind them. Strings are spelled as
`json.dumps(text, ensure_ascii=False)` does, and white space is `compact` or `pretty` (two spaces a level). Nesting is
bounded where the schema does not spell it out. `format` is asserted.
"""

from __future__ import annotations

from typing import Literal

from compiler.automata import CharDfa, char_complement, coarsened, everything
from compiler.json_schema.compiler import SchemaCompiler
from compiler.json_schema.fragments import ObjectLayout, dfa_of
from compiler.json_schema.nodes import Position, PropertyScopes
from compiler.json_schema.reader import SchemaReader
from compiler.json_schema.strings import Embed, StringAlphabet
from compiler.limits import ResourceGuard

Whitespace = Literal["compact", "pretty"]


def schema_dfa(document: object, whitespace: Whitespace, max_depth: int, embed: Embed, guard: ResourceGuard) -> CharDfa:
    """The minimal DFA of the JSON texts that a schema allows. `document` is the schema as parsed JSON.

    max_depth  how deep arrays and objects may be nested where the schema says nothing of them or refers to itself;
               levels that it spells out are not counted
    embed      compiles the value of the keyword `constraint`, in the field that is its second argument, to an automaton
               over a string's characters
    Raises SpecSyntaxError, SpecUnsupported (with the keyword as construct) and LimitExceeded.

    >>> from compiler.limits import DEFAULT_LIMITS
    >>> no_embedding = lambda constraint, field: everything()
    >>> schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    >>> dfa = schema_dfa(schema, "compact", 2, no_embedding, ResourceGuard(DEFAULT_LIMITS))
    >>> dfa.accepts('{"a":1}'), dfa.accepts('{"a":1.5}'), dfa.accepts('{}')
    (True, False, False)
    """
    # Nodes may recurse through references far deeper than the document is nested.
    with guard.recursion():
        nodes = SchemaReader(document, guard).nodes
        scopes = PropertyScopes(nodes, guard)
        alphabet = StringAlphabet(nodes, embed, guard)
        pretty = whitespace == "pretty"
        # Contents of strings hold no arrays and objects: they are compiled at a position that allows none.
        no_nesting = Position(scopes.scope(()), 0, 0, pretty)
        compiler = SchemaCompiler(nodes, alphabet, ObjectLayout(pretty), no_nesting, guard)
        fragment, _ = compiler.text((0,), Position(scopes.scope((0,)), max_depth, 0, pretty))
    # The empty language has no fragment.
    if fragment is None:
        return char_complement(everything())
    # Minterms that the schema does not distinguish in the end are merged.
    return coarsened(CharDfa(dfa_of(fragment, guard), alphabet.minterms))
