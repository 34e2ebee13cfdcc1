"""The tables of docs/experiments.md, from results/ablation.

python -m benchmarks.report.ablation
"""

from __future__ import annotations

import csv
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.report.layout import table
from benchmarks.runs import RESULTS_DIRECTORY

PAGE = Path(__file__).resolve().parents[2] / "docs" / "experiments.md"
FOLDER = RESULTS_DIRECTORY / "ablation"
BEGIN, END = "<!-- ablation: begin -->", "<!-- ablation: end -->"
MODELS = ("captions", "stories260k", "tinystories-656k", "bigram")
FORMER, SIMPLE = "default", "simple, 3k rows, weight 0.8"
RESAMPLES, SEED = 2_000, 0
CASES_MIN = 10  # for a line of a table
HEAD = (
    "variant", "model", "k", "cases", "nats", "log-prob, %", "95 %", "held out, %", "time", "rows", "tokens", "peak",
)  # fmt: skip
WITHOUT = (
    "without cost to go", "without prior (6 nats a token)", "without corrections", "without end costs",
    "without endings", "without row schedule (k rows)", "without tight budgets", "without group penalty",
    "hard banks for the penalty", "without reserve", "without floor", "without merging equal texts",
    "without recombination", "without forced stretches", "pool 4",
)  # fmt: skip
BUILT_UP = (
    "plain", "plain, 3k rows", "abs, 3k beams", "banks (dynamic beam allocation)", "prior", "prior, banks",
    "prior, penalty", "simple", "simple, 2k rows", "simple, 3k rows", SIMPLE, "simple, 4k rows",
)  # fmt: skip
NEAR = (
    "simple, 4k rows", "simple, 3k rows, no penalty", "simple, 3k rows, banks", "simple, 3k rows, corrections",
    "simple, 3k rows, pool 4",
)  # fmt: skip
OVERLAP = ("without corrections", "without endings", "without recombination", SIMPLE)
CURRENT = (
    "kept without cost to go", "kept without prior", "kept without group penalty", "kept without endings",
    "kept without floor", "kept without forced tokens", "k rows", "2k rows", "4k rows", "pool of 4", "pool of 16",
    "cost to go: unigram, dense search", "cost to go: unigram lookahead", "cost to go: bigram",
)  # fmt: skip


class AblationRow(NamedTuple):
    """One answer and its cost.

    key               of the case, unique within the model
    held_out          1 for cases on which no decision is based
    log_prob          of the answer, in nats
    tokens            of the answer
    rows              that the model read, over all steps
    tokens_read       by the model in these rows
    peak_rows         the most rows in one step
    seconds           of the search
    baseline_seconds  of the baseline's search just before it
    """

    variant: str
    k: int
    family: str
    key: str
    held_out: int
    log_prob: float
    tokens: int
    rows: int
    tokens_read: int
    peak_rows: int
    seconds: float
    baseline_seconds: float


_TYPES = (str, int, str, str, int, float, int, int, int, int, float, float)


def stored_rows(file: Path) -> list[AblationRow]:
    """The rows of a file; none if there is no file."""
    if not file.exists():
        return []
    with file.open(encoding="utf-8", newline="") as lines:
        return [AblationRow(*(kind(text) for kind, text in zip(_TYPES, row, strict=True))) for row in csv.reader(lines)]


Cases = dict[str, AblationRow]  # by key


class CaseChange(NamedTuple):
    """A case's change from the baseline to a variant. A log-prob changes by difference and share, a cost by ratio."""

    held_out: int
    nats: float
    share: float
    seconds: float
    rows: float
    tokens: float
    peak: float


def write_experiments() -> None:
    """Write the tables between the two marks of the page."""
    page = PAGE.read_text(encoding="utf-8")
    before, after = page.split(BEGIN)[0], page.split(END)[1]
    PAGE.write_text(f"{before}{BEGIN}\n\n{tables()}\n\n{END}{after}", encoding="utf-8")


def tables() -> str:
    """All tables as Markdown."""
    rows = {model: _by_case(stored_rows(FOLDER / f"{model}.csv")) for model in MODELS}
    fast = ("captions", "stories260k")
    parts = [
        "### The search before, each heuristic off alone", _changes(rows, WITHOUT, FORMER, fast, (8, 16)),
        "### Built up from pruning alone, against the search before",
        _changes(rows, BUILT_UP, FORMER, fast, (8, 16)),
        "### Near the thresholds, over all cases, against the search before",
        _changes(rows, OVERLAP, FORMER, MODELS, (4, 8, 16, 64)),
        f'### Near the thresholds, against "{SIMPLE}"', _changes(rows, NEAR, SIMPLE, MODELS, (4, 8, 16, 64)),
        "### Rows reserved for candidates that come closer, against the search with them",
        _changes(rows, ("reserve off",), "with reserve", MODELS, (4, 8, 16, 64)),
        "### The search that was kept, each part off alone, and other costs to go",
        _changes(rows, CURRENT, "kept", MODELS, (1, 4, 8, 16, 64)),
    ]  # fmt: skip
    return "\n\n".join(part for part in parts if part)


def _by_case(rows: Iterable[AblationRow]) -> dict[tuple[str, int], Cases]:
    """The rows by variant and k, then by case."""
    by_variant: dict[tuple[str, int], Cases] = {}
    for row in rows:
        by_variant.setdefault((row.variant, row.k), {})[row.key] = row
    return by_variant


def _changes(
    rows: dict[str, dict[tuple[str, int], Cases]],
    variants: Sequence[str],
    baseline: str,
    models: Sequence[str],
    beams: Sequence[int],
) -> str:
    """One line for each variant, model and k."""
    body = []
    for variant in variants:
        for model in models:
            for k in beams:
                changes = list(_case_changes(rows[model].get((variant, k), {}), rows[model].get((baseline, k), {})))
                if len(changes) >= CASES_MIN:
                    body.append([variant, model, f"{k}", f"{len(changes)}", *_summary(changes)])
    return table(HEAD, body) if body else ""


def _case_changes(variant: Cases, baseline: Cases) -> Iterable[CaseChange]:
    for key in [key for key in variant if key in baseline]:
        row, baseline_row = variant[key], baseline[key]
        nats = row.log_prob - baseline_row.log_prob
        costs = zip(row[7:10], baseline_row[7:10], strict=True)  # rows, tokens and peak
        ratios = [cost / max(1, baseline_cost) for cost, baseline_cost in costs]
        share, seconds = 100.0 * nats / abs(baseline_row.log_prob), row.seconds / row.baseline_seconds
        yield CaseChange(row.held_out, nats, share, seconds, *ratios)


def _summary(changes: Sequence[CaseChange]) -> list[str]:
    """Mean changes with bootstrap interval, held-out mean, median time, mean costs. The bootstrap is paired."""
    shares = np.array([change.share for change in changes])
    sample = np.random.default_rng(SEED).integers(0, len(shares), (RESAMPLES, len(shares)))
    low, high = np.percentile(shares[sample].mean(axis=1), [2.5, 97.5])
    held_out = [change.share for change in changes if change.held_out]
    return [
        f"{statistics.fmean(change.nats for change in changes):+.2f}", f"{shares.mean():+.2f}",
        f"{low:+.2f} to {high:+.2f}",
        f"{statistics.fmean(held_out):+.2f}" if held_out else "",
        f"{statistics.median(change.seconds for change in changes):.2f}",
        *(f"{statistics.fmean(column):.2f}" for column in zip(*(change[4:] for change in changes), strict=True)),
    ]  # fmt: skip


if __name__ == "__main__":
    write_experiments()
