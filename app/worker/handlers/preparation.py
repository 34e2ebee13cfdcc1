"""Prepares constraints for decoding with a model."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

from app.automaton_cache import ByteBoundedLru, array_bytes, open_decoder, token_bytes
from app.models import ModelFiles
from app.settings import Settings
from app.worker.handlers.base import Context, load_constraint
from compiler.artifact import CompiledConstraint
from decoding.forced_tokens import TokenBytes
from decoding.heuristic import Endings, find_endings, unigram_prior
from decoding.model import LanguageModel
from decoding.prepared_constraint import PreparedConstraint, StateLimits
from decoding.tensors import Graphs

_OPENINGS = 16  # locks: at most as many constraints are prepared at the same time


@dataclass(frozen=True, slots=True, eq=False)
class ModelWithPrior:
    """The model as an adapter changes it, or without one. Its search knows how common its tokens are.

    name     of the adapter, or of the model without one
    prior    float64 [V]  log-probs of tokens anywhere in a text
    endings  the tokens by which it ends its texts
    """

    name: str
    model: LanguageModel[Any]
    prior: Any
    endings: Endings | None

    @classmethod
    def measure(cls, name: str, model: LanguageModel[Any]) -> ModelWithPrior:
        """Reads some texts with the model. No other thread may use it then."""
        prior = unigram_prior(model)
        return cls(name, model, prior, find_endings(model, prior))


class PreparedConstraints:
    """Constraints with their tables on the device, cached between requests. Thread-safe.

    graphs  of the model's searches; None: their steps are not captured
    """

    def __init__(
        self, files: ModelFiles, settings: Settings, pieces: TokenBytes, graphs: Graphs | None = None
    ) -> None:
        self._settings, self._pieces, self._graphs = settings, pieces, graphs
        self._decode = open_decoder(settings, files.vocabulary.fingerprint)
        self._cached: ByteBoundedLru[tuple[str, str], tuple[CompiledConstraint, PreparedConstraint]] = ByteBoundedLru(
            settings.inference.device_table_cache_bytes
        )
        self._locks = [threading.Lock() for _ in range(_OPENINGS)]

    def open(
        self, automaton: str, source: ModelWithPrior, context: Context
    ) -> tuple[CompiledConstraint, PreparedConstraint]:
        """A stored constraint, prepared for a model. Raises AutomatonMissing."""
        key = automaton, source.name
        with self._locks[int(automaton, 16) % len(self._locks)]:  # requests for one constraint prepare it once
            opened = self._cached.get(key)
            if opened is None:
                ttl_s = self._settings.retention.automaton_ttl_s
                constraint = load_constraint(automaton, self._decode, context, ttl_s)
                prepared = PreparedConstraint.prepare(
                    constraint.tokens, source.model.device, prior=source.prior, pieces=self._pieces,
                    endings=source.endings, limits=_state_limits(self._settings), graphs=self._graphs,
                )
                opened = constraint, prepared
                tables = 0 if prepared.automaton is constraint.tokens else prepared.automaton.table_bytes
                size = token_bytes(constraint) + tables + sum(map(array_bytes, (prepared, prepared.tables)))
                self._cached.put(key, opened, size)
            return opened


def _state_limits(settings: Settings) -> StateLimits:
    return StateLimits(settings.inference.grammar_readings_max, settings.inference.witness_expansions_max)
