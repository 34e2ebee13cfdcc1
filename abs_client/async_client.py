"""The client for asyncio. What it sends and decides is in `calls` and `stories`; here is only input and output."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, Unpack

import httpx2

from abs_client import calls, stories
from abs_client.calls import Call, DecodeOptions, GenerateOptions
from abs_client.connection import EVENT_BYTES_MAX, READ_S, Connection, has_events, opened, reply_of
from abs_client.constraints import ConstraintLike
from abs_client.events import Done, Event
from abs_client.results import (
    Automaton,
    CheckResult,
    CompileResult,
    DecodeResult,
    GenerateResult,
    JobState,
    ModelCard,
    Readiness,
)
from abs_client.retries import Retry
from abs_client.stories import Following, Next, Open, Send, Story, Tell, Wait

T = TypeVar("T")
R = TypeVar("R")


class AsyncClient:
    """Asynchronous client of a running service.

    Several tasks may share one client. `async with` closes its connections.

    base_url, api_key  default: ABS_BASE_URL and ABS_API_KEY
    timeout_s          seconds without data after which a connection counts as dead
    retry              when a request that may succeed later is sent again
    transport, sleep   replace those of httpx2 and asyncio
    Every method raises AbsError (`abs_client.errors`); without an answer it raises ConnectionFailed.
    """

    def __init__(
        self, base_url: str | None = None, api_key: str | None = None, *, timeout_s: float = READ_S,
        retry: Retry | None = None, transport: httpx2.AsyncBaseTransport | None = None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._connection = Connection(base_url, api_key, timeout_s)
        self._http: httpx2.AsyncClient = opened(httpx2.AsyncClient, self._connection.options(transport=transport))
        self._retry, self._sleep = retry or Retry(), sleep
        self._leaving: set[asyncio.Task[None]] = set()

    async def generate(
        self, prompt: str, constraint: ConstraintLike | CompileResult | None = None, **options: Unpack[GenerateOptions]
    ) -> GenerateResult:
        """Texts that satisfy the constraint, best first. One who is interrupted calls his request off."""
        return await self._ask(calls.generate_call(prompt, constraint, options))

    def stream(
        self, prompt: str, constraint: ConstraintLike | CompileResult | None = None, **options: Unpack[GenerateOptions]
    ) -> AsyncStream[GenerateResult]:
        """Like `generate`, as a stream of events: Compiled, Step, Restart, Done.

        A broken connection is reopened, and the stream resumes after the last event.
        """
        call = calls.streamed(calls.generate_call(prompt, constraint, options))
        following = Following(call.request, None, self._retry, self._result)
        return AsyncStream(_events(self, following, calls_off=not call.request.headers), following)

    async def compile(
        self, constraint: ConstraintLike, *, explain: bool = True, model: str | None = None,
        idempotency_key: str | None = None,
    ) -> CompileResult:
        """Compile a constraint and keep it; `generate` takes the answer in the constraint's place."""
        return await self._ask(calls.compile_call(constraint, explain, model, idempotency_key))

    async def check(
        self, constraint: ConstraintLike, text: str | Sequence[str], *, conjuncts: bool = False
    ) -> CheckResult:
        """Whether a text (or a sequence of labels) satisfies, and where it breaks; `conjuncts`: each conjunct too."""
        return await self._ask(calls.check_call(constraint, text, conjuncts))

    async def decode(
        self, log_probs: Any, constraint: ConstraintLike, labels: Sequence[str] | None = None,
        **options: Unpack[DecodeOptions],
    ) -> DecodeResult:
        """The best sequence of labels: `log_probs` has a row for each step and a column for each label."""
        return await self._ask(calls.decode_call(log_probs, constraint, labels, options))

    async def automaton(self, of: str | CompileResult | GenerateResult | DecodeResult) -> Automaton:
        """States, distances and transitions, of a hash or of a result that names one."""
        return await self._ask(calls.automaton_call(of))

    async def automaton_dot(self, of: str | CompileResult | GenerateResult | DecodeResult) -> str:
        """The same for Graphviz."""
        return await self._ask(calls.picture_call(of, "dot"))

    async def automaton_svg(self, of: str | CompileResult | GenerateResult | DecodeResult) -> str:
        """The same as a picture."""
        return await self._ask(calls.picture_call(of, "svg"))

    async def models(self) -> tuple[ModelCard, ...]:
        """The served models."""
        return await self._ask(calls.models_call())

    async def version(self) -> str:
        """The service's version."""
        return await self._ask(calls.version_call())

    async def ready(self) -> Readiness:
        """Whether requests would be served now, and why not. Asked once."""
        return await self._run(stories.is_ready(calls.ready_call(), lambda reasons: Readiness(False, reasons)))

    async def wait_until_ready(self, timeout_s: float = 120.0) -> None:
        """Wait until the service is ready. After `timeout_s` raise NotReady with the reasons, or ConnectionFailed."""
        await self._run(stories.became_ready(calls.ready_call(), self._retry, timeout_s))

    async def submit(
        self, prompt: str, constraint: ConstraintLike | CompileResult | None = None, **options: Unpack[GenerateOptions]
    ) -> AsyncJob[GenerateResult]:
        """Begin what `generate` does, and do not wait."""
        return await self._submit(calls.generate_call(prompt, constraint, options))

    async def submit_compile(
        self, constraint: ConstraintLike, *, explain: bool = True, model: str | None = None,
        idempotency_key: str | None = None,
    ) -> AsyncJob[CompileResult]:
        """Begin what `compile` does, and do not wait."""
        return await self._submit(calls.compile_call(constraint, explain, model, idempotency_key))

    async def submit_decode(
        self, log_probs: Any, constraint: ConstraintLike, labels: Sequence[str] | None = None,
        **options: Unpack[DecodeOptions],
    ) -> AsyncJob[DecodeResult]:
        """Begin what `decode` does, and do not wait."""
        return await self._submit(calls.decode_call(log_probs, constraint, labels, options))

    def job(self, job_id: str) -> AsyncJob[Any]:
        """A job that was begun before, here or elsewhere."""
        return AsyncJob(self, job_id)

    async def aclose(self) -> None:
        """Close all connections, once those who went away have called off what they began."""
        await asyncio.gather(*self._leaving, return_exceptions=True)
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _submit(self, call: Call[T]) -> AsyncJob[T]:
        return AsyncJob(self, (await self._ask(calls.submitted(call))).id)

    def _result(self, data: dict[str, Any]) -> Any:
        return self._connection.shown(calls.result_of_job(data))

    async def _ask(self, call: Call[T]) -> T:
        try:
            return self._connection.shown(await self._run(stories.asked(call, self._retry)))
        except Exception:
            raise
        except BaseException:  # the caller's task is cancelled, so this answer will never be read
            if call.own_key:
                self._leave_soon(stories.called_off(call, None))
            raise

    def _leave_soon(self, story: Story[None]) -> None:
        """In the background: who is cancelled is not to be held up. Where the loop ends first, the service notices."""

        async def leave() -> None:
            with contextlib.suppress(Exception):
                await self._run(story)

        task = asyncio.get_running_loop().create_task(leave())
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    async def _run(self, story: Story[T]) -> T:
        """The value of a story that tells nothing on the way."""
        ended: list[T] = []
        async for _ in self._drive(story, ended):
            raise AssertionError("a plain request tells of no events")
        return ended[0]

    async def _drive(self, story: Story[T], ended: list[T]) -> AsyncGenerator[Any, None]:
        """Do what the story says, and pass on what it tells; its value is put into `ended`."""
        line = _Line(self._http, self._connection, self._sleep)
        outcome: Any = None
        failure: httpx2.RequestError | None = None
        try:
            while True:
                try:
                    effect = story.send(outcome) if failure is None else story.throw(failure)
                except StopIteration as end:
                    ended.append(end.value)
                    return
                outcome = failure = None
                if isinstance(effect, Tell):
                    yield effect.event
                    continue
                try:
                    outcome = await line.do(effect)
                except httpx2.RequestError as error:
                    failure = error
        finally:
            await line.aclose()


class _Line:
    """Does what a story says, one thing after the other; holds the answer of events that is being read."""

    def __init__(
        self, http: httpx2.AsyncClient, connection: Connection, sleep: Callable[[float], Awaitable[object]]
    ) -> None:
        self._http, self._connection, self._sleep = http, connection, sleep
        self._open: httpx2.Response | None = None
        self._events: AsyncIterator[httpx2.ServerSentEvent] | None = None

    async def do(self, effect: Send | Open | Next | Wait) -> Any:
        match effect:
            case Send(request):
                return reply_of(await self._send(request, streams=False))
            case Open(request):
                await self.aclose()
                response = self._open = await self._send(request, streams=True)
                if has_events(response):
                    self._events = aiter(httpx2.EventSource(response, EVENT_BYTES_MAX))
                else:
                    await response.aread()
                return reply_of(response)
            case Next():
                return None if self._events is None else await anext(self._events, None)
            case Wait(seconds):
                await self.aclose()
                await self._sleep(seconds)

    async def aclose(self) -> None:
        events, response, self._events, self._open = self._events, self._open, None, None
        if isinstance(events, AsyncGenerator):
            await events.aclose()
        if response is not None:
            await response.aclose()

    async def _send(self, request: calls.Request, streams: bool) -> httpx2.Response:
        timeout = self._connection.timeout(request, streams)
        built = self._http.build_request(
            request.method, request.path, content=request.content, headers=request.all_headers, timeout=timeout
        )
        return await self._http.send(built, stream=streams)


async def _events(client: AsyncClient, following: Following[R], calls_off: bool) -> AsyncGenerator[Event[R], None]:
    """The events of a job; left early, the connection is closed, and the job called off where it was begun for this."""
    try:
        async with contextlib.aclosing(client._drive(following.story(), [])) as told:
            async for event in told:
                yield event
    except Exception:
        raise
    except BaseException:  # closed by the reader, or cancelled
        if calls_off and not following.over:
            client._leave_soon(stories.called_off(None, following.job_id))
        raise


class AsyncStream(Generic[R]):
    """The events of a job. `aclose`, or the end of an `async with`, ends the connection, and what is written.

    result  the last event's, None before
    """

    def __init__(self, told: AsyncGenerator[Event[R], None], following: Following[R]) -> None:
        self._told, self._following = told, following
        self.result: R | None = None

    @property
    def job_id(self) -> str | None:
        """The job's, once the service has said it: `AsyncClient.job` takes it."""
        return self._following.job_id

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event[R]:
        event = await anext(self._told)
        if isinstance(event, Done):
            self.result = event.result
        return event

    async def until_done(self) -> R:
        """Skip the remaining events and return the result."""
        async for _ in self:
            pass
        if self.result is None:
            raise RuntimeError("the stream was closed before its end")
        return self.result

    async def aclose(self) -> None:
        """Go away."""
        await self._told.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class AsyncJob(Generic[R]):
    """A job that goes on whether anybody waits for it or not. `id` names it to `Client.job`."""

    def __init__(self, client: AsyncClient, job_id: str) -> None:
        self._client, self.id = client, job_id

    async def state(self) -> JobState:
        """Where it is."""
        return await self._client._ask(calls.job_call(self.id))

    async def result(self, timeout_s: float | None = None) -> R:
        """Wait for the result. Raises the job's error, or TimeoutError after `timeout_s`."""
        client = self._client
        value: R = await client._run(stories.awaited(self.id, client._result, client._retry, timeout_s))
        return value

    def events(self) -> AsyncStream[R]:
        """Stream the job's events from its first one. Closing the stream does not cancel the job."""
        client = self._client
        following: Following[R] = Following(calls.events_request(self.id, ""), self.id, client._retry, client._result)
        return AsyncStream(_events(client, following, calls_off=False), following)

    async def cancel(self) -> JobState:
        """Call it off."""
        return await self._client._ask(calls.cancel_call(self.id))

    def __repr__(self) -> str:
        return f"AsyncJob({self.id!r})"
