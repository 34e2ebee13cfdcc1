"""Measures cold compiles of a suite by our compiler and three engines. It uses one core.

    python -m benchmarks.compiler.compile [--shared DIRECTORY] [--only NAME...] [--engines ENGINE...] [--repeats 3]

Each compile runs in a process of its own. The engines take turns on each constraint, so that a slow phase of the
machine affects all of them. Writes results/compile.json and RESULTS.md, unless --only or --engines selects a part, or
--keep is given.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

from benchmarks.compiler import regex_cases, schema_cases, word_cases
from benchmarks.compiler.cases import ENGINES, PEERS, CompileCase, Expression
from benchmarks.compiler.engine_process import EngineProcess, MeasureRequest, Outcome
from benchmarks.report import write_run
from benchmarks.runs import Row, parser_of, tokenizer_path
from compiler.errors import SpecError
from compiler.spec import spec_from_json

NOT_YET = "not yet"  # the outcome of a constraint that our compiler cannot read, besides those of `Outcome`
_FINAL = {"time", "memory", "limit", "refused", "failed", NOT_YET}  # outcomes after which no repeat is made


def suite(shared: Path) -> tuple[CompileCase, ...]:
    """All cases. `shared` holds data/commongen. Raises ValueError if two cases have one name."""
    cases = (*regex_cases.cases(shared), *schema_cases.cases(), *word_cases.cases(shared))
    names = [case.name for case in cases]
    if len(set(names)) != len(names):
        raise ValueError(f"two cases share a name: {sorted(name for name in names if names.count(name) > 1)}")
    return cases


def expression_for(case: CompileCase, engine: str) -> Expression | None:
    """A case in an engine's form; None if it cannot express it."""
    if engine in PEERS:
        return case.peers.get(engine)
    return Expression("constraint", json.dumps(case.constraint))


def compile_rows(cases: Sequence[CompileCase], args: argparse.Namespace) -> Iterator[Row]:
    """A row for every compile of the run. Engines and repeats are interleaved."""
    tokenizer = tokenizer_path(args.shared, args.vocabulary)
    with ExitStack() as stack:
        processes = {engine: EngineProcess(engine, tokenizer, stack) for engine in args.engines}
        for case in cases:
            stopped_engines: set[str] = set()
            for repeat in range(args.repeats):
                first_engine = repeat % len(args.engines)
                for engine in (*args.engines[first_engine:], *args.engines[:first_engine]):
                    expression = expression_for(case, engine)
                    if expression is None or engine in stopped_engines:
                        continue
                    outcome = _outcome(case, processes[engine], expression, args)
                    if outcome.outcome in _FINAL:
                        stopped_engines.add(engine)
                    print(describe(case, engine, outcome), flush=True)
                    yield {"case": case.name, "engine": engine, "repeat": repeat} | asdict(outcome)


def _outcome(case: CompileCase, process: EngineProcess, expression: Expression, args: argparse.Namespace) -> Outcome:
    if expression.kind == "constraint":
        try:
            spec_from_json(dict(case.constraint))
        except SpecError as error:
            return Outcome(NOT_YET, str(error))
    return process.measure(MeasureRequest(expression, args.time_limit, args.memory_limit_gb * 10**9))


def describe(case: CompileCase, engine: str, outcome: Outcome) -> str:
    """A line about one compile."""
    head = f"{case.name:42.42} {engine:13} "
    figures = outcome.figures
    if not figures:
        return f"{head}{outcome.outcome} {' '.join(outcome.message.split())[:100]}"
    return (
        f"{head}{figures['ms']:10.1f} ms {figures['peak_bytes'] / 2**20:8.1f} MiB; "
        f"look-up p50 {figures['look_up_p50']:.1f}, p99 {figures['look_up_p99']:.1f} us"
    )


def compile_parser(description: str | None) -> argparse.ArgumentParser:
    """The arguments of all benchmarks that compile in an `EngineProcess`."""
    parser = parser_of(description)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds for a compile and its random walks")
    parser.add_argument("--memory-limit-gb", type=int, default=6, help="address space beyond the loaded vocabulary")
    parser.add_argument("--keep", action="store_true", help="write no file")
    return parser


def _select(cases: Sequence[CompileCase], patterns: Sequence[str] | None) -> list[CompileCase]:
    def matches(case: CompileCase) -> bool:
        names = (case.name, case.family)
        return any(fnmatch.fnmatch(name, pattern) for name in names for pattern in patterns or ())

    return [case for case in cases if not patterns or matches(case)]


def main() -> None:
    parser = compile_parser(__doc__)
    parser.add_argument("--only", nargs="+", help="names or families of cases, with * and ?")
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES))
    parser.add_argument("--vocabulary", default="o200k_base")
    args = parser.parse_args()
    cases = _select(suite(args.shared), args.only)
    rows = list(compile_rows(cases, args))
    if args.keep or args.only or set(args.engines) != set(ENGINES):
        return
    write_run("compile", {
        "vocabulary": args.vocabulary,
        "limits": {"seconds": args.time_limit, "gigabytes": args.memory_limit_gb},
        "versions": {engine: version(engine.replace("_", "-")) for engine in PEERS},
        "cases": [
            {"name": case.name, "family": case.family, "notes": {name: peer.note for name, peer in case.peers.items()}}
            for case in cases
        ],
        "rows": rows,
    })  # fmt: skip


if __name__ == "__main__":
    main()
