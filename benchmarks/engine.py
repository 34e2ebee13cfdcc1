"""What the benchmark asks of an engine: load a vocabulary, compile an expression, look up what may follow."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Protocol

import numpy as np

from benchmarks.suite import Expression
from compiler.vocab import Vocabulary, vocabulary_from_tokenizer_json

WARM_UP = "(?:umbrella|violin)"
_END_OF_TEXT = ("<|endoftext|>", "</s>")
Figures = dict[str, int]


class Refused(Exception):
    """The engine does not take this constraint; the message says why."""


class Masks(Protocol):
    """A compiled constraint that is being read, token by token."""

    def restart(self) -> None:
        """Back to the empty text."""

    def look_up(self) -> None:
        """Work out which tokens may follow: what is timed. Nothing is returned: each engine has a form of its own."""

    def allowed(self) -> np.ndarray:
        """The ids that the last look-up allowed, EOS among them: int64 [N]."""

    def advance(self, token: int) -> None:
        """Read one allowed token, not EOS."""


class Engine(Protocol):
    """`compile` does everything until the first mask can be, and is, looked up."""

    eos: int

    def warm_up(self) -> None:
        """Compile something small: what is built once for all constraints, or first touched, is not counted."""

    def compile(self, expression: Expression) -> Masks: ...

    def figures(self, masks: Masks) -> Figures:
        """Counts of what was compiled, by name; empty where the engine tells none."""


def read_vocabulary(tokenizer: Path) -> Vocabulary:
    """A vocabulary from a gzipped `tokenizer.json`; ends with the end-of-text token it declares."""
    text = gzip.decompress(tokenizer.read_bytes()).decode()
    added = json.loads(text)["added_tokens"]
    eos = next(token["id"] for token in added if token["content"] in _END_OF_TEXT)
    return vocabulary_from_tokenizer_json(text, None, (eos,))
