"""Our compiler as an engine of the benchmark, and all engines by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.engine import WARM_UP, Engine, Figures, Masks, read_vocabulary
from benchmarks.peers import Llguidance, OutlinesCore, XGrammar
from benchmarks.suite import Expression
from compiler.json_schema import FORMATS
from compiler.lifting import UNREACHABLE, TokenAutomaton
from compiler.pipeline import compile_spec
from compiler.spec import spec_from_json


class OurMasks:
    """Which classes of tokens may follow is one row of the automaton; `expand` spreads it over the ids."""

    def __init__(self, tokens: TokenAutomaton) -> None:
        self.tokens = tokens
        self._state = tokens.start
        self._class_of = tokens.token_class.astype(np.intp)
        self._expanded = np.zeros(tokens.vocabulary_size, dtype=bool)
        self.look_up()

    def restart(self) -> None:
        self._state = self.tokens.start

    def look_up(self) -> None:
        """What `decoding.step` decides for a row of a beam: by class, whether it may be taken and what it leads to."""
        self._successors = self.tokens.successors(self._state)
        self._open = self.tokens.distance[self._successors] < UNREACHABLE  # with a budget: <= the tokens left

    def expand(self) -> None:
        """The same for each id of the vocabulary: bool [V]."""
        np.take(self._open, self._class_of, out=self._expanded, mode="clip")

    def allowed(self) -> np.ndarray:
        return np.flatnonzero(self._open[self._class_of])

    def advance(self, token: int) -> None:
        self._state = int(self._successors[self._class_of[token]])


class Ours:
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
            "states": tokens.states,
            "classes": tokens.classes,
            "table_bytes": tokens.table_bytes,
            "min_tokens": tokens.min_tokens,
            "vocabulary": tokens.vocabulary_size,
        }


_ENGINES: dict[str, Callable[[Path], Engine]] = {
    "ours": Ours,
    "outlines_core": OutlinesCore,
    "xgrammar": XGrammar,
    "llguidance": Llguidance,
}


def load_engine(name: str, tokenizer: Path) -> Engine:
    """An engine with the vocabulary of a gzipped `tokenizer.json` loaded, and warm."""
    engine: Engine = _ENGINES[name](tokenizer)
    engine.warm_up()
    return engine
