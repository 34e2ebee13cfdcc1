"""The truncation test: a hundred patterns, each with budgets from the least possible to four times that.

python -m benchmarks.truncation [--systems NAME ...] [--patterns 100]

Every decoder runs in a process and an environment of its own (`systems/`), on the built-in model, and is asked for one
pattern and budget after another. Texts are judged by `re`. Writes results/truncation.json, after each decoder, so that
a run may be stopped and taken up; the figure results/truncation.svg, and RESULTS.md.
"""

from __future__ import annotations

import argparse
import datetime
import json
from collections.abc import Callable
from typing import Any

from app.settings import BUILT_IN_MODEL
from benchmarks.compile import machine
from benchmarks.decode_peers import PEERS, PROMPT, least_tokens, satisfies
from benchmarks.places import RESULTS_DIRECTORY
from benchmarks.report import write_report
from benchmarks.rows import bars
from benchmarks.systems.base import Wanted
from benchmarks.systems.catalogue import SYSTEMS
from benchmarks.systems.running import NotHere, running
from benchmarks.truncation_patterns import patterns

RESULT = RESULTS_DIRECTORY / "truncation.json"
COMMAND = "python -m benchmarks.truncation"
TIMES = (1.0, 1.25, 1.5, 2.0, 3.0, 4.0)  # so many times the least budget
ASKED = (
    *PEERS, "LM Format Enforcer", "LM Format Enforcer, 16 beams", "no constraint, 1 beam", "no constraint, 16 beams",
)  # fmt: skip


def measured(name: str, least: dict[str, int], threads: int, advance: Callable[[], None]) -> dict[str, Any] | None:
    """One decoder's row: by how many times the least budget, how many satisfied, failed, and took how long."""
    asked = [(pattern, max(tokens, int(tokens * times))) for times in TIMES for pattern, tokens in least.items()]
    told = []
    try:
        with running(SYSTEMS[name], BUILT_IN_MODEL, threads) as system:
            system.ask(Wanted(next(iter(least))), PROMPT, 40)  # the first answer is slow for reasons of its own
            for pattern, budget in asked:
                told.append(system.ask(Wanted(pattern), PROMPT, budget))
                advance()
    except NotHere:
        return None
    by_times = []
    for place, times in enumerate(TIMES):
        own = slice(place * len(least), (place + 1) * len(least))
        pairs = list(zip(asked[own], told[own], strict=True))
        by_times.append({
            "times": times, "asked": len(pairs),
            "satisfied": sum(satisfies(pattern, one.text) and not one.error for (pattern, _), one in pairs),
            "failed": sum(bool(one.error) for _, one in pairs),
            "ms": sum(one.ms for _, one in pairs) / len(pairs),
        })  # fmt: skip
    missed = [
        {"pattern": pattern, "budget": budget, "text": one.text, "error": one.error}
        for (pattern, budget), one in zip(asked, told, strict=True) if not satisfies(pattern, one.text)
    ]  # fmt: skip
    return {"system": name, "by_times": by_times, "missed": missed[:3]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=ASKED)
    parser.add_argument("--patterns", type=int, default=100)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--again", action="store_true", help="forget the rows that are stored")
    args = parser.parse_args()
    least = least_tokens(patterns()[:: max(1, 100 // args.patterns)])
    stored = json.loads(RESULT.read_text(encoding="utf-8")) if RESULT.exists() and not args.again else {"rows": []}
    known = {row["system"] for row in stored["rows"] if row["by_times"][0]["asked"] == len(least)}
    with bars() as progress:
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
