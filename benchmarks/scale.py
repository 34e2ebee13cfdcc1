"""How our compile time and table size grow with keywords, with the length of a template, and with the vocabulary.

    python -m benchmarks.scale [--shared DIRECTORY] [--repeats 3] [--keep]

Writes results/scale.json, the plot results/scale.svg and RESULTS.md beside this file.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.compile import Server, about, add_shared_argument, tokenizer_path
from benchmarks.keyword_cases import first_concepts
from benchmarks.measurement import Outcome, Request
from benchmarks.places import RESULTS_DIRECTORY
from benchmarks.report import write_report
from benchmarks.suite import Expression

KEYWORDS_MAX = 12
TEMPLATE_CHARS = (125, 250, 500, 1000, 1500, 2000)
VOCABULARIES = ("mistral_v1_32k", "gpt2", "cl100k_base", "o200k_base")
LARGEST = VOCABULARIES[-1]
_SENTENCE = "We walked along the river to <|infill_word|> and talked about the summer. "
_BY_VOCABULARY = {
    "bounded text": {"regex": r"[^\n]{1,200}"},
    "e-mail": {"regex": r"[a-zA-Z0-9._%+-]+@(?:[a-zA-Z0-9-]+\.)+[a-zA-Z]{2,}"},
}


@dataclass(frozen=True, slots=True)
class Point:
    """What is compiled: `size` is the number on the axis of `series`."""

    series: str
    size: int
    vocabulary: str
    constraint: Mapping[str, object]


def template(chars: int) -> str:
    """Sentences with a word gap each, cut to a number of characters, gaps counted as written."""
    whole = _SENTENCE * (chars // len(_SENTENCE) + 1)
    cut = whole[:chars]
    opened = cut.rfind("<|infill")
    return cut if cut.find("|>", opened) >= 0 else cut[:opened].ljust(chars, ".")


def points(shared: Path) -> Iterator[Point]:
    """Every compile of the run, a series at a time. The vocabularies' sizes are filled in when they are loaded."""
    concepts = first_concepts(shared / "data" / "commongen" / "dev.jsonl", KEYWORDS_MAX)
    for count in range(1, KEYWORDS_MAX + 1):
        for ordered in (False, True):
            keywords = {"keywords": [list(forms) for forms in concepts[:count]], "ordered": ordered}
            yield Point("keywords in order" if ordered else "keywords", count, LARGEST, keywords)
    for chars in TEMPLATE_CHARS:
        yield Point("template characters", chars, LARGEST, {"infill": template(chars)})
    five: Mapping[str, object] = {"keywords": [list(forms) for forms in concepts[:5]]}
    for vocabulary in VOCABULARIES:
        for name, constraint in {"5 keywords": five, **_BY_VOCABULARY}.items():
            yield Point(f"vocabulary: {name}", 0, vocabulary, constraint)


def measure(args: argparse.Namespace) -> Iterator[dict[str, object]]:
    """One row for each point and repeat, in rounds, so that a slow minute touches all points alike."""
    servers = {name: Server("ours", tokenizer_path(args.shared, name)) for name in VOCABULARIES}
    try:
        for repeat in range(args.repeats):
            for point in points(args.shared):
                request = Request(
                    Expression("constraint", json.dumps(point.constraint)),
                    args.time_limit,
                    args.memory_limit_gb * 10**9,
                )
                outcome = servers[point.vocabulary].ask(request)
                print(describe(point, outcome), flush=True)
                size = point.size or int(outcome.figures.get("vocabulary", 0))
                row = {"series": point.series, "size": size, "vocabulary": point.vocabulary, "repeat": repeat}
                yield row | asdict(outcome)
    finally:
        for server in servers.values():
            server.close()


def describe(point: Point, outcome: Outcome) -> str:
    head = f"{point.series:24} {point.size or point.vocabulary!s:>15} "
    if not outcome.figures:
        return f"{head}{outcome.outcome} {outcome.message}"
    figures = outcome.figures
    tables, peak = (figures[name] / 2**20 for name in ("table_bytes", "peak_bytes"))
    return f"{head}{figures['ms']:9.1f} ms; tables {tables:8.2f} MiB; peak {peak:7.1f} MiB"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_shared_argument(parser)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds a compile and its walk may take")
    parser.add_argument("--memory-limit-gb", type=int, default=6, help="address space beyond the loaded vocabulary")
    parser.add_argument("--keep", action="store_true", help="write no file")
    args = parser.parse_args()
    rows = list(measure(args))
    if args.keep:
        return
    RESULTS_DIRECTORY.mkdir(exist_ok=True)
    text = json.dumps(about("benchmarks.scale") | {"rows": rows}, indent=1) + "\n"
    (RESULTS_DIRECTORY / "scale.json").write_text(text, encoding="utf-8")
    write_report()


if __name__ == "__main__":
    main()
