"""The benchmark on the schemas of MaskBench."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from benchmarks.compiler.engine_process import EngineProcess
from benchmarks.compiler.engines import ExpressionRefused
from benchmarks.maskbench.__main__ import MODULE, request_for, row_of
from benchmarks.maskbench.checks import count_verdicts
from benchmarks.maskbench.measure import refusal
from benchmarks.maskbench.suite import SchemaCase, is_in, read_case, select
from benchmarks.report import maskbench as report
from benchmarks.report.results_page import stored_runs
from compiler.errors import CompileCancelled, LimitExceeded
from tests.references.json_validator import is_valid

SCHEMA = {
    "type": "object", "properties": {"b": {"type": "integer"}, "a": {"type": "string"}}, "required": ["a"],
    "additionalProperties": False,
}  # fmt: skip
TESTS = [({"b": 1, "a": "x"}, True), ({"a": "x", "b": 1}, True), ({"b": 1}, False), ({"a": 1}, False)]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "maskbench" / "data"
    folder.mkdir(parents=True)
    contents = {"A---1.json": SCHEMA, "A---2.json": {"type": "integer", "minimum": 5, "maximum": 3}}
    for name, schema in contents.items():
        tests = [{"data": data, "valid": valid, "description": ""} for data, valid in TESTS if schema is SCHEMA]
        (folder / name).write_text(json.dumps({"schema": schema, "tests": tests}), encoding="utf-8")
    return tmp_path


def test_the_checks_count_verdicts_and_refusals(checkout: Path) -> None:
    refused = SchemaCase("c", {"pattern": r"(a)\1"}, ({"data": "aa", "valid": True},))
    counts = count_verdicts([*map(read_case, select(checkout, "all", None, 0)), refused])
    assert counts == {"schemas": 3, "refused": 1, "valid accepted": 2, "invalid rejected": 2}


def test_the_parts_divide_the_files_by_their_names(checkout: Path) -> None:
    names = [f"{number}.json" for number in range(400)]
    development = [name for name in names if is_in(name, "development")]
    assert 60 < len(development) < 140 and {name for name in names if not is_in(name, "final")} == set(development)
    assert is_in("5.json", "all") and [path.name for path in select(checkout, "all", None, 1)] != []
    with pytest.raises(FileNotFoundError, match="no files of the all part"):
        select(checkout / "maskbench", "all", None, 1)


def test_a_smaller_sample_is_the_start_of_a_larger_one(tmp_path: Path) -> None:
    for number in range(50):
        (tmp_path / f"{number}.json").touch()
    assert select(tmp_path, "all", 9, 3) == select(tmp_path, "all", 20, 3)[:9]
    assert select(tmp_path, "all", 50, 3) != select(tmp_path, "all", 50, 4)


def test_a_row_holds_verdicts_and_valid_cuts(checkout: Path, tokenizer: Path) -> None:
    limits: Any = type("Limits", (), {"seed": 1, "time_limit": 60.0, "memory_limit_gb": 4, "compiles": False})
    cases = {path.name: read_case(path) for path in select(checkout, "all", None, 1)}
    with ExitStack() as stack:
        process = EngineProcess("ours", tokenizer, stack, MODULE)
        rows = {name: row_of(case, "ours", process.measure(request_for(case, "ours", None, limits)))
                for name, case in cases.items()}  # fmt: skip
        limits.compiles = True
        request = request_for(cases["A---1.json"], "ours", None, limits)
        compiled = row_of(cases["A---1.json"], "ours", process.measure(request))
    assert compiled.keys() == {"name", "origin", "engine", "outcome", "ms", "min_tokens", "states"}
    row = rows["A---1.json"]
    assert row["outcome"] == "ok" and row["origin"] == "A" and row["ms"] > 0 and 0 < len(row["mask_us"]) <= 20
    assert row["tests"] == [[True, True, True], [True, True, False], [False, False, False], [False, False, False]]
    assert row["cuts"] == {"random": [True] * 3, "hurried": [True] * 3}
    assert "x" not in json.dumps(row["tests"]) and SCHEMA["type"] not in json.dumps(row)
    assert rows["A---2.json"] == {
        "name": "A---2.json", "origin": "A", "engine": "ours", "outcome": "refused",
        "reason": "constraint_unsatisfiable",
    }  # fmt: skip


@pytest.mark.long
def test_a_schema_over_the_time_limit_keeps_its_compile(checkout: Path, tokenizer: Path) -> None:
    case = next(read_case(path) for path in select(checkout, "all", None, 1) if path.name == "A---1.json")
    limits: Any = type("Limits", (), {"seed": 1, "time_limit": 8.0, "memory_limit_gb": 4, "compiles": False})
    request = request_for(case, "ours", None, limits)
    request.case["tests"] = [{"data": {"a": "x" * 100_000}, "valid": True}] * 100
    with ExitStack() as stack:
        row = row_of(case, "ours", EngineProcess("ours", tokenizer, stack, MODULE).measure(request))
    assert row["outcome"] == "time" and report.is_compiled(row) and "tests" not in row


def test_reasons_quote_nothing_of_a_schema() -> None:
    message = "Unimplemented keys: [\"if\", \"then\", \"my secret\"]"
    assert refusal(ExpressionRefused(message), is_ours=False).details == {"reason": "Unimplemented keys if then"}
    assert refusal(LimitExceeded("dfa_states_max", 1, 2), is_ours=True).details == {"reason": "dfa_states_max"}
    assert refusal(CompileCancelled("over 10 s"), is_ours=True).details == {"reason": "compile_s_max"}
    with pytest.raises(KeyError):
        refusal(KeyError("a defect"), is_ours=True)


@pytest.mark.parametrize(
    ("schema", "text", "verdict"),
    [
        ({"multipleOf": 0.1}, "0.3", True),
        ({"multipleOf": 0.1}, "0.35", False),
        ({"type": "integer"}, '{"a":', False),
        ({"type": "number"}, "NaN", False),
        ({"format": "date"}, '"2026-02-30"', False),
        ({"pattern": "(", "type": "string"}, '"a"', None),
        ({"minimum": 1, "exclusiveMinimum": True}, "1", False),
        ({"items": [{"type": "null"}]}, "[1]", False),
        ({"$ref": "https://example.com/other"}, "1", None),
        ({"pattern": r"^.\d[.]$"}, '"a1."', True),
        ({"pattern": r"^.\d[.]$"}, '"\\r1."', False),
        ({"patternProperties": {r"^\w$": False}}, '{"é": 1}', True),
        ({"pattern": r"^[\w\s-]+$"}, '"a-\ufeff"', True),
        ({"pattern": r"^[\w\s-]+$"}, '"é"', False),
        ({"pattern": r"^[+-\d-z]+$"}, '"+-3z"', True),
        ({"pattern": r"^[+-\d-z]+$"}, '"a"', False),
        ({"pattern": r"^\s$"}, '"\x85"', False),
        ({"pattern": r"^[\s\S][\D][\W]$"}, '"\\na-"', True),
        ({"pattern": r"^\S[^\S]$"}, '"a\u3000"', True),
    ],
)
def test_texts_are_judged_by_the_draft_and_exactly(schema: Any, text: str, verdict: bool | None) -> None:
    assert is_valid(schema, text) is verdict


def test_the_report_leaves_out_what_cannot_be_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = {"name": "1", "outcome": "ok", "origin": "A", "ms": 12.0, "mask_us": [3.0, 5.0]}
    tests = [[True, True, False], [True, None, None], [False, False, False]]
    rows: list[dict[str, Any]] = [
        compiled | {"engine": "ours", "tests": tests, "cuts": {"random": [True] * 3, "hurried": [True, None, True]}},
        {"engine": "ours", "name": "2", "origin": "B", "outcome": "limit", "reason": "dfa_states_max"},
        compiled | {"engine": "xgrammar", "tests": [[False, True, True]], "cuts": {"random": [False] * 3}},
    ]
    (tmp_path / "rows.jsonl").write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    monkeypatch.setattr(report, "ROWS", tmp_path / "rows.jsonl")
    text = report.maskbench_section(stored_runs()["maskbench"])
    assert "| ours | 1 of 2 (50.0 %) | 1 of 1 | 1 of 1 | 0 of 1 (0.0 %) | 12 / 12 | 4.0 / 5.0 |" in text
    assert "| XGrammar | 1 of 1 (100.0 %) | 0 of 0 | 0 of 1 | - | 12 / 12 | 4.0 / 5.0 |" in text
    assert "| ours | 1 of 1 (100.0 %) | 1 of 1 (100.0 %) | 1 of 1 (100.0 %) | 1 of 1 (100.0 %) | - |" in text
    assert report.summary_line().endswith("ours 1 of 1 (100.0 %), XGrammar -.")
    assert "| B | 0 of 1 |  |" in text and "- XGrammar: none" in text
