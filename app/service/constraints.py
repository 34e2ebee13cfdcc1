"""The story of a constraint: its name here, what is stored of it, its compilation and its explanation."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass

from app.automaton_cache import ByteBoundedLru, open_decoder, summary
from app.errors import (
    Busy,
    DeadlineExceeded,
    Draining,
    JobFailed,
    RequestOverLimit,
    UnknownAutomaton,
    UnknownModel,
)
from app.messages import (
    CompileJob,
    CompileJobResult,
    ExplainJob,
    ExplainJobResult,
    Failure,
    automaton_hash,
    automaton_key,
    compile_job_key,
    explain_job_key,
    explanation_key,
    failure_key,
    read_signed,
    spec_to_wire,
)
from app.models import ModelFiles
from app.observability import metrics
from app.service.job_client import JobClient, SubmissionContext, until
from app.settings import Settings
from app.store import Store
from compiler.artifact import CompiledConstraint
from compiler.diagnostics import ConstraintExplanation, told_as
from compiler.errors import ArtefactInvalid, SpecUnsupported
from compiler.spec import LabelsSpec, Spec, caller_names, check_limits

HIT_TTL_S = 1.0  # for so long what was found stored is taken to be stored: callers of one constraint come in swarms
_RECENT_HITS_BYTES_MAX, _RECENTLY_READ_BYTES_MAX, _ENTRY_BYTES = 2**20, 2**23, 2**10
Names = dict[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class ResolvedConstraint:
    """A constraint that somebody names: its hash, what the caller calls things, and its sizes if it is compiled."""

    automaton: str
    names: Names
    compiled: CompileJobResult | None


class Constraints:
    """Knows constraints by way of the store, and has them compiled and explained by way of jobs."""

    def __init__(self, settings: Settings, jobs: JobClient, store: Store, files: ModelFiles) -> None:
        self._settings = settings
        self._jobs = jobs
        self._fingerprint = files.vocabulary.fingerprint
        self._catalogue = ConstraintStore(settings, store, self._fingerprint)
        self._recently_read: ByteBoundedLru[Spec, tuple[str, Names]] = ByteBoundedLru(_RECENTLY_READ_BYTES_MAX)
        self._recent_hits: ByteBoundedLru[str, tuple[CompileJobResult, float]] = ByteBoundedLru(_RECENT_HITS_BYTES_MAX)

    async def compile(self, spec: Spec, model: str | None = None, owner: str = "") -> CompileJobResult:
        """Compile a constraint for the owner of a key, or find it stored."""
        if self._jobs.stopping.is_set():
            raise Draining
        self.require_model(model)
        check_limits(spec, self._settings.limits)  # before anyone hashes it, writes it down or queues it
        timeout_s = self._settings.timeout_s_default
        async with until(timeout_s):
            automaton, _ = await self._read(spec)
            stored = await self._stored(automaton, spec)
            if stored is not None:
                return stored
            with metrics.single_flight():
                job = self._compile_job(automaton, spec, owner)
                terms = self._jobs.compilation(owner, deadline_in_s=timeout_s)
                return await self._jobs.run("compile", compile_job_key(automaton), job, CompileJobResult, terms)

    async def explanation(self, automaton: str, spec: Spec, owner: str = "") -> ConstraintExplanation | None:
        """The explanation of a stored constraint, with the names of `spec`.

        It is made at the first request and then stored. None if it is not available now: it exceeds the limits, no
        worker is free, or the automaton was dropped.
        """
        explanation = await self._catalogue.explanation(automaton)
        if explanation is None:
            deadline = time.time() + self._settings.timeout_s_max  # others may join
            job = ExplainJob(automaton, deadline, owner=owner)
            try:
                async with until(self._settings.timeout_s_default):
                    result = await self._jobs.run("compile", explain_job_key(automaton), job, ExplainJobResult)
                    explanation = result.explanation
            except (Busy, DeadlineExceeded):
                return None
            except JobFailed as failed:
                if not failed.facts.explanation_optional:
                    raise
                return None
        names = await asyncio.to_thread(caller_names, spec, self._settings.limits)
        return told_as(explanation, spec, names)

    async def picture(self, automaton: str) -> CompiledConstraint:
        """A stored constraint small enough to be shown whole. Raises UnknownAutomaton, RequestOverLimit."""
        compiled = await self.automaton(automaton)
        dfa = compiled.text.display_dfa
        if dfa.states * dfa.symbols > self._settings.automaton_view_cells_max:
            raise RequestOverLimit(
                "states * letters", "automaton_view_cells_max", self._settings.automaton_view_cells_max
            )
        return compiled

    async def automaton(self, automaton: str) -> CompiledConstraint:
        """A stored constraint. Raises UnknownAutomaton."""
        compiled = await self._catalogue.compiled(automaton)
        if compiled is None:
            raise UnknownAutomaton("no stored constraint has this hash; POST /compile gives one")
        return compiled

    async def _stored(self, automaton: str, spec: Spec) -> CompileJobResult | None:
        """A constraint's sizes, if it is stored. Raises JobFailed where it is known that it cannot be compiled."""
        found, ends = self._recent_hits.get(automaton) or (None, 0.0)
        if found is not None and time.monotonic() < ends:
            metrics.cache("hit")
            return found
        stored = await self._catalogue.compiled(automaton)
        if stored is not None:
            found = summary(automaton, stored, cached=True, compile_ms=0.0)
            self._recent_hits.put(automaton, (found, time.monotonic() + HIT_TTL_S), _ENTRY_BYTES)
            return found
        failure = await self._catalogue.cached_failure(automaton, spec_to_wire(spec))
        if failure is not None:
            raise failure.as_error()
        return None

    async def resolve(self, spec: Spec) -> ResolvedConstraint:
        """What a constraint is called here, and what is stored of it. Raises JobFailed as `_stored` does."""
        automaton, names = await self._read(spec)
        return ResolvedConstraint(automaton, names, await self._stored(automaton, spec))

    async def resolve_hash(self, automaton: str | None) -> ResolvedConstraint:
        """Like `resolve`, for a hash. The names are those of the constraint's first author."""
        assert automaton is not None
        stored = await self.automaton(automaton)
        require_text(stored.spec)
        names = await asyncio.to_thread(caller_names, stored.spec, self._settings.limits)
        return ResolvedConstraint(automaton, names, summary(automaton, stored, cached=True, compile_ms=0.0))

    async def _read(self, spec: Spec) -> tuple[str, Names]:
        """What a constraint is called here, and what the caller calls things; known still of those asked for lately."""
        known = self._recently_read.get(spec)
        if known is not None:
            return known
        read, size = await asyncio.to_thread(self._resolve_uncached, spec)
        self._recently_read.put(spec, read, size)
        return read

    def _resolve_uncached(self, spec: Spec) -> tuple[tuple[str, Names], int]:
        limits = self._settings.limits
        read = automaton_hash(spec, self._fingerprint, limits), caller_names(spec, limits)
        return read, _ENTRY_BYTES + 4 * len(json.dumps([spec_to_wire(spec), read[1]]))

    def _compile_job(self, automaton: str, spec: Spec, owner: str) -> CompileJob:
        deadline = time.time() + self._settings.timeout_s_max  # not this caller's: others may join
        return CompileJob(automaton, spec_to_wire(spec), deadline, owner=owner)

    async def begin_compile(
        self, constraint: ResolvedConstraint, spec: Spec, context: SubmissionContext, deadline_in_s: float
    ) -> str | None:
        """The job that compiles a constraint, which all share who want the same; None where it is stored.

        deadline_in_s  for how long who asks for it waits
        """
        if constraint.compiled is not None:
            return None
        job = self._compile_job(constraint.automaton, spec, context.owner)
        terms = self._jobs.compilation(context.owner, context.detached, deadline_in_s)
        return await self._jobs.submit("compile", compile_job_key(constraint.automaton), job, terms)

    def require_model(self, model: str | None) -> None:
        if model is not None and model != self._settings.model_id:
            raise UnknownModel(self._settings.model_id)


def require_text(spec: Spec) -> None:
    """Raise SpecUnsupported for a constraint over labels: a language model writes text."""
    if isinstance(spec, LabelsSpec):
        message = "a constraint over labels is not one on text, which is what the model writes"
        raise SpecUnsupported(message, construct="labels", field="constraint.labels")


class ConstraintStore:
    """Reads the store. What is there and is not ours is thrown away, and was never there.

    fingerprint  of the vocabulary that automata are compiled for
    """

    def __init__(self, settings: Settings, store: Store, fingerprint: str) -> None:
        self._settings = settings
        self._store = store
        self._decode = open_decoder(settings, fingerprint)

    async def compiled(self, automaton: str) -> CompiledConstraint | None:
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

    async def cached_failure(self, automaton: str, spec: Mapping[str, object]) -> Failure | None:
        """What the compilation of a constraint, written like this, has failed with, if it would fail again."""
        key = failure_key(automaton, spec, self._settings.limits)
        data = await self._store.get(key)
        if data is not None:
            failure = read_signed(self._settings.secret, key, data)
            if isinstance(failure, Failure):
                metrics.cache("negative")
                return failure
            metrics.cache("corrupt")
            await self._store.delete(key, data)
        metrics.cache("miss")
        return None

    async def explanation(self, automaton: str) -> ConstraintExplanation | None:
        """The explanation of a constraint, in the names of the propositions' meanings."""
        key = explanation_key(automaton)
        data = await self._store.get(key, self._settings.automaton_ttl_s)
        if data is None:
            return None
        result = read_signed(self._settings.secret, key, data)
        if isinstance(result, ExplainJobResult):
            return result.explanation
        await self._store.delete(key, data)
        return None
