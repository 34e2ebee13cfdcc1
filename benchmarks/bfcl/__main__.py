"""Measures our compiler, XGrammar and llguidance on the tools of BFCL v4. It uses one core.

    python -m benchmarks.bfcl --data CHECKOUT [--sample 300] [--sizes 10 100 500] [--engines ours llguidance]

First all tools are translated to automata over texts. Then requests have 10, 100 and 500 tools, and at last one tool
each. Each runs in a process of its own, once for each engine in turn. A row is written as soon as it is measured: a run
that is started again continues where it stopped, and a further run may measure fewer tools with slower engines. Writes
results/bfcl.jsonl, bfcl.json and RESULTS.md. The rows hold numbers and verdicts alone.
"""

from __future__ import annotations

import json
import random
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from zlib import crc32

from benchmarks.bfcl.forms import request_form
from benchmarks.bfcl.measure import WHOLE_TOKENS
from benchmarks.bfcl.suite import Tool, draw_requests, read_tools
from benchmarks.compiler.engine_process import EngineProcess, MeasureRequest, Outcome
from benchmarks.compiler.engines import read_vocabulary
from benchmarks.maskbench.measure import refusal
from benchmarks.report import write_run
from benchmarks.report.bfcl import ENGINES, ROWS, RUN
from benchmarks.report.maskbench import stored_rows
from benchmarks.runs import Row, commit_of, parser_of, tokenizer_path
from compiler.errors import CompileError
from compiler.limits import Limits
from compiler.pipeline import compile_text
from compiler.spec import spec_from_json
from compiler.vocab import Vocabulary, byte_vocabulary

MODULE = "benchmarks.bfcl.measure"
SIZES = {10: 10, 100: 5, 500: 3}
"""How many requests have how many tools, beside those with one."""
TRANSLATION_S_MAX = 120.0  # wall time: other work on the machine may take most of it


def requests_of(tools: Sequence[Tool], args: Namespace) -> Iterator[tuple[int, int, list[Tool]]]:
    """The size, the number and the tools of each request. Of one tool there are all, in an order of the seed."""
    for size in args.sizes:
        for number, drawn in enumerate(draw_requests(tools, size, SIZES[size], args.seed)[: args.requests]):
            yield size, number, drawn
    order = draw_order(len(tools), args.seed)
    for number in order[: args.sample]:
        yield 1, number, [tools[number]]


def draw_order(count: int, seed: int) -> list[int]:
    """The numbers below `count`, in random order. A smaller sample is the start of a larger one."""
    return random.Random(seed).sample(range(count), count)


def measure_rows(tools: Sequence[Tool], vocabulary: Vocabulary, args: Namespace) -> Iterator[Row]:
    """A row for each request and engine that has none yet. Ours comes first: it finds the least budget."""
    rows = {(row["size"], row["number"], row["engine"]): row for row in stored_rows(ROWS)}
    with ExitStack() as stack:
        tokenizer = tokenizer_path(args.shared, args.vocabulary)
        processes = {engine: EngineProcess(engine, tokenizer, stack, MODULE) for engine in args.engines}
        for size, number, drawn in requests_of(tools, args):
            for engine, process in processes.items():
                if (size, number, engine) in rows:
                    continue
                min_tokens = rows.get((size, number, "ours"), {}).get("min_tokens")
                request = request_for(engine, drawn, vocabulary, min_tokens, args=args)
                row: Row = {"size": size, "number": number, "engine": engine}
                row |= {"category": drawn[0].category} if size == 1 else {}
                rows[size, number, engine] = row = row | row_of(process.measure(request))
                yield row


def request_for(
    engine: str, tools: Sequence[Tool], vocabulary: Vocabulary, min_tokens: int | None, *, args: Namespace
) -> MeasureRequest:
    """The measurement of a request with one engine."""
    schemas = {tool.name: tool.parameters for tool in tools}
    seed = crc32(f"{args.seed} {tools[0].name}".encode())  # of its own, so that no choice of tokens favours all
    case = {"schemas": schemas, "seed": seed, "min_tokens": min_tokens, "calls": args.calls}
    expression = request_form(engine, tools, vocabulary)
    return MeasureRequest(expression, args.time_limit, args.memory_limit_gb * 10**9, case)


def count_translations(tools: Sequence[Tool]) -> Counter[str]:
    """How many tools become automata over texts, and why others do not."""
    counts: Counter[str] = Counter()
    for tool in tools:
        spec = spec_from_json(json.loads(request_form("ours", [tool], byte_vocabulary()).text))
        try:
            compile_text(spec, Limits(compile_s_max=TRANSLATION_S_MAX))
            counts["ok"] += 1
        except CompileError as error:
            counts[refusal(error, is_ours=True).details["reason"]] += 1
    return counts


def row_of(outcome: Outcome) -> Row:
    """What is kept of an outcome."""
    row: Row = {"outcome": outcome.outcome} | {name: round(value, 2) for name, value in outcome.figures.items()}
    return row | outcome.details


def versions_of(engines: Sequence[str]) -> dict[str, str]:
    """The versions of the other engines. Rows of those that were not measured now are those of an earlier run."""
    known: dict[str, str] = json.loads(RUN.read_text(encoding="utf-8"))["versions"] if RUN.exists() else {}
    return known | {engine: version(engine) for engine in engines if engine != "ours"}


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--data", type=Path, required=True, help="a checkout of ShishirPatil/gorilla")
    parser.add_argument("--sample", type=int, help="how many requests with one tool; one for each tool without it")
    parser.add_argument("--translate", type=int, help="how many tools become automata over texts; all without it")
    parser.add_argument("--sizes", type=int, nargs="*", choices=SIZES, default=list(SIZES), metavar="TOOLS")
    parser.add_argument("--requests", type=int, help="of each of these sizes, at most; 10, 5 and 3 without it")
    parser.add_argument("--seed", type=int, default=7, help="of the requests and of the calls")
    parser.add_argument("--calls", type=int, default=2, help="of each kind, for each request")
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES))
    parser.add_argument("--vocabulary", default="o200k_base")
    parser.add_argument("--time-limit", type=float, default=300.0, help="seconds for a request with its calls")
    parser.add_argument("--memory-limit-gb", type=int, default=4, help="address space beyond the loaded vocabulary")
    args = parser.parse_args()
    tools = read_tools(args.data)
    translated = count_translations([tools[number] for number in draw_order(len(tools), args.seed)[: args.translate]])
    ROWS.parent.mkdir(exist_ok=True)
    with ROWS.open("a", encoding="utf-8") as file:
        for row in measure_rows(tools, read_vocabulary(tokenizer_path(args.shared, args.vocabulary)), args):
            name = f"{row['size']:3} {row['number']:5} {row['engine']:11}"
            print(name, f"{row['outcome']:8} {row.get('ms', '')}", flush=True)
            file.write(json.dumps(row, separators=(",", ":")) + "\n")
            file.flush()
    write_run("bfcl", {
        "seed": args.seed, "vocabulary": args.vocabulary, "commit": commit_of(args.data), "tools": len(tools),
        "translated": dict(translated),
        "calls": args.calls, "whole_tokens": WHOLE_TOKENS,
        "limits": {"seconds": args.time_limit, "gigabytes": args.memory_limit_gb},
        "versions": versions_of(args.engines),
    })  # fmt: skip


if __name__ == "__main__":
    main()
