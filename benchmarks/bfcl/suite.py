"""Reads the tools of BFCL v4, and draws requests from them.

The data is in the folder `berkeley-function-call-leaderboard/bfcl_eval/data` of ShishirPatil/gorilla (Apache 2.0). Its
types are those of Python, Java and JavaScript. They become types of JSON Schema as BFCL makes tools of OpenAI's form:
a float is a number with the format "float", a tuple is an array, and what the benchmark's own table does not name is a
string, `any` and `Boolean` among them. Dots in names become underscores. BFCL does not translate the properties of
objects in lists of lists; what it leaves there is left here, too.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

KINDS = ("simple", "multiple", "parallel", "live")
_DATA = Path("berkeley-function-call-leaderboard", "bfcl_eval", "data")
_PREFIX = "BFCL_v4_"
_JSON_TYPES = {
    "array": ("array", "list", "tuple", "ArrayList", "Array", "Queue", "Stack"),
    "boolean": ("boolean", "bool"),
    "integer": ("integer", "byte", "short", "long", "Bigint"),
    "number": ("number", "float", "double"),
    "object": ("object", "dict", "HashMap", "Hashtable"),
}
_TYPES = {name: json_type for json_type, names in _JSON_TYPES.items() for name in names}
Schema = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool as a request has it.

    category    the file that has it, without prefix and ending
    parameters  the JSON schema of its arguments
    """

    name: str
    category: str
    parameters: Schema


def read_tools(folder: Path) -> list[Tool]:
    """All different tools of the files, each once. Two tools of one name may have other parameters.

    folder  the checkout, or its folder of files
    Raises FileNotFoundError where there is none.
    """
    inside = folder / _DATA
    paths = sorted((inside if inside.is_dir() else folder).glob(f"{_PREFIX}*.json"))
    paths = [path for path in paths if any(kind in path.stem for kind in KINDS)]
    if not paths:
        raise FileNotFoundError(f"{folder} has no files of BFCL v4")
    found: dict[str, Tool] = {}
    for path in paths:
        for line in path.read_text(encoding="utf-8").splitlines():
            for tool in json.loads(line).get("function", ()):
                name = tool["name"].replace(".", "_")
                parameters = {**tool["parameters"], "type": "object"}
                parameters["properties"] = _translated_all(parameters.get("properties", {}))
                found.setdefault(
                    json.dumps([name, parameters]), Tool(name, path.stem.removeprefix(_PREFIX), parameters)
                )
    return list(found.values())


def _translated_all(properties: dict[str, Schema]) -> dict[str, Schema]:
    return {name: _translated(schema) for name, schema in properties.items()}


def _translated(schema: Schema) -> Schema:
    """A property with types of JSON Schema."""
    translated = schema | {"type": _TYPES.get(schema.get("type", ""), "string")}
    if schema.get("type") == "float":
        translated["format"] = "float"
    if translated["type"] in ("array", "object"):
        if "properties" in schema:
            translated["properties"] = _translated_all(schema["properties"])
        elif "items" in schema:
            translated["items"] = _translated_items(schema["items"])
    return translated


def _translated_items(items: Schema) -> Schema:
    translated = items | {"type": _TYPES.get(items.get("type", ""), "string")}
    if translated["type"] == "array" and "items" in items:
        translated["items"] = items["items"] | {"type": _TYPES.get(items["items"].get("type", ""), "string")}
    elif translated["type"] == "object" and "properties" in items:
        translated["properties"] = _translated_all(items["properties"])
    return translated


def draw_requests(tools: Sequence[Tool], size: int, count: int, seed: int) -> list[list[Tool]]:
    """Sets of tools with different names. Raises ValueError where there are fewer names than a set has tools."""
    rng = random.Random(f"{seed} {size}")
    drawn = []
    for _ in range(count):
        by_name: dict[str, Tool] = {}
        for tool in rng.sample(tools, len(tools)):
            if len(by_name) < size:
                by_name.setdefault(tool.name, tool)
        if len(by_name) < size:
            raise ValueError(f"there are only {len(by_name)} different names of tools")
        drawn.append(list(by_name.values()))
    return drawn
