"""Applies the suggestions of errors and warnings to requests.

A suggestion is a list of operations of JSON Patch (RFC 6902): add, move, remove and replace. Two are ours: `splice`
replaces the characters `start` to `end` of the string at `path`, and `parse` replaces a string by the JSON in it.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any

from abs_client._json import load


def apply_suggestion(request: Mapping[str, Any], suggestion: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The request after the edits; the given one stays as it is.

    Raises ValueError where an edit does not fit the request.

    >>> request = {"prompt": "A", "constraint": {"keyword": ["dog"]}}
    >>> apply_suggestion(request, [{"op": "move", "from": "/constraint/keyword", "path": "/constraint/keywords"}])
    {'prompt': 'A', 'constraint': {'keywords': ['dog']}}
    """
    document: dict[str, Any] = {"": copy.deepcopy(dict(request))}
    try:
        for edit in suggestion:
            _apply(document, edit)
    except (KeyError, IndexError, TypeError) as error:
        raise ValueError(f"an edit does not fit the request: {error!r}") from None
    edited: dict[str, Any] = document[""]
    return edited


def _apply(document: dict[str, Any], edit: Mapping[str, Any]) -> None:
    match edit["op"]:
        case "add":
            _insert(document, edit["path"], copy.deepcopy(edit["value"]))
        case "move":
            _insert(document, edit["path"], _take(document, edit["from"]))
        case "remove":
            _take(document, edit["path"])
        case "replace":
            parent, name = _parent(document, edit["path"])
            parent[name] = copy.deepcopy(edit["value"])
        case "splice":
            parent, name = _parent(document, edit["path"])
            text: str = parent[name]
            parent[name] = text[: edit["start"]] + edit["value"] + text[edit["end"] :]
        case "parse":
            parent, name = _parent(document, edit["path"])
            parent[name] = load(parent[name])
        case op:
            raise ValueError(f"the operation {op!r} is not known")


def _parent(document: dict[str, Any], path: str) -> tuple[Any, Any]:
    """The object or list around a place, and its key there."""
    *above, last = (name.replace("~1", "/").replace("~0", "~") for name in path.split("/"))
    value: Any = document
    for name in above:
        value = value[int(name)] if isinstance(value, list) else value[name]
    return value, (int(last) if isinstance(value, list) else last)


def _insert(document: dict[str, Any], path: str, value: Any) -> None:
    parent, name = _parent(document, path)
    if isinstance(parent, list):
        parent.insert(name, value)
    else:
        parent[name] = value


def _take(document: dict[str, Any], path: str) -> Any:
    parent, name = _parent(document, path)
    return parent.pop(name)
