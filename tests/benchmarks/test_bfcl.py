"""The benchmark on the tools of BFCL."""

from __future__ import annotations

import json
from argparse import Namespace
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from benchmarks.bfcl.__main__ import (
    MODULE,
    count_translations,
    draw_order,
    measure_rows,
    request_for,
    row_of,
    versions_of,
)
from benchmarks.bfcl.forms import calls_are_valid, request_form
from benchmarks.bfcl.suite import Tool, draw_requests, read_tools
from benchmarks.compiler.engine_process import EngineProcess
from benchmarks.compiler.engines import read_vocabulary
from benchmarks.report import bfcl as report
from benchmarks.report.results_page import stored_runs
from compiler.pipeline import compile_text
from compiler.spec import spec_from_json
from compiler.text import check_text
from compiler.vocab import byte_vocabulary

PAY: dict[str, Any] = {
    "type": "object", "properties": {"amount": {"type": "number", "format": "float"}, "to": {"type": "string"}},
    "required": ["amount"], "additionalProperties": False,
}  # fmt: skip
TOOLS = [Tool("pay", "simple", PAY), Tool("wait", "simple", {"type": "object", "properties": {}})]
ARGUMENTS: Any = Namespace(seed=1, calls=2, time_limit=60.0, memory_limit_gb=4)


def call(name: str, arguments: str) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


def write(folder: Path, name: str, *functions: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"id": "x", "function": [function]}) for function in functions]
    (folder / f"BFCL_v4_{name}.json").write_text("\n".join(lines), encoding="utf-8")


def test_types_are_translated_as_the_benchmark_does(tmp_path: Path) -> None:
    inner = {"type": "dict", "properties": {"deep": {"type": "tuple", "items": {"type": "float"}}}}
    deeper = {"type": "dict", "properties": {"x": {"type": "dict"}}}
    properties = {
        "a": {"type": "float"}, "b": {"type": "any"}, "c": {"type": "Boolean"}, "d": {"description": "untyped"},
        "e": {"type": "array", "items": inner},
        "f": {"type": "array", "items": {"type": "array", "items": deeper}},
    }  # fmt: skip
    write(tmp_path, "simple_python", {"name": "a.b", "parameters": {"type": "dict", "properties": properties}})
    (tool,) = read_tools(tmp_path)
    assert (tool.name, tool.category, tool.parameters["type"]) == ("a_b", "simple_python", "object")
    found = tool.parameters["properties"]
    assert found["a"] == {"type": "number", "format": "float"}
    assert [found[name]["type"] for name in "bcd"] == ["string", "string", "string"]
    assert found["e"]["items"]["properties"]["deep"] == {"type": "array", "items": {"type": "number"}}
    left = found["f"]["items"]["items"]  # the benchmark goes no deeper into lists of lists
    assert left["type"] == "object" and left["properties"] == {"x": {"type": "dict"}}


def test_equal_tools_are_read_once(tmp_path: Path) -> None:
    one: dict[str, Any] = {"name": "a", "parameters": {"type": "dict", "properties": {}}}
    other = {"name": "a", "parameters": {"type": "dict", "properties": {"b": {"type": "string"}}}}
    folder = tmp_path / "berkeley-function-call-leaderboard" / "bfcl_eval" / "data"
    write(folder, "live_simple", one, one)
    write(folder, "parallel", other, one)
    write(folder, "memory", {"name": "c", "parameters": {"type": "dict", "properties": {}}})
    assert [(tool.name, tool.category) for tool in read_tools(tmp_path)] == [("a", "live_simple"), ("a", "parallel")]
    with pytest.raises(FileNotFoundError, match="no files of BFCL"):
        read_tools(tmp_path / "elsewhere")


def test_the_names_of_a_request_are_different() -> None:
    tools = [Tool(name, "simple", {"number": number}) for number in range(3) for name in "abcd"]
    drawn = draw_requests(tools, 4, 20, seed=1)
    assert all(sorted(tool.name for tool in request) == list("abcd") for request in drawn)
    assert drawn == draw_requests(tools, 4, 20, seed=1) != draw_requests(tools, 4, 20, seed=2)
    with pytest.raises(ValueError, match="only 4 different names"):
        draw_requests(tools, 5, 1, seed=1)
    assert sorted(draw_order(9, 1)) == list(range(9)) and draw_order(9, 1) != draw_order(9, 2)


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        (call("pay", '{"amount": 1.5}'), True),
        (f'{call("pay", chr(123) + chr(34) + "amount" + chr(34) + ": 1}")}\n{call("wait", "{}")}', True),
        (call("pay", '{"amount": 1.5, "to": "</tool_call>"}'), True),
        (call("pay", "{}"), False),
        (call("pay", '{"amount": 1.5'), False),
        (call("other", "{}"), False),
        (call("pay", '{"amount": 1.5}') + "\n", False),
        (call("pay", '{"amount": 1.5}')[:-1], False),
        ("", False),
    ],
)
def test_texts_of_calls_are_judged_whole(text: str, valid: bool) -> None:
    schemas = {tool.name: tool.parameters for tool in TOOLS}
    assert calls_are_valid(text, schemas) is valid
    ours = compile_text(spec_from_json(json.loads(request_form("ours", TOOLS, byte_vocabulary()).text)))
    assert check_text(ours, text).satisfied is valid


def test_each_engine_gets_the_request_in_its_form() -> None:
    tag = json.loads(request_form("xgrammar", TOOLS, byte_vocabulary()).text)["format"]
    assert [each["begin"] for each in tag["tags"]] == [call(tool.name, "")[: -len("}\n</tool_call>")] for tool in TOOLS]
    assert tag["separator"] == "\n" and tag["at_least_one"]
    lark = request_form("llguidance", TOOLS, byte_vocabulary()).text.splitlines()
    assert lark[:2] == [r'start: call ("\n" call)*', "call: call_0 | call_1"] and len(lark) == 6
    with pytest.raises(ValueError, match="no form for outlines_core"):
        request_form("outlines_core", TOOLS, byte_vocabulary())


@pytest.mark.long
def test_all_our_calls_are_valid_and_end(tokenizer: Path) -> None:
    with ExitStack() as stack:
        process = EngineProcess("ours", tokenizer, stack, MODULE)
        vocabulary = read_vocabulary(tokenizer)
        row = row_of(process.measure(request_for("ours", TOOLS, vocabulary, None, args=ARGUMENTS)))
        refused = [Tool("pay", "simple", {"type": "object", "properties": {"a": {"type": "dict"}}})]
        second = row_of(process.measure(request_for("ours", refused, vocabulary, None, args=ARGUMENTS)))
    assert row["outcome"] == "ok" and row["ms"] > 0 and row["min_tokens"] > 5 and row["states"] > 0
    assert row["cut"] == row["whole"] == [[True, True]] * 2
    assert 0 < len(row["mask_us"]) <= 5 and len(row["text_ms"]) == 2 and "pay" not in json.dumps(row)
    assert second["outcome"] == "refused" and second["reason"]


def test_translations_are_counted_by_reason() -> None:
    refused = Tool("a", "simple", {"type": "object", "properties": {"a": {"type": "dict"}}})
    counts = count_translations([*TOOLS, refused])
    assert counts["ok"] == 2 and counts.total() == 3


def test_measured_requests_are_not_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"size": 1, "number": number, "engine": "ours", "outcome": "ok"} for number in range(2)]
    (tmp_path / "rows.jsonl").write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    monkeypatch.setattr("benchmarks.bfcl.__main__.ROWS", tmp_path / "rows.jsonl")
    arguments = Namespace(engines=[], sizes=[], requests=None, sample=None, shared=tmp_path, vocabulary="v", seed=1)
    assert list(measure_rows(TOOLS, byte_vocabulary(), arguments)) == []


def test_engines_that_are_not_measured_keep_their_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.bfcl.__main__.RUN", tmp_path / "run.json")
    assert versions_of(["ours"]) == {}
    (tmp_path / "run.json").write_text(json.dumps({"versions": {"xgrammar": "0.1"}}), encoding="utf-8")
    assert versions_of(["ours"]) == {"xgrammar": "0.1"}


def test_the_report_leaves_out_what_cannot_be_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = {
        "size": 1, "engine": "ours", "outcome": "ok", "ms": 12.0, "mask_us": [3.0, 5.0], "text_ms": [1.0],
        "whole": [[True, True]], "cut": [[True, True], [True, None]],
    }  # fmt: skip
    (tmp_path / "rows.jsonl").write_text(json.dumps(row), encoding="utf-8")
    monkeypatch.setattr(report, "ROWS", tmp_path / "rows.jsonl")
    text = report.bfcl_section(stored_runs()["bfcl"])
    assert " | 1.0 / 1.0 | 1 of 1 (100.0 %) | 1 of 1 (100.0 %) | 1 of 1 (100.0 %) |" in text
