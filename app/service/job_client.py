"""Submits, follows and cancels the jobs of requests. Knows no constraint and no HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from app.auth import Charge, KeyCharges
from app.broker import DEFAULT_SUBMIT, Broker, ConcurrencyGroup, JobEvent, JobStatus, SubmitOptions
from app.errors import (
    DeadlineExceeded,
    JobFailed,
    JobUnknown,
    MessageInvalid,
    NotReady,
    ServiceDraining,
    StorageDown,
    UnknownJob,
)
from app.messages import (
    CheckJobResult,
    CompileJobResult,
    DecodeJob,
    DescribeJob,
    ExplainJobResult,
    Failure,
    GenerateJob,
    Job,
    NotReadyReason,
    PolicyJobResult,
    Priority,
    Progress,
    Result,
    StepMessage,
    TokenizeJobResult,
    dump,
    idempotent_job_key,
    load,
    request_id,
)
from app.models import queues_of
from app.settings import Settings
from app.tasks import SharedTasks

OwnedKind = DescribeJob | GenerateJob | DecodeJob
R = TypeVar("R", CompileJobResult, ExplainJobResult, CheckJobResult, PolicyJobResult, TokenizeJobResult)
# A queue that had a worker is trusted this long without asking the broker again: heartbeats come every few seconds.
READY_S = 0.25
_NO_JOB = "no job has this id, or its result has expired"
Observer = Callable[[Progress | StepMessage], None]


@dataclass(frozen=True, slots=True)
class SubmissionContext:
    """The caller of a job, and how the caller wants it handled.

    owner    name of the API key; empty without keys
    route    path of the request
    key      the Idempotency-Key: the same one leads to the same job
    digest   of the whole request: the key with another digest is an error
    respond_async
             the caller does not wait for the answer (`Prefer: respond-async`)
    charges  charges the API key; None without a rate limit
    """

    owner: str = ""
    route: str = ""
    key: str | None = None
    digest: str = ""
    respond_async: bool = False
    charges: KeyCharges | None = None

    def charged(self, beam_tokens: int) -> contextlib.AbstractAsyncContextManager[Charge]:
        """Charge the caller's key for the job that the body submits. Raises RateLimited, RequestOverLimit."""
        if self.charges is None:
            return contextlib.nullcontext(Charge())
        return self.charges.charged(beam_tokens, repeatable=self.key is not None)

    @property
    def detached(self) -> bool:
        """Whether the job goes on when the caller disconnects."""
        return self.respond_async or self.key is not None


@contextlib.asynccontextmanager
async def time_limit(timeout_s: float, limit_s: float | None = None) -> AsyncIterator[None]:
    """Raise DeadlineExceeded if the body takes longer than `timeout_s`.

    limit_s  the time limit that the error names, if it differs from `timeout_s`
    """
    try:
        async with asyncio.timeout(timeout_s):
            yield
    except TimeoutError:
        raise DeadlineExceeded(timeout_s if limit_s is None else limit_s) from None


class JobClient:
    """Submits jobs to a broker and reports their states. One for each API process."""

    def __init__(self, settings: Settings, broker: Broker) -> None:
        self.settings = settings
        self.observer: Observer | None = None  # receives the progress of each job
        self.stopping = asyncio.Event()
        self._broker = broker
        self._ready_until: dict[str, float] = {}
        self._leaving: set[asyncio.Task[None]] = set()
        self._outcomes: SharedTasks[Result] = SharedTasks()  # that callers wait for, by job

    @property
    def transfers_streams(self) -> bool:
        """Whether subscribers are sent to another process, which can continue their streams."""
        return self.stopping.is_set() and self._broker.durable

    async def wait_for_transfer(self) -> None:
        """Wait until other processes take over the streams. Never returns if no other process has the jobs."""
        await self.stopping.wait()
        if not self._broker.durable:
            await asyncio.Event().wait()  # never set: the caller cancels this wait

    async def reasons_not_ready(self, queues: tuple[str, ...] | None = None) -> tuple[NotReadyReason, ...]:
        """Why requests would not be served now; empty when they would. By default those of every queue."""
        reasons = []
        for queue in queues_of(self.settings) if queues is None else queues:
            workers = await self._broker.workers(queue)
            if not workers:
                reasons.append(NotReadyReason(queue))
            elif all(worker.reason for worker in workers):
                reasons.append(NotReadyReason(queue, workers[0].reason))
        return tuple(reasons)

    async def require_worker(self, queue: str) -> None:
        """Require a worker for jobs of this queue. Raises ServiceDraining, NotReady."""
        # Checked before the readiness of the last moment, which stays valid while the process stops.
        if self.stopping.is_set():
            raise ServiceDraining
        if time.monotonic() < self._ready_until.get(queue, 0.0):
            return
        reasons = await self.reasons_not_ready((queue,))
        if reasons:
            raise NotReady(reasons)
        self._ready_until[queue] = time.monotonic() + READY_S

    async def submit(self, queue: str, key: str, job: Job, options: SubmitOptions = DEFAULT_SUBMIT) -> str:
        """The job's id. Raises QueueFull, DeadlineUnreachable, KeyReused, ServiceDraining, NotReady."""
        await self.require_worker(queue)
        # The broker may store the job even if the caller is cancelled meanwhile. The shielded submission then goes on,
        # and the share that it took is given back.
        submitted = asyncio.ensure_future(self._broker.submit(queue, key, dump(job), options))
        try:
            return await asyncio.shield(submitted)
        except asyncio.CancelledError:
            if not options.detached:
                submitted.add_done_callback(self._disown)
            raise

    def _disown(self, submitted: asyncio.Future[str]) -> None:
        if not submitted.cancelled() and submitted.exception() is None:
            self._later(self.unsubscribe(submitted.result()))

    def compilation(self, owner: str, detached: bool = False, deadline_in_s: float | None = None) -> SubmitOptions:
        """The options of a compilation, which all callers of one constraint share.

        deadline_in_s  the time that this caller waits; a caller that joins the compilation may wait longer
        """
        settings = self.settings
        pools = [ConcurrencyGroup("compile", settings.queue.pending_compiles_max, "pending_compiles_max")]
        # A service without keys has one nameless owner, and a limit of 0 is no limit: neither gets a group.
        if owner and settings.auth.key_pending_compiles_max:
            pools.append(
                ConcurrencyGroup(f"compile:{owner}", settings.auth.key_pending_compiles_max, "key_pending_compiles_max")
            )
        return SubmitOptions(detached=detached, pools=tuple(pools), deadline_in_s=deadline_in_s)

    async def submit_owned(
        self, queue: str, job: OwnedKind, context: SubmissionContext, *, priority: Priority = "interactive",
        weight: int = 0,
    ) -> str:
        """Submit a job that belongs to one caller; returns its id.

        If that fails, the share in the job's compilation is given up, unless the job is detached.
        """
        # Without an Idempotency-Key the job's key is random, so that no other request joins it.
        key = request_id() if context.key is None else idempotent_job_key(context.owner, context.route, context.key)
        # Callers know a description by the route that asks for it.
        kind = "compile" if isinstance(job, DescribeJob) else job.kind
        options = SubmitOptions(
            owner=context.owner, kind=kind, digest=context.digest, priority=priority, weight=weight,
            after=job.compile_job, detached=context.detached,
            key_ttl_s=0.0 if context.key is None else self.settings.retention.idempotency_ttl_s,
            deadline_in_s=max(0.0, job.deadline - time.time()),
        )
        try:
            return await self.submit(queue, key, job, options)
        except BaseException:  # a cancellation too: the share in the compilation must not outlive the request
            if not context.detached:
                await self.unsubscribe(job.compile_job)
            raise

    async def run(
        self, queue: str, key: str, job: Job, result_type: type[R], options: SubmitOptions = DEFAULT_SUBMIT
    ) -> R:
        """Submit a job and wait for its result. A job is cancelled once its last waiting caller leaves."""
        job_id = await self.submit(queue, key, job, options)
        try:
            async with self.observed(job_id):
                result = await self.result(job_id)
        except (JobFailed, StorageDown):  # the job is over or its server is away: the error is not delayed
            self.unsubscribe_soon(job_id)
            raise
        except BaseException:
            await self.unsubscribe(job_id)
            raise
        self.unsubscribe_soon(job_id)
        if not isinstance(result, result_type):
            raise MessageInvalid(f"a {job.kind} job was answered by a {result.kind} message")
        return result

    async def result(self, job_id: str) -> Result:
        """Wait for the result of a submitted job. Raises JobFailed for a failure, JobCancelled, StorageDown.

        StorageDown means that the server has lost the job, and that the caller may retry. A server that is killed
        while its disk is slow loses up to two seconds of acknowledged writes.
        """
        try:
            result = await self.outcome(job_id)
        except JobUnknown:
            raise StorageDown("has lost the job") from None
        if isinstance(result, Failure):
            raise result.as_error()
        return result

    async def outcome(self, job_id: str) -> Result:
        """Wait for the result of a job, which may be a failure. Raises JobUnknown, JobCancelled, StorageDown.

        All callers of one job wait for one task, because hundreds may ask for the same constraint at once.
        """
        return await self._outcomes.result(job_id, self._outcome)

    async def _outcome(self, job_id: str) -> Result:
        message = load(await self._broker.result(job_id))
        if not isinstance(message, Result):
            raise MessageInvalid(f"a job was answered by a {message.kind} message")
        return message

    @contextlib.asynccontextmanager
    async def observed(self, *job_ids: str | None) -> AsyncIterator[None]:
        """Pass these jobs' events to the observer, if there is one. After the body it waits for the last events."""
        observer = self.observer
        followers = [
            asyncio.create_task(self._observe(job_id, observer)) for job_id in job_ids if job_id and observer
        ]
        try:
            yield
            await asyncio.gather(*followers)
        finally:
            for follower in followers:
                follower.cancel()

    async def _observe(self, job_id: str, observer: Observer) -> None:
        async for event in self._broker.events(job_id):
            message = load(event.data)
            if isinstance(message, Progress | StepMessage):
                observer(message)

    async def events(self, job_id: str, after: str = "") -> AsyncGenerator[JobEvent, None]:
        """The events of a job, with the broker's ids."""
        async for event in self._broker.events(job_id, after):
            yield event

    async def state(self, job_id: str, owner: str) -> JobStatus:
        """The state of a caller's job. Raises UnknownJob, for other callers' jobs too."""
        try:
            state = await self._broker.state(job_id)
        except JobUnknown:
            raise UnknownJob(_NO_JOB) from None
        # Jobs without a kind, such as compilations, are shared and belong to no caller. The error is the same as for an
        # id that never existed, so it does not reveal the jobs of others.
        if state.owner != owner or not state.kind:
            raise UnknownJob(_NO_JOB)
        return state

    async def subscribe(self, job_id: str) -> None:
        """Take a share in a job for a new reader of events."""
        with contextlib.suppress(JobUnknown):
            await self._broker.subscribe(job_id)

    async def cancel(self, job_id: str) -> None:
        """Cancel a job for all its callers."""
        await self._broker.cancel(job_id)

    async def unsubscribe(self, *job_ids: str | None) -> None:
        """Give up a share in each job. Giving up the last share cancels a job; if the server is away, it runs on."""
        for job_id in job_ids:
            if job_id is not None:
                with contextlib.suppress(StorageDown):
                    await self._broker.unsubscribe(job_id)

    def unsubscribe_soon(self, *job_ids: str | None) -> None:
        """Release the shares in the background. An unreachable server then does not delay the answer."""
        if job_ids:
            self._later(self.unsubscribe(*job_ids))

    def unsubscribe_later(self, *job_ids: str | None) -> None:
        """Give up the shares after `stream_grace_s`, unless this process stops before."""
        if job_ids:
            self._later(self._unsubscribe_later(job_ids))

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._leaving.add(task)  # the event loop itself refers to tasks only weakly
        task.add_done_callback(self._leaving.discard)

    async def _unsubscribe_later(self, job_ids: tuple[str | None, ...]) -> None:
        """Give the shares up after `stream_grace_s`.

        The time counts from the server's next answer, because no reader can reconnect while it is unreachable.
        """
        for job_id in filter(None, job_ids):
            while not self.stopping.is_set():
                with contextlib.suppress(StorageDown):
                    with contextlib.suppress(JobUnknown):  # also an answer: the server is reachable
                        await self._broker.state(job_id)
                    break
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.stopping.wait(), self.settings.server.stream_grace_s)
            return  # the shares stay: readers may reconnect to another process
        await self.unsubscribe(*job_ids)

    def drain(self) -> None:
        """Refuse new requests and send subscribers of streams to another process. Returns at once."""
        self.stopping.set()

    def close(self) -> None:
        """Take no new jobs, and stop waiting for readers that may reconnect."""
        self.stopping.set()
        self._outcomes.cancel()
        for task in self._leaving:
            task.cancel()
