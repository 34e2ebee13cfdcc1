"""Ordered Fashion-MNIST draws the paper's sequences and reports its figures."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np

from benchmarks.compiler.word_cases import clothing_formula
from benchmarks.report.results_page import stored_runs
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


def test_a_goal_without_enough_right_sequences_is_missed() -> None:
    run = stored_runs()["fashion"]
    for score in (score for repeat in run["repeats"] for score in repeat["scored"]):
        score.update(accuracy=0.96, sequence_accuracy=0.5)
    assert "CNN, 91: met; CNN, `abs`, 10 beams, 95.6 / 80.7: missed" in fashion_section(run)


def test_the_formula_contains_the_papers_rules() -> None:
    operators = {"G(": 40, "->": 40, "!F ": 30, "WX G !": 10, " | ": 6}
    assert {operator: clothing_formula().count(operator) for operator in operators} == operators
