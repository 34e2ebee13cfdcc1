"""Measures our compiler and three engines on context-free grammars. It uses one core.

    python -m benchmarks.grammars [--parts compile any_json growth truncation beams] [--only json sql] [--repeats 5]
    python -m benchmarks.grammars --parts templates --data CHECKOUT

Each part replaces its rows in results/grammars.json, and RESULTS.md is rewritten. With --only nothing is stored.
"""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib.metadata import version

import numpy as np

from benchmarks.compiler.cases import ENGINES, PEERS, Expression
from benchmarks.compiler.engine_process import EngineProcess, MeasureRequest, Outcome
from benchmarks.grammars import beams, growth, judges, truncation
from benchmarks.grammars.suite import GrammarCase, cases
from benchmarks.report import write_run
from benchmarks.runs import RESULTS_DIRECTORY, Row, parser_of, tokenizer_path

MODULE = "benchmarks.grammars.measure"
VOCABULARIES = ("gpt2", "o200k_base")
JSON_REPEATS = 9


def compile_rows(args: Namespace) -> Iterator[Row]:
    """A row for each vocabulary, grammar, repeat and engine. The engines take turns."""
    for vocabulary in VOCABULARIES:
        with ExitStack() as stack:
            processes = _processes(args, vocabulary, ENGINES, stack)
            for case in _selected(args):
                stopped = set[str]()
                for repeat in range(args.repeats):
                    for engine in ENGINES[repeat % len(ENGINES) :] + ENGINES[: repeat % len(ENGINES)]:
                        outcome = None if engine in stopped else _measured(case, engine, processes[engine], args)
                        if outcome is not None:
                            if outcome.outcome != "ok":
                                stopped.add(engine)
                            key = {"vocabulary": vocabulary, "case": case.name, "engine": engine, "repeat": repeat}
                            yield row_of(outcome) | key  # ours names its vocabulary, too


def any_json_rows(args: Namespace) -> Iterator[Row]:
    """Rows of any JSON over the larger vocabulary, in turns.

    It is our schema, or the grammar.
    """
    (case,) = (case for case in cases() if case.name == "json")
    schema = Expression("constraint", json.dumps({"json_schema": {}}))
    with ExitStack() as stack:
        process = _processes(args, VOCABULARIES[-1], ("ours",), stack)["ours"]
        for repeat in range(JSON_REPEATS):
            for written, expression in (("schema", schema), ("grammar", case.expression("ours"))):
                assert expression is not None
                texts = {"accepted": case.accepted, "rejected": ()}
                request = MeasureRequest(expression, args.time_limit, args.memory_limit_gb * 10**9, texts)
                yield row_of(process.measure(request)) | {"written": written, "repeat": repeat}


def growth_rows(args: Namespace) -> Iterator[Row]:
    """A row for each size and engine, over the larger vocabulary. An engine that fails gets no larger size."""
    engines, stopped = ("ours", "xgrammar", "llguidance"), set[tuple[str, str]]()
    with ExitStack() as stack:
        processes = _processes(args, VOCABULARIES[-1], engines, stack)
        for point in growth.points():
            for engine in engines:
                if (point.series, engine) not in stopped:
                    outcome = _measured(point.case, engine, processes[engine], args)
                    if outcome is None:
                        continue
                    if outcome.outcome not in ("ok", "limit"):  # our limits end a compile early
                        stopped.add((point.series, engine))
                    key = {"series": point.series, "size": point.size, "engine": engine}
                    yield row_of(outcome) | key | {"chars": len(point.case.grammar)}


def _processes(
    args: Namespace, vocabulary: str, engines: tuple[str, ...], stack: ExitStack
) -> dict[str, EngineProcess]:
    tokenizer = tokenizer_path(args.shared, vocabulary)
    return {engine: EngineProcess(engine, tokenizer, stack, MODULE) for engine in engines}


def _measured(case: GrammarCase, engine: str, process: EngineProcess, args: Namespace) -> Outcome | None:
    expression = case.expression(engine)
    if expression is None:
        return None
    texts = {"accepted": case.accepted, "rejected": case.rejected}
    return process.measure(MeasureRequest(expression, args.time_limit, args.memory_limit_gb * 10**9, texts))


def row_of(outcome: Outcome) -> Row:
    """What is kept of an outcome."""
    row: Row = {"outcome": outcome.outcome, "message": " ".join(outcome.message.split())[:120]}
    row |= {name: round(value, 3) for name, value in outcome.figures.items()}
    if times := outcome.details.get("mask_us"):
        p50, p99 = np.percentile(times, [50, 99])
        row |= {"wrong": outcome.details["wrong"], "texts": outcome.details["texts"]}
        row |= {"mask_p50": round(float(p50), 1), "mask_p99": round(float(p99), 1)}
    return row


def _selected(args: Namespace) -> list[GrammarCase]:
    return [case for case in cases() if not args.only or case.name in args.only]


PARTS: dict[str, Callable[[Namespace], Iterator[Row]]] = {
    "compile": compile_rows, "any_json": any_json_rows, "growth": growth_rows,
    "truncation": truncation.truncation_rows, "beams": beams.beam_rows, "suites": judges.suite_answer_rows,
    "templates": judges.template_rows,
}  # fmt: skip


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS)[:-1])
    parser.add_argument("--data", type=judges.data_of, help="a checkout of StructureBench, for `templates`")
    parser.add_argument("--only", nargs="+", choices=[case.name for case in cases()], help="grammars, but for growth")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=3, help="texts for each beginning that is cut")
    parser.add_argument("--tokens", type=int, default=32, help="of a beam search")
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds for a grammar with its texts")
    parser.add_argument("--memory-limit-gb", type=int, default=6, help="address space beyond the loaded vocabulary")
    args = parser.parse_args()
    if "templates" in args.parts and args.data is None:
        parser.error("the part `templates` needs --data")
    path = RESULTS_DIRECTORY / "grammars.json"
    stored = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    figures = {name: stored[name] for name in PARTS if name in stored}
    figures["versions"] = {engine: version(engine.replace("_", "-")) for engine in PEERS}
    figures["rules"] = {case.name: case.rules for case in cases()}
    for part in args.parts:
        figures[part] = []
        for row in PARTS[part](args):
            print(json.dumps(row), flush=True)
            figures[part].append(row)
        if not args.only:
            write_run("grammars", figures)


if __name__ == "__main__":
    main()
