"""Structural tags of other servers, with texts that they accept and reject."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from app.errors import InvalidRequest
from app.openai.constraints import parse_constraint
from app.openai.requests import ChatRequest
from app.openai.structural_tags import structural_tag
from compiler.pipeline import compile_text
from compiler.spec import spec_from_json
from compiler.text import check_text

OBJECT = {"type": "json_schema", "json_schema": {"type": "object", "properties": {"city": {"type": "string"}}}}
NUMBER = {"type": "json_schema", "json_schema": {"type": "integer"}}


def constant(value: str) -> dict[str, str]:
    return {"type": "const_string", "value": value}


def tag(begin: object, content: object, end: object) -> dict[str, object]:
    return {"type": "tag", "begin": begin, "content": content, "end": end}


def token(name: str) -> dict[str, str]:
    return {"type": "token", "token": name}


def parameters(schema: dict[str, object], style: str = "qwen_xml") -> dict[str, object]:
    return {"type": "json_schema", "style": style, "json_schema": schema}


WEATHER, TIME = (tag(f"<f={name}>", content, "</f>") for name, content in (("weather", OBJECT), ("time", NUMBER)))
CALLS = {"type": "triggered_tags", "triggers": ["<f="], "tags": [WEATHER, TIME]}
ITEMS = {"type": "tags_with_separator", "tags": [tag("<i>", NUMBER, "</i>")], "separator": ","}
SPECIAL = {
    "type": "token_triggered_tags", "trigger_tokens": ["<|call|>"], "exclude_tokens": ["<|eos|>"],
    "tags": [tag(token("<|call|>"), NUMBER, token("<|end|>"))],
}  # fmt: skip
ANY = {"type": "any_text"}
DISPATCH = {"type": "dispatch", "rules": [["<a>", NUMBER], ["<b>", constant("x")]], "excludes": ["</e>"]}


@pytest.mark.parametrize(("form", "accepted", "rejected"), [
    (constant("Let's think."), ["Let's think."], ["Let's", ""]),
    (OBJECT, ['{"city": "Rome"}', "{}"], ["[]", ""]),
    ({**OBJECT, "style": "json", "any_order": True}, ["{}"], ["1"]),
    ({"type": "grammar", "grammar": 'root ::= ("yes" | "no")'}, ["yes", "no"], ["yesno"]),
    ({"type": "regex", "pattern": "[A-Z]{3}-[0-9]{4}"}, ["ABC-1234"], ["ABC-123"]),
    (ANY, ["", "a b"], []),
    ({**ANY, "excludes": ["<f="]}, ["", "<f"], ["a <f=b"]),
    ({**ANY, "max_chars": 3, "excludes": ["x"]}, ["abc", ""], ["abcd", "x"]),
    ({**ANY, "max_tokens": 0}, [""], ["a"]),
    ({**ANY, "max_chars": 3, "max_tokens": 9, "excludes": ["x"]}, ["abc", "éé", ""], ["abcd", "ax"]),
    ({**ANY, "max_chars": 0, "max_tokens": 9}, [""], ["a"]),
    (tag("<think>", {**ANY, "max_tokens": 16, "max_chars": 4}, "</think>"),
     ["<think>abcd</think>", "<think></think>"], ["<think>abcde</think>", "<think>abc"]),
    ({"type": "sequence", "elements": [constant("Answer: "), OBJECT]}, ["Answer: {}"], ["{}", "Answer: "]),
    ({"type": "or", "elements": [constant("yes"), constant("no")]}, ["yes", "no"], ["maybe"]),
    ({"type": "optional", "content": constant("a")}, ["", "a"], ["aa"]),
    ({"type": "plus", "content": constant("a")}, ["a", "aaa"], [""]),
    ({"type": "star", "content": constant("a")}, ["", "aaa"], ["b"]),
    ({"type": "repeat", "min": 1, "max": 2, "content": constant("a")}, ["a", "aa"], ["", "aaa"]),
    ({"type": "repeat", "min": 2, "max": -1, "content": constant("a")}, ["aa", "aaaa"], ["a"]),
    (tag("<think>", ANY, "</think>"), ["<think>a < b</think>"], ["<think>a</think>b</think>", "<think>"]),
    (tag("<r>", OBJECT, ["</r>", "</a>"]), ["<r>{}</r>", "<r>{}</a>"], ["<r>{}"]),
    (tag("<r>", {"type": "star", "content": {**ANY, "max_tokens": 4}}, "</r>"), ["<r>ab</r>", "<r></r>"], ["<r>ab"]),
    (CALLS, ["", "I call <f=weather>{}</f>, <f=time>12</f>.", "<f=time>1</f>"], ["<f=", "<f=time>x</f>", "a <f=b>"]),
    ({**CALLS, "at_least_one": True}, ["<f=time>1</f> so", "<f=time>1</f><f=weather>{}</f>"], ["", "a <f=time>1</f>"]),
    ({**CALLS, "stop_after_first": True}, ["so", "so <f=time>1</f>"], ["<f=time>1</f>.", "<f=time>1</f><f=time>1</f>"]),
    ({**CALLS, "at_least_one": True, "stop_after_first": True}, ["<f=time>1</f>"], ["", "<f=time>1</f> "]),
    ({**CALLS, "excludes": ["stop"]}, ["go <f=time>1</f>"], ["stop", "stop <f=time>1</f>"]),
    (tag("<r>", CALLS, "</r>"), ["<r>a <f=time>1</f></r>", "<r></r>"], ["<r>a</r>b</r>", "<r>a</r><f=time>1</f></r>"]),
    (ITEMS, ["", "<i>1</i>", "<i>1</i>,<i>22</i>"], ["<i>1</i>,", "<i>1</i><i>2</i>"]),
    ({**ITEMS, "at_least_one": True, "stop_after_first": True}, ["<i>1</i>"], ["", "<i>1</i>,<i>2</i>"]),
    (DISPATCH, ["", "a <a>1 b <b>x", "<b>xy"], ["<a>x", "</e>", "a </e> <a>1"]),
    ({**DISPATCH, "loop": False}, ["text", "text <a>1"], ["<b>x.", "<b>x<b>x"]),
    (tag("<e>", DISPATCH, "</e>"), ["<e>a <b>x</e>"], ["<e></e></e>"]),
    (tag(token("<|t|>"), {"type": "any_tokens"}, token("<|/t|>")), ["<|t|>a b<|/t|>"], ["a", "<|t|>a"]),
    (tag(token("<|t|>"), {"type": "any_tokens", "max_tokens": 0}, token("<|/t|>")), ["<|t|><|/t|>"], ["<|t|>a<|/t|>"]),
    (SPECIAL, ["", "a <|call|>1<|end|> b"], []),
    ({**SPECIAL, "at_least_one": True, "stop_after_first": True}, ["<|call|>1<|end|>"], ["", "<|call|>x<|end|>"]),
    ({"type": "token_dispatch", "rules": [["<|t|>", constant("x")]], "loop": False}, ["a<|t|>x", "a"], []),
])  # fmt: skip
def test_formats_accept_their_texts(form: dict[str, object], accepted: list[str], rejected: list[str]) -> None:
    spec = spec_from_json(structural_tag({"type": "structural_tag", "format": form}, "response_format"))
    text = compile_text(spec)
    assert [each for each in accepted if not check_text(text, each).satisfied] == []
    assert [each for each in rejected if check_text(text, each).satisfied] == []


PERSON = {"type": "object", "required": ["name", "age"], "properties": {
    "name": {"type": "string"}, "age": {"type": "integer"}, "tags": {"type": "array", "items": {"$ref": "#/$defs/Tag"}},
    "kind": {"$ref": "#/$defs/Kind"}, "nick": {"anyOf": [{"type": "string"}, {"type": "null"}]},
    "size": {"anyOf": [{"type": "integer"}, {"enum": ["big", 1.5, None]}], "title": "Size"},
}, "$defs": {"Tag": {"enum": ["x", "y"]}, "Kind": {"enum": ["a b", "c", 7], "type": "string"}}}  # fmt: skip


@pytest.mark.parametrize(("schema", "accepted", "rejected"), [
    (PERSON,
     ["name=Bob|age=100|", "\n|name=\nBob\n|\n|age=\n100\n|\n",
      'name="<b>|age=-1|tags=["x", "y"]|kind=a b|nick=|size=big|',
      "name=a\nb|age=0|nick=null|size=5|", "name=|age=0|size=1.5|"],
     ["age=1|name=Bob|", "name=Bob|", "name=Bob|age=x|", "name=Bob|age=1|kind=7|", "name=Bob|age=1|size=big |",
      'name=Bob|age=1|tags=["z"]|', "name=Bob|age=1|other=2|", "name=Bob|age=1", "name=Bob|age=1|tags=x|"]),
    ({"required": ["a"], "additionalProperties": {"const": True}}, ["a=true|"], ["", "a=false|"]),
    ({"properties": {"a": {"enum": ["", "é"]}}}, ["", "a=|", "a=é|"], ["a=\u00e9\u00e9|"]),
])  # fmt: skip
@pytest.mark.parametrize("style", ["qwen_xml", "minimax_xml"])
def test_parameters_have_markup_of_their_own(
    schema: dict[str, Any], accepted: list[str], rejected: list[str], style: str
) -> None:
    """The styles of https://xgrammar.mlc.ai/docs/structural_tag/structural_tag.html."""
    begin, end = ("<parameter=", ">") if style == "qwen_xml" else ('<parameter name="', '">')

    def text(short: str) -> str:
        pieces = re.sub(r"(\w+)=", rf"{begin}\1{end}", short).split("|")
        # A bar ends a parameter; a piece without one is what stands between two.
        return "".join(piece + ("</parameter>" if begin in piece else "") for piece in pieces[:-1]) + pieces[-1]

    spec = spec_from_json(structural_tag({"format": tag("<f>", parameters(schema, style), "</f>")}, "response_format"))
    machine = compile_text(spec)
    assert [each for each in accepted if not check_text(machine, f"<f>{text(each)}</f>").satisfied] == []
    assert [each for each in rejected if check_text(machine, f"<f>{text(each)}</f>").satisfied] == []


TRIP = {"type": "object", "required": ["to", "days"], "properties": {
    "to": {"type": "string"}, "days": {"type": "integer"}, "note": {"type": ["string", "null"]},
    "class": {"enum": ["first", 2, None]}, "cost": {"anyOf": [{"type": "number"}, {"$ref": "#/$defs/Free"}]},
    "stops": {"type": "array", "items": {"type": "string"}, "maxItems": 2},
    "guest": {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]},
}, "$defs": {"Free": {"const": "free"}}}  # fmt: skip
GLM = "<arg_key>{}</arg_key><arg_value>{}</arg_value>"
DEEPSEEK = '<｜DSML｜parameter name="{}" string="{}">{}</｜DSML｜parameter>'
COHERE = '<cofl:value name="{}" type="{}">{}</cofl:value>'
ITEM = '<cofl:value type="{}">{}</cofl:value>'
KIMI = '<|open|>argument key="{}" type="{}"<|sep|>{}<|close|>argument<|sep|>'
STYLED: list[tuple[str, list[list[str]], list[list[str]]]] = [
    ("glm_xml",
     [[GLM.format("to", "Rome"), GLM.format("days", 3)],
      [GLM.format("to", ""), "\n", GLM.format("days", "\n3\n"), "\n"],
      ["<arg_key>to</arg_key>\n<arg_value>a < b\n</arg_value>", GLM.format("days", 3), GLM.format("note", "null"),
       GLM.format("class", "first"), GLM.format("cost", "free"), GLM.format("stops", '["a", "b"]'),
       GLM.format("guest", '{"age": 7}')]],
     [[GLM.format("to", "Rome")], [GLM.format("days", 3), GLM.format("to", "Rome")],
      [GLM.format("to", "Rome"), GLM.format("days", "three")], ["<arg_key>to</arg_key>Rome", GLM.format("days", 3)],
      [GLM.format("to", "Rome"), GLM.format("days", 3), GLM.format("class", 3)]]),
    ("deepseek_xml",
     [[DEEPSEEK.format("to", "true", "Rome"), DEEPSEEK.format("days", "false", 3)],
      [DEEPSEEK.format("to", "true", "<b>"), "\n", DEEPSEEK.format("days", "false", "\n3"), "\n",
       DEEPSEEK.format("note", "true", "so"), DEEPSEEK.format("class", "false", 2)],
      [DEEPSEEK.format("to", "true", ""), DEEPSEEK.format("days", "false", -3),
       DEEPSEEK.format("note", "false", "null"), DEEPSEEK.format("class", "true", "first"),
       DEEPSEEK.format("cost", "false", 1.5), DEEPSEEK.format("guest", "false", '{"age": 7}')]],
     [[DEEPSEEK.format("to", "false", "Rome"), DEEPSEEK.format("days", "false", 3)],
      [DEEPSEEK.format("to", "true", "Rome"), DEEPSEEK.format("days", "true", 3)],
      [DEEPSEEK.format("to", "true", "Rome"), DEEPSEEK.format("days", "false", 3),
       DEEPSEEK.format("class", "true", 2)],
      [DEEPSEEK.format("to", "true", "Rome")]]),
    ("cohere_xml",
     [[COHERE.format("to", "raw", "Rome"), COHERE.format("days", "json", 3)],
      [COHERE.format("to", "raw", "Rome"), COHERE.format("days", "json", 3), COHERE.format("class", "raw", "first"),
       COHERE.format("cost", "raw", "free"), COHERE.format("stops", "list", ITEM.format("raw", "a") * 2),
       COHERE.format("guest", "dict", COHERE.format("age", "json", 7))],
      [COHERE.format("to", "raw", "Rome"), COHERE.format("days", "json", 3), COHERE.format("note", "json", "null"),
       COHERE.format("class", "json", "null"), COHERE.format("stops", "list", "")]],
     [[COHERE.format("to", "json", "Rome"), COHERE.format("days", "json", 3)],
      [COHERE.format("to", "raw", "Rome"), COHERE.format("days", "raw", 3)],
      [COHERE.format("to", "raw", "Rome"), COHERE.format("days", "json", 3),
       COHERE.format("stops", "list", ITEM.format("raw", "a") * 3)],
      [COHERE.format("to", "raw", "Rome"), COHERE.format("days", "json", 3), COHERE.format("guest", "dict", "")],
      [COHERE.format("to", "raw", "Rome"), COHERE.format("days", "json", 3),
       COHERE.format("guest", "json", '{"age": 7}')]]),
    ("kimi_k3_xml",
     [[KIMI.format("to", "string", "Rome"), KIMI.format("days", "number", 3)],
      [KIMI.format("to", "string", "<close>"), KIMI.format("days", "number", 3), KIMI.format("note", "null", "null"),
       KIMI.format("class", "number", 2), KIMI.format("cost", "string", "free"),
       KIMI.format("stops", "array", '["a"]'), KIMI.format("guest", "object", '{"age": 7}')]],
     [[KIMI.format("to", "number", "Rome"), KIMI.format("days", "number", 3)],
      [KIMI.format("to", "string", "Rome"), KIMI.format("days", "integer", 3)],
      [KIMI.format("to", "string", "Rome")],
      [KIMI.format("to", "string", "Rome"), KIMI.format("days", "number", 3), KIMI.format("class", "string", 2)]]),
]


@pytest.mark.parametrize(("style", "accepted", "rejected"), STYLED, ids=[style for style, _, _ in STYLED])
def test_each_style_writes_the_types_of_its_values(
    style: str, accepted: list[list[str]], rejected: list[list[str]]
) -> None:
    """Schemas like those of XGrammar's documentation, with other names."""
    spec = spec_from_json(structural_tag({"format": tag("<f>", parameters(TRIP, style), "</f>")}, "response_format"))
    machine = compile_text(spec)
    texts = {verdict: ["<f>" + "".join(each) + "</f>" for each in pieces] for verdict, pieces in
             ((True, accepted), (False, rejected))}  # fmt: skip
    assert [each for each in texts[True] if not check_text(machine, each).satisfied] == []
    assert [each for each in texts[False] if check_text(machine, each).satisfied] == []


def test_definitions_that_multiply_are_refused_fast() -> None:
    level = {"type": "object", "properties": {f"p{n}": {"$ref": "#/$defs/A"} for n in range(20)}}
    schema = {**level, "$defs": {"A": level}}
    with pytest.raises(InvalidRequest, match="inside each other"):
        structural_tag({"format": parameters(schema, "cohere_xml")}, "f")


NAMES = {"<|call|>": 7, "<|end|>": 8, "</s>": 9}


def test_tokens_are_named_by_their_ids() -> None:
    by_name = tag(token("<|call|>"), {"type": "any_tokens", "exclude_tokens": ["</s>"]}, token("<|end|>"))
    by_id = tag({"type": "token", "token": 7}, {"type": "any_tokens", "exclude_tokens": [9]},
                {"type": "token", "token": 8})  # fmt: skip
    expected = structural_tag({"format": by_name}, "f", NAMES)
    assert structural_tag({"format": by_id}, "f", NAMES) == expected
    dispatch = {"type": "token_dispatch", "rules": [[7, constant("x")]], "exclude_tokens": [9]}
    named = {"type": "token_dispatch", "rules": [["<|call|>", constant("x")]]}
    assert structural_tag({"format": dispatch}, "f", NAMES) == structural_tag({"format": named}, "f", NAMES)


def test_any_number_of_single_tokens_is_free_text() -> None:
    one = {"type": "exclude_token", "exclude_tokens": ["</s>"]}
    free = structural_tag({"format": {"type": "any_tokens", "exclude_tokens": ["</s>"]}}, "f", NAMES)
    assert structural_tag({"format": {"type": "star", "content": one}}, "f", NAMES) == free
    bounded = {"type": "repeat", "min": 0, "max": 5, "content": one}
    assert structural_tag({"format": bounded}, "f", NAMES) == {"sequence": [{"free": {"max_tokens": 5}}]}


@pytest.mark.parametrize(("form", "field", "says"), [
    ({"type": "token", "token": 42}, "token", "text may be spelled in any tokens"),
    ({"type": "any_tokens", "exclude_tokens": ["dog"]}, "exclude_tokens.0", "exclude its text"),
    ({"type": "any_tokens", "exclude_tokens": ["</s>", 42]}, "exclude_tokens.1", "id of no special"),
    ({"type": "exclude_token"}, "type", "exactly one token"),
    ({"type": "star", "content": {"type": "exclude_token", "exclude_tokens": ["dog"]}},
     "content.exclude_tokens.0", "exclude its text"),
    ({"type": "plus", "content": {"type": "exclude_token"}}, "content.type", "exactly one token"),
])  # fmt: skip
def test_tokens_of_text_are_refused(form: dict[str, object], field: str, says: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        structural_tag({"format": form}, "f", NAMES)
    assert caught.value.errors[0]["path"] == f"f.format.{field}"
    assert says in caught.value.errors[0]["message"]


RAIN = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def test_the_example_of_vllm_is_accepted() -> None:
    """That of https://docs.vllm.ai/en/v0.8.5/getting_started/examples/ (structural tag), with other names."""
    shape = {"type": "structural_tag", "triggers": ["<function="], "structures": [
        {"begin": "<function=rain_in>", "schema": RAIN, "end": "</function>"}
    ]}  # fmt: skip
    machine = compile_text(spec_from_json(structural_tag(shape, "f")))
    call = '<function=rain_in>{"city": "Bergen"}</function>'
    for text in ("Dry.", call, f"I look it up: {call}", f"{call} and {call}, then."):
        assert check_text(machine, text).satisfied, text
    for text in ("<function=", call[:-1], call.replace("rain_in", "rain"), call.replace("city", "town")):
        assert not check_text(machine, text).satisfied, text


def test_an_example_of_xgrammar_thinks_and_calls() -> None:
    """That of https://xgrammar.mlc.ai/docs/structural_tag/structural_tag.html ("Mix Reasoning"), with other names."""
    calls = {"type": "triggered_tags", "triggers": ["<function="], "tags": [
        tag(f"<function={name}>", {"type": "json_schema", "json_schema": RAIN}, "</function>") for name in ("a", "b")
    ]}  # fmt: skip
    form = {"type": "sequence", "elements": [tag("<think>", ANY, "</think>"), calls]}
    spec = spec_from_json(structural_tag({"format": form}, "f"))
    machine = compile_text(spec)
    call = '<function=b>{"city": "Bergen"}</function>'
    assert check_text(machine, f"<think>Hm <function=</think>So: {call}.").satisfied
    for text in (call, f"<think>Hm {call}", "<think></think><function=c>{}</function>"):
        assert not check_text(machine, text).satisfied, text


FIRST_SHAPE = {"structures": [{"begin": "<f=g>", "schema": {"type": "integer"}, "end": "</f>"}], "triggers": ["<f="]}


@pytest.mark.parametrize("fields", [
    {"response_format": {"type": "structural_tag", "format": CALLS}},
    {"response_format": {"type": "structural_tag", **FIRST_SHAPE}},
    {"structured_outputs": {"structural_tag": {"type": "structural_tag", "format": CALLS}}},
    {"structured_outputs": {"structural_tag": json.dumps({"type": "structural_tag", **FIRST_SHAPE})}},
])  # fmt: skip
def test_requests_take_structural_tags(fields: dict[str, Any]) -> None:
    parsed = parse_constraint(ChatRequest(messages=[{"role": "user", "content": "a"}], **fields))
    assert parsed is not None and set(parsed.constraint) == {"sequence"}
    spec_from_json(parsed.constraint)


@pytest.mark.parametrize(("form", "field", "says"), [
    ({"type": "any_txt"}, "type", "did you mean any_text"),
    ({"type": "exclude_token"}, "type", "not supported"),
    ({"type": "const_string"}, "value", "required"),
    ({**ANY, "exclude": ["a"]}, "exclude", "did you mean excludes"),
    ({**OBJECT, "style": "llama_xml"}, "style", "qwen_xml, minimax_xml"),
    (parameters({"properties": {"a": {"type": "array"}}}, "cohere_xml"),
     "json_schema.properties.a", "arrays with items"),
    (parameters({"properties": {"a": {"type": "object", "minProperties": 1}}}, "cohere_xml"),
     "json_schema.properties.a", "alone"),
    ({**OBJECT, "style": "qwen_xml", "any_order": True}, "any_order", "qwen_xml"),
    (parameters({"minProperties": 1}), "json_schema", "alone"),
    (parameters({"type": "array"}), "json_schema", "alone"),
    (parameters({"properties": []}), "json_schema", "object"),
    (parameters({"required": [{}]}), "json_schema", "names"),
    (parameters({"properties": {"a": {"type": [{}]}}}), "json_schema.properties.a", "further"),
    (parameters({"properties": {"a b": {}}}), "json_schema.properties.a b", "letters"),
    (parameters({"properties": {"a": {"type": "string", "pattern": "x"}}}), "json_schema.properties.a", "further"),
    (parameters({"properties": {"a": {"enum": ["</parameter>"]}}}), "json_schema.properties.a", "further"),
    (parameters({"properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"$ref": "#/$defs/A"}}}),
     "json_schema.properties.a", "further"),
    (parameters({"required": ["a"], "additionalProperties": False}), "json_schema.properties.a", "further"),
    ({"type": "token", "token": 42}, "token", "name"),
    ({"type": "sequence", "elements": [constant("a"), {"type": "regex", "pattern": 1}]},
     "elements.1.pattern", "string"),
    ({**CALLS, "triggers": ["<g="]}, "tags.0.begin", "exactly one"),
    ({**CALLS, "triggers": ["<f=", "f="]}, "", "part of another"),
    ({**CALLS, "tags": [constant("a")]}, "tags.0", "tag"),
    ({**DISPATCH, "rules": [["<a>"]]}, "rules.0", "pair"),
])  # fmt: skip
def test_faults_are_named(form: dict[str, object], field: str, says: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        structural_tag({"type": "structural_tag", "format": form}, "response_format")
    assert caught.value.errors[0]["path"] == f"response_format.format.{field}".rstrip(".")
    assert says in caught.value.errors[0]["message"]
