"""Cases of the compile benchmark that are JSON schemas.

Every engine takes the same schema, writes compact JSON and keeps the order of the properties.
"""

from __future__ import annotations

import json

from benchmarks.compiler.cases import CompileCase, Expression, for_all

Schema = dict[str, object]
_TEXT: Schema = {"type": "string"}
_NAME: Schema = {"type": "string", "minLength": 1, "maxLength": 40}
_DATE: Schema = {"type": "string", "format": "date"}
_COUNT: Schema = {"type": "integer", "minimum": 0, "maximum": 1000}
_STATES: Schema = {"enum": ["new", "open", "waiting", "closed"]}
_FLAG: Schema = {"type": "boolean"}
_NUMBER: Schema = {"type": "number"}
_PROPERTY_KINDS = (_NAME, _COUNT, _FLAG, _TEXT, _STATES, _NUMBER)  # a large schema has them in turn
COLOURS = "red orange yellow green blue indigo violet black white grey brown pink cyan magenta teal navy olive gold"
FRUITS = "apple pear plum peach cherry grape lemon lime mango melon kiwi fig date quince papaya guava lychee banana"


def record(properties: dict[str, Schema]) -> Schema:
    """An object with exactly these properties, all required."""
    required = list(properties)
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _numbered_schema(count: int) -> Schema:
    return record({f"field_{number}": _PROPERTY_KINDS[number % len(_PROPERTY_KINDS)] for number in range(count)})


def _tool(name: str, arguments: dict[str, Schema]) -> Schema:
    return record({"name": {"const": name}, "arguments": record(arguments)})


def _array(items: Schema, length_min: int, length_max: int) -> Schema:
    return {"type": "array", "items": items, "minItems": length_min, "maxItems": length_max}


_ADDRESS = record({"street": _NAME, "city": _NAME, "postcode": {"type": "string", "pattern": "^[0-9]{5}$"}})
_LINE = record({"item": _NAME, "count": {"type": "integer", "minimum": 1, "maximum": 99}, "price": _NUMBER})
_TOOLS: Schema = {
    "anyOf": [
        _tool("weather", {"city": _NAME, "day": _DATE}),
        _tool("search", {"query": _TEXT, "limit": {"type": "integer", "minimum": 1, "maximum": 50}}),
        _tool("send", {"to": {"type": "string", "format": "email"}, "text": _TEXT, "urgent": _FLAG}),
    ]
}
_FORMATS = ("date", "time", "date-time", "email", "uuid", "ipv4")
_TREE: Schema = {
    "$ref": "#/$defs/node",
    "$defs": {"node": record({"name": _NAME, "children": _array({"$ref": "#/$defs/node"}, 0, 3)})},
}
SCHEMAS: dict[str, Schema] = {
    "3 properties": record({"name": _TEXT, "age": {"type": "integer"}, "member": _FLAG}),
    "10 properties": _numbered_schema(10),
    "30 properties": _numbered_schema(30),
    "nested order": record({"id": _COUNT, "to": _ADDRESS, "lines": _array(_LINE, 1, 5), "paid": _FLAG}),
    "three enums": record(
        {"colour": {"enum": COLOURS.split()}, "fruit": {"enum": FRUITS.split()}, "again": {"enum": COLOURS.split()}}
    ),
    "numbers with bounds": record(
        {
            "percent": {"type": "integer", "minimum": 0, "maximum": 100},
            "year": {"type": "integer", "minimum": 1900, "maximum": 2100},
            "balance": {"type": "integer", "minimum": -99999, "maximum": 99999},
            "score": {"type": "number", "minimum": 0, "maximum": 1},
        }
    ),
    "six formats": record({name: {"type": "string", "format": name} for name in _FORMATS}),
    "list of names": _array(_NAME, 1, 10),
    "strings to 200 characters": record(
        {name: {"type": "string", "maxLength": 200} for name in ("title", "body", "summary")}
    ),
    "one of three tools": _TOOLS,
    "optional properties": record({"id": _COUNT, "note": _TEXT, "state": _STATES, "due": _DATE}) | {"required": ["id"]},
}


def schema_case(name: str, schema: Schema, but: dict[str, Expression | None] | None = None) -> CompileCase:
    """A case that every engine takes as the same schema. `but` is as in `for_all`."""
    text = json.dumps(schema)
    constraint = {"json_schema": schema, "whitespace": "compact", "leading_space": "forbid"}
    return CompileCase(f"JSON: {name}", "JSON", constraint, for_all(Expression("json_schema", text), but=but))


def cases() -> tuple[CompileCase, ...]:
    """All cases of this module."""
    tree = schema_case("tree of objects", _TREE, but={"outlines_core": None})  # a regex has no recursion
    return (*(schema_case(name, schema) for name, schema in SCHEMAS.items()), tree)
