"""Translates a schema document to the automaton of its texts.

The bounds of what is written may leave texts out. Where nothing is written, the schema is compiled again, first with
the numbers that stand for all others (`witnesses`), then with a mark in place of every array and object that
`max_depth` forbids. What is subtracted never takes marks away, so they stand for at least the values that are nested
deeper. If nothing is written even then, there is no instance.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import partial, reduce
from typing import NamedTuple

from compiler.automata import CharDfa, Dfa, char_complement, coarsened, everything
from compiler.errors import LimitExceeded, SpecUnsupported
from compiler.json_schema.arrays import UNIQUE_STATES_MAX
from compiler.json_schema.clauses import merge_equal_nodes
from compiler.json_schema.closing import closed_nodes
from compiler.json_schema.compiler import SchemaCompiler
from compiler.json_schema.fragments import ESCAPES, Fragment, ObjectLayout, Whitespace, combine
from compiler.json_schema.nodes import ObjectFacts, Position, PropertyScopes, Schema
from compiler.json_schema.reader import SchemaReader
from compiler.json_schema.rules import (
    LetterCompiler,
    LetteredTexts,
    OutsideRules,
    RuleCompiler,
    SchemaRules,
    schema_rules,
)
from compiler.json_schema.strings import Embed, FiniteLanguage, StringAlphabet
from compiler.json_schema.value_sets import ScalarCompiler
from compiler.json_schema.witnesses import Compile, bound_in_the_way
from compiler.limits import LISTED_ITEMS, SIZE_LIMITS, ResourceGuard

EXPLICIT_DEPTH = 3  # of nesting without bound, where an automaton has to spell it out
EXPLICIT_STATES_MAX = 5_000  # of a schema that bounds the nesting, up to where an automaton serves better than rules
LETTERED_STATES_MAX = 100_000  # of the same where letters name items, so that their sets are no states
FINITE_KEYS_MAX = 100  # of `propertyNames` or of a pattern, which are written as names of properties
PRETTY_DEPTH = 8  # of rules that indent
_UNIQUE_BOUND = (LISTED_ITEMS, UNIQUE_STATES_MAX)
_NOTHING = char_complement(everything())
_REMEDIES = {  # for each bound, what a caller may change
    "array_items": "arrays with maxItems are shorter than it says; ask for fewer items, or leave maxItems out",
    "string_chars": "strings with maxLength are shorter than it says; ask for shorter ones, or leave maxLength out",
    "open_digits": "numbers of which the schema says nothing are short; give this one a type",
    "integer_digits_max": "longer integers are not written; ask for smaller ones, or raise ABS_INTEGER_DIGITS_MAX",
    "number_digits": "numbers with more digits are not written; ask for fewer",
    "number_exponent": "numbers are not closer to 0 than this exponent says; ask for larger ones, or for 0",
    "max_depth": "deeper values are not written; raise max_depth, or leave it out",
    "undeclared_depth": "deeper values of undeclared properties are not written; declare the property",
    "control_characters": "only those with an escape of one letter are written; name others in the schema",
    LISTED_ITEMS: "items of uniqueItems come in the order of their list; lower maxItems, or list fewer values",
}


def schema_dfa(
    document: object,
    whitespace: Whitespace,
    max_depth: int | None,
    embed: Embed,
    *,
    guard: ResourceGuard,
    schemas: Mapping[str, object] | None = None,
    strict: bool = False, shortens: bool = True, any_order: bool = False, closed_objects: bool = False,
    left_out: list[LimitExceeded] | None = None,
    approximate: Collection[str] = (),
    approximated: list[tuple[str, ...]] | None = None,
) -> CharDfa:
    """The minimal DFA of the JSON texts that a schema allows. `document` is the schema as parsed JSON.

    max_depth  how deep arrays and objects may be nested where the schema says nothing of them or refers to itself;
               levels that it spells out are not counted. None for a depth of ours
    embed      compiles the value of the keyword `constraint`, in the field that is its second argument, to an automaton
               over a string's characters
    schemas    the documents that references may lead to, by URI
    strict     whether unknown keywords and formats are refused
    shortens   whether values may be shorter than the schema allows, to keep the automaton small
    any_order  whether declared properties come in any order, instead of that of the schema
    closed_objects  whether objects that declare properties are written without others, where values may be shorter;
               `approximated` receives the objects that stay open
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
        read = partial(
            _Schema, document, ObjectLayout(whitespace, any_order), embed, guard, schemas=schemas, strict=strict,
            approximate=approximate, shortens=shortens,
        )
        depth = EXPLICIT_DEPTH if max_depth is None else max_depth
        made = _closed_first(read, lambda schema: schema.dfa(depth, guard), closed_objects and shortens)
    made.report(left_out, approximated)
    assert isinstance(made.texts, CharDfa)
    return made.texts


def schema_texts(
    document: object,
    whitespace: Whitespace,
    max_depth: int | None,
    embed: Embed,
    *,
    guard: ResourceGuard,
    schemas: Mapping[str, object] | None = None,
    strict: bool = False, shortens: bool = True, any_order: bool = False, closed_objects: bool = False,
    left_out: list[LimitExceeded] | None = None,
    approximate: Collection[str] = (),
    approximated: list[tuple[str, ...]] | None = None,
    explicit_states_max: int = EXPLICIT_STATES_MAX,
    with_letters: bool = False,
) -> CharDfa | SchemaRules | LetteredTexts:
    """The same as rules, unless an automaton serves better.

    It does where the schema bounds the nesting, and no automaton on the way has more than `explicit_states_max` states.
    It takes over where rules do not express a combination: nesting then has a bound of ours. Without `max_depth`, rules
    have none. Where nothing is written, the automaton is empty.

    with_letters  whether letters may name the items of arrays whose items would come in one order
    """
    with guard.recursion():
        read = partial(
            _Schema, document, ObjectLayout(whitespace, any_order), embed, guard, schemas=schemas, strict=strict,
            approximate=approximate, shortens=shortens,
        )
        made = _closed_first(
            read, lambda schema: schema.texts(max_depth, explicit_states_max, with_letters), closed_objects and shortens
        )
    made.report(left_out, approximated)
    return made.texts


class _Translation(NamedTuple):
    """The texts of a schema.

    bounds        what may leave values out, or where nothing is written, what leaves out all
    approximated  the paths of approximated keywords
    """

    texts: CharDfa | SchemaRules | LetteredTexts
    bounds: list[tuple[str, int]]
    approximated: Iterable[tuple[str, ...]]

    def report(self, left_out: list[LimitExceeded] | None, approximated: list[tuple[str, ...]] | None) -> None:
        """Add what a caller may ask for to its lists."""
        if left_out is not None:
            left_out += [_bound_exceeded(*bound) for bound in self.bounds]
        if approximated is not None:
            approximated += self.approximated


def _closed_first(
    read: Callable[..., _Schema], translate: Callable[[_Schema], _Translation], closed: bool
) -> _Translation:
    """The texts with closed objects, else those with open ones."""
    schema = read(closed=closed)
    made, left_open = translate(schema), schema.left_open
    if closed and made.texts is _NOTHING:
        made = translate(read(closed=False))
        left_open = () if made.texts is _NOTHING else (schema.field,)  # with open objects it has no value either
    paths = [(*field.split("."), "additionalProperties") for field in left_open]
    return made._replace(approximated=[*made.approximated, *paths])


class _Schema:
    """A schema document, read for its translations.

    field      that of the document itself
    left_open  the fields of objects that stay open, though `closed`
    """

    def __init__(
        self, document: object, layout: ObjectLayout, embed: Embed, guard: ResourceGuard, *,
        schemas: Mapping[str, object] | None, strict: bool, approximate: Collection[str], shortens: bool = True,
        closed: bool = False,
    ) -> None:
        self._layout, self._guard, self._approximate = layout, guard, approximate
        nodes = SchemaReader(document, guard, schemas=schemas, strict=strict).nodes
        self.field = nodes[0].field
        nodes, self.left_open = closed_nodes(nodes) if closed else (nodes, ())
        self._nodes = merge_equal_nodes(nodes, guard)
        self._alphabet = StringAlphabet(self._nodes, embed, guard, shortens=shortens)
        self._shortens = shortens
        named_nodes = with_finite_keys(self._nodes, self._alphabet, layout, guard)
        if named_nodes != self._nodes:
            # A character of a name needs a symbol of its own.
            self._nodes, self._alphabet = named_nodes, StringAlphabet(named_nodes, embed, guard, shortens=shortens)

    def dfa(self, max_depth: int, guard: ResourceGuard) -> _Translation:
        """As `schema_dfa`, within the limits of another guard."""
        scalars = self._scalars(guard)
        dfa, compiler = self._explicit(max_depth, scalars, guard)
        if dfa is None and scalars.shortens:
            # Values that are too long on one side may be all that fits the other.
            dfa, compiler = self._explicit(max_depth, self._scalars(guard, shortens=False), guard)

        def again(extra: Sequence[Decimal], marks: bool) -> bool:
            scalars = self._scalars(guard, extra, shortens=False)
            return self._explicit(max_depth, scalars, guard, marks)[0] is not None

        if dfa is None:
            return _Translation(_NOTHING, _bounds_in_the_way(compiler, again, max_depth), compiler.approximated)
        return self._translation(dfa, compiler)

    def _translation(self, dfa: Dfa, compiler: SchemaCompiler) -> _Translation:
        lettered = compiler.lettered(dfa) if isinstance(compiler, LetterCompiler) else None
        # Minterms that the schema does not distinguish in the end are merged.
        texts = lettered or coarsened(CharDfa(dfa, self._alphabet.minterms))
        return _Translation(texts, _bounds(compiler), compiler.approximated)

    def texts(self, max_depth: int | None, explicit_states_max: int, with_letters: bool) -> _Translation:
        """As `schema_texts`."""
        depth = EXPLICIT_DEPTH if max_depth is None else max_depth
        try:
            made = (
                self.small_dfa(max_depth, explicit_states_max) or self.rules(max_depth) or self.dfa(depth, self._guard)
            )
        except SpecUnsupported as error:
            lettered = self.lettered(max_depth) if with_letters and error.construct == "uniqueItems" else None
            if lettered is None:
                raise
            return lettered
        is_exact = _UNIQUE_BOUND not in made.bounds and not made.approximated
        return made if is_exact or not with_letters else self.lettered(max_depth) or made

    def small_dfa(self, max_depth: int | None, states_max: int) -> _Translation | None:
        """The automaton of a schema that bounds nesting. None without texts, or with too many states."""
        start, _ = self._positions(None, self._layout)
        if not states_max or (max_depth is None and start.scope.is_open()):
            return None
        # At depth 0, what is cut shows that nesting has no bound.
        made = self._small(max_depth or 0, states_max, SchemaCompiler)
        return None if made is None or (max_depth is None and made[1].cuts) else made[0]

    def lettered(self, max_depth: int | None) -> _Translation | None:
        """As `small_dfa`, with letters that name items. Values of undeclared properties may nest deeper."""
        made = self._small(EXPLICIT_DEPTH if max_depth is None else max_depth, LETTERED_STATES_MAX, LetterCompiler)
        if made is None or not isinstance(made[0].texts, LetteredTexts):
            return None
        return None if max_depth is None and any(name == "max_depth" for name, _ in made[1].cuts) else made[0]

    def _small(
        self, max_depth: int, states_max: int, compiler_type: type[SchemaCompiler]
    ) -> tuple[_Translation, SchemaCompiler] | None:
        """The automaton, and the compiler that made it. None without texts, or with too many states."""
        small = self._guard.with_limits(dfa_states_max=min(states_max, self._guard.limits.dfa_states_max))
        try:
            dfa, compiler = self._explicit(max_depth, self._scalars(small), small, compiler_type=compiler_type)
            return None if dfa is None else (self._translation(dfa, compiler), compiler)
        except (OutsideRules, SpecUnsupported):
            return None
        except LimitExceeded as error:
            if error.limit not in SIZE_LIMITS:
                raise
            return None

    def rules(self, max_depth: int | None) -> _Translation | None:
        """The rules; without texts, an empty automaton. None where they do not express a combination."""
        # Indentation tells levels apart, so it needs a bound.
        depth = PRETTY_DEPTH if max_depth is None and self._layout.whitespace == "pretty" else max_depth
        try:
            scalars = self._scalars(self._guard)
            rules, compiler = self._rules(depth, scalars, self._layout)
            if rules is None and scalars.shortens:
                rules, compiler = self._rules(depth, self._scalars(self._guard, shortens=False), self._layout)

            def again(extra: Sequence[Decimal], deeper: bool) -> bool:
                scalars = self._scalars(self._guard, extra, shortens=False)
                return self._rules(None if deeper else depth, scalars, ObjectLayout("compact"))[0] is not None

            bounds = _bounds(compiler) if rules is not None else _bounds_in_the_way(compiler, again, depth)
        except (OutsideRules, SpecUnsupported):
            return None
        except LimitExceeded as error:
            if error.limit not in SIZE_LIMITS:
                raise
            return None
        return _Translation(_NOTHING if rules is None else rules, bounds, compiler.approximated)

    def _scalars(
        self, guard: ResourceGuard, extra: Sequence[Decimal] = (), *, shortens: bool = True
    ) -> ScalarCompiler:
        return ScalarCompiler(self._nodes, self._alphabet, guard, extra, shortens=shortens and self._shortens)

    def _positions(self, max_depth: int | None, layout: ObjectLayout) -> tuple[Position, Position]:
        """The position of the document, and that of contents of strings."""
        scopes, bound = PropertyScopes(self._nodes, self._guard), ("max_depth", max_depth or 0)
        position = partial(Position, bound=bound, level=0, indented=layout.whitespace == "pretty")
        return position(scopes.scope((0,)), max_depth), position(scopes.scope(()), 0)

    def _explicit(
        self, max_depth: int, scalars: ScalarCompiler, guard: ResourceGuard, marks: bool = False,
        *, compiler_type: type[SchemaCompiler] = SchemaCompiler,
    ) -> tuple[Dfa | None, SchemaCompiler]:
        """The minimal DFA of node 0's texts, None without any. The compiler knows what it left out."""
        start, no_nesting = self._positions(max_depth, self._layout)
        compiler = compiler_type(
            self._nodes, self._alphabet, self._layout, no_nesting, scalars=scalars, guard=guard, marks=marks,
            approximate=self._approximate,
        )  # fmt: skip
        return compiler.minimal_dfa((0,), start), compiler

    def _rules(
        self, max_depth: int | None, scalars: ScalarCompiler, layout: ObjectLayout
    ) -> tuple[SchemaRules | None, RuleCompiler]:
        """The rules of node 0's texts, None without any."""
        start, no_nesting = self._positions(max_depth, layout)
        compiler = RuleCompiler(
            self._nodes, self._alphabet, layout, no_nesting, scalars=scalars, guard=self._guard,
            approximate=self._approximate,
        )  # fmt: skip
        return schema_rules(compiler, compiler.texts((0,), start), self._guard), compiler


def with_finite_keys(
    nodes: tuple[Schema, ...], alphabet: StringAlphabet, layout: ObjectLayout, guard: ResourceGuard
) -> tuple[Schema, ...]:
    """The nodes with finitely many keys as names of properties.

    Where `propertyNames` or a pattern allows finitely many, no such key is written twice, and their
    number is known. Raises what `SchemaCompiler` raises.
    """
    if not any(node.objects and (node.objects.names is not None or node.objects.patterns) for node in nodes):
        return nodes
    keys_max = guard.limits.unordered_properties_max if layout.any_order else FINITE_KEYS_MAX
    no_nesting = Position(PropertyScopes(nodes, guard).scope(()), 0, bound=("max_depth", 0), level=0, indented=False)
    scalars = ScalarCompiler(nodes, alphabet, guard)
    compiler = SchemaCompiler(nodes, alphabet, layout, no_nesting, scalars=scalars, guard=guard)
    named = list[Schema]()
    for number, node in enumerate(nodes):
        keys = _finite_keys(number, compiler, no_nesting, keys_max)
        # Names that are only required are last in the order, and are written after these.
        required = node.objects.required if node.objects else ()
        order = (*node.order[: len(node.order) - len(required)], *keys, *required)
        named.append(replace(node, order=order) if keys else node)
    return tuple(named)


def _finite_keys(number: int, compiler: SchemaCompiler, no_nesting: Position, keys_max: int) -> Sequence[str]:
    """The keys that a node leaves with its `allOf`, where few."""
    conjuncts, nodes = {number: None}, [compiler.nodes[number]]
    for node in nodes:  # grows while it is walked
        compiler.guard.check_time()
        nodes += [compiler.nodes[each] for each in node.all_of if each not in conjuncts]
        conjuncts |= dict.fromkeys(node.all_of)
    facts = [node.objects for node in nodes if node.objects is not None]
    names = [each.names for each in facts if each.names is not None]
    language = compiler.values(names, no_nesting).language("string") if names else None
    if isinstance(language, FiniteLanguage) and len(language.texts) <= keys_max:
        return language.texts
    own = compiler.nodes[number].objects or ObjectFacts()
    named = [compiler.content(names)] if names else []
    matched = [compiler.alphabet.content(("pattern", pattern)) for pattern, _, _ in own.patterns]
    closed = list[Fragment | None]()
    for each in facts:
        contents = [compiler.alphabet.content(("pattern", pattern)) for pattern, _, _ in each.patterns]
        if contents and each.additional is not None and compiler.nodes[each.additional].never:
            closed.append(reduce(partial(combine, operation="or", guard=compiler.guard), contents))
    both = [reduce(partial(combine, operation="and", guard=compiler.guard), [*named, *closed])] if closed else []
    listed = (compiler.alphabet.listed(keys, keys_max) for keys in (*named, *matched, *both) if keys is not None)
    return [key for keys in listed for key in keys or ()]


def _bounds(compiler: SchemaCompiler) -> list[tuple[str, int]]:
    """The bounds that may leave values out."""
    bounds = [*compiler.cuts, *compiler.scalars.bounds()]
    bounds += [("control_characters", 0)] if compiler.alphabet.escapes != ESCAPES else []
    return bounds + _unique_bounds(compiler)


def _bounds_in_the_way(
    compiler: SchemaCompiler, compile_again: Compile, max_depth: int | None
) -> list[tuple[str, int]]:
    """The bounds that may leave out all values, where nothing is written."""
    # Values that the schema says nothing of are never all in the way: short ones are as good as deep ones.
    depth = max_depth if max_depth is not None and ("max_depth", max_depth) in compiler.cuts else None
    return bound_in_the_way(compiler.nodes, compile_again, depth, compiler.guard) + _unique_bounds(compiler)


def _unique_bounds(compiler: SchemaCompiler) -> list[tuple[str, int]]:
    return [_UNIQUE_BOUND] if compiler.unique_cut else []


def _bound_exceeded(limit: str, cap: int) -> LimitExceeded:
    """The error that names a bound of what is written."""
    message = f"no text satisfies the constraint within {limit} = {cap}; beyond it there may be one"
    message += f": {_REMEDIES[limit]}" if limit in _REMEDIES else ""
    return LimitExceeded(limit, cap, cap + 1, message)
