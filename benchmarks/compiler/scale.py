"""Measures how compile time and table size grow with their inputs.

The inputs are keywords, the length of a template, and the vocabulary.

    python -m benchmarks.compiler.scale [--shared DIRECTORY] [--repeats 3] [--keep]

Writes results/scale.json, the plot results/scale.svg and RESULTS.md.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path

from benchmarks.compiler.cases import Expression
from benchmarks.compiler.compile import compile_parser
from benchmarks.compiler.engine_process import EngineProcess, MeasureRequest, Outcome
from benchmarks.keyword_patterns import first_concepts
from benchmarks.report import write_run
from benchmarks.runs import concept_sets_path, tokenizer_path

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
class ScalePoint:
    """A constraint to compile. `size` is the number on the axis of `series`; 0: the size of the vocabulary."""

    series: str
    size: int
    vocabulary: str
    constraint: Mapping[str, object]


def template(chars: int) -> str:
    """Sentences with one word gap each, cut to a number of characters. A gap counts as it is written."""
    text = (_SENTENCE * (chars // len(_SENTENCE) + 1))[:chars]
    last_gap = text.rfind("<|infill")
    return text if text.find("|>", last_gap) >= 0 else text[:last_gap].ljust(chars, ".")


def points(shared: Path) -> Iterator[ScalePoint]:
    """All constraints, one series after another."""
    concepts = first_concepts(concept_sets_path(shared), KEYWORDS_MAX)
    for count in range(1, KEYWORDS_MAX + 1):
        for ordered in (False, True):
            keywords = {"keywords": [list(forms) for forms in concepts[:count]], "ordered": ordered}
            yield ScalePoint("keywords in order" if ordered else "keywords", count, LARGEST, keywords)
    for chars in TEMPLATE_CHARS:
        yield ScalePoint("template characters", chars, LARGEST, {"infill": template(chars)})
    five: Mapping[str, object] = {"keywords": [list(forms) for forms in concepts[:5]]}
    for vocabulary in VOCABULARIES:
        for name, constraint in {"5 keywords": five, **_BY_VOCABULARY}.items():
            yield ScalePoint(f"vocabulary: {name}", 0, vocabulary, constraint)


def scale_rows(args: argparse.Namespace) -> Iterator[dict[str, object]]:
    """One row for each point and repeat. A repeat covers all points, so that a slow minute affects all alike."""
    with ExitStack() as stack:
        processes = {name: EngineProcess("ours", tokenizer_path(args.shared, name), stack) for name in VOCABULARIES}
        for repeat, point in product(range(args.repeats), list(points(args.shared))):
            expression = Expression("constraint", json.dumps(point.constraint))
            request = MeasureRequest(expression, args.time_limit, args.memory_limit_gb * 10**9)
            outcome = processes[point.vocabulary].measure(request)
            print(describe(point, outcome), flush=True)
            size = point.size or int(outcome.figures.get("vocabulary", 0))
            row = {"series": point.series, "size": size, "vocabulary": point.vocabulary, "repeat": repeat}
            yield row | asdict(outcome)


def describe(point: ScalePoint, outcome: Outcome) -> str:
    """A line about one compile."""
    head = f"{point.series:24} {point.size or point.vocabulary!s:>15} "
    if not outcome.figures:
        return f"{head}{outcome.outcome} {outcome.message}"
    figures = outcome.figures
    tables, peak = (figures[name] / 2**20 for name in ("table_bytes", "peak_bytes"))
    return f"{head}{figures['ms']:9.1f} ms; tables {tables:8.2f} MiB; peak {peak:7.1f} MiB"


def main() -> None:
    args = compile_parser(__doc__).parse_args()
    rows = list(scale_rows(args))
    if not args.keep:
        write_run("scale", {"rows": rows})


if __name__ == "__main__":
    main()
