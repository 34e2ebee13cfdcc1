"""Predicts next events and suffixes of public logs under rules of Declare. It takes minutes on one core.

    python -m benchmarks.declare --data CHECKOUT [--noise 01n] [--logs sepsis] [--traces 200]

Trains an n-gram and an LSTM model on each log, and predicts the rest of each test trace from its first activity, and
from three longer beginnings: half of the median length of the training traces, as the logs' authors do, and one and two
more. The budget is a length that 99 % of the training traces keep to. Writes results/declare.json and RESULTS.md.
"""

from __future__ import annotations

import itertools
import statistics
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.declare.logs import LOGS, EventLog, Rules, Trace, read_log, state_after
from benchmarks.declare.models import CachedScorer, LstmScorer, NgramScorer
from benchmarks.declare.prediction import allowed_ids, similarity, systems_of
from benchmarks.report import write_run
from benchmarks.runs import Row, commit_of, parser_of
from compiler.lifting import UNREACHABLE
from decoding.label_scoring import LabelScorer, ScorerModel


def lengths_of(log: EventLog) -> dict[str, tuple[int, ...]]:
    """The lengths of beginnings, by what they are called."""
    half = int(statistics.median(map(len, log.training)) // 2)
    return {"first activity": (1,), "half": (half, half + 1, half + 2)}


def tasks_of(
    log: EventLog, rules: Rules, lengths: Sequence[int], traces_max: int | None = None
) -> list[tuple[Trace, Trace]]:
    """Beginnings of test traces, and what follows them.

    At least one activity follows. After a beginning the rules can be met.
    """
    divided = [
        (trace[:length], trace[length:])
        for length in lengths
        for trace in log.test[:traces_max]
        if len(trace) > length
    ]
    return [(beginning, rest) for beginning, rest in divided if rules.distance(beginning) < UNREACHABLE]


def suffix_rows(log: EventLog, rules: Rules, model: ScorerModel, args: Namespace) -> Iterator[Row]:
    """Satisfaction, similarity and time of each system."""
    systems = systems_of(model, rules, log.activities)
    for (beginnings, lengths), (system, complete) in itertools.product(lengths_of(log).items(), systems.items()):
        tasks = tasks_of(log, rules, lengths, args.traces)
        satisfied, similar, written, times = 0, list[float](), list[int](), list[float]()
        for number, (beginning, rest) in enumerate(tasks):
            budget = max(log.usual_length + 1 - len(beginning), rules.distance(beginning))
            start = time.process_time()
            predicted = complete(beginning, budget, args.seed + number)
            times.append(time.process_time() - start)
            satisfied += rules.holds((*beginning, *predicted))
            similar.append(similarity(predicted, rest))
            written.append(len(predicted))
        yield {
            "from": beginnings, "system": system, "suffixes": len(tasks), "satisfied": satisfied,
            "similarity": statistics.mean(similar), "length": statistics.mean(written),
            "ms": 1e3 * statistics.median(times),
        }  # fmt: skip


def next_event_row(log: EventLog, rules: Rules, model: ScorerModel, args: Namespace) -> Row:
    """How often the most probable next event is right.

    It is predicted freely and under the rules; `kept` counts free ones after which the rules can be met.
    """
    right, kept, count = {"free": 0, "ours": 0}, 0, 0
    for trace in log.test[: args.traces]:
        state = int(rules.automaton.start)
        rows = model.log_probs([list(trace[:length]) for length in range(len(trace) + 1)]).numpy()
        for log_probs, token in zip(rows, (*trace, *model.eos_ids), strict=True):
            allowed = allowed_ids(rules.automaton, state)
            free, ours = int(log_probs.argmax()), int(np.where(allowed, log_probs, -np.inf).argmax())
            right["free"] += free == token
            right["ours"] += ours == token
            kept += bool(allowed[free])
            count += 1
            if token != model.eos_ids[0]:
                state = state_after(rules.automaton, (token,), state)
    return {"events": count, "kept": kept, **{f"right_{name}": number for name, number in right.items()}}


def measure_log(log: EventLog, args: Namespace) -> Row:
    """All figures of one log."""
    start = time.process_time()
    rules = Rules(log.rules, log.activities)
    row: Row = {
        "log": log.name, "divided": log.divided, "training": len(log.training), "test": len(log.test),
        "activities": len(log.activities), "rules": len(log.rules), "states": rules.automaton.states,
        "compile_s": round(time.process_time() - start, 3),
        "training_satisfied": sum(map(rules.holds, log.training)), "test_satisfied": sum(map(rules.holds, log.test)),
        "models": [],
    }  # fmt: skip
    for name in ("n-gram", "LSTM"):
        start = time.process_time()
        scorer: LabelScorer = (
            NgramScorer(log.training, len(log.activities)) if name == "n-gram"
            else LstmScorer(log.training, len(log.activities), args.seed)
        )  # fmt: skip
        model = ScorerModel(CachedScorer(scorer), len(log.activities))
        found: dict[str, Any] = {"model": name, "training_s": round(time.process_time() - start, 1)}
        found |= {"next": next_event_row(log, rules, model, args), "suffixes": []}
        for suffix_row in suffix_rows(log, rules, model, args):
            print(log.name, name, suffix_row, flush=True)
            found["suffixes"].append(suffix_row)
        row["models"].append(found)
    return row


def main() -> None:
    parser = parser_of(__doc__, shared=False, threads=1)
    parser.add_argument("--data", type=Path, required=True, help="a checkout of axelmezini/suffix-prediction")
    parser.add_argument("--logs", nargs="+", choices=LOGS, default=list(LOGS))
    parser.add_argument("--noise", default="01n", help="which training part: 01n to 04n")
    parser.add_argument("--traces", type=int, help="how many test traces of each log; all without it")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    rows = [measure_log(read_log(args.data, name, args.noise), args) for name in args.logs]
    write_run("declare", {"rows": rows, "noise": args.noise, "commit": commit_of(args.data), "threads": args.threads})


if __name__ == "__main__":
    main()
