"""Ordered Fashion-MNIST (the paper's section 5.1) by three methods.

They are a CNN alone, with an LSTM, and with the search under 13 formulas.

    python -m benchmarks.tasks.fashion [--repeats 5] [--sequences 2000]

Every repeat trains its own CNN and LSTM and draws its own sequences. Writes results/fashion.json after each repeat, so
that an interrupted run continues, then the figure results/fashion.svg and RESULTS.md. The CNN is the paper's (appendix
C), the LSTM is trained over the features of the frozen CNN. The paper leaves some numbers open; ours are 16 and 32
filters, layers of 256 and 128, and dropout 0.3.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.progress import Progress
from torch import Tensor, nn

from benchmarks.report import write_report
from benchmarks.runs import RESULTS_DIRECTORY, about, parser_of, write_json
from benchmarks.systems.process import progress_bars
from benchmarks.tasks.fashion_sequences import (
    LABELS,
    Outfit,
    Split,
    accepted_sequences,
    clothing_constraint,
    draw,
    read_split,
)
from compiler.artifact import CompiledConstraint
from compiler.lifting import TokenAutomaton
from compiler.text import TextAutomaton
from decoding.label_decoding import BeamOptions, beam_labels, best_labels

RESULT = RESULTS_DIRECTORY / "fashion.json"
BEAMS = (1, 2, 3, 4, 5, 6, 8, 10, 16, 32, 64)
EPOCHS, BATCH, RATE = 7, 64, 0.002  # paper, appendix C
FEATURES, HIDDEN = 128, 128
LSTM_EPOCHS, LSTM_SEQUENCES, LSTM_HELD_OUT = 15, 20_000, 2_000
_IMAGES_PER_CHUNK = 1_000
STAGES = EPOCHS + LSTM_EPOCHS + 3 + len(BEAMS)  # of a repeat: epochs, and the systems

Labels = tuple[int, ...]
OnStage = Callable[[str], None]  # is called with the name of each stage
Decoder = Callable[[Sequence[Outfit]], Sequence[Labels]]


class ImageClassifier(nn.Module):
    """A CNN with two convolutions (2x2, 5x5) and three dense layers.

    Max-pooling follows each convolution; layer norm and dropout follow the layers.
    """

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 2, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
            nn.Linear(32 * 7 * 7, 256), nn.LayerNorm(256), nn.ReLU(), nn.Dropout(0.3),
            nn.Linear(256, FEATURES), nn.LayerNorm(FEATURES), nn.ReLU(), nn.Dropout(0.3),
        )  # fmt: skip
        self.last = nn.Linear(FEATURES, len(LABELS))

    def forward(self, images: Tensor) -> Tensor:
        """Images [N, 1, 28, 28] to logits [N, 10]."""
        logits: Tensor = self.last(self.features(images))
        return logits


class SequenceClassifier(nn.Module):
    """One LSTM layer over image features, and a linear layer. The linear layer gives the labels."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(FEATURES, HIDDEN, batch_first=True)
        self.last = nn.Linear(HIDDEN, len(LABELS))

    def forward(self, features: Tensor) -> Tensor:
        """Features [N, T, 128] to logits [N, T, 10]."""
        logits: Tensor = self.last(self.lstm(features)[0])
        return logits


def as_input(images: NDArray[np.uint8]) -> Tensor:
    """Images as the CNN's input: float32 [N, 1, 28, 28]. The mean is about 0, and the deviation about 1."""
    return (torch.from_numpy(images.astype(np.float32))[:, None] / 255 - 0.286) / 0.353


def train_classifier(split: Split, seed: int, on_stage: OnStage) -> ImageClassifier:
    """The CNN, trained with Adam on cross-entropy."""
    torch.manual_seed(seed)
    model = ImageClassifier()
    images, labels = as_input(split.images), torch.from_numpy(split.labels)
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    for epoch in range(EPOCHS):
        on_stage(f"CNN, epoch {epoch + 1} of {EPOCHS}")
        for batch in torch.randperm(len(labels)).split(BATCH):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images[batch]), labels[batch]).backward()
            optimizer.step()
    return model.eval()


@torch.no_grad()
def features_and_log_probs(model: ImageClassifier, images: NDArray[np.uint8]) -> tuple[Tensor, Tensor]:
    """Features [N, 128] and log-probs [N, 10] of images."""
    features = torch.cat([model.features(chunk) for chunk in as_input(images).split(_IMAGES_PER_CHUNK)])
    return features, torch.log_softmax(model.last(features), dim=1)


def train_sequence_classifier(
    features: Tensor, sequences: Sequence[Outfit], held_out: Sequence[Outfit], seed: int, on_stage: OnStage
) -> SequenceClassifier:
    """The LSTM of the epoch with the best held-out accuracy.

    features  float32 [N, 128], by image
    """
    torch.manual_seed(seed)
    model = SequenceClassifier()
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    best, best_state = -1.0, model.state_dict()
    for epoch in range(LSTM_EPOCHS):
        on_stage(f"LSTM, epoch {epoch + 1} of {LSTM_EPOCHS}")
        for inputs, labels in _batches(features, sequences, BATCH):
            optimizer.zero_grad()
            logits = model(inputs)
            nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten()).backward()
            optimizer.step()
        answers = classify(model, features, held_out)
        pairs = zip(answers, held_out, strict=True)
        accuracy = float(np.mean([labels == outfit.labels for labels, outfit in pairs]))
        if accuracy > best:
            best, best_state = accuracy, {name: value.clone() for name, value in model.state_dict().items()}
    model.load_state_dict(best_state)
    return model.eval()


@torch.no_grad()
def classify(model: SequenceClassifier, features: Tensor, sequences: Sequence[Outfit]) -> list[tuple[int, ...]]:
    """The most probable label of each image of each sequence."""
    return [tuple(model(features[outfit.images][None])[0].argmax(dim=1).tolist()) for outfit in sequences]


def _batches(features: Tensor, sequences: Sequence[Outfit], size: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Random batches of equally long sequences. Features are [N, T, 128], labels [N, T]."""
    by_length: dict[int, list[Outfit]] = {}
    for at in torch.randperm(len(sequences)).tolist():
        by_length.setdefault(len(sequences[at].labels), []).append(sequences[at])
    batches = [group[at : at + size] for group in by_length.values() for at in range(0, len(group), size)]
    for at in torch.randperm(len(batches)).tolist():
        images = torch.from_numpy(np.stack([outfit.images for outfit in batches[at]]))
        yield features[images], torch.tensor([outfit.labels for outfit in batches[at]])


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

    def __init__(self, sequences: Sequence[Outfit], allowed: frozenset[Labels], on_stage: OnStage) -> None:
        self._sequences, self._allowed, self._on_stage = sequences, allowed, on_stage

    def score(self, system: str, beams: int, decoder: Decoder) -> FashionScore:
        """The score of a decoder's answers."""
        self._on_stage(f"{system} {beams or ''}")
        start = time.perf_counter()
        answers = decoder(self._sequences)
        ms = (time.perf_counter() - start) * 1000 / len(answers)
        pairs = [(labels, outfit.labels) for labels, outfit in zip(answers, self._sequences, strict=True)]
        correct = [label == actual for labels, truth in pairs for label, actual in zip(labels, truth, strict=True)]
        return FashionScore(
            system, beams, float(np.mean(correct)), float(np.mean([labels == truth for labels, truth in pairs])),
            float(np.mean([labels in self._allowed for labels in answers])), ms,
        )  # fmt: skip


def constrained_decoder(log_probs: NDArray[np.float64], constraint: CompiledConstraint, beams: int) -> Decoder:
    """Our decoding of each sequence's matrix [T, labels] by beam search. With `beams` 0 it is exact."""

    tokens = constraint.tokens
    assert isinstance(tokens, TokenAutomaton)  # of labels

    def decode(matrix: NDArray[np.float64]) -> Labels:
        if not beams:
            return best_labels(matrix, tokens).labels
        return beam_labels(matrix, tokens, BeamOptions(beams)).labels

    return lambda sequences: [decode(log_probs[outfit.images]) for outfit in sequences]


def repeat(seed: int, shared: Path, count: int, on_stage: OnStage) -> dict[str, Any]:
    """One repeat, in which all randomness comes from one seed."""
    folder, random = shared / "data" / "fashion_mnist", np.random.default_rng(seed)
    train, test, constraint = read_split(folder, "train"), read_split(folder, "t10k"), clothing_constraint()
    assert isinstance(constraint.text, TextAutomaton)
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


def stage_callback(progress: Progress, seed: int) -> OnStage:
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
    run_data = json.loads(RESULT.read_text(encoding="utf-8")) if RESULT.exists() and not args.again else {"repeats": []}
    measured = {(run["seed"], run["sequences"]) for run in run_data["repeats"]}
    with progress_bars() as progress:
        for seed in range(args.repeats):
            if (seed, args.sequences) not in measured:
                on_stage = stage_callback(progress, seed)
                run_data["repeats"].append(repeat(seed, args.shared, args.sequences, on_stage))
                write_json(RESULT, run_data | about(arguments=False))
    write_report()


if __name__ == "__main__":
    main()
