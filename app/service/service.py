"""The use cases of the API, each in terms of jobs. This module knows no HTTP, no handler, and no implementation of a
broker or store.

A generation is submitted as a job at once. If its constraint is not compiled yet, the job waits in the broker for the
compilation, so it survives the death of any process.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass

from app.broker import Broker, JobStatus, SubmitOptions
from app.errors import JobCancelled, JobFailed, JobUnknown, StorageDown, UnknownJob
from app.messages import (
    CheckJob,
    CheckJobResult,
    CompileJobResult,
    DecodeJob,
    DescribeJob,
    GenerateJob,
    PolicyJobResult,
    Result,
    StepMessage,
    TokenizeJob,
    TokenizeJobResult,
    load,
    named_words,
    request_id,
)
from app.models import ModelFiles, ModelSource, ScorerFiles, model_sources
from app.observability import metrics
from app.requests import (
    DecodeParams,
    GenerateParams,
    check_decode_limits,
    check_generate_limits,
    check_paths,
    require_at_most,
    require_ids,
    require_prompt,
    seeded,
)
from app.service.constraints import Constraints, require_text
from app.service.job_client import JobClient, SubmissionContext, time_limit
from app.service.policies import PolicyParams, apply_policy
from app.settings import Settings
from app.store import Store
from compiler.errors import BudgetTooSmall, SpecSyntaxError, Undecided
from compiler.lifting import BUDGET_MAX
from compiler.spec import LabelsSpec, Spec, caller_names, check_input_size, spec_to_json

FIRST_STEP_S_MAX = 1.0  # how long a stream waits for its first step before it begins
CONTEXT_DEFAULT = SubmissionContext()  # a nameless caller that waits; the job is cancelled if the caller leaves


@dataclass(frozen=True, slots=True)
class SubmittedJob:
    """A job submitted for one caller, which holds a share in it.

    compile_job  the compilation that the job waits for, to which the caller is subscribed too; None without one
    max_tokens   the budget to check after the compilation; None if it is not checked then
    streams      whether its steps are sent as events
    """

    job_id: str
    deadline: float
    timeout_s: float
    context: SubmissionContext
    compile_job: str | None = None
    max_tokens: int | None = None
    streams: bool = False

    @property
    def shares(self) -> tuple[str, ...]:
        """The jobs to unsubscribe from when the caller leaves. It is empty if the job continues without a caller."""
        return () if self.context.detached else tuple(filter(None, (self.compile_job, self.job_id)))

    def until_deadline(self) -> contextlib.AbstractAsyncContextManager[None]:
        """Raise DeadlineExceeded if the body is not done at the job's deadline."""
        if self.deadline == math.inf:  # a reader of another caller's stream has no deadline of its own
            return contextlib.nullcontext()
        return time_limit(max(0.0, self.deadline - time.time()), self.timeout_s)


class Service:
    """Answers requests to one model through broker and store.

    source  the model, or one with an adapter; by default the first one of the settings
    jobs    the job client, which the services of one API process share
    """

    def __init__(
        self, settings: Settings, broker: Broker, store: Store, files: ModelFiles, *,
        scorers: Mapping[str, ScorerFiles] | None = None, source: ModelSource | None = None,
        jobs: JobClient | None = None,
    ) -> None:
        source = source or model_sources(settings)[0]
        self.settings = settings
        self.files = files
        self.model, self.parent, self._queue = source.name, source.parent or None, source.queue
        self.scorers = scorers or {}
        self.jobs = jobs or JobClient(settings, broker)
        self.constraints = Constraints(settings, self.jobs, store, model=source.name, files=files)

    @property
    def _fingerprint(self) -> str:
        return self.files.vocabulary.fingerprint

    @property
    def most_tokens(self) -> int:
        """The largest budget that a request may have."""
        return self.files.context_tokens or BUDGET_MAX

    async def begin_describe(self, spec: Spec, explain: bool, context: SubmissionContext) -> SubmittedJob:
        """Submit the compilation of a constraint as a job. The caller may fetch the result later."""
        check_input_size(spec, self.settings.limits)
        await self.jobs.require_worker("compile")
        timeout_s, arrived = self.settings.requests.timeout_s_default, time.time()
        constraint = await self.constraints.resolve(spec)
        compile_job = await self.constraints.begin_compile(constraint, spec, context, timeout_s)
        job = DescribeJob(
            constraint.automaton, explain, arrived + timeout_s, arrived=arrived, names=constraint.names,
            spec=spec_to_json(spec), warnings=constraint.warnings, compile_job=compile_job, owner=context.owner,
            vocabulary=self._fingerprint,
        )
        job_id = await self.jobs.submit_owned("compile", job, context)
        return SubmittedJob(job_id, job.deadline, timeout_s, context, compile_job)

    async def begin(
        self, params: GenerateParams | DecodeParams, context: SubmissionContext = CONTEXT_DEFAULT
    ) -> SubmittedJob:
        """Submit a generation or decoding. It waits for the compilation of its constraint if that is needed."""
        async with context.charged(params.weight) as charge:
            if isinstance(params, GenerateParams):
                submitted = await self._begin_generate(params, context)
            else:
                submitted = await self._begin_decode(params, context)
            charge.job_id = submitted.job_id
        return submitted

    async def _begin_generate(self, params: GenerateParams, context: SubmissionContext) -> SubmittedJob:
        options = params.options
        # The limits are checked before any call to the broker, so that a request over a limit costs it nothing.
        check_generate_limits(params, self.settings, self.files)
        if params.spec is not None:
            require_text(params.spec)
            check_input_size(params.spec, self.settings.limits)
        await self.jobs.require_worker(self._queue)
        timeout_s, arrived = self._timeout(params.timeout_s), time.time()
        constraint = await self.constraints.resolve(params.spec, params.automaton)
        # With the scope "full" the prompt satisfies a part of the constraint: only the worker knows the least budget.
        max_tokens = options.max_tokens if options.scope == "answer" else None
        _require_budget(constraint.sizes, max_tokens)
        compile_job = None  # a hash names a stored constraint, which needs no compilation
        if params.spec is not None:
            compile_job = await self.constraints.begin_compile(constraint, params.spec, context, timeout_s)
        job = GenerateJob(
            request_id(),
            constraint.automaton,
            params.prompt,
            seeded(options),
            arrived + timeout_s,
            progress="steps" if params.stream else "progress" if self.jobs.observer else "nothing",
            arrived=arrived,
            names=constraint.names,
            compile_job=compile_job,
            spec=None if params.spec is None else spec_to_json(params.spec),
            warnings=constraint.warnings if params.warnings is None else params.warnings,
            owner=context.owner,
            keep_white_space=params.keep_white_space,
            markers=params.markers,
            clamp_to_context=params.clamp_to_context,
            answer=params.answer,
            messages=params.messages,
            places=params.places,
            stops=params.stops,
            excludes_stops=params.excludes_stops,
            prompt_log_probs=params.prompt_log_probs,
            vocabulary=self._fingerprint,
            model=self.model,
        )
        job_id = await self.jobs.submit_owned(
            self._queue, job, context, priority=params.priority, weight=params.weight
        )
        return SubmittedJob(job_id, job.deadline, timeout_s, context, compile_job, max_tokens, params.stream)

    async def _begin_decode(self, params: DecodeParams, context: SubmissionContext) -> SubmittedJob:
        scorer = params.scorer
        check_decode_limits(params, self.settings)
        check_input_size(params.spec, self.settings.limits)
        await self.jobs.require_worker(self._queue)
        timeout_s, arrived = self._timeout(params.timeout_s), time.time()
        constraint = await self.constraints.resolve(params.spec)
        # An automaton that is not compiled yet has no size to check; the worker checks it again.
        if constraint.sizes is not None and scorer is None:
            check_paths(len(params.log_probs), constraint.sizes.states, self.settings)
        # A prefix satisfies a part of the constraint: only the worker knows the least budget after it.
        max_tokens = None if scorer is None or scorer.prefix else scorer.max_tokens
        _require_budget(constraint.sizes, max_tokens)
        compile_job = await self.constraints.begin_compile(constraint, params.spec, context, timeout_s)
        job = DecodeJob(
            constraint.automaton, params.log_probs, params.beams, params.alpha_min, params.gamma, arrived + timeout_s,
            arrived=arrived, names=constraint.names, compile_job=compile_job, spec=spec_to_json(params.spec),
            owner=context.owner, scorer=scorer, vocabulary=self._fingerprint, model=self.model,
        )
        job_id = await self.jobs.submit_owned(
            self._queue, job, context, priority=params.priority, weight=params.weight
        )
        return SubmittedJob(job_id, job.deadline, timeout_s, context, compile_job, max_tokens)

    async def answer(self, submitted: SubmittedJob) -> Result:
        """Wait for the result of a submitted job.

        A caller that stops waiting gives up its share at once, unless the job is detached. Raises JobFailed,
        JobCancelled, BudgetTooSmall, Undecided, DeadlineExceeded, StorageDown.
        """
        reader = EventSubscription(self, submitted)
        try:
            async with submitted.until_deadline():
                await self.wait_for_compilation(submitted)
                async with self.jobs.observed(submitted.job_id):
                    result = await self.jobs.result(submitted.job_id)
        except StorageDown:
            reader.unsubscribe_later()  # the share cannot be given up now; the job runs on, and a retry finds it
            raise
        except JobFailed:
            self.jobs.unsubscribe_soon(*submitted.shares)
            raise
        except BaseException:
            await reader.unsubscribe()
            raise
        self.jobs.unsubscribe_soon(*submitted.shares)
        return result

    async def wait_for_compilation(self, submitted: SubmittedJob) -> None:
        """Wait for the compilation that a job waits for.

        Raises the failure of the compilation, with which the job fails too, and BudgetTooSmall and Undecided, which do
        not need to wait for a model.
        """
        if submitted.compile_job is None:
            return
        # An unknown or cancelled compilation is reported by the job.
        with metrics.WAITERS.track_inprogress(), contextlib.suppress(JobCancelled, JobUnknown):
            async with self.jobs.observed(submitted.compile_job):
                sizes = await self.jobs.result(submitted.compile_job)
            if isinstance(sizes, CompileJobResult):
                _require_budget(sizes, submitted.max_tokens)

    async def subscribe(self, job_id: str) -> EventSubscription:
        """Subscribe to the events of an existing job. The subscription has a share in it."""
        await self.jobs.subscribe(job_id)
        return EventSubscription(self, SubmittedJob(job_id, math.inf, math.inf, CONTEXT_DEFAULT))

    async def state(self, job_id: str, owner: str) -> tuple[JobStatus, Result | None]:
        """The state of a caller's job. Once it is done, its result or failure follows. Raises UnknownJob."""
        state = await self.jobs.state(job_id, owner)
        try:
            return state, await self.jobs.outcome(job_id) if state.state == "done" else None
        except JobUnknown as error:  # it expired between the two calls
            raise UnknownJob(str(error)) from None

    async def cancel(self, job_id: str, owner: str) -> bool:
        """Cancel a caller's job; False if it was over already. Raises UnknownJob."""
        state = await self.jobs.state(job_id, owner)
        if state.state in ("done", "cancelled"):
            return False
        await self.jobs.cancel(job_id)
        return True

    async def check(self, spec: Spec, subject: str | tuple[str, ...], conjuncts: bool = False) -> CheckJobResult:
        """Check a text or a sequence of labels. The compile workers do it without a model."""
        field = "labels" if isinstance(spec, LabelsSpec) else "text"
        if field != ("text" if isinstance(subject, str) else "labels"):
            message = f"this constraint is one over {field}: give {field}"
            raise SpecSyntaxError(message, field=field, expected=field)
        require_at_most(field, len("".join(subject)), "text_chars_max", self.settings.requests.text_chars_max)
        check_input_size(spec, self.settings.limits)
        timeout_s = self.settings.requests.timeout_s_default
        async with time_limit(timeout_s):
            job = CheckJob(spec_to_json(spec), subject, time.time() + timeout_s, conjuncts)
            result = await self.jobs.run(
                "compile", request_id(), job, CheckJobResult, SubmitOptions(deadline_in_s=timeout_s)
            )
            names = await asyncio.to_thread(caller_names, spec, self.settings.limits)
        return dataclasses.replace(result, words=named_words(result.words, names))

    async def apply_policy(self, params: PolicyParams) -> PolicyJobResult:
        """What a policy says of a conversation. The compile workers decide it without a model."""
        return await apply_policy(params, self.jobs, self.settings)

    async def tokenize(
        self, prompt: str | tuple[int, ...], add_special_tokens: bool = True,
        markers: tuple[tuple[int, int], ...] | None = None,
    ) -> TokenizeJobResult:
        """The token ids of a text, or the text of ids. A generate worker has the tokenizer.

        Raises RequestOverLimit, and InvalidRequest for an id that the model does not have.
        """
        field = "prompt" if isinstance(prompt, str) else "tokens"
        require_prompt(field, prompt, self.settings)
        if not isinstance(prompt, str):
            require_ids(prompt, self.files.vocabulary.size, field)
        timeout_s = self.settings.requests.timeout_s_default
        async with time_limit(timeout_s):
            job = TokenizeJob(
                prompt, time.time() + timeout_s, add_special_tokens, markers=markers, model=self.model
            )
            return await self.jobs.run(
                self._queue, request_id(), job, TokenizeJobResult, SubmitOptions(deadline_in_s=timeout_s)
            )

    def _timeout(self, timeout_s: float | None) -> float:
        if timeout_s is None:
            return self.settings.requests.timeout_s_default
        require_at_most("timeout_s", timeout_s, "timeout_s_max", self.settings.requests.timeout_s_max)
        return timeout_s


@dataclass(frozen=True, slots=True)
class EventSubscription:
    """A reader of a job's events, with a share in the job."""

    service: Service
    job: SubmittedJob

    async def wait_until_begun(self) -> None:
        """Wait for the compilation, then shortly for a stream's first step.

        So a stream whose worker refuses it at once is answered by a status of its own. Raises what `answer`
        raises.
        """
        try:
            async with self.job.until_deadline():
                await self.service.wait_for_compilation(self.job)
                if self.job.streams:
                    with contextlib.suppress(StorageDown, TimeoutError):
                        async with asyncio.timeout(FIRST_STEP_S_MAX):
                            await self._wait_for_step()
        except BaseException:
            await self.unsubscribe()
            raise

    async def _wait_for_step(self) -> None:
        async with contextlib.aclosing(self.service.jobs.events(self.job.job_id, "")) as events:
            async for event in events:
                if isinstance(load(event.data), StepMessage):
                    return
        await self.service.jobs.result(self.job.job_id)

    async def unsubscribe(self) -> None:
        """Give up the share, because the reader has everything."""
        await self.service.jobs.unsubscribe(*self.job.shares)

    def unsubscribe_later(self) -> None:
        """Give up the share after `stream_grace_s`, in which the reader may reconnect."""
        self.service.jobs.unsubscribe_later(*self.job.shares)


def _require_budget(sizes: CompileJobResult | None, max_tokens: int | None) -> None:
    """Raise BudgetTooSmall if a compiled constraint needs more than `max_tokens`.

    Raise Undecided if it may need more.
    """
    if sizes is None or max_tokens is None or sizes.min_tokens <= max_tokens:
        return
    at_least = sizes.min_tokens_at_least or sizes.min_tokens
    if at_least <= max_tokens:
        raise Undecided(sizes.min_tokens, at_least, max_tokens)
    raise BudgetTooSmall(sizes.min_tokens, max_tokens, at_least)
