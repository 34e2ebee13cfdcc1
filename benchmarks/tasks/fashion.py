"""Ordered Fashion-MNIST (the paper's section 5.1): a CNN alone, with an LSTM, and with the search under 13 formulas.

    python -m benchmarks.tasks.fashion [--repeats 5] [--sequences 2000]

Every repeat trains its own CNN and LSTM and draws its own sequences. Writes results/fashion.json after each repeat, so
that an interrupted run continues, then the figure results/fashion.svg and RESULTS.md.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.progress import Progress

from benchmarks.report import write_report
from benchmarks.runs import RESULTS_DIRECTORY, about, parser_of, write_json
from benchmarks.systems.questions import progress_bars
from benchmarks.tasks.fashion_models import (
    EPOCHS,
    LSTM_EPOCHS,
    LSTM_HELD_OUT,
    LSTM_SEQUENCES,
    classify,
    features_and_log_probs,
    train_classifier,
    train_sequence_classifier,
)  # fmt: skip
from benchmarks.tasks.fashion_sequences import Outfit, accepted_sequences, clothing_constraint, draw, read_split
from compiler.artifact import CompiledConstraint
from decoding.label_decoding import BeamOptions, beam_labels, best_labels

RESULT = RESULTS_DIRECTORY / "fashion.json"
BEAMS = (1, 2, 3, 4, 5, 6, 8, 10, 16, 32, 64)
STAGES = EPOCHS + LSTM_EPOCHS + 3 + len(BEAMS)  # of a repeat: epochs, and the systems

Labels = tuple[int, ...]
Decoder = Callable[[Sequence[Outfit]], Sequence[Labels]]


@dataclass(frozen=True, slots=True)
class FashionScore:
    """A system's score on the sequences of a repeat.

    accuracy           share of the images that get the right label
    sequence_accuracy  share of the sequences in which all images do
    satisfied          share of the answers that satisfy the formulas
    ms                 for one sequence, after the CNN
    """

    system: str
    beams: int
    accuracy: float
    sequence_accuracy: float
    satisfied: float
    ms: float


class FashionScorer:
    """Scores systems on the sequences of one repeat."""

    def __init__(
        self, sequences: Sequence[Outfit], allowed: frozenset[Labels], on_stage: Callable[[str], None]
    ) -> None:
        self._sequences, self._allowed, self._on_stage = sequences, allowed, on_stage

    def score(self, system: str, beams: int, decoder: Decoder) -> FashionScore:
        """The score of a decoder's answers."""
        self._on_stage(f"{system} {beams or ''}")
        start = time.perf_counter()
        answers = decoder(self._sequences)
        ms = (time.perf_counter() - start) * 1000 / len(answers)
        pairs = [(labels, outfit.labels) for labels, outfit in zip(answers, self._sequences, strict=True)]
        correct = [label == true for labels, truth in pairs for label, true in zip(labels, truth, strict=True)]
        return FashionScore(
            system, beams, float(np.mean(correct)), float(np.mean([labels == truth for labels, truth in pairs])),
            float(np.mean([labels in self._allowed for labels in answers])), ms,
        )  # fmt: skip


def constrained_decoder(log_probs: NDArray[np.float64], constraint: CompiledConstraint, beams: int) -> Decoder:
    """Our decoding of each sequence's matrix [T, labels], by beam search, or exactly if `beams` is 0."""

    def decode(matrix: NDArray[np.float64]) -> Labels:
        if not beams:
            return best_labels(matrix, constraint.tokens).labels
        return beam_labels(matrix, constraint.tokens, BeamOptions(beams)).labels

    return lambda sequences: [decode(log_probs[outfit.images]) for outfit in sequences]


def repeat(seed: int, shared: Path, count: int, on_stage: Callable[[str], None]) -> dict[str, Any]:
    """One repeat, in which all randomness comes from one seed."""
    folder, random = shared / "data" / "fashion_mnist", np.random.default_rng(seed)
    train, test, constraint = read_split(folder, "train"), read_split(folder, "t10k"), clothing_constraint()
    allowed = sorted(accepted_sequences(constraint.text))
    cnn = train_classifier(train, seed, on_stage)
    features, _ = features_and_log_probs(cnn, train.images)
    training = draw(allowed, train, LSTM_SEQUENCES + LSTM_HELD_OUT, random)
    lstm = train_sequence_classifier(features, training[LSTM_HELD_OUT:], training[:LSTM_HELD_OUT], seed, on_stage)
    features, log_probs = features_and_log_probs(cnn, test.images)
    best = log_probs.argmax(dim=1).numpy()
    sequences = draw(allowed, test, count, random)
    scorer = FashionScorer(sequences, frozenset(allowed), on_stage)
    matrix = log_probs.double().numpy()
    scores = [
        scorer.score("CNN", 0, lambda outfits: [tuple(best[outfit.images].tolist()) for outfit in outfits]),
        scorer.score("CNN-LSTM", 0, lambda outfits: classify(lstm, features, outfits)),
        *(scorer.score("abs", k, constrained_decoder(matrix, constraint, k)) for k in BEAMS),
        scorer.score("exact", 0, constrained_decoder(matrix, constraint, 0)),
    ]
    return {
        "seed": seed, "sequences": count, "test_accuracy": float(np.mean(best == test.labels)),
        "allowed": len(allowed), "length": float(np.mean([len(outfit.labels) for outfit in sequences])),
        "scored": [asdict(score) for score in scores],
    }  # fmt: skip


def stage_callback(progress: Progress, seed: int) -> Callable[[str], None]:
    """A bar for one repeat, which each call advances by a stage."""
    bar = progress.add_task("", total=STAGES)
    return lambda stage: progress.update(bar, advance=1, description=f"repeat {seed + 1}: {stage}")


def main() -> None:
    parser = parser_of(__doc__, threads=2)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--sequences", type=int, default=2_000)
    parser.add_argument("--again", action="store_true", help="discard the stored repeats")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    stored = json.loads(RESULT.read_text(encoding="utf-8")) if RESULT.exists() and not args.again else {"repeats": []}
    measured = {(run["seed"], run["sequences"]) for run in stored["repeats"]}
    with progress_bars() as progress:
        for seed in range(args.repeats):
            if (seed, args.sequences) not in measured:
                on_stage = stage_callback(progress, seed)
                stored["repeats"].append(repeat(seed, args.shared, args.sequences, on_stage))
                write_json(RESULT, stored | about(arguments=False))
    write_report()


if __name__ == "__main__":
    main()
