"""Ordered Fashion-MNIST draws the paper's sequences and reports its figures."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.compiler.word_cases import clothing_formula
from benchmarks.report.tasks import fashion_section
from benchmarks.tasks.fashion import FashionScorer, constrained_decoder
from benchmarks.tasks.fashion_sequences import (
    LABELS,
    Outfit,
    Split,
    accepted_sequences,
    clothing_constraint,
    draw,
    read_split,
)  # fmt: skip

TOPS, BOTTOMS = {"T", "Pullover", "Shirt", "Dress"}, {"Trouser", "Dress"}
SHOES = {"Sandal", "Sneaker", "Ankle boot"}
NEVER = [  # pairs that are not worn together, in either order
    *map(set, itertools.combinations(("T", "Shirt", "Dress"), 2)), {"Trouser", "Dress"},
    {"Pullover", "Dress"},
    *map(set, itertools.combinations(sorted(SHOES), 2)),
]  # fmt: skip
NOT_AFTER = {  # what a piece rules out from then on, though the other way round it is allowed
    "Pullover": {"T", "Shirt"}, "Coat": {"T", "Shirt", "Pullover", "Dress"},
    "Bag": {"T", "Shirt", "Dress", "Pullover", "Coat"},
    "Sandal": {"Trouser"}, "Sneaker": {"Trouser"}, "Ankle boot": {"Trouser"},
}  # fmt: skip


def may_be_worn(names: tuple[str, ...]) -> bool:
    """Whether an outfit obeys the paper's rules.

    No formula is used: no item repeats, each group has an item, and no two items exclude each other.
    """
    items = set(names)
    if len(items) < len(names) or not (items & TOPS and items & BOTTOMS and items & SHOES):
        return False
    return not any(_forbidden(first, second) for first, second in itertools.combinations(names, 2))


def _forbidden(first: str, second: str) -> bool:
    return {first, second} in NEVER or second in NOT_AFTER.get(first, set())


def test_the_accepted_sequences_follow_the_papers_sentences() -> None:
    result = set(accepted_sequences(clothing_constraint().text))
    every = itertools.chain.from_iterable(itertools.permutations(range(10), length) for length in range(7))
    assert result == {labels for labels in every if may_be_worn(tuple(LABELS[label] for label in labels))}
    assert len(result) == 507


def test_images_have_the_labels_of_their_pieces() -> None:
    split = Split(np.zeros((40, 28, 28), np.uint8), np.arange(40) % 10)
    drawn = draw([(0, 1, 5), (3, 7)], split, 20, np.random.default_rng(1))
    assert {outfit.labels for outfit in drawn} == {(0, 1, 5), (3, 7)}
    assert all(tuple(split.labels[outfit.images]) == outfit.labels for outfit in drawn)


def test_the_data_set_is_read_unchanged(shared: Path) -> None:
    split = read_split(shared / "data" / "fashion_mnist", "t10k")
    assert split.images.shape == (10_000, 28, 28) and split.images.max() == 255
    assert np.bincount(split.labels).tolist() == [1_000] * 10


def test_a_constrained_search_corrects_errors_of_the_model() -> None:
    constraint, log_probs = clothing_constraint(), np.full((4, 10), -9.0)
    log_probs[range(4), [0, 1, 7, 0]] = -0.1  # the last piece looks like a second T-shirt ...
    log_probs[3, 6] = -0.5  # ... or else like a shirt, which does not go with one
    log_probs[3, 4] = -2.0  # or like a coat, which may come after it
    outfits = [Outfit((0, 1, 7, 4), np.arange(4))]
    messages: list[str] = []
    scorer = FashionScorer(outfits, frozenset(accepted_sequences(constraint.text)), messages.append)
    for beams in (0, 10):
        score = scorer.score("abs", beams, constrained_decoder(log_probs, constraint, beams))
        assert (score.accuracy, score.sequence_accuracy, score.satisfied) == (1.0, 1.0, 1.0)
    wrong = scorer.score("CNN", 0, lambda images: [(0, 1, 7, 0)])
    assert (wrong.accuracy, wrong.sequence_accuracy, wrong.satisfied) == (0.75, 0.0, 0.0)
    assert len(messages) == 3


def test_the_report_has_means_ranges_and_goals() -> None:
    def row_of(system: str, beams: int, accuracy: float, sequences: float) -> dict[str, Any]:
        metrics = {"accuracy": accuracy, "sequence_accuracy": sequences, "satisfied": 1.0, "ms": 0.5}
        return {"system": system, "beams": beams} | metrics

    repeats = [
        {"seed": seed, "sequences": 9, "test_accuracy": 0.91, "allowed": 507, "length": 4.5, "scored": [
            row_of("CNN", 0, 0.912, 0.64), row_of("CNN-LSTM", 0, 0.94, 0.7), row_of("abs", 10, 0.95 + seed / 100, 0.8),
            row_of("exact", 0, 0.97, 0.9),
        ]}
        for seed in range(2)
    ]  # fmt: skip
    text = fashion_section({"date": "d", "machine": "m", "code": "0", "command": "c", "repeats": repeats})
    assert "| CNN, `abs`, 10 beams | 95.50 (95.00-96.00) | 80.00 | 95.56 / 80.66 | 100.00 | 0.50 |" in text
    assert "CNN, 91: met; CNN, `abs`, 10 beams, 95.6 / 80.7: missed" in text


def test_the_formula_contains_the_papers_rules() -> None:
    operators = {"G(": 40, "->": 40, "!F ": 30, "WX G !": 10, " | ": 6}
    assert {operator: clothing_formula().count(operator) for operator in operators} == operators
