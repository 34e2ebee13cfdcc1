"""Measures our compiler and three engines on the schemas of MaskBench. It uses one core.

    python -m benchmarks.maskbench --data CHECKOUT [--part development] [--sample 200] [--engines ours llguidance]
    python -m benchmarks.maskbench --data CHECKOUT --part final --compiles --engines ours --memory-limit-gb 1

Each schema runs in a process of its own, once for each engine in turn. A row is written as soon as it is measured: a
run that is started again continues where it stopped, and a further run may measure fewer schemas with slower engines.
Writes results/maskbench.jsonl, maskbench.json and RESULTS.md. The rows hold names of files and verdicts alone. With
`--compiles`, schemas are compiled and no more; the files are then maskbench_compiles.jsonl and maskbench_compiles.json.
"""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Iterator
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from zlib import crc32

from benchmarks.compiler.cases import ENGINES, PEERS, Expression
from benchmarks.compiler.engine_process import EngineProcess, MeasureRequest, Outcome
from benchmarks.maskbench.suite import PARTS, SchemaCase, read_case, select
from benchmarks.report import write_run
from benchmarks.report.maskbench import COMPILE_ROWS, ROWS, stored_rows
from benchmarks.runs import Row, commit_of, parser_of, tokenizer_path

MODULE = "benchmarks.maskbench.measure"


def measure_rows(paths: list[Path], args: Namespace) -> Iterator[Row]:
    """A row for each schema and engine that has none yet. Ours comes first: it finds the least budget."""
    rows = {(row["engine"], row["name"]): row for row in stored_rows(rows_file(args))}
    with ExitStack() as stack:
        tokenizer = tokenizer_path(args.shared, args.vocabulary)
        processes = {engine: EngineProcess(engine, tokenizer, stack, MODULE) for engine in args.engines}
        for path in paths:
            case = read_case(path)
            for engine in (engine for engine in ENGINES if engine in processes):
                if (engine, case.name) not in rows:
                    budget = rows.get(("ours", case.name), {}).get("min_tokens")
                    outcome = processes[engine].measure(request_for(case, engine, budget, args))
                    rows[engine, case.name] = row = row_of(case, engine, outcome)
                    yield row


def rows_file(args: Namespace) -> Path:
    """The file of rows."""
    return COMPILE_ROWS if args.compiles else ROWS


def request_for(case: SchemaCase, engine: str, min_tokens: int | None, args: Namespace) -> MeasureRequest:
    """The request for one schema and engine."""
    constraint = {"json_schema": case.schema, "whitespace": "compact", "leading_space": "forbid"}
    ours, peer = Expression("constraint", json.dumps(constraint)), Expression("json_schema", json.dumps(case.schema))
    expression = ours if engine == "ours" else peer
    seed = crc32(f"{args.seed} {case.name}".encode())  # of its own, so that no choice of tokens favours all schemas
    tests = None if args.compiles else case.tests
    fields = {"schema": case.schema, "tests": tests, "seed": seed, "min_tokens": min_tokens}
    return MeasureRequest(expression, args.time_limit, args.memory_limit_gb * 10**9, fields)


def row_of(case: SchemaCase, engine: str, outcome: Outcome) -> Row:
    """What is kept of an outcome."""
    row: Row = {"name": case.name, "origin": case.origin, "engine": engine, "outcome": outcome.outcome}
    return row | {name: round(value, 2) for name, value in outcome.figures.items()} | outcome.details


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--data", type=Path, required=True, help="a checkout of guidance-ai/jsonschemabench")
    parser.add_argument("--part", choices=PARTS, default="development", help="the final part is for published figures")
    parser.add_argument("--sample", type=int, help="how many schemas; all without it")
    parser.add_argument("--seed", type=int, default=7, help="of the sample and of the generations")
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES))
    parser.add_argument("--compiles", action="store_true", help="compile, and leave out instances and generations")
    parser.add_argument("--vocabulary", default="o200k_base")
    parser.add_argument("--time-limit", type=float, default=20.0, help="seconds for a schema with its instances")
    parser.add_argument("--memory-limit-gb", type=int, default=4, help="address space beyond the loaded vocabulary")
    args = parser.parse_args()
    paths, rows = select(args.data, args.part, args.sample, args.seed), rows_file(args)
    rows.parent.mkdir(exist_ok=True)
    with rows.open("a", encoding="utf-8") as file:
        for row in measure_rows(paths, args):
            print(f"{row['name']:60.60} {row['engine']:13} {row['outcome']:8} {row.get('ms', '')}", flush=True)
            file.write(json.dumps(row, separators=(",", ":")) + "\n")
            file.flush()
    peers = [engine for engine in PEERS if engine in args.engines or not args.compiles]
    write_run(rows.stem, {
        "part": args.part, "seed": args.seed, "vocabulary": args.vocabulary, "commit": commit_of(args.data),
        "limits": {"seconds": args.time_limit, "gigabytes": args.memory_limit_gb},
        "versions": {engine: version(engine.replace("_", "-")) for engine in peers},
    })  # fmt: skip


if __name__ == "__main__":
    main()
