"""The synchronous client: input and output. `_requests` builds its requests, `_flow` makes its decisions."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Generator, Iterator
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


def _method(request: Callable[P, Call[T]]) -> Callable[Concatenate[Client, P], T]:
    """The method that sends the request and returns its result."""

    def method(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._request(request(*args, **kwargs))

    describe(method, request, "{}")
    return method


def _submit_method(request: Callable[P, Call[T]], name: str) -> Callable[Concatenate[Client, P], Job[T]]:
    """The method that starts the request's job and returns it."""

    def method(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> Job[T]:
        return Job(self, self._request(requests.as_job(request(*args, **kwargs))).id)

    describe(method, request, "Job[{}]", name, f"Start what `{request.__name__}` does, and return its Job at once.")
    return method


class _Closing:
    """Closes itself at the end of a `with`."""

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Client(_Closing, ClientBase):
    """Synchronous client of a running service.

    Threads may share one client. `with` closes its connections.

        from abs_client import Client, F, Keywords

        with Client("http://127.0.0.1:8000") as client:
            result = client.generate("sentence:", F("dog") & Keywords("ball"), max_tokens=24)
            print(result.text)

    base_url   address of the service, which may have a path; default: ABS_BASE_URL, else http://127.0.0.1:8000
    api_key    default: ABS_API_KEY, else the content of the file ABS_API_KEY_FILE; "" sends none
    timeout_s  seconds without data after which a connection counts as dead
    retry      how often a request that may succeed later is sent again; Retry(tries=1) never does
    transport  a transport of httpx2, such as ASGITransport, instead of the network
    sleep      replaces time.sleep between attempts

    Every method raises AbsError: ConnectionFailedError without a response, and a class for each error of the service.
    """

    def __init__(
        self, base_url: str | None = None, api_key: str | None = None, *, timeout_s: float = READ_S,
        retry: Retry | None = None, transport: httpx2.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__(base_url, api_key, timeout_s, retry)
        self._http: httpx2.Client = open_client(httpx2.Client, self._endpoint.options(transport=transport))
        self._sleep = sleep

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
    ) -> Stream[GenerateResult]:
        """Generate as `generate` does, as a stream of events: Compilation, Step, Restart, Done.

        The stream resumes after the last event when a connection breaks. Closing it cancels the job, unless the caller
        gave an idempotency_key.
        """
        request = requests.as_stream(requests.generate(prompt, constraint, **options)).request
        return Stream(self, self._follow(request), cancels=not request.headers)

    def job(self, job_id: str) -> Job[Any]:
        """The job with this id, whichever client started it."""
        return Job(self, job_id)

    def ready(self) -> Readiness:
        """Ask once whether the service serves requests now, and why not."""
        return self._run(flows.check_ready())

    def wait_until_ready(self, timeout_s: float = 120.0) -> None:
        """Wait until the service is ready. After `timeout_s` raises NotReadyError, or ConnectionFailedError."""
        self._run(flows.wait_until_ready(self._retry, timeout_s))

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def _request(self, call: Call[T]) -> T:
        try:
            return self._endpoint.with_picture(self._run(flows.send_with_retries(call, self._retry)))
        except Exception:
            raise
        except BaseException:  # the caller is interrupted, so no one reads this result
            if call.own_key:
                self._try(flows.cancel_job(call, None))
            raise

    def _try(self, flow: Flow[None]) -> None:
        with contextlib.suppress(Exception):
            self._run(flow)

    def _run(self, flow: Flow[T]) -> T:
        """The value of a flow that emits no events."""
        try:
            next(self._drive(flow))
        except StopIteration as end:
            value: T = end.value
            return value
        raise AssertionError("only a stream emits events")

    def _drive(self, flow: Flow[T]) -> Generator[Any, None, T]:
        """Perform the actions of a flow and yield its events."""
        runner = _ActionRunner(self._http, self._endpoint, self._sleep)
        outcome: Any = None
        failure: httpx2.RequestError | None = None
        try:
            while True:
                action = flow.send(outcome) if failure is None else flow.throw(failure)
                outcome = failure = None
                if isinstance(action, flows.Emit):
                    yield action.event
                    continue
                try:
                    outcome = runner.perform(action)
                except httpx2.RequestError as error:
                    failure = error
        # Raised by the flow when it returns; it holds the value.
        except StopIteration as end:
            value: T = end.value
            return value
        finally:
            runner.close()


class _ActionRunner:
    """Performs the actions of one flow in turn. It owns the stream that is open."""

    def __init__(self, http: httpx2.Client, endpoint: Endpoint, sleep: Callable[[float], None]) -> None:
        self._http, self._endpoint, self._sleep = http, endpoint, sleep
        self._response: httpx2.Response | None = None
        self._events: Iterator[httpx2.ServerSentEvent] = iter(())

    def perform(self, action: Action) -> Any:
        match action:
            case flows.Send(request):
                return to_response(self._send(request, streams=False))
            case flows.OpenStream(request):
                self.close()
                response = self._response = self._send(request, streams=True)
                if is_event_stream(response):
                    self._events = iter(httpx2.EventSource(response, EVENT_BYTES_MAX))
                else:
                    response.read()
                return to_response(response)
            case flows.ReadEvent():
                return next(self._events, None)
            case flows.Wait(seconds):
                self.close()
                self._sleep(seconds)

    def close(self) -> None:
        if self._response is not None:
            self._response.close()
        self._response, self._events = None, iter(())

    def _send(self, request: HttpRequest, streams: bool) -> httpx2.Response:
        return self._http.send(self._endpoint.prepare(self._http, request, streams), stream=streams)


class Stream(_Closing, StreamBase[R]):
    """The events of a job, as an iterator.

    result  that of the event Done; None before it

    `close`, the end of a `with` and the loss of the last reference end the connection. They also cancel the job of
    `Client.stream`, but not that of `Job.events`.
    """

    def __init__(self, client: Client, follower: EventFollower[R], cancels: bool) -> None:
        super().__init__(follower)
        self._events = _events(client, follower, cancels)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Event[R]:
        return self._observe(next(self._events))

    def until_done(self) -> R:
        """Skip the remaining events and return the result."""
        for _ in self:
            pass
        return self._require_result()

    def close(self) -> None:
        """End the connection. Reading on raises StopIteration."""
        self._events.close()


def _events(client: Client, follower: EventFollower[R], cancels: bool) -> Generator[Event[R], None, None]:
    # A function, not a method of Stream: a generator that refers to its stream would keep the stream alive.
    try:
        yield from client._drive(follower.run())
    except Exception:
        raise
    except BaseException:  # closed by the reader, or interrupted
        if cancels and not follower.is_over:
            client._try(flows.cancel_job(None, follower.job_id))
        raise


class Job(JobBase[Client, R]):
    """A job of the service. It runs without a reader, until `cancel`. `Client.job` takes its `id`."""

    def state(self) -> JobState:
        """Get the job's state."""
        return self._client._request(requests.job_state(self.id))

    def result(self, timeout_s: float | None = None) -> R:
        """Wait for the result. Raises the job's error, or TimeoutError after `timeout_s`."""
        client = self._client
        value: R = client._run(flows.wait_for_result(self.id, client._result, client._retry, timeout_s))
        return value

    def events(self) -> Stream[R]:
        """Stream the job's events from its first one. Closing the stream does not cancel the job."""
        return Stream(self._client, self._client._follow(requests.job_events(self.id), self.id), cancels=False)

    def cancel(self) -> JobState:
        """Cancel the job and get its state."""
        return self._client._request(requests.cancellation(self.id))
