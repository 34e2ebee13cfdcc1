"""Cold compiles of the suite by ours and three other engines, one core, each compile in a process of its own.

    python -m benchmarks.compile [--shared DIRECTORY] [--only NAME...] [--engines ENGINE...] [--repeats 3]

The engines take turns on each constraint, so that they meet the same machine. Writes results/compile.json and
RESULTS.md beside this file, unless --only or --engines asks for a part, or --keep for no change.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import platform
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

from benchmarks.measurement import Outcome, Request
from benchmarks.places import RESULTS_DIRECTORY
from benchmarks.report import write_report
from benchmarks.suite import ENGINES, PEERS, Case, Expression, suite
from compiler.errors import SpecError
from compiler.spec import spec_from_json

DEFAULT_SHARED = Path(__file__).resolve().parents[2] / "shared"
SINGLE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "RAYON_NUM_THREADS": "1"}
_NOT_ANSWERED = {"time", "memory", "limit", "refused", "failed", "not yet"}  # not asked again


@dataclass(frozen=True, slots=True)
class Row:
    """One compile; `outcome` as in `measurement.Outcome`, or "not yet" for a constraint our compiler cannot read."""

    case: str
    engine: str
    repeat: int
    outcome: str
    message: str
    figures: dict[str, float]


class Server:
    """An engine in a process of its own, with its vocabulary loaded, which forks for each request."""

    def __init__(self, engine: str, tokenizer: Path) -> None:
        command = [sys.executable, "-m", "benchmarks.measurement", engine, str(tokenizer)]
        self._process = subprocess.Popen(
            command, env=os.environ | SINGLE_THREAD, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        if self._answer() != "ready":
            raise RuntimeError(f"{engine} did not load: install the packages that benchmarks/README.md names")

    def _answer(self) -> str:
        assert self._process.stdout
        return self._process.stdout.readline().strip()

    def ask(self, request: Request) -> Outcome:
        assert self._process.stdin
        self._process.stdin.write(json.dumps(asdict(request)) + "\n")
        self._process.stdin.flush()
        return Outcome(**json.loads(self._answer()))

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


def expression_for(case: Case, engine: str) -> Expression | None:
    """What an engine is given for a case; None where it cannot express it."""
    if engine in PEERS:
        return case.peers.get(engine)
    return Expression("constraint", json.dumps(case.constraint))


def rows(cases: Sequence[Case], args: argparse.Namespace) -> Iterator[Row]:
    """Every compile of the run, engines and repeats interleaved."""
    servers = {engine: Server(engine, tokenizer_path(args.shared, args.vocabulary)) for engine in args.engines}
    try:
        for case in cases:
            given_up: set[str] = set()
            for repeat in range(args.repeats):
                turn = repeat % len(args.engines)
                for engine in (*args.engines[turn:], *args.engines[:turn]):
                    expression = expression_for(case, engine)
                    if expression is None or engine in given_up:
                        continue
                    row = _row(case, engine, repeat, servers[engine], expression, args)
                    if row.outcome in _NOT_ANSWERED:
                        given_up.add(engine)
                    print(describe(row), flush=True)
                    yield row
    finally:
        for server in servers.values():
            server.close()


def _row(case: Case, engine: str, repeat: int, server: Server, expression: Expression, args: argparse.Namespace) -> Row:
    outcome = None if engine in PEERS else _unreadable(case)
    if outcome is None:
        outcome = server.ask(Request(expression, args.time_limit, args.memory_limit_gb * 10**9))
    return Row(case.name, engine, repeat, outcome.outcome, outcome.message, outcome.figures)


def _unreadable(case: Case) -> Outcome | None:
    try:
        spec_from_json(dict(case.constraint))
    except SpecError as error:
        return Outcome("not yet", str(error))
    return None


def describe(row: Row) -> str:
    head = f"{row.case:42.42} {row.engine:13} "
    if not row.figures:
        return f"{head}{row.outcome} {' '.join(row.message.split())[:100]}"
    figures = row.figures
    return (
        f"{head}{figures['ms']:10.1f} ms {figures['peak_bytes'] / 2**20:8.1f} MiB; "
        f"look-up p50 {figures['look_up_p50']:.1f}, p99 {figures['look_up_p99']:.1f} us"
    )


def tokenizer_path(shared: Path, vocabulary: str) -> Path:
    return shared / "data" / "tokenizers" / vocabulary / "tokenizer.json.gz"


def machine() -> str:
    model = next((line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")), "")
    name = model.partition(":")[2].strip() or platform.machine()
    return f"{name}, {os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}"


def about(module: str) -> dict[str, str]:
    """When, on what and with which command a run was made."""
    command = shlex.join(["python", "-m", module, *sys.argv[1:]])
    return {"date": time.strftime("%Y-%m-%d"), "machine": machine(), "command": command}


def add_shared_argument(parser: argparse.ArgumentParser) -> None:
    shared = Path(os.environ.get("ABS_SHARED", DEFAULT_SHARED))
    parser.add_argument("--shared", type=Path, default=shared, help="holds data/commongen and data/tokenizers")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_shared_argument(parser)
    parser.add_argument("--only", nargs="+", help="names or families of rows, with * and ?")
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES))
    parser.add_argument("--vocabulary", default="o200k_base")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds a compile and its walk may take")
    parser.add_argument("--memory-limit-gb", type=int, default=6, help="address space beyond the loaded vocabulary")
    parser.add_argument("--keep", action="store_true", help="write no file")
    return parser.parse_args()


def _chosen(cases: Sequence[Case], patterns: Sequence[str] | None) -> list[Case]:
    def wanted(case: Case) -> bool:
        names = (case.name, case.family)
        return any(fnmatch.fnmatch(name, pattern) for name in names for pattern in patterns or ())

    return [case for case in cases if not patterns or wanted(case)]


def main() -> None:
    args = _arguments()
    cases = _chosen(suite(args.shared), args.only)
    measured = [asdict(row) for row in rows(cases, args)]
    if args.keep or args.only or set(args.engines) != set(ENGINES):
        return
    RESULTS_DIRECTORY.mkdir(exist_ok=True)
    run = about("benchmarks.compile") | {
        "vocabulary": args.vocabulary,
        "limits": {"seconds": args.time_limit, "gigabytes": args.memory_limit_gb},
        "versions": {engine: version(engine.replace("_", "-")) for engine in PEERS},
        "cases": [
            {"name": case.name, "family": case.family, "notes": {name: one.note for name, one in case.peers.items()}}
            for case in cases
        ],
        "rows": measured,
    }
    (RESULTS_DIRECTORY / "compile.json").write_text(json.dumps(run, indent=1) + "\n", encoding="utf-8")
    write_report()


if __name__ == "__main__":
    main()
