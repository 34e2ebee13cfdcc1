"""The client that blocks. What it sends and decides is in `calls` and `stories`; here is only input and output."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Generator, Iterator, Sequence
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


class Client:
    """Synchronous client of a running service.

    Several threads may share one client. `with` closes its connections.

    base_url, api_key  default: ABS_BASE_URL and ABS_API_KEY
    timeout_s          seconds without data after which a connection counts as dead
    retry              when a request that may succeed later is sent again
    transport, sleep   replace those of httpx2 and time
    Every method raises AbsError (`abs_client.errors`); without an answer it raises ConnectionFailed.
    """

    def __init__(
        self, base_url: str | None = None, api_key: str | None = None, *, timeout_s: float = READ_S,
        retry: Retry | None = None, transport: httpx2.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._connection = Connection(base_url, api_key, timeout_s)
        self._http: httpx2.Client = opened(httpx2.Client, self._connection.options(transport=transport))
        self._retry, self._sleep = retry or Retry(), sleep

    def generate(
        self, prompt: str, constraint: ConstraintLike | CompileResult | None = None, **options: Unpack[GenerateOptions]
    ) -> GenerateResult:
        """Texts that satisfy the constraint, best first. One who is interrupted calls his request off."""
        return self._ask(calls.generate_call(prompt, constraint, options))

    def stream(
        self, prompt: str, constraint: ConstraintLike | CompileResult | None = None, **options: Unpack[GenerateOptions]
    ) -> Stream[GenerateResult]:
        """Like `generate`, as a stream of events: Compiled, Step, Restart, Done.

        A broken connection is reopened, and the stream resumes after the last event.
        """
        call = calls.streamed(calls.generate_call(prompt, constraint, options))
        following = Following(call.request, None, self._retry, self._result)
        return Stream(_events(self, following, calls_off=not call.request.headers), following)

    def compile(
        self, constraint: ConstraintLike, *, explain: bool = True, model: str | None = None,
        idempotency_key: str | None = None,
    ) -> CompileResult:
        """Compile a constraint and keep it; `generate` takes the answer in the constraint's place."""
        return self._ask(calls.compile_call(constraint, explain, model, idempotency_key))

    def check(self, constraint: ConstraintLike, text: str | Sequence[str], *, conjuncts: bool = False) -> CheckResult:
        """Whether a text (or a sequence of labels) satisfies, and where it breaks; `conjuncts`: each conjunct too."""
        return self._ask(calls.check_call(constraint, text, conjuncts))

    def decode(
        self, log_probs: Any, constraint: ConstraintLike, labels: Sequence[str] | None = None,
        **options: Unpack[DecodeOptions],
    ) -> DecodeResult:
        """The best sequence of labels: `log_probs` has a row for each step and a column for each label."""
        return self._ask(calls.decode_call(log_probs, constraint, labels, options))

    def automaton(self, of: str | CompileResult | GenerateResult | DecodeResult) -> Automaton:
        """States, distances and transitions, of a hash or of a result that names one."""
        return self._ask(calls.automaton_call(of))

    def automaton_dot(self, of: str | CompileResult | GenerateResult | DecodeResult) -> str:
        """The same for Graphviz."""
        return self._ask(calls.picture_call(of, "dot"))

    def automaton_svg(self, of: str | CompileResult | GenerateResult | DecodeResult) -> str:
        """The same as a picture."""
        return self._ask(calls.picture_call(of, "svg"))

    def models(self) -> tuple[ModelCard, ...]:
        """The served models."""
        return self._ask(calls.models_call())

    def version(self) -> str:
        """The service's version."""
        return self._ask(calls.version_call())

    def ready(self) -> Readiness:
        """Whether requests would be served now, and why not. Asked once."""
        return self._run(stories.is_ready(calls.ready_call(), lambda reasons: Readiness(False, reasons)))

    def wait_until_ready(self, timeout_s: float = 120.0) -> None:
        """Wait until the service is ready. After `timeout_s` raise NotReady with the reasons, or ConnectionFailed."""
        self._run(stories.became_ready(calls.ready_call(), self._retry, timeout_s))

    def submit(
        self, prompt: str, constraint: ConstraintLike | CompileResult | None = None, **options: Unpack[GenerateOptions]
    ) -> Job[GenerateResult]:
        """Begin what `generate` does, and do not wait."""
        return self._submit(calls.generate_call(prompt, constraint, options))

    def submit_compile(
        self, constraint: ConstraintLike, *, explain: bool = True, model: str | None = None,
        idempotency_key: str | None = None,
    ) -> Job[CompileResult]:
        """Begin what `compile` does, and do not wait."""
        return self._submit(calls.compile_call(constraint, explain, model, idempotency_key))

    def submit_decode(
        self, log_probs: Any, constraint: ConstraintLike, labels: Sequence[str] | None = None,
        **options: Unpack[DecodeOptions],
    ) -> Job[DecodeResult]:
        """Begin what `decode` does, and do not wait."""
        return self._submit(calls.decode_call(log_probs, constraint, labels, options))

    def job(self, job_id: str) -> Job[Any]:
        """A job that was begun before, here or elsewhere."""
        return Job(self, job_id)

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _submit(self, call: Call[T]) -> Job[T]:
        return Job(self, self._ask(calls.submitted(call)).id)

    def _result(self, data: dict[str, Any]) -> Any:
        return self._connection.shown(calls.result_of_job(data))

    def _ask(self, call: Call[T]) -> T:
        try:
            return self._connection.shown(self._run(stories.asked(call, self._retry)))
        except Exception:
            raise
        except BaseException:  # the caller is interrupted, so this answer will never be read
            if call.own_key:
                self._leave(stories.called_off(call, None))
            raise

    def _leave(self, story: Story[None]) -> None:
        with contextlib.suppress(Exception):
            self._run(story)

    def _run(self, story: Story[T]) -> T:
        """The value of a story that tells nothing on the way."""
        try:
            next(self._drive(story))
        except StopIteration as end:
            value: T = end.value
            return value
        raise AssertionError("a plain request tells of no events")

    def _drive(self, story: Story[T]) -> Generator[Any, None, T]:
        """Do what the story says, and pass on what it tells."""
        line = _Line(self._http, self._connection, self._sleep)
        outcome: Any = None
        failure: httpx2.RequestError | None = None
        try:
            while True:
                effect = story.send(outcome) if failure is None else story.throw(failure)
                outcome = failure = None
                if isinstance(effect, Tell):
                    yield effect.event
                    continue
                try:
                    outcome = line.do(effect)
                except httpx2.RequestError as error:
                    failure = error
        except StopIteration as end:
            value: T = end.value
            return value
        finally:
            line.close()


class _Line:
    """Does what a story says, one thing after the other; holds the answer of events that is being read."""

    def __init__(self, http: httpx2.Client, connection: Connection, sleep: Callable[[float], None]) -> None:
        self._http, self._connection, self._sleep = http, connection, sleep
        self._open: httpx2.Response | None = None
        self._events: Iterator[httpx2.ServerSentEvent] = iter(())

    def do(self, effect: Send | Open | Next | Wait) -> Any:
        match effect:
            case Send(request):
                return reply_of(self._send(request, streams=False))
            case Open(request):
                self.close()
                response = self._open = self._send(request, streams=True)
                if has_events(response):
                    self._events = iter(httpx2.EventSource(response, EVENT_BYTES_MAX))
                else:
                    response.read()
                return reply_of(response)
            case Next():
                return next(self._events, None)
            case Wait(seconds):
                self.close()
                self._sleep(seconds)

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
        self._open, self._events = None, iter(())

    def _send(self, request: calls.Request, streams: bool) -> httpx2.Response:
        timeout = self._connection.timeout(request, streams)
        built = self._http.build_request(
            request.method, request.path, content=request.content, headers=request.all_headers, timeout=timeout
        )
        return self._http.send(built, stream=streams)


def _events(client: Client, following: Following[R], calls_off: bool) -> Generator[Event[R], None, None]:
    """The events of a job; left early, the connection is closed, and the job called off where it was begun for this."""
    try:
        yield from client._drive(following.story())
    except Exception:
        raise
    except BaseException:  # closed by the reader, or interrupted
        if calls_off and not following.over:
            client._leave(stories.called_off(None, following.job_id))
        raise


class Stream(Generic[R]):
    """The events of a job. `close`, the end of a `with`, or letting go of it ends the connection, and what is written.

    result  the last event's, None before
    """

    def __init__(self, told: Generator[Event[R], None, None], following: Following[R]) -> None:
        self._told, self._following = told, following
        self.result: R | None = None

    @property
    def job_id(self) -> str | None:
        """The job's, once the service has said it: `Client.job` takes it."""
        return self._following.job_id

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Event[R]:
        event = next(self._told)
        if isinstance(event, Done):
            self.result = event.result
        return event

    def until_done(self) -> R:
        """Skip the remaining events and return the result."""
        for _ in self:
            pass
        if self.result is None:
            raise RuntimeError("the stream was closed before its end")
        return self.result

    def close(self) -> None:
        """Go away."""
        self._told.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Job(Generic[R]):
    """A job that goes on whether anybody waits for it or not. `id` names it to `Client.job`."""

    def __init__(self, client: Client, job_id: str) -> None:
        self._client, self.id = client, job_id

    def state(self) -> JobState:
        """Where it is."""
        return self._client._ask(calls.job_call(self.id))

    def result(self, timeout_s: float | None = None) -> R:
        """Wait for the result. Raises the job's error, or TimeoutError after `timeout_s`."""
        client = self._client
        value: R = client._run(stories.awaited(self.id, client._result, client._retry, timeout_s))
        return value

    def events(self) -> Stream[R]:
        """Stream the job's events from its first one. Closing the stream does not cancel the job."""
        client = self._client
        following: Following[R] = Following(calls.events_request(self.id, ""), self.id, client._retry, client._result)
        return Stream(_events(client, following, calls_off=False), following)

    def cancel(self) -> JobState:
        """Call it off."""
        return self._client._ask(calls.cancel_call(self.id))

    def __repr__(self) -> str:
        return f"Job({self.id!r})"
