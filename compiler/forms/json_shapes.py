"""The shape of a schema's texts by its outermost `type`.

It holds for values of any length. So it proves that a constraint has no text where automata with bounds of ours
cannot: every object ends with `}`.
"""

from __future__ import annotations

_WORDS = {"null": "null", "boolean": "true|false", "number": "[-+.0-9eE]+", "integer": "[-+.0-9eE]+"}
_SHAPES = _WORDS | {"string": '"(?s:.*)"', "array": r"\[(?s:.*)\]", "object": r"\{(?s:.*)\}"}
_NOT_EMPTY = r'\{(?s:.*)"(?s:.*)"(?s:.*):(?s:.*)\}'  # an object with a property
_SPACE = r"[ \t\r\n]*"


def json_shape(schema: object) -> str | None:
    """A pattern that every JSON text of the schema matches. None where nothing is known.

    >>> json_shape({"type": ["array", "null"]})
    '[ \\\\t\\\\r\\\\n]*(?:\\\\[(?s:.*)\\\\]|null)[ \\\\t\\\\r\\\\n]*'
    """
    if not isinstance(schema, dict) or "$ref" in schema:  # in older drafts nothing beside a reference has an effect
        return None
    types = schema.get("type")
    names = [types] if isinstance(types, str) else types
    if not isinstance(names, list) or not names or not all(isinstance(name, str) and name in _SHAPES for name in names):
        return None
    required = schema.get("required")
    shapes = _SHAPES | ({"object": _NOT_EMPTY} if isinstance(required, list) and required else {})
    wanted = [*names, "null"] if "nullable" in schema else names
    return f"{_SPACE}(?:{'|'.join(shapes[name] for name in wanted)}){_SPACE}"
