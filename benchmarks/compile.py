"""Cold compiles of CommonGen keywords over two vocabularies, beside outlines-core's Index in the same run.

    python -m benchmarks.compile [--shared DIRECTORY] [--sets 3] [--sizes 3 4 5 8] [--time-limit 120]

Every compile runs in a fresh process on one core (benchmarks.compile_worker). An engine that outgrows the time or the
memory limit at one size is not asked for a larger one. Writes results/compile.json and RESULTS.md beside this file.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.compile_worker import Figures, Job
from benchmarks.keyword_cases import keyword_sets
from benchmarks.report import RESULTS_DIRECTORY, write_report

ENGINES = ("ours", "ascii", "unicode", "equal")
DEFAULT_SHARED = Path(__file__).resolve().parents[2] / "shared"


@dataclass(frozen=True, slots=True)
class Row:
    """One compile. `outcome` is "ok", "time" or "memory" (over that limit), "failed", or "skipped"."""

    vocabulary: str
    size: int
    ordered: bool
    set_number: int
    engine: str
    outcome: str
    figures: Figures | None


def run_job(job: Job, time_limit_s: float) -> tuple[str, Figures | None]:
    """The outcome of a job in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.compile_worker", json.dumps(asdict(job))]
    single = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "RAYON_NUM_THREADS": "1"}
    try:
        done = subprocess.run(
            command, env=os.environ | single, capture_output=True, text=True, timeout=time_limit_s, check=False
        )
    except subprocess.TimeoutExpired:
        return "time", None
    if done.returncode == 0:
        return "ok", Figures(**json.loads(done.stdout))
    out_of_memory = "memory allocation" in done.stderr or "MemoryError" in done.stderr
    print(done.stderr[-500:], file=sys.stderr)
    return ("memory" if out_of_memory else "failed"), None


def rows(args: argparse.Namespace) -> Iterator[Row]:
    """Every compile of the run; the engines take turns on each set, so that they meet the same machine."""
    dev = args.shared / "data" / "commongen" / "dev.jsonl"
    for vocabulary, ordered in itertools.product(args.vocabularies, (True, False)):
        tokenizer = args.shared / "data" / "tokenizers" / vocabulary / "tokenizer.json.gz"
        beaten: set[str] = set()
        for size in args.sizes:
            for number, concepts in enumerate(keyword_sets(dev, size, args.sets)):
                for engine in ENGINES:
                    if engine == "equal" and (number > 0 or not ordered):
                        continue  # shown once for each shape; without an order, unicode is the equal language
                    outcome, figures = "skipped", None
                    if engine not in beaten:
                        job = Job(engine, str(tokenizer), concepts, ordered, args.memory_limit_gb * 10**9)
                        outcome, figures = run_job(job, args.time_limit)
                    if outcome in ("time", "memory"):
                        beaten.add(engine)
                    row = Row(vocabulary, size, ordered, number, engine, outcome, figures)
                    print(describe(row), flush=True)
                    yield row


def describe(row: Row) -> str:
    order = "ordered" if row.ordered else "unordered"
    cost = f"{row.figures.ms:10.1f} ms {row.figures.peak_bytes / 2**20:8.1f} MiB" if row.figures else row.outcome
    return f"{row.vocabulary:11} {row.size} {order:9} set {row.set_number} {row.engine:7} {cost}"


def machine() -> str:
    model = next((line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")), "")
    name = model.partition(":")[2].strip() or platform.machine()
    return f"{name}, {os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    shared = Path(os.environ.get("ABS_SHARED", DEFAULT_SHARED))
    parser.add_argument("--shared", type=Path, default=shared, help="holds data/commongen and data/tokenizers")
    parser.add_argument("--vocabularies", nargs="+", default=["gpt2", "o200k_base"])
    parser.add_argument("--sizes", nargs="+", type=int, default=[3, 4, 5, 8])
    parser.add_argument("--sets", type=int, default=3, help="concept sets of each size")
    parser.add_argument("--time-limit", type=float, default=120.0, help="seconds a process may take, start included")
    parser.add_argument("--memory-limit-gb", type=int, default=6, help="address space of a process")
    args = parser.parse_args()
    measured = [asdict(row) for row in rows(args)]
    command = shlex.join(["python", "-m", "benchmarks.compile", *sys.argv[1:]])
    limits = {"seconds": args.time_limit, "gigabytes": args.memory_limit_gb}
    about = {"date": time.strftime("%Y-%m-%d"), "machine": machine(), "command": command, "limits": limits}
    RESULTS_DIRECTORY.mkdir(exist_ok=True)
    text = json.dumps(about | {"rows": measured}, indent=1) + "\n"
    (RESULTS_DIRECTORY / "compile.json").write_text(text, encoding="utf-8")
    write_report()


if __name__ == "__main__":
    main()
