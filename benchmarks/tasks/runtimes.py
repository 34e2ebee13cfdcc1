"""Measures seconds per request over the beams (the paper's table 2).

The growth of ours with other sizes is measured too.

    python -m benchmarks.tasks.runtimes [--beams 4 8 16 32 64 128] [--sets 10] [--repeats 3]

On the built-in model: our search by both algorithms, the look-ahead by a hidden Markov model, and transformers' beam
search without a constraint, for the same sets of CommonGen, 32 tokens; the systems take turns. Then our search over
beams, tokens, vocabulary and automaton, one at a time. Writes results/runtimes.json, its plot and RESULTS.md.
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
from benchmarks.report import write_run
from benchmarks.runs import concept_sets_path, parser_of
from benchmarks.systems.base import TextConstraint
from benchmarks.systems.catalogue import SYSTEMS, Entry
from benchmarks.systems.process import Question, SystemUnavailable, progress_bars, run_system
from benchmarks.tasks.concept_sets import PROMPTS, concept_sets

MAX_TOKENS = 32
BEAMS = (4, 8, 16, 32, 64, 128)
METHODS: dict[str, tuple[str, Mapping[str, object]]] = {  # the system, and further options of it
    "ours": ("ours, 16 beams", {}),
    "ours, abs": ("ours, 16 beams", {"algorithm": "abs"}),
    "HMM": ("HMM, 256 states, 16 beams", {}),
    "no constraint": ("no constraint, 16 beams", {}),
}
USUAL_BEAMS = 16
TOKENS = (8, 16, 32, 64, 128)
WORDS = (1, 2, 3, 4, 5, 6)  # of a keyword constraint: its automaton doubles with each
KEYWORDS = (("dog",), ("park",), ("ball",), ("man",), ("tree",), ("water",))
VOCABULARIES = ("stories260k", "tinystories-656k")  # of 512 and 2,048 tokens; the built-in model has 4,096


def with_beams(method: str, beams: int) -> Entry:
    """The system of a method with another number of beams."""
    name, more = METHODS[method]
    entry = SYSTEMS[name]
    return Entry(entry.class_path, entry.environment, {**entry.options, **more, "beams": beams})


def table_rows(args: argparse.Namespace, progress: Progress) -> Iterator[dict[str, Any]]:
    """The mean seconds per answer for each method, width and repeat."""
    sets = concept_sets(concept_sets_path(args.shared), PROMPTS["captions"], args.sets, ordered=False)
    questions = [(case.constraint, case.prompt, MAX_TOKENS) for case in sets]
    bar = progress.add_task("beams", total=len(args.beams) * len(METHODS) * args.repeats)
    for beams in args.beams:
        seconds: dict[str, list[float]] = {method: [] for method in METHODS}
        for _ in range(args.repeats):
            for method in METHODS:
                seconds[method].append(_mean_s(with_beams(method, beams), BUILT_IN_MODEL, questions, args.threads))
                progress.advance(bar)
        yield from ({"method": method, "beams": beams, "seconds": means} for method, means in seconds.items())


def _mean_s(entry: Entry, folder: str, questions: Sequence[Question], threads: int) -> float:
    """Seconds per answer without the preparation of its constraint.

    This is the cost of a request with a cached automaton.
    """
    seconds = []
    with run_system(entry, folder, threads, seconds_max=300.0) as system:
        system.ask(*questions[0])
        for question in questions:
            answer = system.ask(*question)
            if answer.error:
                raise SystemUnavailable(answer.error)
            seconds.append(answer.answer_ms / 1000)
    return statistics.fmean(seconds)


def _question(words: int = 3, tokens: int = MAX_TOKENS) -> Question:
    """A question of the growth plots."""
    return TextConstraint(concepts=KEYWORDS[:words]), "sentence:", tokens


def growth_rows(args: argparse.Namespace, progress: Progress) -> Iterator[dict[str, Any]]:
    """Our search over one size at a time."""
    points = [
        *(("beams", beams, beams, BUILT_IN_MODEL, _question()) for beams in args.beams),
        *(("tokens", tokens, USUAL_BEAMS, BUILT_IN_MODEL, _question(tokens=tokens)) for tokens in TOKENS),
        *(("keywords", words, USUAL_BEAMS, BUILT_IN_MODEL, _question(words)) for words in WORDS),
    ]
    for folder in (*(str(args.shared / "models" / name) for name in VOCABULARIES), BUILT_IN_MODEL):
        size = json.loads((Path(folder) / "config.json").read_text(encoding="utf-8"))["vocab_size"]
        points.append(("vocabulary", size, USUAL_BEAMS, folder, _question()))
    bar = progress.add_task("growth", total=len(points) * args.repeats)
    for along, value, beams, folder, question in points:
        seconds = []
        for _ in range(args.repeats):
            seconds.append(_mean_s(with_beams("ours", beams), folder, [question] * args.sets, args.threads))
            progress.advance(bar)
        yield {"along": along, "value": value, "seconds": seconds}


def main() -> None:
    parser = parser_of(__doc__, threads=2)
    parser.add_argument("--beams", type=int, nargs="+", default=BEAMS)
    parser.add_argument("--sets", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    with progress_bars() as progress:
        rows, growth = list(table_rows(args, progress)), list(growth_rows(args, progress))
    write_run("runtimes", {
        "threads": args.threads, "max_tokens": MAX_TOKENS, "sets": args.sets, "rows": rows, "growth": growth,
    })  # fmt: skip


if __name__ == "__main__":
    main()
