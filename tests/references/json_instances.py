"""The text of a JSON value as a schema's automaton reads it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Literal

from compiler.automata import everything
from compiler.json_schema.decimals import as_decimal, canonical_text
from compiler.json_schema.fragments import ObjectLayout
from compiler.json_schema.nodes import PropertyScope, PropertyScopes
from compiler.json_schema.reader import SchemaReader
from compiler.json_schema.strings import StringAlphabet
from compiler.json_schema.translation import with_finite_keys
from compiler.json_schema.value_sets import number_texts
from compiler.limits import Limits, ResourceGuard


def write_instance(
    document: object, instance: object, whitespace: Literal["compact", "pretty"] = "compact",
    schemas: Mapping[str, object] | None = None, *, any_order: bool = False,
) -> str:
    """The text of a value as a schema's automaton reads it.

    The schema's properties and its finitely many keys come first, in its order or with `any_order` in the value's, then
    the others. Numbers are written as in the schema if it lists them, else as in ECMAScript. Raises the errors of
    reading the schema.
    """
    guard = ResourceGuard(Limits())
    nodes = SchemaReader(document, guard, schemas=schemas).nodes
    alphabet = StringAlphabet(nodes, lambda *_: everything(), guard)
    nodes = with_finite_keys(nodes, alphabet, ObjectLayout("compact", any_order), guard)
    ordered = _ordered(instance, PropertyScopes(nodes, guard).scope((0,)), any_order)
    marked = _marked(ordered, number_texts(nodes, guard)[1])
    if whitespace == "pretty":
        return _unmarked(json.dumps(marked, ensure_ascii=False, indent=2))
    return _unmarked(json.dumps(marked, ensure_ascii=False, separators=(",", ":")))


_MARK = "\ue000"  # around the text of a number, which `json.dumps` takes for a string


def _marked(value: object, listed: dict[Decimal, str]) -> object:
    if isinstance(value, dict):
        return {name: _marked(item, listed) for name, item in value.items()}
    if isinstance(value, list):
        return [_marked(item, listed) for item in value]
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return value
    exact = as_decimal(value)
    return f"{_MARK}{listed.get(exact, canonical_text(exact))}{_MARK}"


def _unmarked(text: str) -> str:
    return re.sub(f'"{_MARK}(.*?){_MARK}"', r"\1", text)


def _ordered(instance: object, scope: PropertyScope, any_order: bool) -> object:
    """The same value with its properties in order, undeclared ones behind."""
    if isinstance(instance, list):
        return [_ordered(item, scope.item(index), any_order) for index, item in enumerate(instance)]
    if not isinstance(instance, dict):
        return instance
    both = set(scope.names) & set(instance)
    names = [name for name in (instance if any_order else scope.names) if name in both]
    properties = {name: _ordered(instance[name], scope.property(name), any_order) for name in names}
    extra_names = [name for name in instance if name not in properties]
    return {**properties, **{name: _ordered(instance[name], scope.property(None), any_order) for name in extra_names}}
