"""JSON values inside messages, such as schemas. Their numbers keep the decimals that they are written with.

In a message such a value is a string that holds its JSON text: pydantic's own reader would make each number a double.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer, ValidationInfo, WithJsonSchema

from compiler.exact_json import dump_json, load_json


def _from_message(value: Any, info: ValidationInfo) -> Any:
    """The value that a message holds as text. A value in Python stays as it is."""
    if info.mode == "python":
        return value
    if not isinstance(value, str):
        raise ValueError("must be a string that holds JSON")
    return load_json(value)


_AS_TEXT = PlainSerializer(dump_json, return_type=str, when_used="json")
JsonContent = Annotated[Any, BeforeValidator(_from_message), _AS_TEXT, WithJsonSchema({})]
JsonObject = Annotated[
    dict[str, Any], BeforeValidator(_from_message), _AS_TEXT,
    WithJsonSchema({"type": "object", "additionalProperties": True}),
]
