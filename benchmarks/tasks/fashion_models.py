"""The classifiers of Ordered Fashion-MNIST: the paper's CNN (appendix C), and an LSTM over the frozen CNN's features.

The paper leaves some numbers open; ours are 16 and 32 filters, layers of 256 and 128, and dropout 0.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from benchmarks.tasks.fashion_sequences import LABELS, Outfit, Split

EPOCHS, BATCH, RATE = 7, 64, 0.002  # paper, appendix C
FEATURES, HIDDEN = 128, 128
LSTM_EPOCHS, LSTM_SEQUENCES, LSTM_HELD_OUT = 15, 20_000, 2_000
_IMAGES_PER_CHUNK = 1_000

Progress = Callable[[str], None]  # is called with the name of each stage


class ImageClassifier(nn.Module):
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


class SequenceClassifier(nn.Module):
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
    """Images as the CNN's input: float32 [N, 1, 28, 28], with a mean of about 0 and a deviation of about 1."""
    return (torch.from_numpy(images.astype(np.float32))[:, None] / 255 - 0.286) / 0.353


def train_classifier(split: Split, seed: int, on_stage: Progress) -> ImageClassifier:
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
    features: Tensor, sequences: Sequence[Outfit], held_out: Sequence[Outfit], seed: int, on_stage: Progress
) -> SequenceClassifier:
    """The LSTM after the epoch with the best accuracy on the held-out sequences.

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
    """Batches of sequences of one length, in random order: features [N, T, 128] and labels [N, T]."""
    by_length: dict[int, list[Outfit]] = {}
    for at in torch.randperm(len(sequences)).tolist():
        by_length.setdefault(len(sequences[at].labels), []).append(sequences[at])
    batches = [group[at : at + size] for group in by_length.values() for at in range(0, len(group), size)]
    for at in torch.randperm(len(batches)).tolist():
        images = torch.from_numpy(np.stack([outfit.images for outfit in batches[at]]))
        yield features[images], torch.tensor([outfit.labels for outfit in batches[at]])
