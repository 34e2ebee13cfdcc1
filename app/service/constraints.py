"""Resolves constraints to stored automata, and has them compiled and explained."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from app.automaton_cache import ByteBoundedLru, open_decoder, summary
from app.errors import (
    DeadlineExceeded,
    JobFailed,
    ServiceBusy,
    ServiceDraining,
    UnknownAutomaton,
)
from app.messages import (
    CompileJob,
    CompileJobResult,
    ExplainJob,
    ExplainJobResult,
    Failure,
    WarningBody,
    automaton_hash,
    automaton_key,
    compile_job_key,
    constraint_warnings,
    explain_job_key,
    explanation_key,
    failure_key,
    read_signed,
)
from app.models import ModelFiles
from app.observability import metrics
from app.requests import require_at_most
from app.service.job_client import JobClient, SubmissionContext, time_limit
from app.settings import Settings
from app.store import Store
from app.tasks import SharedTasks
from compiler.artifact import CompiledConstraint
from compiler.diagnostics import ConstraintExplanation, with_caller_names
from compiler.errors import ArtefactInvalid, OtherVocabulary, SpecUnsupported
from compiler.spec import LabelsSpec, Spec, caller_names, check_input_size, spec_to_json
from compiler.text import ProductText, TextAutomaton

# Cache hits are trusted this long without asking the store again: requests for one constraint come in bursts.
HIT_TTL_S = 1.0
_RECENT_HITS_BYTES_MAX, _RECENTLY_READ_BYTES_MAX, _ENTRY_BYTES = 2**20, 2**23, 2**10
Names = dict[str, tuple[str, ...]]
M = TypeVar("M", Failure, ExplainJobResult)


@dataclass(frozen=True, slots=True)
class ResolvedConstraint:
    """A constraint that a request names.

    automaton  hash of the constraint
    names      the caller's names of the propositions, by the names of their meanings
    sizes      sizes of the automaton; None if it is not compiled yet
    warnings   what is probably a mistake in it
    """

    automaton: str
    names: Names
    sizes: CompileJobResult | None
    warnings: tuple[WarningBody, ...] = ()


class Constraints:
    """Looks up the constraints of one model. Compiles and explains them by jobs."""

    def __init__(self, settings: Settings, jobs: JobClient, store: Store, *, model: str, files: ModelFiles) -> None:
        self._settings = settings
        self._jobs = jobs
        self._model = model
        self._fingerprint = files.vocabulary.fingerprint
        self._constraint_store = ConstraintStore(settings, store, self._fingerprint)
        self._recently_read: ByteBoundedLru[Spec, ResolvedConstraint] = ByteBoundedLru(_RECENTLY_READ_BYTES_MAX)
        self._recent_hits: ByteBoundedLru[str, tuple[CompileJobResult, float]] = ByteBoundedLru(_RECENT_HITS_BYTES_MAX)
        # Hundreds may ask for one constraint at once, and each decoding of an automaton takes about 1 ms.
        self._loading: SharedTasks[CompileJobResult | None] = SharedTasks()

    async def compile(self, spec: Spec, owner: str = "") -> CompileJobResult:
        """Compile a constraint, or find it in the store. `owner` is the caller's key."""
        if self._jobs.stopping.is_set():
            raise ServiceDraining
        check_input_size(spec, self._settings.limits)  # before it is hashed, serialized or queued
        timeout_s = self._settings.requests.timeout_s_default
        async with time_limit(timeout_s):
            automaton = (await self._read(spec)).automaton
            stored = await self._stored(automaton, spec)
            if stored is not None:
                return stored
            # The job's key is the constraint's hash, so concurrent requests wait for one compilation.
            with metrics.WAITERS.track_inprogress():
                job = self._compile_job(automaton, spec, owner)
                options = self._jobs.compilation(owner, deadline_in_s=timeout_s)
                return await self._jobs.run("compile", compile_job_key(automaton), job, CompileJobResult, options)

    async def explanation(self, automaton: str, spec: Spec, owner: str = "") -> ConstraintExplanation | None:
        """The explanation of a stored constraint, with the names of `spec`.

        It is made at the first request and then stored. None if it is not available now: it exceeds the limits, no
        worker is free, or the automaton was dropped.
        """
        explanation = await self._constraint_store.explanation(automaton)
        if explanation is None:
            deadline = time.time() + self._settings.requests.timeout_s_max  # not this caller's: others may join
            job = ExplainJob(automaton, deadline, owner=owner, vocabulary=self._fingerprint)
            try:
                async with time_limit(self._settings.requests.timeout_s_default):
                    result = await self._jobs.run("compile", explain_job_key(automaton), job, ExplainJobResult)
                    explanation = result.explanation
            except (ServiceBusy, DeadlineExceeded):
                return None
            except JobFailed as failed:
                if not failed.facts.explanation_optional:
                    raise
                return None
        names = await asyncio.to_thread(caller_names, spec, self._settings.limits)
        return with_caller_names(explanation, spec, names)

    async def picture(self, automaton: str) -> CompiledConstraint:
        """A stored constraint small enough to be shown whole.

        Raises UnknownAutomaton, RequestOverLimit, and SpecUnsupported for a pushdown automaton or a product.
        """
        constraint = await self.automaton(automaton)
        if isinstance(constraint.text, ProductText):
            message = "this constraint has no picture: its parts are automata of their own, followed side by side"
            raise SpecUnsupported(message, construct="picture of a product")
        if not isinstance(constraint.text, TextAutomaton):
            message = "this constraint has no picture: with its stack it has states without end"
            raise SpecUnsupported(message, construct="picture of a stack")
        dfa, cap = constraint.text.display_dfa, self._settings.requests.automaton_view_cells_max
        require_at_most("states * letters", dfa.states * dfa.symbols, "automaton_view_cells_max", cap)
        return constraint

    async def automaton(self, automaton: str) -> CompiledConstraint:
        """A stored constraint. Raises UnknownAutomaton."""
        constraint = await self._constraint_store.load(automaton, is_ours=False)
        if constraint is None:
            message = f"no stored constraint of the model {self._model!r} has this hash: send it to POST /compile"
            raise UnknownAutomaton(message)
        return constraint

    async def has(self, automaton: str) -> bool:
        """Whether a constraint of this hash is stored for the model's vocabulary."""
        return await self._constraint_store.load(automaton, is_ours=False) is not None

    async def _stored(self, automaton: str, spec: Spec) -> CompileJobResult | None:
        """A constraint's sizes; None if it is not stored. Raises JobFailed for a cached failure."""
        sizes, ends = self._recent_hits.get(automaton) or (None, 0.0)
        if sizes is not None and time.monotonic() < ends:
            metrics.cache("hit")
            return sizes
        # A miss is not remembered here, because the compilation that follows it ends it.
        sizes = await self._loading.result(automaton, self._load_sizes)
        if sizes is not None:
            return sizes
        failure = await self._constraint_store.cached_failure(automaton, spec_to_json(spec))
        if failure is not None:
            raise failure.as_error()
        return None

    async def _load_sizes(self, automaton: str) -> CompileJobResult | None:
        stored = await self._constraint_store.load(automaton)
        if stored is None:
            return None
        sizes = summary(automaton, stored, cached=True, compile_ms=0.0)
        self._recent_hits.put(automaton, (sizes, time.monotonic() + HIT_TTL_S), _ENTRY_BYTES)
        return sizes

    async def resolve(self, spec: Spec | None, automaton: str | None = None) -> ResolvedConstraint:
        """A constraint, or a stored one by its hash. It has its sizes if it is compiled.

        Raises JobFailed for a cached failure, UnknownAutomaton.
        """
        if spec is None:
            return await self._resolve_hash(automaton)
        read = await self._read(spec)
        return dataclasses.replace(read, sizes=await self._stored(read.automaton, spec))

    async def warnings(self, spec: Spec) -> tuple[WarningBody, ...]:
        """What is probably a mistake in a constraint as written."""
        return (await self._read(spec)).warnings

    async def _resolve_hash(self, automaton: str | None) -> ResolvedConstraint:
        """The names are those of the constraint's first author."""
        assert automaton is not None
        stored = await self.automaton(automaton)
        require_text(stored.spec)
        names = await asyncio.to_thread(caller_names, stored.spec, self._settings.limits)
        return ResolvedConstraint(automaton, names, summary(automaton, stored, cached=True, compile_ms=0.0))

    async def _read(self, spec: Spec) -> ResolvedConstraint:
        """A constraint without its sizes. Recent constraints are cached in memory."""
        recent = self._recently_read.get(spec)
        if recent is not None:
            return recent
        # The canonical form needs the formulas parsed: a thread keeps the event loop free.
        read, size = await asyncio.to_thread(self._resolve_uncached, spec)
        self._recently_read.put(spec, read, size)
        return read

    def _resolve_uncached(self, spec: Spec) -> tuple[ResolvedConstraint, int]:
        limits = self._settings.limits
        automaton, names = automaton_hash(spec, self._fingerprint, limits), caller_names(spec, limits)
        # An estimate of the memory of key and value: strings and tuples take several times their JSON text.
        read = ResolvedConstraint(automaton, names, None, constraint_warnings(spec))
        return read, _ENTRY_BYTES + 4 * len(json.dumps([spec_to_json(spec), names]))

    def _compile_job(self, automaton: str, spec: Spec, owner: str) -> CompileJob:
        deadline = time.time() + self._settings.requests.timeout_s_max  # not this caller's: others may join
        return CompileJob(automaton, spec_to_json(spec), deadline, owner=owner, vocabulary=self._fingerprint)

    async def begin_compile(
        self, constraint: ResolvedConstraint, spec: Spec, context: SubmissionContext, deadline_in_s: float
    ) -> str | None:
        """Submit the compilation of a constraint, or join it. None if the constraint is compiled already.

        deadline_in_s  the time that this caller waits
        """
        if constraint.sizes is not None:
            return None
        job = self._compile_job(constraint.automaton, spec, context.owner)
        options = self._jobs.compilation(context.owner, context.detached, deadline_in_s)
        return await self._jobs.submit("compile", compile_job_key(constraint.automaton), job, options)


def require_text(spec: Spec) -> None:
    """Raise SpecUnsupported for a constraint over labels: a language model writes text."""
    if isinstance(spec, LabelsSpec):
        message = "a constraint over labels is not one on text, which is what the model writes"
        raise SpecUnsupported(message, construct="labels", field="constraint.labels")


class ConstraintStore:
    """Reads the store. A value whose signature does not match is deleted and counts as absent.

    fingerprint  of the vocabulary that automata are compiled for
    """

    def __init__(self, settings: Settings, store: Store, fingerprint: str) -> None:
        self._settings = settings
        self._store = store
        self._decode = open_decoder(settings, fingerprint)

    async def load(self, automaton: str, *, is_ours: bool = True) -> CompiledConstraint | None:
        """The constraint of this hash. None if none is stored for this vocabulary.

        is_ours  whether the hash was made for this vocabulary; a hash of a request may be of another model's
        """
        key = automaton_key(automaton)
        data = await self._store.get(key, self._settings.retention.automaton_ttl_s)
        if data is None:
            return None
        try:
            # Decoding verifies the signature and every array of the automaton: too long for the event loop.
            constraint = await asyncio.to_thread(self._decode, automaton, data)
        except ArtefactInvalid as error:
            if isinstance(error, OtherVocabulary) and not is_ours:
                return None  # it stays
            # Only these bytes are deleted, so a value that a worker writes meanwhile stays.
            metrics.cache("corrupt")
            await self._store.delete(key, data)
            return None
        metrics.cache("hit")
        return constraint

    async def cached_failure(self, automaton: str, spec: Mapping[str, object]) -> Failure | None:
        """The failure of an earlier compilation of this spelling of the constraint. None if there is none."""
        failure = await self._signed(failure_key(automaton, spec, self._settings.limits), Failure)
        metrics.cache("negative" if failure else "miss")
        return failure

    async def explanation(self, automaton: str) -> ConstraintExplanation | None:
        """The stored explanation of a constraint. Propositions have the names of their meanings."""
        ttl_s = self._settings.retention.automaton_ttl_s
        result = await self._signed(explanation_key(automaton), ExplainJobResult, ttl_s)
        return result.explanation if result else None

    async def _signed(self, key: str, kind: type[M], renew_s: float = 0.0) -> M | None:
        """The signed message of a kind under a key, None without one."""
        data = await self._store.get(key, renew_s)
        if data is None:
            return None
        message = read_signed(self._settings.auth.secret, key, data)
        if isinstance(message, kind):
            return message
        metrics.cache("corrupt")
        await self._store.delete(key, data)
        return None
