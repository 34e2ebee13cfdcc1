"""Arguments whose strings stand between quotes, as Gemma 4 writes them."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from app.formats import MarkerSplitter, chat_format, schema_arguments
from compiler.pipeline import compile_text
from compiler.spec import spec_from_json
from compiler.text import check_text
from tests.app.openai.chat_models import small_family

ITEM = {"type": "object", "properties": {"s": {"type": "string"}, "n": {"type": "integer"}}, "required": ["s"]}
WORD = {"type": "string", "pattern": "^[a-z]+$"}
MAYBE = {"anyOf": [{"type": "string"}, {"type": "null"}]}
EMPTY: dict[str, Any] = {"enum": []}


def object_of(required: str = "", **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required.split()}


def nested(levels: int) -> dict[str, Any]:
    return {"type": "string"} if levels == 0 else object_of("x", x=nested(levels - 1))


CASES: list[tuple[dict[str, Any], str, Any]] = [
    (object_of(), "{}", {}),
    (object_of(s={"type": "string"}), '{s:<|"|>a "b", {c}: <|<|"|>}', {"s": 'a "b", {c}: <|'}),
    (object_of("b", a={"type": "integer"}, b={"type": "boolean"}, C={"type": "number"}),
     "{a:1,b:true,C:-1.5}", {"a": 1, "b": True, "C": -1.5}),
    (object_of("b", a={"type": "integer"}, b={"type": "boolean"}), "{b:false}", {"b": False}),
    (object_of("b", a={"type": "integer"}, b={"type": "boolean"}), "{b:false,a:1}", None),
    (object_of(a={"type": "integer"}, b={"type": "integer"}), "{b:1}", {"b": 1}),
    (object_of(a={"type": "integer"}, b={"type": "integer"}), "{a:1,}", None),
    (object_of(e={"enum": ["x", "y z"]}), '{e:<|"|>y z<|"|>}', {"e": "y z"}),
    (object_of(e={"enum": ["x", "y z"]}), '{e:<|"|>y<|"|>}', None),
    (object_of(e={"enum": ["x", 1]}), '{e:"x"}', {"e": "x"}),
    (object_of(m=MAYBE), '{m:<|"|>null<|"|>}', {"m": "null"}),
    (object_of(m=MAYBE), "{m:null}", {"m": None}),
    (object_of(m={"type": ["string", "integer"], "enum": [1, 2]}), "{m:2}", {"m": 2}),
    (object_of(a={"type": "array", "items": ITEM, "maxItems": 2}),
     '{a:[{s:<|"|>]<|"|>},{n:1,s:<|"|><|"|>}]}', {"a": [{"s": "]"}, {"n": 1, "s": ""}]}),
    (object_of(a={"type": "array", "items": {"type": "integer"}, "maxItems": 2}), "{a:[1,2,3]}", None),
    (object_of(a={"type": "array", "items": EMPTY}, b={"type": "array", "minItems": 2, "maxItems": 1}), "{}", {}),
    (object_of(a={"type": "array"}), '{a:["x",{"y": null}]}', {"a": ["x", {"y": None}]}),
    (object_of(a={"type": "array", "uniqueItems": True, "items": {"enum": ["x"]}}), '{a:["x"]}', {"a": ["x"]}),
    (object_of(w=WORD), '{w:"ab"}', {"w": "ab"}),
    (object_of(w=WORD), '{w:"a b"}', None),
    ({**object_of(r={"$ref": "#/$defs/R"}), "$defs": {"R": ITEM}}, '{r:{"s": "<|\\"|>"}}', {"r": {"s": '<|"|>'}}),
    ({**object_of(a={"type": "integer"}), "minProperties": 1}, '{"a": 1}', {"a": 1}),
    ({**object_of(a={"type": "integer"}), "minProperties": 1}, "{}", None),
    (nested(3), '{x:{x:{x:<|"|>a<|"|>}}}', {"x": {"x": {"x": "a"}}}),
    (nested(6), '{x:{x:{x:{"x": {"x": {"x": "a"}}}}}}', {"x": {"x": {"x": {"x": {"x": {"x": "a"}}}}}}),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "text", "value"), CASES, ids=[text for _, text, _ in CASES])
def test_quoted_arguments_satisfy_their_schema_and_are_read(schema: dict[str, Any], text: str, value: Any) -> None:
    files = small_family("gemma4")
    arguments = schema_arguments(schema, chat_format(files.chat_template).calls, MarkerSplitter(files), {})
    written = compile_text(spec_from_json({"sequence": arguments.parts}))
    assert check_text(written, text).satisfied == (value is not None)
    if value is not None:
        jsonschema.validate(value, schema)
        read, end = arguments.reader.read(text + "<tool_call|>", 0, lambda _: True)
        assert json.loads(read) == value and end == len(text)


def test_json_in_quoted_arguments_has_its_place_in_the_schema() -> None:
    files, words = small_family("gemma4"), {"type": "array", "items": WORD}
    schema = object_of(m={"anyOf": [WORD, {"type": "null"}]}, a=words)
    arguments = schema_arguments(schema, chat_format(files.chat_template).calls, MarkerSplitter(files), {})
    paths = {path for path, _ in arguments.schemas()}
    assert paths == {"properties.a.items", "properties.m.anyOf.0", "properties.m.anyOf.1"}
