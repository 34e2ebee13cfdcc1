"""The classifiers of Ordered Fashion-MNIST: the paper's CNN (appendix C), and an LSTM over what the frozen CNN sees.

Where the paper gives no number ours is here: 16 and 32 filters, layers of 256 and 128, dropout 0.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from benchmarks.fashion_sequences import LABELS, Split, Worn

EPOCHS, BATCH, RATE = 7, 64, 0.002  # paper, appendix C
FEATURES, HIDDEN = 128, 128
LSTM_EPOCHS, LSTM_SEQUENCES, LSTM_HELD_OUT = 15, 20_000, 2_000
_AT_ONCE = 1_000

Tell = Callable[[str], None]


class Classifier(nn.Module):
    """Two convolutions of 2x2 and 5x5, each with max-pooling, then three layers with layer norm and dropout."""

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


class InSequence(nn.Module):
    """One LSTM layer over the features of the images of a sequence, and a linear layer to the labels."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(FEATURES, HIDDEN, batch_first=True)
        self.last = nn.Linear(HIDDEN, len(LABELS))

    def forward(self, features: Tensor) -> Tensor:
        """Features [N, T, 128] to logits [N, T, 10]."""
        logits: Tensor = self.last(self.lstm(features)[0])
        return logits


def as_input(images: NDArray[np.uint8]) -> Tensor:
    """Images as the CNN reads them: float32 [N, 1, 28, 28], of about mean 0 and deviation 1."""
    return (torch.from_numpy(images.astype(np.float32))[:, None] / 255 - 0.286) / 0.353


def train_classifier(split: Split, seed: int, tell: Tell) -> Classifier:
    """The CNN, trained with Adam on cross-entropy."""
    torch.manual_seed(seed)
    model = Classifier()
    images, labels = as_input(split.images), torch.from_numpy(split.labels)
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    for epoch in range(EPOCHS):
        tell(f"CNN, epoch {epoch + 1} of {EPOCHS}")
        for batch in torch.randperm(len(labels)).split(BATCH):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images[batch]), labels[batch]).backward()
            optimizer.step()
    return model.eval()


@torch.no_grad()
def seen(model: Classifier, images: NDArray[np.uint8]) -> tuple[Tensor, Tensor]:
    """Features [N, 128] and log-probs [N, 10] of images."""
    parts = [model.features(part) for part in as_input(images).split(_AT_ONCE)]
    features = torch.cat(parts)
    return features, torch.log_softmax(model.last(features), dim=1)


def train_in_sequence(
    features: Tensor, sequences: Sequence[Worn], held_out: Sequence[Worn], seed: int, tell: Tell
) -> InSequence:
    """The LSTM after the epoch that was best on the sequences held out.

    features  float32 [N, 128], by image
    """
    torch.manual_seed(seed)
    model = InSequence()
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    best, best_state = -1.0, model.state_dict()
    for epoch in range(LSTM_EPOCHS):
        tell(f"LSTM, epoch {epoch + 1} of {LSTM_EPOCHS}")
        for pieces, labels in _batches(features, sequences, BATCH):
            optimizer.zero_grad()
            logits = model(pieces)
            nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten()).backward()
            optimizer.step()
        found = classified(model, features, held_out)
        right = float(np.mean([tuple(labels) == worn.labels for labels, worn in zip(found, held_out, strict=True)]))
        if right > best:
            best, best_state = right, {name: value.clone() for name, value in model.state_dict().items()}
    model.load_state_dict(best_state)
    return model.eval()


@torch.no_grad()
def classified(model: InSequence, features: Tensor, sequences: Sequence[Worn]) -> list[tuple[int, ...]]:
    """The most probable label of each image of each sequence."""
    return [tuple(model(features[worn.images][None])[0].argmax(dim=1).tolist()) for worn in sequences]


def _batches(features: Tensor, sequences: Sequence[Worn], size: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches of one length each, in random order: features [N, T, 128] and labels [N, T]."""
    by_length: dict[int, list[Worn]] = {}
    for place in torch.randperm(len(sequences)).tolist():
        by_length.setdefault(len(sequences[place].labels), []).append(sequences[place])
    batches = [some[at : at + size] for some in by_length.values() for at in range(0, len(some), size)]
    for place in torch.randperm(len(batches)).tolist():
        some = batches[place]
        images = torch.from_numpy(np.stack([worn.images for worn in some]))
        yield features[images], torch.tensor([worn.labels for worn in some])
