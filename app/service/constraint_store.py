"""What the store knows of constraints: compiled ones, their explanations, and what cannot be compiled."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from app.automaton_cache import open_decoder
from app.messages import ExplainJobResult, Failure, automaton_key, explanation_key, read_sealed, unmet_key
from app.observability import metrics
from app.settings import Settings
from app.store import Store
from compiler.artifact import Compiled
from compiler.diagnostics import Explanation
from compiler.errors import ArtefactInvalid


class ConstraintStore:
    """Reads the store. What is there and is not ours is thrown away, and was never there.

    fingerprint  of the vocabulary that automata are compiled for
    """

    def __init__(self, settings: Settings, store: Store, fingerprint: str) -> None:
        self._settings = settings
        self._store = store
        self._decode = open_decoder(settings, fingerprint)

    async def compiled(self, automaton: str) -> Compiled | None:
        """The constraint that has this hash."""
        key = automaton_key(automaton)
        data = await self._store.get(key, self._settings.automaton_ttl_s)
        if data is None:
            return None
        try:
            compiled = await asyncio.to_thread(self._decode, automaton, data)
        except ArtefactInvalid:
            metrics.cache("corrupt")
            await self._store.delete(key, data)
            return None
        metrics.cache("hit")
        return compiled

    async def unmet(self, automaton: str, spec: Mapping[str, object]) -> Failure | None:
        """What the compilation of a constraint, written like this, has failed with, if it would fail again."""
        key = unmet_key(automaton, spec, self._settings.limits)
        data = await self._store.get(key)
        if data is not None:
            failure = read_sealed(self._settings.secret, key, data)
            if isinstance(failure, Failure):
                metrics.cache("negative")
                return failure
            metrics.cache("corrupt")
            await self._store.delete(key, data)
        metrics.cache("miss")
        return None

    async def explanation(self, automaton: str) -> Explanation | None:
        """The explanation of a constraint, in the names of the propositions' meanings."""
        key = explanation_key(automaton)
        data = await self._store.get(key, self._settings.automaton_ttl_s)
        if data is None:
            return None
        result = read_sealed(self._settings.secret, key, data)
        if isinstance(result, ExplainJobResult):
            return result.explanation
        await self._store.delete(key, data)
        return None
