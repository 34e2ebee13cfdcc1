"""Seconds per request against the number of beams (the paper's table 2), and how ours grows with everything else.

    python -m benchmarks.runtimes [--beams 4 8 16 32 64 128] [--sets 10] [--repeats 3]

On the built-in model: ours by both algorithms, the look-ahead of a hidden Markov model, and transformers' beam search
without a constraint, for the same sets of CommonGen, 32 tokens; the systems take turns. Then ours alone against beams,
tokens, the vocabulary and the automaton's size, one at a time. Writes results/runtimes.json, its plot and RESULTS.md.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.progress import Progress

from app.settings import BUILT_IN_MODEL
from benchmarks.commongen_cases import PROMPTS, Case, cases
from benchmarks.compile import about, add_shared_argument
from benchmarks.places import RESULTS_DIRECTORY
from benchmarks.report import write_report
from benchmarks.rows import bars
from benchmarks.systems.base import Wanted
from benchmarks.systems.catalogue import SYSTEMS, Entry
from benchmarks.systems.running import NotHere, running

RESULT = RESULTS_DIRECTORY / "runtimes.json"
MAX_TOKENS = 32
BEAMS = (4, 8, 16, 32, 64, 128)
METHODS: dict[str, tuple[str, Mapping[str, object]]] = {  # which system, and with which further options
    "ours": ("ours, 16 beams", {}),
    "ours, abs": ("ours, 16 beams", {"algorithm": "abs"}),
    "HMM": ("HMM, 16 beams", {}),
    "no constraint": ("no constraint, 16 beams", {}),
}
USUAL_BEAMS = 16
TOKENS = (8, 16, 32, 64, 128)
WORDS = (1, 2, 3, 4, 5, 6)  # of a keyword constraint: its automaton doubles with each
KEYWORDS = (("dog",), ("park",), ("ball",), ("man",), ("tree",), ("water",))
VOCABULARIES = ("stories260k", "tinystories-656k")  # beside the built-in model's: 512 and 2,048 of 4,096


def with_beams(method: str, beams: int) -> Entry:
    name, more = METHODS[method]
    entry = SYSTEMS[name]
    return Entry(entry.where, entry.environment, {**entry.options, **more, "beams": beams})


def table_rows(args: argparse.Namespace, progress: Progress) -> Iterator[dict[str, Any]]:
    """For each method and number of beams the mean seconds per answer of each repeat."""
    dev = args.shared / "data" / "commongen" / "dev.jsonl"
    asked = cases(dev, PROMPTS["captions"], args.sets, ordered=False)
    bar = progress.add_task("beams", total=len(args.beams) * len(METHODS) * args.repeats)
    for beams in args.beams:
        seconds: dict[str, list[float]] = {method: [] for method in METHODS}
        for _ in range(args.repeats):
            for method in METHODS:
                seconds[method].append(_mean_s(with_beams(method, beams), BUILT_IN_MODEL, asked, args.threads))
                progress.advance(bar)
        yield from ({"method": method, "beams": beams, "seconds": told} for method, told in seconds.items())


def _mean_s(entry: Entry, folder: str, asked: Sequence[Case], threads: int, max_tokens: int = MAX_TOKENS) -> float:
    """Of the answers alone, their constraints prepared: what a request costs whose automaton is cached."""
    found = []
    with running(entry, folder, threads, seconds_max=300.0) as system:
        system.ask(asked[0].wanted, asked[0].prompt, max_tokens)
        for case in asked:
            answer = system.ask(case.wanted, case.prompt, max_tokens)
            if answer.error:
                raise NotHere(answer.error)
            found.append(answer.answer_ms / 1000)
    return statistics.fmean(found)


def _asked(words: int) -> Case:
    """A request of the growth plots."""
    return Case("", "sentence:", (), Wanted(concepts=KEYWORDS[:words]), ())


def growth_rows(args: argparse.Namespace, progress: Progress) -> Iterator[dict[str, Any]]:
    """Ours against one thing at a time."""
    usual = [_asked(3)] * args.sets
    points: list[tuple[str, int, int, str, list[Case], int]] = [
        *(("beams", beams, beams, BUILT_IN_MODEL, usual, MAX_TOKENS) for beams in args.beams),
        *(("tokens", tokens, USUAL_BEAMS, BUILT_IN_MODEL, usual, tokens) for tokens in TOKENS),
        *(("keywords", count, USUAL_BEAMS, BUILT_IN_MODEL, [_asked(count)] * args.sets, MAX_TOKENS) for count in WORDS),
    ]
    for folder in (*(str(args.shared / "models" / name) for name in VOCABULARIES), BUILT_IN_MODEL):
        size = json.loads((Path(folder) / "config.json").read_text(encoding="utf-8"))["vocab_size"]
        points.append(("vocabulary", size, USUAL_BEAMS, folder, usual, MAX_TOKENS))
    bar = progress.add_task("growth", total=len(points) * args.repeats)
    for along, value, beams, folder, asked, tokens in points:
        seconds = []
        for _ in range(args.repeats):
            seconds.append(_mean_s(with_beams("ours", beams), folder, asked, args.threads, tokens))
            progress.advance(bar)
        yield {"along": along, "value": value, "seconds": seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_shared_argument(parser)
    parser.add_argument("--beams", type=int, nargs="+", default=BEAMS)
    parser.add_argument("--sets", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    with bars() as progress:
        run = about("benchmarks.runtimes") | {
            "threads": args.threads, "max_tokens": MAX_TOKENS, "sets": args.sets,
            "rows": list(table_rows(args, progress)), "growth": list(growth_rows(args, progress)),
        }  # fmt: skip
    RESULT.write_text(json.dumps(run, indent=1) + "\n", encoding="utf-8")
    write_report()


if __name__ == "__main__":
    main()
