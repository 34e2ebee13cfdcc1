"""The truncation test: a hundred patterns, each with budgets from the least possible to four times that.

python -m benchmarks.truncation [--systems NAME ...] [--patterns 100]

Every decoder runs in a process of its own, on the built-in model, and is asked for one pattern and budget after
another. Texts are judged by `re`. Writes results/truncation.json, after each decoder, so that a run may be stopped and
taken up; the figure results/truncation.svg, and RESULTS.md.
"""

from __future__ import annotations

import argparse
import datetime
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from transformers.utils import logging

from app.model_files import open_model_files
from app.settings import BUILT_IN_MODEL
from benchmarks.compile import machine
from benchmarks.decode_peers import PEERS, satisfies
from benchmarks.report import RESULTS_DIRECTORY, write_report
from benchmarks.truncation_patterns import patterns
from compiler.pipeline import compile_spec
from compiler.spec import RegexSpec

RESULT = RESULTS_DIRECTORY / "truncation.json"
COMMAND = "python -m benchmarks.truncation"
TIMES = (1.0, 1.25, 1.5, 2.0, 3.0, 4.0)  # so many times the least budget
_CHILD = "--answer"


def answer(name: str) -> None:
    """In a process of its own: reads {"pattern", "budget"} line by line, and answers with {"text", "ms", "error"}."""
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    decode = PEERS[name]()
    decode(patterns()[0], 40)
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        began, text, error = time.perf_counter(), "", ""
        try:
            text = decode(asked["pattern"], asked["budget"])
        except Exception as failed:  # an answer that does not come is none that satisfies
            error = f"{type(failed).__name__}: {failed}"[:200]
        told = {"text": text, "ms": (time.perf_counter() - began) * 1000, "error": error}
        print(json.dumps(told), flush=True)


def answers(name: str, asked: list[tuple[str, int]], threads: int) -> Iterator[dict[str, Any]]:
    """The answers of a decoder, in order; nothing where it cannot be started here."""
    command = [sys.executable, "-m", "benchmarks.truncation", _CHILD, name, "--threads", str(threads)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin and child.stdout
        if not child.stdout.readline():
            return
        for pattern, budget in asked:
            print(json.dumps({"pattern": pattern, "budget": budget}), file=child.stdin, flush=True)
            yield json.loads(child.stdout.readline())
        child.stdin.close()


def measured(name: str, least: dict[str, int], threads: int, advance: Callable[[], None]) -> dict[str, Any] | None:
    """One decoder's row: by how many times the least budget, how many satisfied, failed, and took how long."""
    asked = [(pattern, max(tokens, int(tokens * times))) for times in TIMES for pattern, tokens in least.items()]
    told = []
    for one in answers(name, asked, threads):
        told.append(one)
        advance()
    if not told:
        return None
    by_times = []
    for place, times in enumerate(TIMES):
        own = slice(place * len(least), (place + 1) * len(least))
        pairs = list(zip(asked[own], told[own], strict=True))
        by_times.append({
            "times": times, "asked": len(pairs),
            "satisfied": sum(satisfies(pattern, one["text"]) and not one["error"] for (pattern, _), one in pairs),
            "failed": sum(bool(one["error"]) for _, one in pairs),
            "ms": sum(one["ms"] for _, one in pairs) / len(pairs),
        })  # fmt: skip
    missed = [
        {"pattern": pattern, "budget": budget, "text": one["text"], "error": one["error"]}
        for (pattern, budget), one in zip(asked, told, strict=True) if not satisfies(pattern, one["text"])
    ]  # fmt: skip
    return {"system": name, "by_times": by_times, "missed": missed[:3]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--systems", nargs="+", choices=PEERS, default=list(PEERS))
    parser.add_argument("--patterns", type=int, default=100)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--again", action="store_true", help="forget the rows that are stored")
    parser.add_argument(_CHILD, choices=PEERS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    if args.answer:
        answer(args.answer)
        return
    vocabulary = open_model_files(BUILT_IN_MODEL).vocabulary
    chosen = patterns()[:: max(1, 100 // args.patterns)]
    least = {pattern: compile_spec(RegexSpec(pattern), vocabulary).tokens.min_tokens for pattern in chosen}
    stored = json.loads(RESULT.read_text(encoding="utf-8")) if RESULT.exists() and not args.again else {"rows": []}
    known = {row["system"] for row in stored["rows"] if row["by_times"][0]["asked"] == len(least)}
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns) as progress:
        for name in args.systems:
            if name in known:
                continue
            bar = progress.add_task(name, total=len(TIMES) * len(least))
            row = measured(name, least, args.threads, lambda bar=bar: progress.advance(bar))  # type: ignore[misc]
            if row is None:
                progress.console.print(f"{name} cannot be started here: make reference")
                continue
            stored["rows"] = [one for one in stored["rows"] if one["system"] != name] + [row]
            stored |= {"date": datetime.date.today().isoformat(), "machine": machine(), "command": COMMAND}
            stored |= {"least": sorted(least.values()), "threads": args.threads}
            RESULT.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")
    write_report()


if __name__ == "__main__":
    main()
