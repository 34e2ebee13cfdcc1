"""`unevaluatedItems` and `unevaluatedProperties`, written out where what is evaluated does not depend on the value.

Through `allOf` and `$ref` it is known beforehand; through `anyOf` and its kin it is not, and that is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from compiler.errors import SpecUnsupported
from compiler.json_schema.nodes import ArrayFacts, ObjectFacts, Schema

_ITEMS, _PROPERTIES = "unevaluatedItems", "unevaluatedProperties"


def unevaluated(nodes: Mapping[int, Schema], add: Callable[[Schema], int]) -> dict[int, Schema]:
    """The nodes that change. Raises SpecUnsupported naming the keyword."""
    changed = {}
    for number, node in list(nodes.items()):
        added = [
            *_written(nodes, number, node.unevaluated_items, _ITEMS, add),
            *_written(nodes, number, node.unevaluated_properties, _PROPERTIES, add),
        ]
        if added:
            changed[number] = replace(node, all_of=(*node.all_of, *added))
    return changed


def _written(
    nodes: Mapping[int, Schema], number: int, rest: int | None, keyword: str, add: Callable[[Schema], int]
) -> list[int]:
    """A node that says of everything unevaluated what `rest` says; none where that is nothing."""
    if rest is None or nodes[rest].says_nothing():
        return []
    node = nodes[number]
    around = _around(nodes, number)
    unsure = [other for one in around for other in _maybe(nodes, nodes[one])]
    if any(_evaluates(nodes[one], keyword) for one in unsure):
        raise SpecUnsupported(
            f"{keyword} beside anyOf, oneOf, if or dependentSchemas that evaluate some themselves is not supported",
            construct=keyword,
            field=f"{node.field}.{keyword}" if node.field else keyword,
        )
    without = replace(node, unevaluated_items=None, unevaluated_properties=None)
    views = [nodes[one] if one != number else without for one in around]
    return _items(views, rest, add) if keyword == _ITEMS else _properties(views, rest, add)


def _around(nodes: Mapping[int, Schema], number: int) -> list[int]:
    """The node and those that hold wherever it does, by `allOf` and `$ref`."""
    found = [number]
    for one in found:  # grows while it is walked
        found.extend(other for other in nodes[one].all_of if other not in found)
    return found


def _maybe(nodes: Mapping[int, Schema], node: Schema) -> list[int]:
    """The nodes that may hold of the same value or not, and all in place below them; those under `not` never count."""
    found = [other for other in node.in_place() if other not in (*node.all_of, *node.none_of)]
    for one in found:  # grows while it is walked
        found.extend(other for other in nodes[one].in_place() if other not in found)
    return found


def _evaluates(node: Schema, keyword: str) -> bool:
    if keyword == _ITEMS:
        facts = node.arrays
        return node.unevaluated_items is not None or (
            facts is not None and bool(facts.prefix or facts.contains or facts.rest is not None)
        )
    said = node.objects
    return node.unevaluated_properties is not None or (
        said is not None and bool(said.properties or said.patterns or said.additional is not None)
    )


def _items(views: list[Schema], rest: int, add: Callable[[Schema], int]) -> list[int]:
    facts = [view.arrays for view in views if view.arrays is not None]
    if any(one.rest is not None for one in facts) or any(view.unevaluated_items is not None for view in views):
        return []
    if any(one.contains for one in facts):
        raise SpecUnsupported(
            "unevaluatedItems beside contains is not supported", construct=_ITEMS, field=views[0].field
        )
    length = max((len(one.prefix) for one in facts), default=0)
    anything = add(Schema(views[0].field))
    return [add(Schema(views[0].field, arrays=ArrayFacts((anything,) * length, rest)))]


def _properties(views: list[Schema], rest: int, add: Callable[[Schema], int]) -> list[int]:
    facts = [view.objects for view in views if view.objects is not None]
    if any(one.additional is not None for one in facts):
        return []
    if any(view.unevaluated_properties is not None for view in views):
        return []
    anything = add(Schema(views[0].field))
    names = dict.fromkeys(name for one in facts for name, _ in one.properties)
    patterns = dict.fromkeys((pattern, field) for one in facts for pattern, field, _ in one.patterns)
    said = ObjectFacts(tuple((name, anything) for name in names), tuple((*pair, anything) for pair in patterns), rest)
    return [add(Schema(views[0].field, objects=said))]
