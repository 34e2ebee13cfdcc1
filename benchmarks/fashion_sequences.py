"""Ordered Fashion-MNIST: which sequences of clothes may be worn, and images of the test split put in such an order.

The 13 constraints are the paper's (appendix C; `suite_words.clothing_formula`). They accept finitely many sequences, as
nothing is worn twice: 507, of two to six pieces. The paper does not say how its sequences were drawn. Ours: each of the
507 with the same chance, and for each of its pieces an image of the split with that label, each with the same chance.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.suite_words import clothing_formula
from compiler.artifact import CompiledConstraint
from compiler.automata import live_states
from compiler.pipeline import compile_spec
from compiler.spec import spec_from_json
from compiler.text import TextAutomaton
from compiler.vocab import byte_vocabulary

LABELS = ("T", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")  # by number


def compiled() -> CompiledConstraint:
    """The automaton over the ten labels."""
    return compile_spec(spec_from_json({"ltlf": clothing_formula(), "labels": list(LABELS)}), byte_vocabulary())


def accepted(automaton: TextAutomaton) -> Iterator[tuple[int, ...]]:
    """All sequences of labels that the constraint accepts. They are finitely many, or this does not end."""
    dfa = automaton.letters
    live, symbols = live_states(dfa), [automaton.symbol_names.index(label) for label in LABELS]
    waiting: list[tuple[tuple[int, ...], int]] = [((), dfa.start)]
    while waiting:
        written, state = waiting.pop()
        if dfa.accepting[state]:
            yield written
        after = [dfa.step(state, symbol) for symbol in symbols]
        waiting += [((*written, label), state) for label, state in enumerate(after) if live[state]]


@dataclass(frozen=True, slots=True)
class Split:
    """One half of the data set.

    images  uint8 [N, 28, 28]
    labels  int64 [N]
    """

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]


def read_split(folder: Path, name: str) -> Split:
    """`name` is "train" or "t10k"."""
    images = gzip.decompress((folder / f"{name}-images-idx3-ubyte.gz").read_bytes())
    labels = gzip.decompress((folder / f"{name}-labels-idx1-ubyte.gz").read_bytes())
    return Split(
        np.frombuffer(images, np.uint8, offset=16).reshape(-1, 28, 28),
        np.frombuffer(labels, np.uint8, offset=8).astype(np.int64),
    )


@dataclass(frozen=True, slots=True)
class Worn:
    """A sequence: the labels of its pieces, and the place of each piece's image in its split."""

    labels: tuple[int, ...]
    images: NDArray[np.int64]


def draw(sequences: list[tuple[int, ...]], split: Split, count: int, dice: np.random.Generator) -> list[Worn]:
    """So many sequences, of images of a split."""
    of_label = [np.flatnonzero(split.labels == label) for label in range(len(LABELS))]
    chosen = dice.integers(len(sequences), size=count)
    return [
        Worn(labels, np.array([dice.choice(of_label[label]) for label in labels]))
        for labels in (sequences[place] for place in chosen)
    ]
