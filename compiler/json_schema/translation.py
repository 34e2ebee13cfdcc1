"""Translates a schema document to the automaton of its texts.

The bounds of what is written may leave texts out. Where nothing is written, the schema is compiled again, first with
the numbers that stand for all others (`witnesses`), then with a mark in place of every array and object that
`max_depth` forbids. What is subtracted never takes marks away, so they stand for at least the values that are nested
deeper. If nothing is written even then, there is no instance.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from decimal import Decimal
from functools import partial

from compiler.automata import CharDfa, Dfa, char_complement, coarsened, everything
from compiler.errors import LimitExceeded, SpecUnsupported
from compiler.json_schema.arrays import UNIQUE_STATES_MAX
from compiler.json_schema.compiler import SchemaCompiler
from compiler.json_schema.fragments import ESCAPES, ObjectLayout, Whitespace, dfa_of
from compiler.json_schema.nodes import NumberFacts, Position, PropertyScopes, Schema
from compiler.json_schema.numbers import DIGITS_MAX
from compiler.json_schema.reader import SchemaReader
from compiler.json_schema.strings import Embed, StringAlphabet
from compiler.json_schema.value_sets import ScalarCompiler, number_texts
from compiler.json_schema.witnesses import exceeded_bound, witnesses
from compiler.limits import ResourceGuard

_Compile = Callable[[Sequence[Decimal], bool], Dfa | None]  # the texts with more numbers, and with marks


def schema_dfa(
    document: object,
    whitespace: Whitespace,
    max_depth: int,
    embed: Embed,
    *,
    guard: ResourceGuard,
    schemas: Mapping[str, object] | None = None,
    strict: bool = False, shortens: bool = True, any_order: bool = False,
    left_out: list[LimitExceeded] | None = None,
    approximate: Collection[str] = (),
    approximated: list[tuple[str, ...]] | None = None,
) -> CharDfa:
    """The minimal DFA of the JSON texts that a schema allows. `document` is the schema as parsed JSON.

    max_depth  how deep arrays and objects may be nested where the schema says nothing of them or refers to itself;
               levels that it spells out are not counted
    embed      compiles the value of the keyword `constraint`, in the field that is its second argument, to an automaton
               over a string's characters
    schemas    the documents that references may lead to, by URI
    strict     whether unknown keywords and formats are refused
    shortens   whether values may be shorter than the schema allows, to keep the automaton small
    any_order  whether declared properties come in any order, instead of that of the schema
    left_out   receives the bounds of ours that leave values out. Where nothing is written, they are the reason;
               without one, the schema has no instance
    approximate  keywords that may be without effect where they would be refused; `approximated` receives their paths
    Raises SpecSyntaxError, SpecUnsupported (with the keyword as construct) and LimitExceeded.

    >>> from compiler.limits import DEFAULT_LIMITS
    >>> no_embedding = lambda constraint, field: everything()
    >>> schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    >>> dfa = schema_dfa(schema, "compact", 2, no_embedding, guard=ResourceGuard(DEFAULT_LIMITS))
    >>> dfa.accepts('{"a":1}'), dfa.accepts('{"a":1.5}'), dfa.accepts('{}')
    (True, False, False)
    """
    # Nodes may recurse through references far deeper than the document is nested.
    with guard.recursion():
        nodes = SchemaReader(document, guard, schemas=schemas, strict=strict).nodes
        alphabet = StringAlphabet(nodes, embed, guard, shortens=shortens)
        scalars = ScalarCompiler(nodes, alphabet, guard, shortens=shortens)
        layout = ObjectLayout(whitespace, any_order)
        texts = partial(_texts, nodes, alphabet, layout, max_depth, guard=guard, omitted=approximate)
        dfa, compiler = texts(scalars=scalars)
        if dfa is None and scalars.shortens:
            # Values that are too long on one side may be all that fits the other.
            scalars = ScalarCompiler(nodes, alphabet, guard, shortens=False)
            dfa, compiler = texts(scalars=scalars)
        if approximated is not None:
            approximated += compiler.approximated

        def again(extra: Sequence[Decimal], marks: bool) -> Dfa | None:
            return texts(scalars=ScalarCompiler(nodes, alphabet, guard, extra, shortens=False), marks=marks)[0]

        if left_out is not None:
            bounds = _bounds(compiler, dfa, again, max_depth)
            left_out += [_bound_exceeded(*bound) for bound in bounds]
    if dfa is None:
        return char_complement(everything())
    # Minterms that the schema does not distinguish in the end are merged.
    return coarsened(CharDfa(dfa, alphabet.minterms))


def _texts(
    nodes: Sequence[Schema],
    alphabet: StringAlphabet,
    layout: ObjectLayout,
    max_depth: int,
    *,
    scalars: ScalarCompiler,
    guard: ResourceGuard,
    marks: bool = False,
    omitted: Collection[str] = (),
) -> tuple[Dfa | None, SchemaCompiler]:
    """The minimal DFA of node 0's texts, None without any. The compiler knows what it left out."""
    scopes = PropertyScopes(nodes, guard)
    # Contents of strings hold no arrays and objects: they are compiled at a position that allows none.
    position = partial(Position, bound=("max_depth", max_depth), level=0, indented=layout.whitespace == "pretty")
    no_nesting = position(scopes.scope(()), 0)
    compiler = SchemaCompiler(
        nodes, alphabet, layout, no_nesting, scalars=scalars, guard=guard, marks=marks, approximate=omitted
    )
    text = compiler.text((0,), position(scopes.scope((0,)), max_depth))[0]
    dfa = None if text is None else dfa_of(text, guard)
    return None if dfa is None or not dfa.accepting.any() else dfa, compiler


def _bounds(
    compiler: SchemaCompiler, dfa: Dfa | None, compile_again: _Compile, max_depth: int
) -> list[tuple[str, int]]:
    """The bounds that may leave values out. Without a DFA, it is those that may leave out all."""
    bounds = [*compiler.cuts, *compiler.scalars.bounds()]
    bounds += [("control_characters", 0)] if compiler.alphabet.escapes != ESCAPES else []
    if dfa is None:
        # Values that the schema says nothing of are never all in the way: short ones are as good as deep ones.
        depth = max_depth if ("max_depth", max_depth) in compiler.cuts else None
        bounds = _bound_in_the_way(compiler.nodes, compile_again, depth, compiler.guard)
    return bounds + ([("unique_items_states", UNIQUE_STATES_MAX)] if compiler.unique_cut else [])


def _bound_exceeded(limit: str, cap: int) -> LimitExceeded:
    """The error that names a bound of what is written."""
    message = f"no text satisfies the constraint within {limit} = {cap}; beyond it there may be one"
    return LimitExceeded(limit, cap, cap + 1, message)


def _bound_in_the_way(
    nodes: Sequence[Schema], compile_again: _Compile, max_depth: int | None, guard: ResourceGuard
) -> list[tuple[str, int]]:
    """The bound that may leave out all values of a schema.

    The list is empty where the schema has no instance; otherwise it has one bound.

    max_depth  None where no value was left out because of it
    """
    spelling, listed = number_texts(nodes, guard)
    facts = [node.numbers for node in nodes if node.numbers is not None]
    facts += [NumberFacts(integer=True) for node in nodes if node.types is not None and "integer" in node.types]
    values = witnesses(facts, listed)
    if values is None:
        return [("number_digits", DIGITS_MAX)]
    beyond = {value: bound for value in values if (bound := exceeded_bound(value, spelling)) is not None}
    extra: list[Decimal] = []
    for bound in dict.fromkeys(beyond.values()):
        extra += [value for value, exceeded in beyond.items() if exceeded == bound]
        if compile_again(extra, False) is not None:
            return [bound]
    if max_depth is not None and _may_have_deeper_values(nodes, extra, compile_again):
        return [("max_depth", max_depth)]
    return []


def _may_have_deeper_values(nodes: Sequence[Schema], extra: Sequence[Decimal], compile_again: _Compile) -> bool:
    # A mark may count as an item that it is not.
    if any(contains.maximum is not None for node in nodes if node.arrays for contains in node.arrays.contains):
        return True
    try:
        return compile_again(extra, True) is not None
    except SpecUnsupported:  # marks may meet what the schema's own values do not
        return True
