"""Which heuristics of the search earn their place: each one off alone, built up from none, and rivals.

    python -m benchmarks.ablation --stage 1        stratified cases, k = 8 and 16, the two fast models, all variants
    python -m benchmarks.ablation --stage 2 --variants kept "4k rows" ...    over 500 cases, all models, more beams
    python -m benchmarks.ablation --quick          the first stage at k = 8 alone, within 30 minutes

Every case is kept in results/ablation as it is measured, so a run that was stopped goes on where it was, and a single
variant can be added. A variant's time is paired with the baseline's on the same case, measured right before it. The
tables in docs/experiments.md are written from these files (`benchmarks.report_ablation`).
"""

from __future__ import annotations

import argparse
import csv
import functools
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from app.models.tokenizer import Speller
from benchmarks.ablation_cases import FIRST_STAGE, MODELS, Task, first_stage, second_stage, tasks
from benchmarks.ablation_variants import BASELINE, VARIANTS
from benchmarks.compile import DEFAULT_SHARED
from benchmarks.places import RESULTS_DIRECTORY
from benchmarks.report_ablation import write_experiments
from benchmarks.rival_search import RIVALS, CostToGo, DenseSearch, Estimates
from benchmarks.search_quality import QualityBench
from decoding.forced_tokens import TokenBytes
from decoding.generation import Generation
from decoding.model import Scores, StepInput
from decoding.options import SearchOptions
from decoding.prepared_constraint import PreparedConstraint
from decoding.search import drive, search_of

FOLDER = RESULTS_DIRECTORY / "ablation"
SETS = 40
STAGES = {1: (8, 16), 2: (4, 8, 16, 64)}
NAMES = (*VARIANTS, *RIVALS)


class Measured(NamedTuple):
    """One answer, and what finding it cost.

    key               `Task.key`
    half              0 for cases on which decisions are made, 1 for those set apart
    log_prob          of the answer, in nats
    tokens            of the answer
    rows              that the model read, over all steps
    tokens_read       by the model in these rows
    peak_rows         the most rows side by side
    seconds           of the search
    baseline_seconds  of the baseline's search just before it
    """

    variant: str
    k: int
    family: str
    key: str
    half: int
    log_prob: float
    tokens: int
    rows: int
    tokens_read: int
    peak_rows: int
    seconds: float
    baseline_seconds: float


_KINDS = (str, int, str, str, int, float, int, int, int, int, float, float)


class CountingModel:
    """A model that counts the rows and tokens it is given; all else is the model's own."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self.rows = self.tokens = self.peak = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def step(self, feeds: Sequence[StepInput[Any]]) -> list[Scores]:
        rows = sum(len(feed.parents) for feed in feeds)
        self.rows, self.peak = self.rows + rows, max(self.peak, rows)
        self.tokens += sum(feed.tokens.numel() for feed in feeds)
        found: list[Scores] = self._model.step(feeds)
        return found


class Ablation:
    """The cases of one model, and what has been measured of them."""

    def __init__(self, name: str, shared: Path, folder: Path = FOLDER) -> None:
        self._bench = QualityBench(name, shared)
        vocabulary = self._bench.files.vocabulary
        speller = Speller(self._bench.tokenizer, vocabulary.tokens)
        self._bench.pieces = TokenBytes(vocabulary.tokens, self._bench.model.eos_ids, speller)
        self._estimates = Estimates(self._bench.model)
        self._cost_to_go = functools.lru_cache(maxsize=len(RIVALS))(self._new_cost_to_go)
        self.every = [
            task for task in tasks(name, shared / "data" / "commongen" / "dev.jsonl", SETS)
            if self._bench.constraint(task.case).automaton.min_tokens <= task.max_tokens
        ]  # fmt: skip
        self.file = folder / f"{name}.csv"

    def answer(self, task: Task, k: int, name: str, baseline_seconds: float) -> Measured:
        """The answer of a variant or rival to a case."""
        search, model = self._search(task, name), CountingModel(self._bench.model)
        started = time.perf_counter()
        best = drive(model, self._bench.prompt_ids(task.case), search(k))[0]
        seconds = time.perf_counter() - started
        return Measured(
            name, k, task.family, task.key, int(not task.decides), round(best.log_prob, 4), len(best.tokens),
            model.rows, model.tokens, model.peak, round(seconds, 5), round(baseline_seconds or seconds, 5),
        )

    def _search(self, task: Task, name: str) -> Callable[[int], Generation]:
        """A variant or rival, prepared for a case; it takes k. `Measured.seconds` leaves the preparation out."""
        constraint = self._bench.constraint(task.case)
        if name in RIVALS:
            cost = self._cost_to_go(name, constraint, task.max_tokens)
            return lambda k: DenseSearch(constraint, task.max_tokens, k, cost)
        variant = VARIANTS[name]

        def search(k: int) -> Generation:
            options = SearchOptions(task.max_tokens, k * variant.beams_factor, variant.algorithm, length_penalty=0.0)
            return search_of(constraint, options, heuristics=variant.heuristics)

        return search

    def _new_cost_to_go(self, name: str, constraint: PreparedConstraint, max_tokens: int) -> CostToGo:
        return RIVALS[name](self._estimates, constraint, max_tokens)

    def run(self, chosen: list[Task], beams: tuple[int, ...], names: list[str]) -> Iterator[Measured]:
        """What is not stored of these variants, case by case; the baseline first, for the others' times."""
        known = {(one.variant, one.k, one.key) for one in stored(self.file)}
        for task in chosen:
            for k in beams:
                lacking = [name for name in names if (name, k, task.key) not in known]
                if not lacking:
                    continue
                baseline = self.answer(task, k, BASELINE, 0.0)
                if (BASELINE, k, task.key) not in known:
                    yield baseline
                for name in lacking:
                    if name != BASELINE:
                        yield self.answer(task, k, name, baseline.seconds)


def stored(file: Path) -> list[Measured]:
    """All that a file holds."""
    if not file.exists():
        return []
    with file.open(encoding="utf-8", newline="") as lines:
        return [Measured(*(kind(text) for kind, text in zip(_KINDS, row, strict=True))) for row in csv.reader(lines)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stage", type=int, choices=STAGES, default=1)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--models", nargs="+", choices=MODELS)
    parser.add_argument("--beams", "--k", type=int, nargs="+")
    parser.add_argument("--variants", nargs="+", choices=NAMES, default=list(NAMES))
    parser.add_argument("--results", type=Path, default=FOLDER, help="another folder; the tables stay as they are")
    parser.add_argument("--shared", type=Path, default=Path(os.environ.get("ABS_SHARED", DEFAULT_SHARED)))
    args = parser.parse_args()
    torch.set_num_threads(1)
    args.results.mkdir(exist_ok=True)
    beams = tuple(args.beams or ((8,) if args.quick else STAGES[args.stage]))
    for name in args.models or (FIRST_STAGE if args.stage == 1 else MODELS):
        ablation = Ablation(name, args.shared, args.results)
        chosen = list(first_stage(name, ablation.every) if args.stage == 1 else second_stage(ablation.every))
        started, done = time.monotonic(), 0
        with ablation.file.open("a", encoding="utf-8", newline="") as lines:
            writer = csv.writer(lines, lineterminator="\n")
            for found in ablation.run(chosen, beams, args.variants):
                writer.writerow(found)
                lines.flush()
                done += 1
        print(f"{name}: {done} searches in {time.monotonic() - started:.0f} s", flush=True)
    if args.results == FOLDER:
        write_experiments()


if __name__ == "__main__":
    main()
