"""Ordered Fashion-MNIST (paper, section 5.1): a CNN alone, with an LSTM, and with the search under the 13 formulas.

python -m benchmarks.fashion [--repeats 5] [--sequences 2000]

Every repeat trains a CNN and an LSTM of its own and draws sequences of its own. Writes results/fashion.json, with each
repeat as it ends, so that a run may be stopped and taken up; the figure results/fashion.svg, and RESULTS.md.
"""

from __future__ import annotations

import argparse
import datetime
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.compile import add_shared_argument, machine
from benchmarks.fashion_models import LSTM_HELD_OUT, LSTM_SEQUENCES, classified, seen, train_classifier
from benchmarks.fashion_models import train_in_sequence as train_lstm
from benchmarks.fashion_sequences import Worn, accepted, compiled, draw, read_split
from benchmarks.places import RESULTS_DIRECTORY
from benchmarks.report import write_report
from compiler.artifact import CompiledConstraint
from decoding.label_decoding import BeamOptions, beam_labels, best_labels

RESULT = RESULTS_DIRECTORY / "fashion.json"
COMMAND = "python -m benchmarks.fashion"
BEAMS = (1, 2, 3, 4, 5, 6, 8, 10, 16, 32, 64)
STEPS = 4 + len(BEAMS)  # of a repeat: both trainings, each system

Labels = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Scored:
    """What a system makes of the sequences of a repeat.

    accuracy           share of the images whose label it finds
    sequence_accuracy  share of the sequences that it finds as a whole
    satisfied          share of its answers that satisfy the formulas
    ms                 for one sequence, after the CNN
    """

    system: str
    beams: int
    accuracy: float
    sequence_accuracy: float
    satisfied: float
    ms: float


class Judge:
    """Scores systems on the sequences of one repeat."""

    def __init__(self, sequences: Sequence[Worn], allowed: frozenset[Labels], tell: Callable[[str], None]) -> None:
        self._sequences, self._allowed, self._tell = sequences, allowed, tell

    def score(self, system: str, beams: int, answer: Callable[[Sequence[Worn]], Sequence[Labels]]) -> Scored:
        self._tell(f"{system} {beams or ''}")
        began = time.perf_counter()
        found = answer(self._sequences)
        ms = (time.perf_counter() - began) * 1000 / len(found)
        pairs = [(labels, worn.labels) for labels, worn in zip(found, self._sequences, strict=True)]
        right = [one == other for labels, true in pairs for one, other in zip(labels, true, strict=True)]
        return Scored(
            system, beams, float(np.mean(right)), float(np.mean([labels == true for labels, true in pairs])),
            float(np.mean([labels in self._allowed for labels in found])), ms,
        )


def searched(
    log_probs: NDArray[np.float64], constraint: CompiledConstraint, beams: int
) -> Callable[[Sequence[Worn]], list[Labels]]:
    """Our decoding of each sequence's matrix: by so many beams, or exactly with 0."""

    def one(matrix: NDArray[np.float64]) -> Labels:
        if not beams:
            return best_labels(matrix, constraint.tokens).labels
        return beam_labels(matrix, constraint.tokens, BeamOptions(beams)).labels

    return lambda sequences: [one(log_probs[worn.images]) for worn in sequences]


def repeat(seed: int, shared: Path, count: int, tell: Callable[[str], None]) -> dict[str, Any]:
    """One repeat: everything that depends on chance, by one seed."""
    folder, dice = shared / "data" / "fashion_mnist", np.random.default_rng(seed)
    train, test, constraint = read_split(folder, "train"), read_split(folder, "t10k"), compiled()
    sequences = sorted(accepted(constraint.text))
    cnn = train_classifier(train, seed, tell)
    features, _ = seen(cnn, train.images)
    drawn = draw(sequences, train, LSTM_SEQUENCES + LSTM_HELD_OUT, dice)
    lstm = train_lstm(features, drawn[LSTM_HELD_OUT:], drawn[:LSTM_HELD_OUT], seed, tell)
    features, log_probs = seen(cnn, test.images)
    plain = log_probs.argmax(dim=1).numpy()
    asked = draw(sequences, test, count, dice)
    judge = Judge(asked, frozenset(sequences), tell)
    matrix = log_probs.double().numpy()
    scored = [
        judge.score("CNN", 0, lambda some: [tuple(plain[worn.images].tolist()) for worn in some]),
        judge.score("CNN-LSTM", 0, lambda some: classified(lstm, features, some)),
        *(judge.score("abs", k, searched(matrix, constraint, k)) for k in BEAMS),
        judge.score("exact", 0, searched(matrix, constraint, 0)),
    ]
    return {
        "seed": seed, "sequences": count, "test_accuracy": float(np.mean(plain == test.labels)),
        "allowed": len(sequences), "length": float(np.mean([len(worn.labels) for worn in asked])),
        "scored": [asdict(one) for one in scored],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--sequences", type=int, default=2_000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--again", action="store_true", help="forget the repeats that are stored")
    add_shared_argument(parser)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    stored = json.loads(RESULT.read_text(encoding="utf-8")) if RESULT.exists() and not args.again else {"repeats": []}
    known = {(one["seed"], one["sequences"]) for one in stored["repeats"]}
    wanted = [seed for seed in range(args.repeats) if (seed, args.sequences) not in known]
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns) as progress:
        bar = progress.add_task("", total=len(wanted) * 100)
        for number, seed in enumerate(wanted):
            said = 0

            def tell(what: str, seed: int = seed, number: int = number) -> None:
                nonlocal said
                said += 1
                done = number * 100 + min(99, 100 * said // (22 + STEPS))
                progress.update(bar, completed=done, description=f"repeat {seed + 1}: {what}")

            stored["repeats"].append(repeat(seed, args.shared, args.sequences, tell))
            stored |= {"date": datetime.date.today().isoformat(), "machine": machine(), "command": COMMAND}
            RESULT.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")
    write_report()


if __name__ == "__main__":
    main()
