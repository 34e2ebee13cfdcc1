"""The truncation test: a hundred patterns, each with budgets from the least possible to four times that.

python -m benchmarks.truncation [--systems NAME ...] [--patterns 100]

Every decoder runs in a process and an environment of its own (`systems/`), on the built-in model, and is asked for one
pattern and budget after another. Texts are judged by `re`. Writes results/truncation.json, after each decoder, so that
a run may be stopped and taken up; the figure results/truncation.svg, and RESULTS.md.
"""

from __future__ import annotations

import argparse

from app.settings import BUILT_IN_MODEL
from benchmarks.decode_peers import PEERS, PROMPT, least_tokens, satisfies
from benchmarks.places import RESULTS_DIRECTORY
from benchmarks.report import write_report
from benchmarks.rows import PeerQuestions, Row, Rows, bars
from benchmarks.systems.base import Wanted
from benchmarks.systems.catalogue import SYSTEMS
from benchmarks.truncation_patterns import patterns

RESULT = RESULTS_DIRECTORY / "truncation.json"
COMMAND = "python -m benchmarks.truncation"
SECONDS_MAX = 60.0
TIMES = (1.0, 1.25, 1.5, 2.0, 3.0, 4.0)  # so many times the least budget
ASKED = (
    *PEERS, "LM Format Enforcer", "LM Format Enforcer, 16 beams", "no constraint, 1 beam", "no constraint, 16 beams",
)  # fmt: skip


def measured(system: str, least: dict[str, int], asking: PeerQuestions) -> Row | None:
    """One decoder's row: by how many times the least budget, how many satisfied, failed, and took how long."""
    asked = [(pattern, max(tokens, int(tokens * times))) for times in TIMES for pattern, tokens in least.items()]
    questions = [(Wanted(pattern), PROMPT, budget) for pattern, budget in asked]
    first = (Wanted(next(iter(least))), PROMPT, 40)
    told = asking.answers(system, system, BUILT_IN_MODEL, questions, first)
    if told is None:
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
    return {"system": system, "patterns": len(least), "by_times": by_times, "missed": missed[:3]}


def run(args: argparse.Namespace, asking: PeerQuestions) -> None:
    rows = Rows(RESULT, COMMAND, lambda row: (list(SYSTEMS).index(row["system"]),))
    least = least_tokens(patterns()[:: max(1, 100 // args.patterns)])
    for system in args.systems:
        if rows.known({"system": system}, patterns=len(least)) and not args.again:
            continue
        row = measured(system, least, asking)
        if row is not None:
            rows.store(row, {"system": system}, threads=args.threads, least=sorted(least.values()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=ASKED)
    parser.add_argument("--patterns", type=int, default=100)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--again", action="store_true", help="measure rows anew")
    args = parser.parse_args()
    with bars() as progress:
        run(args, PeerQuestions(args.threads, SECONDS_MAX, progress))
    write_report()


if __name__ == "__main__":
    main()
