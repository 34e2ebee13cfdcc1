"""Reads a JSON schema of any draft into nodes.

Decides which keywords are read, ignored or refused by name. Shorthand is written out here: a constant object becomes an
object schema, `dependentRequired` a choice, and `unevaluatedItems` and `unevaluatedProperties` become facts about
arrays and objects. Knows nothing of texts or automata.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

from compiler.errors import SpecSyntaxError
from compiler.json_schema.dialects import NULLABLE, Dialect, UnenforcedKeywords
from compiler.json_schema.keywords import TypeKeywords, string_list
from compiler.json_schema.nodes import (
    TYPES,
    Alternatives,
    ArrayFacts,
    ObjectFacts,
    Schema,
)
from compiler.json_schema.references import References, SchemaLocation, Scope
from compiler.limits import ResourceGuard

_ITEMS, _PROPERTIES = "unevaluatedItems", "unevaluatedProperties"
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


class SchemaReader:
    """Reads the nodes that a document's root leads to. Node 0 is the root.

    schemas         documents that references may lead to, by URI
    document_nodes  the nodes as the document has them
    unenforced      the paths of keywords and formats that have no effect; `strict` refuses them
    Raises SpecSyntaxError for JSON that is no schema, SpecUnsupported for a schema that is not compiled, LimitExceeded
    over `nesting_depth_max` or `compile_s_max`.
    """

    def __init__(
        self, document: object, guard: ResourceGuard, *, schemas: Mapping[str, object] | None = None,
        strict: bool = False,
    ) -> None:
        self._unenforced = UnenforcedKeywords(strict)
        self._references = References(document, schemas or {}, guard)
        for path in self._references.unknown:
            self._unenforced.add_dialect(path)
        self._count = 0
        self._numbers: dict[tuple[tuple[str, ...], Scope], int] = {}
        self._waiting: list[tuple[int, SchemaLocation, Scope]] = []
        self._nodes: dict[int, Schema] = {}
        # A node gets its number when something leads to it and is read later. So a schema may refer to itself.
        self.node(self._references.root, ())
        while self._waiting:
            number, location, scope = self._waiting.pop()
            guard.check_time()
            self._nodes[number] = self._read(location, scope)
        self.document_nodes = tuple(self._nodes[number] for number in range(len(self._nodes)))
        self.unenforced = tuple(self._unenforced.paths)

    @cached_property
    def nodes(self) -> tuple[Schema, ...]:
        """The nodes with `unevaluatedItems` and `unevaluatedProperties` as facts.

        Raises SpecUnsupported where the value decides what these speak of.
        """
        # Only now are all nodes known that a value is evaluated by.
        self._nodes.update(_write_out_unevaluated(self._nodes, self.add))
        return tuple(self._nodes[number] for number in range(len(self._nodes)))

    def node(self, location: SchemaLocation, scope: Scope) -> int:
        """The number of the node of a schema in a scope. The schema is read later."""
        inside = self._references.enter(location, scope)
        key = (location.path, inside)
        if key not in self._numbers:
            self._numbers[key] = self._count
            self._count += 1
            self._waiting.append((self._numbers[key], location, inside))
        return self._numbers[key]

    def add(self, schema: Schema) -> int:
        """Add a node that is no schema of the document. Returns its number."""
        number = self._count
        self._count += 1
        self._nodes[number] = schema
        return number

    def _read(self, location: SchemaLocation, scope: Scope) -> Schema:
        value = location.value
        if isinstance(value, bool):
            return Schema(location.field, never=not value)
        if not isinstance(value, dict):
            raise SpecSyntaxError("a schema is an object or a boolean", expected="a schema", field=location.field)
        dialect = self._references.dialect(location)
        return _ObjectReader(
            value=self._effective(value, location, dialect), dialect=dialect, location=location,
            node=partial(self.node, scope=scope), add=self.add, unenforced=self._unenforced,
            references=self._references, scope=scope,
        ).schema()

    def _effective(self, value: dict[str, object], location: SchemaLocation, dialect: Dialect) -> dict[str, object]:
        """The keywords that have an effect; the others are reported."""
        lone = dialect.lone_reference and "$ref" in value
        effective = {}
        for keyword, content in value.items():
            is_idle = keyword == NULLABLE and "type" not in value
            if keyword in dialect.keywords and not is_idle and (not lone or keyword in ("$ref", "definitions")):
                effective[keyword] = content
            elif lone or is_idle or not dialect.may_have(keyword):
                self._report(location, keyword, dialect)
        return effective

    def _report(self, location: SchemaLocation, keyword: str, dialect: Dialect) -> None:
        # An identifier has no effect on values.
        if keyword != dialect.identifier and (keyword in dialect.keywords or not dialect.may_have(keyword)):
            self._unenforced.add_keyword((*location.path, keyword), dialect)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _ObjectReader(TypeKeywords):
    """Reads one schema object, keyword by keyword."""

    references: References
    scope: Scope

    def schema(self) -> Schema:
        field = self.location.field
        present = [keyword for keyword in ("anyOf", "oneOf") if keyword in self.value]
        choices = [Alternatives(self.children(keyword), keyword) for keyword in present]
        values, containers = self.values()
        # `enum` with arrays or objects is a choice between all its scalars, and each of those.
        if containers:
            scalars = (self.add(Schema(field, values=values)),) if values else ()
            choices.append(Alternatives((*scalars, *containers), "enum"))
            values = None
        order = self._order()
        references = [self._reference(keyword) for keyword in self.value if keyword in _REFERENCES]
        return Schema(
            field,
            types=self._types(),
            plain_integers=self.dialect.plain_integers,
            values=values,
            numbers=self.numbers(),
            strings=self.strings(),
            arrays=self.arrays(),
            objects=self.objects(),
            all_of=(*references, *self.optional_children("allOf")),
            choices=(*choices, *self._dependencies()),
            none_of=self.child("not") if "not" in self.value else (),
            conditions=self.conditions(),
            order=(*order, *containers),
            unevaluated_items=self.optional_child(_ITEMS),
            unevaluated_properties=self.optional_child(_PROPERTIES),
        )

    def _types(self) -> frozenset[str] | None:
        if "type" not in self.value:
            return None
        raw = self.value["type"]
        names = raw if isinstance(raw, list) else [raw]
        if not names or not all(isinstance(name, str) and name in TYPES for name in names):
            raise self.location.fault("type", "this is not a type", f"one of {', '.join(sorted(TYPES))}")
        nullable = self.value.get(NULLABLE, False)
        if not isinstance(nullable, bool):
            raise self.location.fault(NULLABLE, "nullable is true or false", "a boolean")
        return frozenset([*names, "null"] if nullable else names)

    def _reference(self, keyword: str) -> int:
        """The node that a reference leads to. Since draft 2019-09 it applies beside the other keywords."""
        return self.node(self.references.resolve(keyword, self.location, self.scope))

    def _dependencies(self) -> Sequence[Alternatives]:
        """`dependentRequired`, `dependentSchemas` and `dependencies`. Either the key is absent, or its schema holds."""
        choices = []
        for keyword, name, names in self._dependents():
            if names is None:
                present = self.child(keyword, name)[0]
            else:
                # Where the key is present, its dependencies are required.
                facts = ObjectFacts(required=names)
                present = self.add(Schema(self.location.field, objects=facts, order=facts.required))
            choices.append(Alternatives((self._absence_node(name), present), keyword))
        return choices

    def _dependents(self) -> Iterator[tuple[str, str, tuple[str, ...] | None]]:
        """Triples of a keyword, a key and the required names. They are None where the key has a schema."""
        for keyword in ("dependentRequired", "dependentSchemas", "dependencies"):
            for name, value in self.mapping(keyword).items():
                required = keyword == "dependentRequired" or (keyword == "dependencies" and isinstance(value, list))
                yield keyword, name, string_list(value, self.location.below(keyword, name)) if required else None

    def _absence_node(self, name: str) -> int:
        """The node of the values without a key. No value fits under the key."""
        never = self.add(Schema(self.location.field, never=True))
        facts = ObjectFacts(properties=((name, never),))
        return self.add(Schema(self.location.field, objects=facts, order=(name,)))

    def _order(self) -> tuple[str | int, ...]:
        """Names and in-place nodes in the order of the document. Names that are only required come last."""
        order: list[str | int] = []
        for keyword in self.value:
            if keyword == "properties":
                order.extend(self.mapping("properties"))
            elif keyword in ("allOf", "anyOf", "oneOf"):
                order.extend(self.children(keyword))
            elif keyword in ("not", "if", "then", "else"):
                order.extend(self.child(keyword))
            elif keyword in _REFERENCES:
                order.append(self._reference(keyword))
        for keyword, name, names in self._dependents():
            order.extend((name, *(self.child(keyword, name) if names is None else names)))
        return (*order, *string_list(self.value.get("required", []), self.location.below("required")))


# --- unevaluatedItems and unevaluatedProperties ---------------------------------------------------------------------
#
# They speak of what no other keyword beside them has evaluated. Through `allOf` and `$ref` the schema decides that, so
# they become facts about arrays and objects. Through `anyOf` and its kin the value decides it: that is refused by name.


def _write_out_unevaluated(nodes: Mapping[int, Schema], add: Callable[[Schema], int]) -> dict[int, Schema]:
    """The nodes that change. Raises SpecUnsupported naming the keyword."""
    changed = {}
    for number, node in list(nodes.items()):
        added = [
            *_unevaluated_nodes(nodes, number, node.unevaluated_items, _ITEMS, add=add),
            *_unevaluated_nodes(nodes, number, node.unevaluated_properties, _PROPERTIES, add=add),
        ]
        # The new nodes hold beside the old ones, like an `allOf`.
        if added:
            changed[number] = replace(node, all_of=(*node.all_of, *added))
    return changed


def _unevaluated_nodes(
    nodes: Mapping[int, Schema], number: int, unevaluated: int | None, keyword: str, *, add: Callable[[Schema], int]
) -> list[int]:
    """A node that applies the node `unevaluated` to all unevaluated values.

    The list is empty where nothing is unevaluated.
    """
    if unevaluated is None or nodes[unevaluated].is_unconstrained():
        return []
    node = nodes[number]
    implied_nodes = joined_nodes(nodes, (number,), lambda node: node.all_of)  # by `allOf` and `$ref`
    conditional_nodes = [other for index in implied_nodes for other in _conditional_nodes(nodes, nodes[index])]
    if any(_evaluates(nodes[index], keyword) for index in conditional_nodes):
        message = (
            f"{keyword} beside anyOf, oneOf, if or dependentSchemas that evaluate some themselves is not supported"
        )
        raise node.unsupported(keyword, message, keyword)
    bare_node = replace(node, unevaluated_items=None, unevaluated_properties=None)
    views = [nodes[index] if index != number else bare_node for index in implied_nodes]
    return _items(views, unevaluated, add) if keyword == _ITEMS else unevaluated_properties(views, unevaluated, add)


def joined_nodes(
    nodes: Mapping[int, Schema] | Sequence[Schema], start: Sequence[int], following: Callable[[Schema], Iterable[int]]
) -> list[int]:
    """Nodes and all that follow from them, each once."""
    reached = [*dict.fromkeys(start)]
    for number in reached:  # grows while it is walked
        reached.extend(other for other in dict.fromkeys(following(nodes[number])) if other not in reached)
    return reached


def _conditional_nodes(nodes: Mapping[int, Schema], node: Schema) -> list[int]:
    """The nodes that may or may not apply to the same value. All nodes in place below them are included.

    Nodes directly under `not` are left out: they evaluate nothing.
    """
    conditional = [other for other in node.in_place_nodes() if other not in (*node.all_of, *node.none_of)]
    return joined_nodes(nodes, conditional, Schema.in_place_nodes)


def _evaluates(node: Schema, keyword: str) -> bool:
    """True when the node evaluates items, or properties."""
    if keyword == _ITEMS:
        arrays = node.arrays
        return node.unevaluated_items is not None or (
            arrays is not None and bool(arrays.prefix or arrays.contains or arrays.items is not None)
        )
    objects = node.objects
    return node.unevaluated_properties is not None or (
        objects is not None and bool(objects.properties or objects.patterns or objects.additional is not None)
    )


def _items(views: list[Schema], unevaluated: int, add: Callable[[Schema], int]) -> list[int]:
    facts = [view.arrays for view in views if view.arrays is not None]
    # `items` evaluates all items, and so does another `unevaluatedItems`.
    if any(fact.items is not None for fact in facts) or any(view.unevaluated_items is not None for view in views):
        return []
    # Which items `contains` evaluates depends on the value.
    if any(fact.contains for fact in facts):
        raise views[0].unsupported(_ITEMS, "unevaluatedItems beside contains is not supported")
    # Items up to the longest prefix are evaluated; the others must fit the node.
    length = max((len(fact.prefix) for fact in facts), default=0)
    anything = add(Schema(views[0].field))
    return [add(Schema(views[0].field, arrays=ArrayFacts(prefix=(anything,) * length, items=unevaluated)))]


def unevaluated_properties(views: list[Schema], unevaluated: int, add: Callable[[Schema], int]) -> list[int]:
    """A node for the properties that other nodes do not evaluate.

    The list is empty where they evaluate all.
    """
    facts = [view.objects for view in views if view.objects is not None]
    if any(fact.additional is not None for fact in facts):
        return []
    if any(view.unevaluated_properties is not None for view in views):
        return []
    # Evaluated names and patterns may hold anything, as far as this node goes; `unevaluated` holds of the others.
    anything = add(Schema(views[0].field))
    names = dict.fromkeys(name for fact in facts for name, _ in fact.properties)
    patterns = dict.fromkeys((pattern, field) for fact in facts for pattern, field, _ in fact.patterns)
    properties = tuple((name, anything) for name in names)
    objects = ObjectFacts(
        properties=properties, patterns=tuple((*pair, anything) for pair in patterns), additional=unevaluated
    )
    return [add(Schema(views[0].field, objects=objects))]
