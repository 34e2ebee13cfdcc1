"""Decides all instances of MaskBench's schemas as `/check` does.

    python -m benchmarks.maskbench.checks --data CHECKOUT [--part development]

No schema is compiled over tokens, so all take minutes on one core instead of hours. Writes
results/maskbench_checks.json and RESULTS.md. They hold counts alone: nothing of a schema or of an instance.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from benchmarks.maskbench.measure import compact_text, passes_check
from benchmarks.maskbench.suite import PARTS, SchemaCase, read_case, select
from benchmarks.report import write_run
from benchmarks.runs import commit_of, parser_of
from compiler.errors import SpecError


def count_verdicts(cases: Iterable[SchemaCase]) -> Counter[str]:
    """How many schemas are refused, and how many instances have which verdict.

    A verdict is a pair: what the data says (`valid` or `invalid`) and what the check says (`accepted`, `rejected`, or
    `undecided` over a limit). Instances with numbers that JSON cannot write are left out.
    """
    counts: Counter[str] = Counter()
    for case in cases:
        counts["schemas"] += 1
        try:
            counts.update(_verdicts(case))
        except SpecError:  # a keyword that is refused by name
            counts["refused"] += 1
    return counts


def _verdicts(case: SchemaCase) -> list[str]:
    found = []
    for test in case.tests:
        try:
            text = compact_text(test["data"])
        except ValueError:
            continue
        accepted = passes_check({"json_schema": case.schema}, text)
        verdict = {True: "accepted", False: "rejected", None: "undecided"}[accepted]
        found.append(f"{'valid' if test['valid'] else 'invalid'} {verdict}")
    return found


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--data", type=Path, required=True, help="a checkout of guidance-ai/jsonschemabench")
    parser.add_argument("--part", choices=PARTS, default="development", help="the final part is for published figures")
    args = parser.parse_args()
    start = time.process_time()
    counts = count_verdicts(map(read_case, select(args.data, args.part, None, 0)))
    seconds = round(time.process_time() - start)
    print(json.dumps(counts, indent=1), f"{seconds} s of the processor")
    write_run("maskbench_checks", {
        "part": args.part, "commit": commit_of(args.data), "seconds": seconds, "counts": dict(counts),
    })  # fmt: skip


if __name__ == "__main__":
    main()
