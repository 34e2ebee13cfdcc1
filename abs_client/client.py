"""The synchronous client. It runs the methods of the asynchronous client, with an Io that blocks."""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, Unpack

import httpx2

from abs_client._io import BlockingIo, run
from abs_client._requests import GenerateOptions, Prompt
from abs_client._retry import Retry
from abs_client._transport import READ_S, Endpoint
from abs_client.async_client import AsyncClient
from abs_client.errors import AbsError
from abs_client.events import Event
from abs_client.jobs import AsyncJob, AsyncStream
from abs_client.results import GenerateResult, JobState
from abs_client.rows import AnyConstraint, GenerateRow, numbered, rows_of

P = ParamSpec("P")
A = TypeVar("A")
T = TypeVar("T")
R = TypeVar("R")


def _described(method: Callable[P, T], source: Callable[..., Any]) -> Callable[P, T]:
    """The method with name, docstring and signature of the source."""
    functools.update_wrapper(method, source)
    method.__doc__ = (source.__doc__ or "").replace("await ", "")
    signature = inspect.signature(source)  # its annotations are strings
    returned = signature.return_annotation.replace("Async", "")
    # Editors and help() show this signature in place of (*args, **kwargs).
    vars(method)["__signature__"] = signature.replace(return_annotation=returned)
    method.__qualname__ = f"Client.{source.__name__}"
    return method


def _method(
    source: Callable[Concatenate[AsyncClient, P], A], wait: Callable[[A], T]
) -> Callable[Concatenate[Client, P], T]:
    """The method that does what this method of AsyncClient does. `wait` makes its value synchronous."""

    def method(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return wait(source(self._client, *args, **kwargs))

    return _described(method, source)


def _generate_rows(
    self: Client, prompts: Iterable[Prompt], constraint: AnyConstraint | Sequence[AnyConstraint] | None = None, *,
    concurrency: int = 8, **options: Unpack[GenerateOptions],
) -> list[GenerateRow]:
    def work(request: tuple[int, Prompt, AnyConstraint | None]) -> list[GenerateRow]:
        number, prompt, one = request
        outcome: GenerateResult | AbsError
        try:
            outcome = self.generate(prompt, one, **options)
        except AbsError as error:
            outcome = error
        return list(rows_of(number, prompt, outcome))

    requests = numbered(prompts, constraint, concurrency)
    threads = ThreadPoolExecutor(concurrency)
    try:
        return [row for rows in threads.map(work, requests) for row in rows]
    finally:
        threads.shutdown(cancel_futures=True)  # after an interrupt no further request is sent


def _stream(stream: AsyncStream[R]) -> Stream[R]:
    return Stream(stream)


def _job(started: Coroutine[Any, Any, AsyncJob[R]]) -> Job[R]:
    return Job(run(started))


class _BlockingClient(AsyncClient):
    """An AsyncClient whose coroutines do not suspend."""

    def __init__(self, io: BlockingIo, retry: Retry | None) -> None:
        self._io, self._retry = io, retry or Retry()


class Client(AbstractContextManager["Client", None]):
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
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._client = _BlockingClient(BlockingIo(Endpoint(base_url, api_key, timeout_s), transport, sleep), retry)

    generate = _method(AsyncClient.generate, run)
    generate_rows = _described(_generate_rows, AsyncClient.generate_rows)
    stream = _method(AsyncClient.stream, _stream)
    compile = _method(AsyncClient.compile, run)
    check = _method(AsyncClient.check, run)
    check_conversation = _method(AsyncClient.check_conversation, run)
    policy_states = _method(AsyncClient.policy_states, run)
    decode = _method(AsyncClient.decode, run)
    submit = _method(AsyncClient.submit, _job)
    submit_compile = _method(AsyncClient.submit_compile, _job)
    submit_decode = _method(AsyncClient.submit_decode, _job)
    automaton = _method(AsyncClient.automaton, run)
    automaton_dot = _method(AsyncClient.automaton_dot, run)
    automaton_svg = _method(AsyncClient.automaton_svg, run)
    models = _method(AsyncClient.models, run)
    version = _method(AsyncClient.version, run)
    ready = _method(AsyncClient.ready, run)
    wait_until_ready = _method(AsyncClient.wait_until_ready, run)

    def job(self, job_id: str) -> Job[Any]:
        """The job with this id, whichever client started it."""
        return Job(self._client.job(job_id))

    def close(self) -> None:
        """Finish pending cancellations of jobs, and close all connections."""
        run(self._client.aclose())

    def __exit__(self, *error: object) -> None:
        self.close()


class Stream(Iterator[Event[R]], AbstractContextManager["Stream[R]", None], Generic[R]):
    """The events of a job, as an iterator.

    `close`, the end of a `with` and the loss of the last reference end the connection. They also cancel the job of
    `Client.stream`, but not that of `Job.events`.
    """

    def __init__(self, stream: AsyncStream[R]) -> None:
        self._stream, self._events = stream, _events(stream)

    @property
    def result(self) -> R | None:
        """The result of the event Done. None before it."""
        return self._stream.result

    @property
    def job_id(self) -> str | None:
        """The job's id, which the client's method `job` takes. None until the first response."""
        return self._stream.job_id

    def __next__(self) -> Event[R]:
        """Wait for the next event."""
        return next(self._events)

    def until_done(self) -> R:
        """Skip the remaining events and return the result."""
        for _ in self:
            pass
        return run(self._stream.until_done())

    def close(self) -> None:
        """End the connection. Reading on raises StopIteration."""
        self._events.close()

    def __exit__(self, *error: object) -> None:
        self.close()


def _events(stream: AsyncStream[R]) -> Generator[Event[R], None, None]:
    # A function, not a method of Stream: a generator that refers to its stream would keep the stream alive.
    try:
        while True:
            try:
                event = run(stream.__anext__())
            except StopAsyncIteration:
                return
            yield event
    finally:
        run(stream.aclose())


class Job(Generic[R]):
    """A job of the service. It runs without a reader, until `cancel`. `Client.job` takes its `id`."""

    def __init__(self, job: AsyncJob[R]) -> None:
        self._job, self.id = job, job.id

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id!r})"

    def state(self) -> JobState:
        """Get the job's state."""
        return run(self._job.state())

    def result(self, timeout_s: float | None = None) -> R:
        """Wait for the result. Raises the job's error, or TimeoutError after `timeout_s`."""
        return run(self._job.result(timeout_s))

    def events(self) -> Stream[R]:
        """Stream the job's events from its first one. Closing the stream does not cancel the job."""
        return Stream(self._job.events())

    def cancel(self) -> JobState:
        """Cancel the job and get its state."""
        return run(self._job.cancel())
