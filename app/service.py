"""The story of each request, in jobs. Knows no HTTP, no handler and no implementation of a broker or store."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeVar

from app.automata import open_decoder, summary
from app.broker.base import Broker
from app.errors import (
    AutomatonMissing,
    BudgetTooSmall,
    Busy,
    DeadlineExceeded,
    JobFailed,
    MessageInvalid,
    NotReady,
    RequestOverLimit,
    UnknownAutomaton,
    UnknownModel,
)
from app.jobs import (
    CheckJob,
    CheckResult,
    CompileJob,
    CompileResult,
    ExplainJob,
    ExplainResult,
    Failure,
    GenerateJob,
    GenerateResult,
    Job,
    Progress,
    TokenStep,
    Word,
    dump,
    load,
    spec_json,
)
from app.keys import (
    automaton_hash,
    automaton_key,
    compile_job_key,
    explain_job_key,
    explanation_key,
    request_id,
)
from app.model_files import ModelFiles
from app.settings import QUEUES, Settings
from app.store.base import Store
from compiler.canonical import caller_names, in_caller_names
from compiler.compiled import Compiled
from compiler.errors import ArtefactInvalid, LimitExceeded, SpecSyntaxError, SpecUnsupported
from compiler.explain import Explanation, told_as
from compiler.extent import check_limits
from compiler.spec import LabelsSpec, Spec

R = TypeVar("R", CompileResult, ExplainResult, CheckResult, GenerateResult)
Observer = Callable[[Progress], None]
_NO_EXPLANATION = (LimitExceeded.__name__, AutomatonMissing.__name__)  # why a constraint may go without


@dataclass(frozen=True, slots=True)
class GenerateOrder:
    """What a caller of generate wants. Exactly one of `spec` and `automaton` is given."""

    prompt: str
    spec: Spec | None
    automaton: str | None
    model: str | None
    max_tokens: int
    beams: int
    algorithm: Literal["abs"]
    alpha_min: float
    gamma: float
    n: int
    rank_by: Literal["score", "log_prob"]
    trace: bool
    timeout_s: float | None


@dataclass(frozen=True, slots=True)
class GenerateAnswer:
    """The generate result, and what happened on the way."""

    id: str
    compiled: CompileResult
    result: GenerateResult
    total_ms: float


class Service:
    """Answers requests by way of a broker and a store. One for each API process."""

    def __init__(self, settings: Settings, broker: Broker, store: Store, files: ModelFiles) -> None:
        self.settings = settings
        self.files = files
        self._broker = broker
        self._store = store
        self._decode = open_decoder(settings, files.vocabulary.fingerprint)
        self.observer: Observer | None = None  # told how far each job is, where someone follows

    async def compile(self, spec: Spec, model: str | None = None) -> CompileResult:
        """Compile a constraint, or find it stored."""
        self._require_model(model)
        check_limits(spec, self.settings.limits)  # before anyone hashes it, writes it down or queues it
        async with _deadline(self.settings.deadline_s_default):
            return await self._compiled(spec)

    async def generate(self, order: GenerateOrder) -> GenerateAnswer:
        """Generate, compiling first where need be."""
        started = time.perf_counter()
        self._require_model(order.model)
        self._require_limits(order)
        if order.spec is not None:
            _require_text(order.spec)
            check_limits(order.spec, self.settings.limits)
        await self._require_worker("generate")
        timeout_s = self._timeout(order.timeout_s)
        async with _deadline(timeout_s):
            compiled, spec = await self._automaton_of(order)
            job, compiled, result = await self._generated(order, compiled, time.time() + timeout_s)
        names = await asyncio.to_thread(caller_names, spec, self.settings.limits)
        result = _in_caller_names(result, names)
        return GenerateAnswer(job.id, compiled, result, (time.perf_counter() - started) * 1000)

    async def check(self, spec: Spec, subject: str | tuple[str, ...]) -> CheckResult:
        """Check a text, or a sequence of labels, on the compile workers: no model takes part."""
        wanted = "labels" if isinstance(spec, LabelsSpec) else "text"
        if wanted != ("text" if isinstance(subject, str) else "labels"):
            raise SpecSyntaxError(f"this constraint is one over {wanted}: give {wanted}", field=wanted, expected=wanted)
        _require_chars(wanted, "".join(subject), "text_chars_max", self.settings.text_chars_max)
        check_limits(spec, self.settings.limits)
        timeout_s = self.settings.deadline_s_default
        async with _deadline(timeout_s):
            job = CheckJob(spec_json(spec), subject, time.time() + timeout_s)
            result = await self._run("compile", request_id(), job, CheckResult)
        names = await asyncio.to_thread(caller_names, spec, self.settings.limits)
        return dataclasses.replace(result, words=_named_words(result.words, names))

    async def explanation(self, automaton: str, spec: Spec) -> Explanation | None:
        """What a stored constraint is, told to whoever wrote it as `spec`; made when first asked for, then stored.

        None where it cannot be told now: it does not fit the limits, no worker is free, the automaton was dropped.
        """
        found = await self._stored_explanation(automaton)
        if found is None:
            job = ExplainJob(automaton, time.time() + self.settings.deadline_s_max)  # others may join
            try:
                async with _deadline(self.settings.deadline_s_default):
                    found = (await self._run("compile", explain_job_key(automaton), job, ExplainResult)).explanation
            except (Busy, DeadlineExceeded):
                return None
            except JobFailed as failed:
                if failed.error not in _NO_EXPLANATION:
                    raise
                return None
        names = await asyncio.to_thread(caller_names, spec, self.settings.limits)
        return told_as(found, spec, names)

    async def picture(self, automaton: str) -> Compiled:
        """A stored constraint small enough to be shown whole. Raises UnknownAutomaton, RequestOverLimit."""
        compiled = await self.automaton(automaton)
        if compiled.text.dfa.states * compiled.text.dfa.symbols > self.settings.picture_cells_max:
            raise RequestOverLimit("states * letters", "picture_cells_max", self.settings.picture_cells_max)
        return compiled

    async def automaton(self, automaton: str) -> Compiled:
        """A stored constraint. Raises UnknownAutomaton."""
        compiled = await self._stored(automaton)
        if compiled is None:
            raise UnknownAutomaton("no stored constraint has this hash; POST /compile gives one")
        return compiled

    async def reasons_not_ready(self, queues: tuple[str, ...] = QUEUES) -> tuple[str, ...]:
        """Why requests would not be served now; empty when they would."""
        reasons = []
        for queue in queues:
            workers = await self._broker.workers(queue)
            if not workers:
                reasons.append(f"no {queue} worker is alive")
            elif all(worker.reason for worker in workers):
                reasons.append(f"{queue} worker: {workers[0].reason}")
        return tuple(reasons)

    async def _generated(
        self, order: GenerateOrder, compiled: CompileResult, deadline: float
    ) -> tuple[GenerateJob, CompileResult, GenerateResult]:
        try:
            return await self._decoded(order, compiled, deadline)
        except JobFailed as failed:
            if failed.error != AutomatonMissing.__name__ or order.spec is None:
                raise
        # the store dropped the automaton between the two jobs, and the constraint is at hand: compile it again
        return await self._decoded(order, await self._compiled(order.spec), deadline)

    async def _decoded(
        self, order: GenerateOrder, compiled: CompileResult, deadline: float
    ) -> tuple[GenerateJob, CompileResult, GenerateResult]:
        if compiled.min_tokens > order.max_tokens:  # known now: not a reason to wait behind other generations
            raise BudgetTooSmall(compiled.min_tokens, order.max_tokens)
        job = _generate_job(order, compiled.automaton, deadline)
        return job, compiled, await self._run("generate", job.id, job, GenerateResult)

    async def _automaton_of(self, order: GenerateOrder) -> tuple[CompileResult, Spec]:
        """What was compiled, and the constraint: the caller's, or by hash alone as it was first written."""
        if order.spec is not None:
            return await self._compiled(order.spec), order.spec
        assert order.automaton is not None
        stored = await self.automaton(order.automaton)
        _require_text(stored.spec)
        return summary(order.automaton, stored, cached=True, compile_ms=0.0), stored.spec

    async def _compiled(self, spec: Spec) -> CompileResult:
        """The constraint's sizes, from the store or by a job that all callers of the same constraint share."""
        fingerprint, limits = self.files.vocabulary.fingerprint, self.settings.limits
        automaton = await asyncio.to_thread(automaton_hash, spec, fingerprint, limits)
        stored = await self._stored(automaton)
        if stored is not None:
            return summary(automaton, stored, cached=True, compile_ms=0.0)
        deadline = time.time() + self.settings.deadline_s_max  # not this caller's: others may join
        job = CompileJob(automaton, spec_json(spec), deadline)
        return await self._run("compile", compile_job_key(automaton), job, CompileResult)

    async def _stored(self, automaton: str) -> Compiled | None:
        key = automaton_key(automaton)
        data = await self._store.get(key)
        if data is None:
            return None
        try:
            return await asyncio.to_thread(self._decode, data)
        except ArtefactInvalid:
            await self._store.delete(key, data)
            return None

    async def _stored_explanation(self, automaton: str) -> Explanation | None:
        key = explanation_key(automaton)
        data = await self._store.get(key)
        if data is None:
            return None
        with contextlib.suppress(MessageInvalid):
            result = load(data)
            if isinstance(result, ExplainResult):
                return result.explanation
        await self._store.delete(key, data)
        return None

    async def _run(self, queue: str, key: str, job: Job, wanted: type[R]) -> R:
        """Submit a job and wait. A job is called off when nobody is left who waits for it."""
        await self._require_worker(queue)
        job_id = await self._broker.submit(queue, key, dump(job))
        follower = asyncio.create_task(self._follow(job_id)) if self.observer else None
        try:
            message = load(await self._broker.result(job_id))
        finally:
            await self._broker.leave(job_id)
            if follower:
                follower.cancel()
        if isinstance(message, Failure):
            raise JobFailed(message.error, message.detail, message.fields)
        if not isinstance(message, wanted):
            raise MessageInvalid(f"a {job.kind} job was answered by a {message.kind} message")
        return message

    async def _follow(self, job_id: str) -> None:
        async for data in self._broker.events(job_id):
            event = load(data)
            if self.observer and isinstance(event, Progress):
                self.observer(event)

    async def _require_worker(self, queue: str) -> None:
        reasons = await self.reasons_not_ready((queue,))
        if reasons:
            raise NotReady(reasons)

    def _require_model(self, model: str | None) -> None:
        if model is not None and model != self.settings.model_id:
            raise UnknownModel(self.settings.model_id)

    def _require_limits(self, order: GenerateOrder) -> None:
        settings = self.settings
        _require_chars("prompt", order.prompt, "prompt_chars_max", settings.prompt_chars_max)
        for path, limit in (("max_tokens", "max_tokens_max"), ("beams", "beams_max"), ("n", "n_max")):
            if getattr(order, path) > getattr(settings, limit):
                raise RequestOverLimit(path, limit, getattr(settings, limit))
        if order.beams * order.max_tokens > settings.beam_tokens_max:
            raise RequestOverLimit("beams * max_tokens", "beam_tokens_max", settings.beam_tokens_max)

    def _timeout(self, timeout_s: float | None) -> float:
        if timeout_s is None:
            return self.settings.deadline_s_default
        if timeout_s > self.settings.deadline_s_max:
            raise RequestOverLimit("timeout_s", "deadline_s_max", self.settings.deadline_s_max)
        return timeout_s


def _in_caller_names(result: GenerateResult, names: Mapping[str, tuple[str, ...]]) -> GenerateResult:
    """The result with propositions as the caller calls them: stored automata name them by what they mean."""
    choices = tuple(
        dataclasses.replace(choice, words=_named_words(choice.words, names), trace=_named_trace(choice.trace, names))
        for choice in result.choices
    )
    return dataclasses.replace(result, choices=choices)


def _named_words(words: tuple[Word, ...], names: Mapping[str, tuple[str, ...]]) -> tuple[Word, ...]:
    return tuple(dataclasses.replace(word, letters=in_caller_names(word.letters, names)) for word in words)


def _named_trace(
    trace: tuple[TokenStep, ...] | None, names: Mapping[str, tuple[str, ...]]
) -> tuple[TokenStep, ...] | None:
    if trace is None:
        return None
    named = (tuple(in_caller_names(letter, names) for letter in step.letters) for step in trace)
    return tuple(dataclasses.replace(step, letters=letters) for step, letters in zip(trace, named, strict=True))


def _require_text(spec: Spec) -> None:
    """Raise SpecUnsupported for a constraint over labels: a language model writes text."""
    if isinstance(spec, LabelsSpec):
        message = "a constraint over labels is not one on text, which is what the model writes"
        raise SpecUnsupported(message, construct="labels", field="constraint.labels")


def _require_chars(path: str, text: str, limit: str, cap: int) -> None:
    if len(text) > cap:
        raise RequestOverLimit(path, limit, cap)


@contextlib.asynccontextmanager
async def _deadline(timeout_s: float) -> AsyncIterator[None]:
    """Raise DeadlineExceeded where the body takes longer."""
    try:
        async with asyncio.timeout(timeout_s):
            yield
    except TimeoutError:
        raise DeadlineExceeded(timeout_s) from None


def _generate_job(order: GenerateOrder, automaton: str, deadline: float) -> GenerateJob:
    return GenerateJob(
        id=request_id(), automaton=automaton, prompt=order.prompt, max_tokens=order.max_tokens, beams=order.beams,
        algorithm=order.algorithm, alpha_min=order.alpha_min, gamma=order.gamma, n=order.n, rank_by=order.rank_by,
        trace=order.trace, deadline=deadline,
    )
