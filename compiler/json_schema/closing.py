"""Closes objects of a schema, so that no undeclared properties are written.

An object that declares properties and says nothing of others then has no others, as if the schema of each value said
`unevaluatedProperties: false`. Under `anyOf` and its kin the value decides which schemas declare its properties, so
each combination of them becomes an option, with one of each `anyOf`. Where several schemas of an option describe one
property, or the items, what they say is one schema, and that is closed. What stands under `not`, `contains` or a
`oneOf` whose options overlap stays as it is: fewer values there are more values of the whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations, product
from math import prod

from compiler.json_schema.clauses import renumbered
from compiler.json_schema.nodes import Alternatives, ArrayFacts, Condition, ObjectFacts, Schema
from compiler.json_schema.reader import joined_nodes, unevaluated_properties

COMBINATIONS_MAX = 64  # of the schemas that may declare the properties of one value
_Option = tuple[int, ...]  # nodes that hold together
_Place = str | None  # a property of a value; None for its items


def closed_nodes(nodes: Sequence[Schema]) -> tuple[tuple[Schema, ...], tuple[str, ...]]:
    """The nodes of a document with closed objects. Node 0 is the root.

    The second value has the fields of objects that stay open, because they would have no value, or because too many
    combinations of schemas declare their properties.
    """
    closer = _Closer(nodes)
    root = closer.value(0)
    last = len(closer.nodes)
    # Schemas that stay as they are may lead back to the old root.
    moved = [renumbered(node, lambda number: number or last) for node in (*closer.nodes, closer.nodes[0])]
    return (moved[root or last], *moved[1:]), tuple(closer.left_open)


class _Closer:
    """Adds closed copies of nodes to those of a document."""

    def __init__(self, nodes: Sequence[Schema]) -> None:
        self.nodes = list(nodes)
        self.left_open = dict[str, None]()  # ordered, each once
        self._never, self._anything = self._add(Schema("", never=True)), self._add(Schema(""))
        self._open = self._add(Schema("", objects=ObjectFacts(additional=self._anything)))
        self._values, self._copies = dict[int, int](), dict[tuple[int, int | None], int]()
        self._expanded = set[int]()  # nodes whose options are being listed: schemas may refer to themselves
        # The node that is being closed, and the names that it declares whatever the value is.
        self._value, self._certain = 0, set[str]()
        self._shared = set[_Place]()  # what several schemas of that node describe
        self._mixed = set[str]()  # the properties that a pattern, or another schema's undeclared ones, describe as well
        # What of copies is closed for each option, and several schemas as one.
        self._apart, self._joined = dict[int, list[tuple[_Place, int]]](), dict[frozenset[int], int]()

    def _add(self, schema: Schema) -> int:
        self.nodes.append(schema)
        return len(self.nodes) - 1

    def value(self, number: int) -> int:
        """The closed node for the values of a node."""
        node = self.nodes[number]
        if node.constant is not None or not (node.objects or node.arrays or node.in_place_nodes()):
            return number
        if number not in self._values:
            self._values[number] = placed = self._add(Schema(node.field))
            outer = self._value, self._certain, self._shared, self._mixed
            self._value, self._mixed = number, self._described_twice(number)
            self._shared = self._repeated(number) - self._mixed
            self._certain = self._names(self._implied(number))
            options = [self._with_shared(option) for option in self._options(number)]
            self._value, self._certain, self._shared, self._mixed = outer
            closed = [option for option in map(self._closed, options) if option is not None]
            if not closed:
                self.left_open[node.field] = None
            nodes = tuple(self._add(Schema(node.field, all_of=option)) for option in closed or options)
            self.nodes[placed] = Schema(node.field, choices=(Alternatives(nodes),))
            if len(nodes) == 1:
                self.nodes[placed] = self.nodes[nodes[0]]
        return self._values[number]

    def _with_shared(self, option: _Option) -> _Option:
        """An option with what several schemas may describe. Each place is closed as one schema."""
        parts = dict[_Place, dict[int, None]]()
        for place, inner in chain(*(self._apart.get(number, ()) for number in option)):
            parts.setdefault(place, {})[inner] = None
        if not parts:
            return option
        closed = {place: self.value(self._joint(tuple(inner))) for place, inner in parts.items()}
        items = ArrayFacts(items=closed.pop(None)) if None in closed else None
        properties = tuple((str(place), inner) for place, inner in closed.items())
        objects = ObjectFacts(properties=properties) if properties else None
        return (*option, self._add(Schema("", objects=objects, arrays=items)))

    def _joint(self, numbers: tuple[int, ...]) -> int:
        """A node that holds where all of these do."""
        if len(numbers) == 1:
            return numbers[0]
        if (key := frozenset(numbers)) not in self._joined:
            self._joined[key] = self._add(Schema(self.nodes[numbers[0]].field, all_of=numbers))
        return self._joined[key]

    def _repeated(self, number: int) -> set[_Place]:
        """The places where several joined schemas describe objects or arrays."""
        found = dict[_Place, set[int]]()
        for place, inner in chain(*map(_places, self._in_place((number,)))):
            if self._holds_more(inner):
                found.setdefault(place, set()).add(inner)
        return {place for place, inner in found.items() if len(inner) > 1}

    def _described_twice(self, number: int) -> set[str]:
        """The properties that patterns, or other schemas' undeclared ones, describe too.

        To close each description by itself would leave no value, so these stay open.
        """
        facts = _object_facts(self._in_place((number,)))
        others = [each for each in facts if any(map(self._holds_more, _of_undeclared(each)))]  # mostly none
        return {
            name for fact in facts for name, inner in fact.properties
            if any(self._holds_more(each) for other in others for each in _undeclared(other, name))
            and self._holds_more(inner)
        }

    def _holds_more(self, number: int) -> bool:
        """Whether a node speaks of objects or arrays."""
        return any(each.objects or each.arrays for each in self._in_place((number,)))

    def _in_place(self, numbers: Sequence[int]) -> list[Schema]:
        """The nodes and all that speak of the same value."""
        return [self.nodes[inner] for inner in joined_nodes(self.nodes, numbers, Schema.in_place_nodes)]

    def _closed(self, option: _Option) -> _Option | None:
        """An option without undeclared properties, where it declares some alone.

        None where no object is left then.
        """
        views = [self.nodes[number] for number in option]
        facts = [view.objects for view in views if view.objects is not None]
        closing = unevaluated_properties(views, self._never, self._add) if any(map(_declares, facts)) else ()
        names = {name for fact in facts for name, _ in fact.properties}
        few = any(fact.minimum > len(names) for fact in facts) and not any(fact.patterns for fact in facts)
        if closing and (few or any(not names.issuperset(fact.required) for fact in facts)):
            return None
        return (*option, *closing)

    def _options(self, number: int) -> list[_Option]:
        """The combinations of nodes that may declare the properties of a value."""
        if number in self._expanded:
            return [()]
        node = self.nodes[number]
        self._expanded.add(number)
        groups = [self._options(inner) for inner in node.all_of]
        groups += [list(self._alternatives(each)) for each in node.choices if self._decides(each)]
        groups += [list(self._branches(each)) for each in node.conditions if self._decides(each)]
        self._expanded.remove(number)
        if prod(map(len, groups)) > COMBINATIONS_MAX:
            self.left_open[node.field] = None
            return [(self._copy(number, None), self._open)]
        copy = self._copy(number, self._value)
        return [(copy, *chain(*parts)) for parts in product(*groups)]

    def _alternatives(self, choice: Alternatives) -> Iterator[_Option]:
        """The options of a choice. A dependency holds of objects with its key alone."""
        present = list[int]()
        if choice.keyword.startswith("depend") and (absence := self.nodes[choice.nodes[0]].objects) is not None:
            yield (choice.nodes[0],)
            required = ObjectFacts(required=tuple(name for name, _ in absence.properties))
            present.append(self._add(Schema("", objects=required)))
        for number in choice.nodes[len(present) :]:
            yield from ((*present, *option) for option in self._options(number))

    def _branches(self, condition: Condition) -> Iterator[_Option]:
        """The options of a condition: `if` with `then`, and `else` without `if`."""
        fails = self._add(Schema("", none_of=(condition.if_,)))
        for tests, branch in ((self._options(condition.if_), condition.then), ([(fails,)], condition.otherwise)):
            for parts in product(tests, [()] if branch is None else self._options(branch)):
                yield tuple(chain(*parts))

    def _decides(self, clause: Alternatives | Condition) -> bool:
        """Whether a clause may declare further properties of a value."""
        joined = self._below(clause)
        facts = _object_facts(joined)
        speaks = any((_declares(fact) and not fact.properties) or fact.additional is not None for fact in facts)
        if speaks or any(fact.patterns for fact in facts):
            return True
        shares = any(place in self._shared for place, _ in chain(*map(_places, joined)))
        return shares or not self._names(joined) <= self._certain

    def _below(self, clause: Alternatives | Condition) -> list[Schema]:
        """The schemas of a clause."""
        if isinstance(clause, Alternatives):
            # The first option of a dependency only says that a key is absent.
            nodes = clause.nodes[1:] if clause.keyword.startswith("depend") else clause.nodes
        else:
            nodes = tuple(each for each in (clause.if_, clause.then, clause.otherwise) if each is not None)
        return self._in_place(nodes)

    def _names(self, nodes: Iterable[Schema]) -> set[str]:
        """The properties that nodes declare."""
        return {name for fact in _object_facts(nodes) for name, _ in fact.properties}

    def _copy(self, number: int, value: int | None) -> int:
        """A node whose inner values are closed.

        value  the node of the value in whose option it stands, beside the options of its clauses; None elsewhere
        """
        node, key = self.nodes[number], (number, value)
        if node.constant is not None:
            return number
        if key in self._copies:
            return self._copies[key]
        self._copies[key] = placed = self._add(node)
        expanded = value is not None
        apart = self._shared if expanded else set[_Place]()
        self._apart[placed] = [each for each in _places(node) if each[0] in apart]
        all_of = () if expanded else tuple(self._copy(inner, None) for inner in node.all_of)
        choices = tuple(
            kept for choice in node.choices for kept in self._choices(choice, expanded and self._decides(choice))
        )

        def copied(entry: str | int) -> str | int:
            if isinstance(entry, str):
                return entry
            return self._copies.get((entry, value), self._copies.get((entry, None), entry))

        self.nodes[placed] = replace(
            node, all_of=all_of, choices=choices, order=tuple(map(copied, node.order)),
            conditions=tuple(each for each in node.conditions if not (expanded and self._decides(each))),
            objects=node.objects and self._objects(node.objects, apart, self._mixed if expanded else set[str]()),
            arrays=node.arrays and self._arrays(node.arrays, apart),
        )
        return placed

    def _choices(self, choice: Alternatives, has_options: bool) -> Iterator[Alternatives]:
        """What is left of a choice in a copy of its node."""
        # Options that declare nothing new stay: the values of their properties are closed elsewhere.
        stays = choice.keyword == "enum" or (not has_options and bool(self._names(self._below(choice))))
        if stays or (choice.exactly_one and not self._are_distinct(choice)):
            yield choice
        if not stays and not has_options:
            copies = tuple(self._copy(inner, None) for inner in choice.nodes)
            yield Alternatives(copies, "anyOf" if choice.exactly_one else choice.keyword)

    def _objects(self, facts: ObjectFacts, apart: set[_Place], mixed: set[str]) -> ObjectFacts:
        stay = {inner for name in mixed for inner in _undeclared(facts, name)}
        stay |= {inner for name, inner in facts.properties if name in mixed}
        self.left_open |= dict.fromkeys(self.nodes[inner].field for inner in sorted(stay))

        def closed(inner: int) -> int:
            return inner if inner in stay else self.value(inner)

        return replace(
            facts, properties=tuple(
                (name, self._anything if name in apart else closed(inner)) for name, inner in facts.properties
            ),
            patterns=tuple((pattern, field, closed(inner)) for pattern, field, inner in facts.patterns),
            additional=None if facts.additional is None else closed(facts.additional),
        )

    def _arrays(self, facts: ArrayFacts, apart: set[_Place]) -> ArrayFacts:
        is_apart = None in apart and not facts.prefix
        items = None if facts.items is None or is_apart else self.value(facts.items)
        return replace(facts, prefix=tuple(map(self.value, facts.prefix)), items=items)

    def _are_distinct(self, choice: Alternatives) -> bool:
        """Whether types or strings of required properties keep all options apart."""
        return all(_differ(*pair) for pair in combinations(map(self._marks, choice.nodes), 2))

    def _marks(self, number: int) -> _Marks:
        nodes = self._implied(number)
        facts = [node.objects for node in nodes if node.objects is not None]
        required = {name for fact in facts for name in fact.required}
        tags = {
            name: values for fact in facts for name, inner in fact.properties
            if name in required and (values := self._strings(inner)) is not None
        }
        types = [{"number" if name == "integer" else name for name in node.types} for node in nodes if node.types]
        return _Marks(set.intersection(*types) if types else None, tags)

    def _strings(self, number: int) -> set[str] | None:
        """The strings that alone are values of a node. None for others."""
        listed = next((node.values for node in self._implied(number) if node.values is not None), None)
        return None if listed is None or any(not isinstance(each, str) for each in listed) else set(map(str, listed))

    def _implied(self, number: int) -> list[Schema]:
        return [self.nodes[inner] for inner in joined_nodes(self.nodes, (number,), lambda node: node.all_of)]


@dataclass(frozen=True, slots=True)
class _Marks:
    """The types of values, None for all, and strings of required properties."""

    types: set[str] | None
    tags: dict[str, set[str]]


def _differ(left: _Marks, right: _Marks) -> bool:
    if left.types is not None and right.types is not None and not left.types & right.types:
        return True
    # Values of other types have no properties.
    are_objects = {"object"} in (left.types, right.types)
    return are_objects and any(not left.tags[name] & right.tags[name] for name in left.tags.keys() & right.tags)


def _places(node: Schema) -> Iterator[tuple[_Place, int]]:
    """The properties that a node describes, and its items.

    Those behind a prefix are left out.
    """
    if node.objects is not None and node.constant is None:
        yield from node.objects.properties
    if node.arrays is not None and node.arrays.items is not None and not node.arrays.prefix:
        yield None, node.arrays.items


def _object_facts(nodes: Iterable[Schema]) -> list[ObjectFacts]:
    return [node.objects for node in nodes if node.objects is not None and node.constant is None]


def _of_undeclared(facts: ObjectFacts) -> list[int]:
    """What facts say of properties by patterns, and of all others."""
    return [*(inner for _, _, inner in facts.patterns), *(() if facts.additional is None else (facts.additional,))]


def _undeclared(facts: ObjectFacts, name: str) -> list[int]:
    """What facts say of a property beside its own schema."""
    found = [inner for pattern, _, inner in facts.patterns if _may_match(pattern, name)]
    if facts.additional is not None and not found and name not in dict(facts.properties):
        found.append(facts.additional)
    return found


def _may_match(pattern: str, name: str) -> bool:
    try:
        return re.search(pattern, name) is not None
    except re.error:  # ECMAScript's patterns are not all Python's
        return True


def _declares(facts: ObjectFacts) -> bool:
    """Whether facts declare properties. An empty `properties` declares that there are none."""
    is_empty = facts.names is None and facts.maximum is None and not (facts.required or facts.minimum)
    return bool(facts.properties or facts.patterns) or (is_empty and facts.additional is None)
