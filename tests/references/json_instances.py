"""The text of a JSON value as a schema's automaton reads it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Literal

from compiler.json_schema.nodes import PropertyScope, PropertyScopes
from compiler.json_schema.reader import SchemaReader
from compiler.limits import Limits, ResourceGuard


def write_instance(
    document: object, instance: object, whitespace: Literal["compact", "pretty"] = "compact",
    schemas: Mapping[str, object] | None = None,
) -> str:
    """The text of a value as a schema's automaton reads it.

    The schema's properties come first in its order, then the others. Raises the errors of reading the schema.
    """
    guard = ResourceGuard(Limits())
    scopes = PropertyScopes(SchemaReader(document, guard, schemas=schemas).nodes, guard)
    ordered = _ordered(instance, scopes.scope((0,)))
    if whitespace == "pretty":
        return json.dumps(ordered, ensure_ascii=False, indent=2)
    return json.dumps(ordered, ensure_ascii=False, separators=(",", ":"))


def _ordered(instance: object, scope: PropertyScope) -> object:
    """The same value with the properties in the order of the scope."""
    if isinstance(instance, list):
        return [_ordered(item, scope.item(index)) for index, item in enumerate(instance)]
    if not isinstance(instance, dict):
        return instance
    names = [name for name in scope.names if name in instance]
    properties = {name: _ordered(instance[name], scope.property(name)) for name in names}
    extra_names = [name for name in instance if name not in properties]
    return {**properties, **{name: _ordered(instance[name], scope.property(None)) for name in extra_names}}
