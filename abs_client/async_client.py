"""The client for asyncio: input and output. `_requests` builds its requests, `_flow` makes its decisions."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, Unpack

import httpx2

from abs_client import _flow as flows
from abs_client import _requests as requests
from abs_client._base import ClientBase, JobBase, StreamBase, describe
from abs_client._flow import Action, EventFollower, Flow
from abs_client._requests import Call, GenerateOptions, HttpRequest
from abs_client._retry import Retry
from abs_client._transport import EVENT_BYTES_MAX, READ_S, Endpoint, is_event_stream, open_client, to_response
from abs_client.constraints import ConstraintLike
from abs_client.events import Event
from abs_client.results import CompileResult, GenerateResult, JobState, Readiness

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")


def _method(request: Callable[P, Call[T]]) -> Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]]:
    """The method that sends the request and returns its result."""

    async def method(self: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._request(request(*args, **kwargs))

    describe(method, request, "{}")
    return method


def _submit_method(
    request: Callable[P, Call[T]], name: str
) -> Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, AsyncJob[T]]]:
    """The method that starts the request's job and returns it."""

    async def method(self: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> AsyncJob[T]:
        return AsyncJob(self, (await self._request(requests.as_job(request(*args, **kwargs)))).id)

    describe(method, request, "AsyncJob[{}]", name, f"Start what `{request.__name__}` does, and return its AsyncJob.")
    return method


class _AsyncClosing:
    """Closes itself at the end of a `async with`."""

    async def aclose(self) -> None:
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class AsyncClient(_AsyncClosing, ClientBase):
    """Asynchronous client of a running service.

    Tasks of one event loop may share one client. `async with` closes its connections.

        from abs_client import AsyncClient, F, Keywords

        async with AsyncClient("http://127.0.0.1:8000") as client:
            result = await client.generate("sentence:", F("dog") & Keywords("ball"), max_tokens=24)
            print(result.text)

    base_url   address of the service, which may have a path; default: ABS_BASE_URL, else http://127.0.0.1:8000
    api_key    default: ABS_API_KEY, else the content of the file ABS_API_KEY_FILE; "" sends none
    timeout_s  seconds without data after which a connection counts as dead
    retry      how often a request that may succeed later is sent again; Retry(tries=1) never does
    transport  a transport of httpx2, such as ASGITransport, instead of the network
    sleep      replaces asyncio.sleep between attempts

    Every method raises AbsError: ConnectionFailedError without a response, and a class for each error of the service.
    """

    def __init__(
        self, base_url: str | None = None, api_key: str | None = None, *, timeout_s: float = READ_S,
        retry: Retry | None = None, transport: httpx2.AsyncBaseTransport | None = None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        super().__init__(base_url, api_key, timeout_s, retry)
        self._http: httpx2.AsyncClient = open_client(httpx2.AsyncClient, self._endpoint.options(transport=transport))
        self._sleep = sleep
        self._cancellations: set[asyncio.Task[None]] = set()

    generate = _method(requests.generate)
    compile = _method(requests.compile)
    check = _method(requests.check)
    decode = _method(requests.decode)
    automaton = _method(requests.automaton)
    automaton_dot = _method(requests.automaton_dot)
    automaton_svg = _method(requests.automaton_svg)
    models = _method(requests.models)
    version = _method(requests.version)
    submit = _submit_method(requests.generate, "submit")
    submit_compile = _submit_method(requests.compile, "submit_compile")
    submit_decode = _submit_method(requests.decode, "submit_decode")

    def stream(
        self, prompt: str, constraint: ConstraintLike | CompileResult | None = None, **options: Unpack[GenerateOptions]
    ) -> AsyncStream[GenerateResult]:
        """Generate as `generate` does, as a stream of events: Compilation, Step, Restart, Done.

        The stream resumes after the last event when a connection breaks. Closing it cancels the job, unless the caller
        gave an idempotency_key.
        """
        request = requests.as_stream(requests.generate(prompt, constraint, **options)).request
        return AsyncStream(self, self._follow(request), cancels=not request.headers)

    def job(self, job_id: str) -> AsyncJob[Any]:
        """The job with this id, whichever client started it."""
        return AsyncJob(self, job_id)

    async def ready(self) -> Readiness:
        """Ask once whether the service serves requests now, and why not."""
        return await self._run(flows.check_ready())

    async def wait_until_ready(self, timeout_s: float = 120.0) -> None:
        """Wait until the service is ready. After `timeout_s` raises NotReadyError, or ConnectionFailedError."""
        await self._run(flows.wait_until_ready(self._retry, timeout_s))

    async def aclose(self) -> None:
        """Finish pending cancellations of jobs, and close all connections."""
        await asyncio.gather(*self._cancellations, return_exceptions=True)
        await self._http.aclose()

    async def _request(self, call: Call[T]) -> T:
        try:
            return self._endpoint.with_picture(await self._run(flows.send_with_retries(call, self._retry)))
        except Exception:
            raise
        except BaseException:  # the caller's task is cancelled, so no one reads this result
            if call.own_key:
                self._try_in_background(flows.cancel_job(call, None))
            raise

    def _try_in_background(self, flow: Flow[None]) -> None:
        # A cancelled task must end at once. If the loop ends before this task, the service sees the connection close.
        async def attempt() -> None:
            with contextlib.suppress(Exception):
                await self._run(flow)

        task = asyncio.get_running_loop().create_task(attempt())
        self._cancellations.add(task)  # the loop keeps only a weak reference
        task.add_done_callback(self._cancellations.discard)

    async def _run(self, flow: Flow[T]) -> T:
        """The value of a flow that emits no events."""
        values: list[T] = []
        async for _ in self._drive(flow, values):
            raise AssertionError("only a stream emits events")
        return values[0]

    async def _drive(self, flow: Flow[T], values: list[T]) -> AsyncGenerator[Any, None]:
        """Perform the actions of a flow and yield its events.

        The flow's value is appended to `values`, because an asynchronous generator returns none.
        """
        runner = _AsyncActionRunner(self._http, self._endpoint, self._sleep)
        outcome: Any = None
        failure: httpx2.RequestError | None = None
        try:
            while True:
                try:
                    action = flow.send(outcome) if failure is None else flow.throw(failure)
                except StopIteration as end:
                    values.append(end.value)
                    return
                outcome = failure = None
                if isinstance(action, flows.Emit):
                    yield action.event
                    continue
                try:
                    outcome = await runner.perform(action)
                except httpx2.RequestError as error:
                    failure = error
        finally:
            await runner.aclose()


class _AsyncActionRunner:
    """Performs the actions of one flow in turn. It owns the stream that is open."""

    def __init__(
        self, http: httpx2.AsyncClient, endpoint: Endpoint, sleep: Callable[[float], Awaitable[object]]
    ) -> None:
        self._http, self._endpoint, self._sleep = http, endpoint, sleep
        self._response: httpx2.Response | None = None
        self._events: AsyncIterator[httpx2.ServerSentEvent] | None = None

    async def perform(self, action: Action) -> Any:
        match action:
            case flows.Send(request):
                return to_response(await self._send(request, streams=False))
            case flows.OpenStream(request):
                await self.aclose()
                response = self._response = await self._send(request, streams=True)
                if is_event_stream(response):
                    self._events = aiter(httpx2.EventSource(response, EVENT_BYTES_MAX))
                else:
                    await response.aread()
                return to_response(response)
            case flows.ReadEvent():
                return None if self._events is None else await anext(self._events, None)
            case flows.Wait(seconds):
                await self.aclose()
                await self._sleep(seconds)

    async def aclose(self) -> None:
        # Cleared first, so that a second call finds nothing to close.
        events, response, self._events, self._response = self._events, self._response, None, None
        # A generator that is dropped would be closed later, by another task.
        if isinstance(events, AsyncGenerator):
            await events.aclose()
        if response is not None:
            await response.aclose()

    async def _send(self, request: HttpRequest, streams: bool) -> httpx2.Response:
        return await self._http.send(self._endpoint.prepare(self._http, request, streams), stream=streams)


class AsyncStream(_AsyncClosing, StreamBase[R]):
    """The events of a job, as an asynchronous iterator.

    result  that of the event Done; None before it

    `aclose` and the end of an `async with` end the connection. They also cancel the job of `AsyncClient.stream`, but
    not that of `AsyncJob.events`.
    """

    def __init__(self, client: AsyncClient, follower: EventFollower[R], cancels: bool) -> None:
        super().__init__(follower)
        self._events = _events(client, follower, cancels)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event[R]:
        return self._observe(await anext(self._events))

    async def until_done(self) -> R:
        """Skip the remaining events and return the result."""
        async for _ in self:
            pass
        return self._require_result()

    async def aclose(self) -> None:
        """End the connection. Reading on raises StopAsyncIteration."""
        await self._events.aclose()


async def _events(client: AsyncClient, follower: EventFollower[R], cancels: bool) -> AsyncGenerator[Event[R], None]:
    try:
        async with contextlib.aclosing(client._drive(follower.run(), [])) as events:
            async for event in events:
                yield event
    except Exception:
        raise
    except BaseException:  # closed by the reader, or cancelled
        if cancels and not follower.is_over:
            client._try_in_background(flows.cancel_job(None, follower.job_id))
        raise


class AsyncJob(JobBase[AsyncClient, R]):
    """A job of the service. It runs without a reader, until `cancel`. `AsyncClient.job` takes its `id`."""

    async def state(self) -> JobState:
        """Get the job's state."""
        return await self._client._request(requests.job_state(self.id))

    async def result(self, timeout_s: float | None = None) -> R:
        """Wait for the result. Raises the job's error, or TimeoutError after `timeout_s`."""
        client = self._client
        value: R = await client._run(flows.wait_for_result(self.id, client._result, client._retry, timeout_s))
        return value

    def events(self) -> AsyncStream[R]:
        """Stream the job's events from its first one. Closing the stream does not cancel the job."""
        return AsyncStream(self._client, self._client._follow(requests.job_events(self.id), self.id), cancels=False)

    async def cancel(self) -> JobState:
        """Cancel the job and get its state."""
        return await self._client._request(requests.cancellation(self.id))
