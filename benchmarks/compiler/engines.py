"""Our compiler as an engine, and all engines by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.compiler.cases import Expression
from benchmarks.compiler.engine import WARM_UP, Figures, MaskEngine, Masks, read_vocabulary
from benchmarks.compiler.peer_engines import LlguidanceEngine, OutlinesCoreEngine, XGrammarEngine
from compiler.json_schema import FORMATS
from compiler.lifting import UNREACHABLE, TokenAutomaton
from compiler.pipeline import compile_spec
from compiler.spec import spec_from_json


class OurMasks:
    """A look-up computes the allowed token classes of a state; `expand` also spreads them over the ids."""

    def __init__(self, tokens: TokenAutomaton) -> None:
        self.tokens = tokens
        self._state = tokens.start
        self._class_of = tokens.token_class.astype(np.intp)
        self._expanded = np.zeros(tokens.vocabulary_size, dtype=bool)
        self.look_up()

    def restart(self) -> None:
        self._state = self.tokens.start

    def look_up(self) -> None:
        """What the search computes for one beam: the successor by each class, and whether the class is allowed."""
        self._successors = self.tokens.successors(self._state)
        self._open = self.tokens.distance[self._successors] < UNREACHABLE  # with a budget: <= the tokens left

    def expand(self) -> None:
        """The same for each id of the vocabulary: bool [V]."""
        np.take(self._open, self._class_of, out=self._expanded, mode="clip")

    def allowed(self) -> np.ndarray:
        return np.flatnonzero(self._open[self._class_of])

    def advance(self, token: int) -> None:
        self._state = int(self._successors[self._class_of[token]])


class OurEngine:
    """Compiles constraints in our JSON form."""

    def __init__(self, tokenizer: Path) -> None:
        self._vocabulary = read_vocabulary(tokenizer)
        self.eos = self._vocabulary.eos_ids[0]

    def warm_up(self) -> None:
        formats = {name: {"type": "string", "format": name} for name in sorted(FORMATS)}
        for constraint in (
            {"keywords": ["umbrella", "violin"]},
            {"regex": rf"(?i){WARM_UP}[\w\d\s]"},
            {"json_schema": {"type": "object", "properties": formats}},
        ):
            self.compile(Expression("constraint", json.dumps(constraint)))

    def compile(self, expression: Expression) -> OurMasks:
        masks = OurMasks(compile_spec(spec_from_json(json.loads(expression.text)), self._vocabulary).tokens)
        masks.expand()
        return masks

    def figures(self, masks: Masks) -> Figures:
        assert isinstance(masks, OurMasks)
        tokens = masks.tokens
        return {
            "states": tokens.states, "classes": tokens.classes, "table_bytes": tokens.table_bytes,
            "min_tokens": tokens.min_tokens, "vocabulary": tokens.vocabulary_size,
        }  # fmt: skip


_ENGINES: dict[str, Callable[[Path], MaskEngine]] = {
    "ours": OurEngine,
    "outlines_core": OutlinesCoreEngine,
    "xgrammar": XGrammarEngine,
    "llguidance": LlguidanceEngine,
}


def load_engine(name: str, tokenizer: Path) -> MaskEngine:
    """An engine, warmed up, with the vocabulary of a gzipped `tokenizer.json`."""
    engine = _ENGINES[name](tokenizer)
    engine.warm_up()
    return engine
