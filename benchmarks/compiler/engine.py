"""The protocol of an engine: load a vocabulary, compile a constraint, look up the allowed tokens."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Protocol

import numpy as np

from benchmarks.compiler.cases import Expression
from compiler.vocab import Vocabulary, vocabulary_from_tokenizer_json

WARM_UP = "(?:umbrella|violin)"
_END_OF_TEXT = ("<|endoftext|>", "</s>")
Figures = dict[str, int]


class ExpressionRefused(Exception):
    """The engine does not accept the constraint; the message says why."""


class Masks(Protocol):
    """A compiled constraint in the middle of a text."""

    def restart(self) -> None:
        """Return to the empty text."""

    def look_up(self) -> None:
        """Compute which tokens are allowed; this is timed. The result stays in the engine's own format."""

    def allowed(self) -> np.ndarray:
        """The ids that the last look-up allowed, including EOS: int64 [N]."""

    def advance(self, token: int) -> None:
        """Append an allowed token other than EOS."""


class MaskEngine(Protocol):
    """An engine with a vocabulary."""

    eos: int

    def warm_up(self) -> None:
        """Compile small constraints, so that one-time work of the engine is not counted."""

    def compile(self, expression: Expression) -> Masks:
        """Everything up to and including the first look-up."""

    def figures(self, masks: Masks) -> Figures:
        """Counts of the compiled constraint by name; empty if the engine provides none."""


def read_vocabulary(tokenizer: Path) -> Vocabulary:
    """The vocabulary of a gzipped `tokenizer.json`, with its end-of-text token as EOS."""
    text = gzip.decompress(tokenizer.read_bytes()).decode()
    added = json.loads(text)["added_tokens"]
    eos = next(token["id"] for token in added if token["content"] in _END_OF_TEXT)
    return vocabulary_from_tokenizer_json(text, None, (eos,))
