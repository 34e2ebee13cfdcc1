"""Ordered Fashion-MNIST: allowed label sequences, and images in such an order.

The 13 constraints are the paper's (appendix C; `word_cases.clothing_formula`). Nothing is worn twice, so they accept
finitely many sequences: 507, of two to six items. The paper does not say how its sequences were drawn. Here each of the
507 is equally likely, and for each item each image of the split with that label.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.compiler.word_cases import clothing_formula
from compiler.artifact import CompiledConstraint
from compiler.automata import live_states
from compiler.pipeline import compile_spec
from compiler.spec import spec_from_json
from compiler.text import TextAutomaton
from compiler.vocab import byte_vocabulary

LABELS = ("T", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")  # by number


def clothing_constraint() -> CompiledConstraint:
    """The automaton over the ten labels."""
    return compile_spec(spec_from_json({"ltlf": clothing_formula(), "labels": list(LABELS)}), byte_vocabulary())


def accepted_sequences(automaton: TextAutomaton) -> Iterator[tuple[int, ...]]:
    """All label sequences that the constraint accepts. There must be finitely many."""
    dfa = automaton.letters
    live, symbols = live_states(dfa), [automaton.symbol_names.index(label) for label in LABELS]
    stack: list[tuple[tuple[int, ...], int]] = [((), dfa.start)]
    while stack:
        labels, state = stack.pop()
        if dfa.accepting[state]:
            yield labels
        successors = [dfa.step(state, symbol) for symbol in symbols]
        stack += [((*labels, label), successor) for label, successor in enumerate(successors) if live[successor]]


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
class Outfit:
    """A sequence of items.

    images  int64 [T]  the index of each item's image in its split
    """

    labels: tuple[int, ...]
    images: NDArray[np.int64]


def draw(sequences: list[tuple[int, ...]], split: Split, count: int, random: np.random.Generator) -> list[Outfit]:
    """`count` random sequences with images of a split."""
    by_label = [np.flatnonzero(split.labels == label) for label in range(len(LABELS))]
    selection = random.integers(len(sequences), size=count)
    return [
        Outfit(labels, np.array([random.choice(by_label[label]) for label in labels]))
        for labels in (sequences[at] for at in selection)
    ]
