"""The story of each request, in jobs. Knows no HTTP, no handler and no implementation of a broker or store."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

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
from app.generation import GenerateAnswer, GenerateOrder, check_order_limits, require_chars, seeded
from app.jobs import (
    CheckJob,
    CheckResult,
    CompileJob,
    CompileResult,
    DecodeResult,
    ExplainJob,
    ExplainResult,
    Failure,
    GenerateJob,
    GenerateResult,
    Job,
    Progress,
    Step,
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
from app.matrix import DecodeAnswer, DecodeOrder, check_order, decode_job
from app.model_files import ModelFiles
from app.naming import named_decoding, named_generation, named_words
from app.settings import QUEUES, Settings
from app.store.base import Store
from compiler.canonical import caller_names
from compiler.compiled import Compiled
from compiler.errors import ArtefactInvalid, LimitExceeded, SpecSyntaxError, SpecUnsupported
from compiler.explain import Explanation, told_as
from compiler.extent import check_limits
from compiler.spec import LabelsSpec, Spec

R = TypeVar("R", CompileResult, ExplainResult, CheckResult, GenerateResult, DecodeResult)
T = TypeVar("T")
Observer = Callable[[Progress | Step], None]
Listener = Callable[[CompileResult | Step], None]
_NO_EXPLANATION = (LimitExceeded.__name__, AutomatonMissing.__name__)  # why a constraint may go without


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

    async def generate(self, order: GenerateOrder, listener: Listener | None = None) -> GenerateAnswer:
        """Generate, compiling first where need be.

        listener  is told of the constraint, once the job is in its queue, and then of every step, or of most
        """
        started = time.perf_counter()
        self._require_model(order.model)
        check_order_limits(order, self.settings, self.files)
        if order.spec is not None:
            _require_text(order.spec)
            check_limits(order.spec, self.settings.limits)
        await self._require_worker("generate")
        timeout_s = self._timeout(order.timeout_s)
        async with _deadline(timeout_s):
            compiled, spec = await self._automaton_of(order)
            deadline = time.time() + timeout_s
            job, compiled, result = await self._over(
                order.spec, compiled, lambda found: self._decoded(order, found, deadline, listener)
            )
        names = await asyncio.to_thread(caller_names, spec, self.settings.limits)
        result = named_generation(result, names)
        return GenerateAnswer(job.id, job.options, compiled, result, (time.perf_counter() - started) * 1000)

    async def decode(self, order: DecodeOrder) -> DecodeAnswer:
        """Decode a matrix of log-probs over labels, compiling the constraint first where need be."""
        started = time.perf_counter()
        check_order(order, self.settings)
        check_limits(order.spec, self.settings.limits)
        await self._require_worker("generate")
        timeout_s = self._timeout(order.timeout_s)
        async with _deadline(timeout_s):
            deadline = time.time() + timeout_s
            compiled, result = await self._over(
                order.spec, await self._compiled(order.spec), lambda found: self._decoded_labels(order, found, deadline)
            )
        names = await asyncio.to_thread(caller_names, order.spec, self.settings.limits)
        return DecodeAnswer(compiled, named_decoding(result, names), (time.perf_counter() - started) * 1000)

    async def check(self, spec: Spec, subject: str | tuple[str, ...]) -> CheckResult:
        """Check a text, or a sequence of labels, on the compile workers: no model takes part."""
        wanted = "labels" if isinstance(spec, LabelsSpec) else "text"
        if wanted != ("text" if isinstance(subject, str) else "labels"):
            raise SpecSyntaxError(f"this constraint is one over {wanted}: give {wanted}", field=wanted, expected=wanted)
        require_chars(wanted, "".join(subject), "text_chars_max", self.settings.text_chars_max)
        check_limits(spec, self.settings.limits)
        timeout_s = self.settings.deadline_s_default
        async with _deadline(timeout_s):
            job = CheckJob(spec_json(spec), subject, time.time() + timeout_s)
            result = await self._run("compile", request_id(), job, CheckResult)
        names = await asyncio.to_thread(caller_names, spec, self.settings.limits)
        return dataclasses.replace(result, words=named_words(result.words, names))

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

    async def _over(
        self, spec: Spec | None, compiled: CompileResult, work: Callable[[CompileResult], Awaitable[T]]
    ) -> T:
        """What comes of some work; where the store drops the automaton meanwhile, of a second try with `spec`."""
        try:
            return await work(compiled)
        except JobFailed as failed:
            if failed.error != AutomatonMissing.__name__ or spec is None:
                raise
        return await work(await self._compiled(spec))

    async def _decoded(
        self, order: GenerateOrder, compiled: CompileResult, deadline: float, listener: Listener | None
    ) -> tuple[GenerateJob, CompileResult, GenerateResult]:
        options = order.options
        if options.scope == "answer" and compiled.min_tokens > options.max_tokens:
            raise BudgetTooSmall(compiled.min_tokens, options.max_tokens)  # known now: no reason to wait for a model
        job = GenerateJob(
            request_id(), compiled.automaton, order.prompt, seeded(options), order.trace, deadline,
            tell="steps" if listener else "progress" if self.observer else "nothing",
        )
        begun = functools.partial(listener, compiled) if listener else None
        return job, compiled, await self._run("generate", job.id, job, GenerateResult, listener, begun)

    async def _decoded_labels(
        self, order: DecodeOrder, compiled: CompileResult, deadline: float
    ) -> tuple[CompileResult, DecodeResult]:
        job = decode_job(order, compiled, self.settings, deadline)
        return compiled, await self._run("generate", request_id(), job, DecodeResult)

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

    async def _run(
        self, queue: str, key: str, job: Job, wanted: type[R], listener: Listener | None = None,
        begun: Callable[[], None] | None = None,
    ) -> R:
        """Submit a job and wait. A job is called off when nobody is left who waits for it.

        begun  is called once the job is in its queue
        """
        await self._require_worker(queue)
        job_id = await self._broker.submit(queue, key, dump(job))
        if begun:
            begun()
        followed = self.observer is not None or listener is not None
        follower = asyncio.create_task(self._follow(job_id, listener)) if followed else None
        try:
            message = load(await self._broker.result(job_id))
            if follower:
                await follower  # of a job that is done there is an end of news
        finally:
            await self._broker.leave(job_id)
            if follower:
                follower.cancel()
        if isinstance(message, Failure):
            raise JobFailed(message.error, message.detail, message.fields)
        if not isinstance(message, wanted):
            raise MessageInvalid(f"a {job.kind} job was answered by a {message.kind} message")
        return message

    async def _follow(self, job_id: str, listener: Listener | None) -> None:
        async for data in self._broker.events(job_id):
            event = load(data)
            if self.observer and isinstance(event, Progress | Step):
                self.observer(event)
            if listener and isinstance(event, Step):
                listener(event)

    async def _require_worker(self, queue: str) -> None:
        reasons = await self.reasons_not_ready((queue,))
        if reasons:
            raise NotReady(reasons)

    def _require_model(self, model: str | None) -> None:
        if model is not None and model != self.settings.model_id:
            raise UnknownModel(self.settings.model_id)

    def _timeout(self, timeout_s: float | None) -> float:
        if timeout_s is None:
            return self.settings.deadline_s_default
        if timeout_s > self.settings.deadline_s_max:
            raise RequestOverLimit("timeout_s", "deadline_s_max", self.settings.deadline_s_max)
        return timeout_s


def _require_text(spec: Spec) -> None:
    """Raise SpecUnsupported for a constraint over labels: a language model writes text."""
    if isinstance(spec, LabelsSpec):
        message = "a constraint over labels is not one on text, which is what the model writes"
        raise SpecUnsupported(message, construct="labels", field="constraint.labels")


@contextlib.asynccontextmanager
async def _deadline(timeout_s: float) -> AsyncIterator[None]:
    """Raise DeadlineExceeded where the body takes longer."""
    try:
        async with asyncio.timeout(timeout_s):
            yield
    except TimeoutError:
        raise DeadlineExceeded(timeout_s) from None
