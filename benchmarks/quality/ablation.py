"""Measures the contribution of each heuristic of the search.

Each is off alone, added to none, or replaced by another cost to go.

    python -m benchmarks.quality.ablation --stage 1   stratified cases, k = 8 and 16, the two fast models, all variants
    python -m benchmarks.quality.ablation --stage 2 --variants kept "4k rows" ...   over 500 cases, all models and beams
    python -m benchmarks.quality.ablation --quick     the first stage at k = 8 alone, within 30 minutes

Every case is stored in results/ablation as soon as it is measured, so that an interrupted run continues, and a single
variant can be added. A variant's time is paired with the baseline's on the same case, measured right before it. The
tables of docs/experiments.md are written from these files (`benchmarks.report.ablation`).
"""

from __future__ import annotations

import csv
import functools
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.quality.cases import (
    BASELINE,
    FIRST_STAGE,
    MODELS,
    VARIANTS,
    AblationTask,
    first_stage,
    second_stage,
    tasks,
)  # fmt: skip
from benchmarks.quality.lookahead_search import COSTS_TO_GO, CostToGo, LookaheadSearch, PriorEstimates
from benchmarks.quality.search_quality import QualityModel
from benchmarks.report.ablation import FOLDER, AblationRow, stored_rows, write_experiments
from benchmarks.runs import concept_sets_path, parser_of
from decoding.generation import Generation
from decoding.model import Scores, StepInput
from decoding.options import SearchOptions
from decoding.prepared_constraint import PreparedConstraint
from decoding.search import drive, search_of

SETS = 40
STAGES = {1: (8, 16), 2: (4, 8, 16, 64)}
NAMES = (*VARIANTS, *COSTS_TO_GO)


class CountingModel:
    """A model that counts the rows and tokens that it reads."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self.rows = self.tokens = self.peak = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def step(self, feeds: Sequence[StepInput[Any]]) -> list[Scores]:
        rows = sum(len(feed.parents) for feed in feeds)
        self.rows, self.peak = self.rows + rows, max(self.peak, rows)
        self.tokens += sum(feed.tokens.numel() for feed in feeds)
        scores: list[Scores] = self._model.step(feeds)
        return scores


class Ablation:
    """The cases of one model and their file of results."""

    def __init__(self, name: str, shared: Path, folder: Path = FOLDER) -> None:
        self._model = QualityModel(name, shared, forced_tokens=True)
        self._estimates = PriorEstimates(self._model.model)
        self._cost_to_go = functools.lru_cache(maxsize=len(COSTS_TO_GO))(self._new_cost_to_go)
        self.tasks = [
            task for task in tasks(name, concept_sets_path(shared), SETS)
            if self._model.constraint(task.case).automaton.min_tokens <= task.max_tokens
        ]  # fmt: skip
        self.file = folder / f"{name}.csv"

    def answer(self, task: AblationTask, k: int, name: str, baseline_seconds: float) -> AblationRow:
        """A case's answer by a variant or a cost to go."""
        search, model = self._search(task, name), CountingModel(self._model.model)
        start = time.perf_counter()
        best = drive(model, self._model.prompt_ids(task.case), search(k))[0]
        seconds = time.perf_counter() - start
        return AblationRow(
            name,
            k,
            task.family,
            task.key,
            int(task.held_out),
            round(best.log_prob, 4),
            len(best.tokens),
            model.rows,
            model.tokens,
            model.peak,
            round(seconds, 5),
            round(baseline_seconds or seconds, 5),
        )

    def _search(self, task: AblationTask, name: str) -> Callable[[int], Generation]:
        """The search by k. What it prepares here is not part of `AblationRow.seconds`."""
        constraint = self._model.constraint(task.case)
        if name in COSTS_TO_GO:
            cost = self._cost_to_go(name, constraint, task.max_tokens)
            return lambda k: LookaheadSearch(constraint, task.max_tokens, k, cost)
        variant = VARIANTS[name]

        def search(k: int) -> Generation:
            options = SearchOptions(
                task.max_tokens, beams=k * variant.beams_factor, algorithm=variant.algorithm, length_penalty=0.0
            )
            return search_of(constraint, options, heuristics=variant.heuristics)

        return search

    def _new_cost_to_go(self, name: str, constraint: PreparedConstraint, max_tokens: int) -> CostToGo:
        return COSTS_TO_GO[name](self._estimates, constraint, max_tokens)

    def run(self, selection: list[AblationTask], beams: tuple[int, ...], names: list[str]) -> Iterator[AblationRow]:
        """The rows that are not stored yet, case by case.

        The baseline comes first, as the others' times refer to it.
        """
        stored_keys = {(row.variant, row.k, row.key) for row in stored_rows(self.file)}
        for task in selection:
            for k in beams:
                missing = [name for name in names if (name, k, task.key) not in stored_keys]
                if not missing:
                    continue
                baseline = self.answer(task, k, BASELINE, 0.0)
                if (BASELINE, k, task.key) not in stored_keys:
                    yield baseline
                for name in missing:
                    if name != BASELINE:
                        yield self.answer(task, k, name, baseline.seconds)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--stage", type=int, choices=STAGES, default=1)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--models", nargs="+", choices=MODELS)
    parser.add_argument("--beams", "--k", type=int, nargs="+")
    parser.add_argument("--variants", nargs="+", choices=NAMES, default=list(NAMES))
    parser.add_argument("--results", type=Path, default=FOLDER, help="another folder; then no table is written")
    args = parser.parse_args()
    torch.set_num_threads(1)
    args.results.mkdir(exist_ok=True)
    beams = tuple(args.beams or ((8,) if args.quick else STAGES[args.stage]))
    for name in args.models or (FIRST_STAGE if args.stage == 1 else MODELS):
        ablation = Ablation(name, args.shared, args.results)
        selection = list(first_stage(name, ablation.tasks) if args.stage == 1 else second_stage(ablation.tasks))
        start, count = time.monotonic(), 0
        with ablation.file.open("a", encoding="utf-8", newline="") as lines:
            writer = csv.writer(lines, lineterminator="\n")
            for row in ablation.run(selection, beams, args.variants):
                writer.writerow(row)
                lines.flush()
                count += 1
        print(f"{name}: {count} searches in {time.monotonic() - start:.0f} s", flush=True)
    if args.results == FOLDER:
        write_experiments()


if __name__ == "__main__":
    main()
