"""The client for asyncio. `_requests` builds its requests, and an Io sends them.

The synchronous client runs the coroutines of this module with an Io that blocks. They therefore await the Io and each
other, but nothing of asyncio; `generate_rows` is the exception, which the synchronous client has in threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar, Unpack

import httpx2

from abs_client import _requests as requests
from abs_client._follower import EventFollower
from abs_client._io import AsyncIo, Io
from abs_client._requests import Call, DecodeOptions, GenerateOptions, Prompt
from abs_client._retry import Retry, RetryState, is_transient, no_response
from abs_client._transport import READ_S, Endpoint
from abs_client.constraints import ConstraintLike
from abs_client.errors import AbsError, ConnectionFailedError, NotReadyError
from abs_client.jobs import AsyncJob, AsyncStream
from abs_client.policies import Policy, PolicyResult
from abs_client.results import (
    Automaton,
    CheckResult,
    CompileResult,
    DecodeResult,
    GenerateResult,
    ModelCard,
    Readiness,
    Result,
)
from abs_client.rows import AnyConstraint, GenerateRow, numbered, rows_of

T = TypeVar("T")
READY_POLL_S = 0.25
_ONCE = Retry(tries=1)


class AsyncClient(AbstractAsyncContextManager["AsyncClient", None]):
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
        self._io: Io = AsyncIo(Endpoint(base_url, api_key, timeout_s), transport, sleep)
        self._retry = retry or Retry()

    async def generate(
        self, prompt: Prompt, constraint: ConstraintLike | CompileResult | None = None,
        **options: Unpack[GenerateOptions],
    ) -> GenerateResult:
        """Generate texts that satisfy a constraint, best first.

        prompt      the text to continue, or the messages of a conversation as in the chat API
        constraint  a Constraint, its JSON as a dict, or a CompileResult; None with the option `automaton`, or messages
        options     the fields of GenerateOptions, such as max_tokens and beams

        An interrupt (Ctrl-C, a cancelled task) cancels the job, unless the caller gave an idempotency_key.

        >>> result = await client.generate("sentence:", F("dog") & Keywords("ball"), max_tokens=24)
        >>> result.choices[0].satisfied
        True
        """
        return await self._request(requests.generate(prompt, constraint, options))

    async def generate_rows(
        self, prompts: Iterable[Prompt], constraint: AnyConstraint | Sequence[AnyConstraint] | None = None, *,
        concurrency: int = 8, **options: Unpack[GenerateOptions],
    ) -> list[GenerateRow]:
        """Generate for many prompts. Returns a row for each text, in their order.

        prompts      the texts to continue, or conversations
        constraint   one for all prompts, or a list with one for each
        concurrency  requests at a time, at least 1
        options      the fields of GenerateOptions, the same for all prompts

        An AbsError of a request becomes a row with its `error` and `detail`.

        >>> rows = await client.generate_rows(["One day,", "Today,"], F("dog"), max_tokens=16)
        >>> [(row["prompt"], row["satisfied"]) for row in rows]  # pandas.DataFrame(rows) makes a table
        [('One day,', True), ('Today,', True)]
        """
        requests_left = iter(numbered(prompts, constraint, concurrency))
        rows: dict[int, list[GenerateRow]] = {}

        async def work() -> None:
            for number, prompt, one in requests_left:
                outcome: GenerateResult | AbsError
                try:
                    outcome = await self.generate(prompt, one, **options)
                except AbsError as error:
                    outcome = error
                rows[number] = list(rows_of(number, prompt, outcome))

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(concurrency):
                    group.create_task(work())
        except ExceptionGroup as errors:  # of arguments: the first one, as the synchronous client raises it
            raise errors.exceptions[0] from None
        return [row for number in sorted(rows) for row in rows[number]]

    def stream(
        self, prompt: Prompt, constraint: ConstraintLike | CompileResult | None = None,
        **options: Unpack[GenerateOptions],
    ) -> AsyncStream[GenerateResult]:
        """Generate as `generate` does, as a stream of events: Compilation, Step, Restart, Done.

        The stream resumes after the last event when a connection breaks. Closing it cancels the job, unless the caller
        gave an idempotency_key.

        >>> events = client.stream("sentence:", F("dog"), max_tokens=16)
        >>> (await events.until_done()).choices[0].satisfied
        True
        """
        request = requests.as_stream(requests.generate(prompt, constraint, options)).request
        # The header is the caller's key: another caller with this key may read the job's result.
        cancel = None if request.headers else functools.partial(self._cancel, None)
        return AsyncStream(EventFollower(self._io, self._retry, request, cancel=cancel))

    async def compile(
        self, constraint: ConstraintLike, *, explain: bool = True, model: str | None = None,
        idempotency_key: str | None = None,
    ) -> CompileResult:
        """Compile and store a constraint; `generate` takes the result as its constraint.

        explain          describe the automaton in sentences and examples
        model            UnknownModelError unless this model is served
        idempotency_key  optional: equal constraints share one compilation in any case

        >>> (await client.compile(F("dog"))).min_tokens
        2
        """
        return await self._request(requests.compile(constraint, explain, model, idempotency_key))

    async def check(
        self, constraint: ConstraintLike, text: str | Sequence[str], *, conjuncts: bool = False
    ) -> CheckResult:
        """Check whether a text satisfies a constraint, and where it fails.

        text       a str, or the sequence of labels for a constraint over labels
        conjuncts  also check each conjunct of the constraint separately

        >>> (await client.check(F("dog"), "A cat sleeps.")).violated_at
        13
        """
        return await self._request(requests.check(constraint, text, conjuncts))

    async def check_conversation(
        self, policy: Policy, messages: Sequence[Mapping[str, Any]], *, tools: Sequence[Mapping[str, Any]] | None = None
    ) -> PolicyResult:
        """Check a conversation against the rules of a policy. It tells what may come next.

        messages  as in the chat API
        tools     as in the chat API; by default the tools that the messages call

        >>> tools = [{"type": "function", "function": {"name": name}} for name in ("confirm", "delete")]
        >>> (await client.check_conversation(Policy(["precedence(confirm, delete)"]), [], tools=tools)).calls_needed
        0
        """
        return await self._request(requests.apply_policy(policy, tools, messages))

    async def policy_states(self, policy: Policy, tools: Sequence[Mapping[str, Any]]) -> PolicyResult:
        """List the states of a policy.

        >>> tools = [{"type": "function", "function": {"name": name}} for name in ("confirm", "delete")]
        >>> result = await client.policy_states(Policy(["precedence(confirm, delete)"]), tools)
        >>> sorted(result.states[0].tools)
        ['confirm']
        """
        return await self._request(requests.apply_policy(policy, tools, None))

    async def decode(
        self, log_probs: Any, constraint: ConstraintLike, labels: Sequence[str] | None = None,
        **options: Unpack[DecodeOptions],
    ) -> DecodeResult:
        """Find the best sequence of labels under a constraint.

        log_probs  natural logarithms [steps, labels]: nested lists or an array of NumPy or PyTorch; -inf is allowed
                   (None where the option `scorer` names a model of the service)
        labels     the name of each column; None where the constraint has them (`Constraint.over`)
        options    the fields of DecodeOptions

        >>> (await client.decode([[-0.1, -3.0], [-0.1, -2.0]], F("b"), ["a", "b"])).labels
        ('a', 'b')
        """
        return await self._request(requests.decode(log_probs, constraint, labels, options))

    async def submit(
        self, prompt: Prompt, constraint: ConstraintLike | CompileResult | None = None,
        **options: Unpack[GenerateOptions],
    ) -> AsyncJob[GenerateResult]:
        """Start what `generate` does, and return its job at once.

        >>> job = await client.submit("sentence:", F("dog"), max_tokens=16)
        >>> (await job.result(timeout_s=60)).choices[0].satisfied
        True
        """
        return await self._submit(requests.generate(prompt, constraint, options))

    async def submit_compile(
        self, constraint: ConstraintLike, *, explain: bool = True, model: str | None = None,
        idempotency_key: str | None = None,
    ) -> AsyncJob[CompileResult]:
        """Start what `compile` does, and return its job at once.

        >>> job = await client.submit_compile(F("dog"))
        >>> (await job.result(timeout_s=60)).min_tokens
        2
        """
        return await self._submit(requests.compile(constraint, explain, model, idempotency_key))

    async def submit_decode(
        self, log_probs: Any, constraint: ConstraintLike, labels: Sequence[str] | None = None,
        **options: Unpack[DecodeOptions],
    ) -> AsyncJob[DecodeResult]:
        """Start what `decode` does, and return its job at once.

        >>> job = await client.submit_decode([[-0.1, -3.0]], F("b"), ["a", "b"])
        >>> (await job.result(timeout_s=60)).labels
        ('b',)
        """
        return await self._submit(requests.decode(log_probs, constraint, labels, options))

    def job(self, job_id: str) -> AsyncJob[Any]:
        """The job with this id, whichever client started it."""
        return AsyncJob(self, job_id)

    async def automaton(self, hash_or_result: str | Result) -> Automaton:
        """Get the states, distances and transitions of a compiled constraint.

        hash_or_result  the hash, or a result that has it as `automaton`

        >>> (await client.automaton(await client.compile(F("dog")))).start
        0
        """
        return await self._request(requests.automaton(hash_or_result))

    async def automaton_dot(self, hash_or_result: str | Result) -> str:
        """Get the automaton in Graphviz's DOT language.

        >>> (await client.automaton_dot(await client.compile(F("dog"))))[:7]
        'digraph'
        """
        return await self._request(requests.automaton_text(hash_or_result, "dot"))

    async def automaton_svg(self, hash_or_result: str | Result) -> str:
        """Get a picture of the automaton as SVG.

        >>> (await client.automaton_svg(await client.compile(F("dog"))))[:4]
        '<svg'
        """
        return await self._request(requests.automaton_text(hash_or_result, "svg"))

    async def models(self) -> tuple[ModelCard, ...]:
        """List the served models.

        >>> [card.id for card in await client.models()]
        ['captions', 'stories']
        """
        return await self._request(requests.models())

    async def version(self) -> str:
        """Get the version of the service.

        >>> (await client.version()).count(".")
        2
        """
        return await self._request(requests.version())

    async def ready(self) -> Readiness:
        """Ask once whether the service serves requests now, and why not.

        >>> bool(await client.ready())
        True
        """
        try:
            return await self._send(requests.readiness(), _ONCE)
        except NotReadyError as error:
            return Readiness(False, tuple(error.reasons or (error.detail,)))

    async def wait_until_ready(self, timeout_s: float = 120.0) -> None:
        """Wait until the service is ready. After `timeout_s` raises NotReadyError, or ConnectionFailedError.

        >>> await client.wait_until_ready(timeout_s=60)
        """
        ends = self._retry.clock() + timeout_s
        while True:
            try:
                await self._send(requests.readiness(), _ONCE)
                return
            except AbsError as error:
                if not (is_transient(error) or isinstance(error, ConnectionFailedError)) or self._retry.clock() >= ends:
                    raise
            await self._io.sleep(READY_POLL_S)

    async def aclose(self) -> None:
        """Finish pending cancellations of jobs, and close all connections."""
        await self._io.aclose()

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    async def _request(self, call: Call[T]) -> T:
        try:
            return await self._send(call, self._retry)
        except BaseException as error:
            # The caller is interrupted, so no one reads this result.
            if call.own_key and not isinstance(error, Exception):
                self._cancel(call, None)
            raise

    async def _submit(self, call: Call[T]) -> AsyncJob[T]:
        return AsyncJob(self, (await self._request(requests.as_job(call))).id)

    async def _send(self, call: Call[T], retry: Retry) -> T:
        """Send a request until it succeeds or `retry` ends."""
        state = RetryState(retry)
        while True:
            try:
                response = await self._io.send(call.request)
            except httpx2.RequestError as failure:
                error = no_response(failure)
            else:
                if response.is_success:
                    return self._io.endpoint.with_picture(call.read(response))
                error = requests.error_in(response, call.request.body)
            await self._io.sleep(state.wait_or_raise(error))

    def _cancel(self, call: Call[Any] | None, job_id: str | None) -> None:
        """Cancel a job by its id or request, without an error.

        A request that waits for its answer does not know the job's id: sent again with its key, it gets the state of
        the same job.
        """

        async def cancel(job_id: str | None) -> None:
            with contextlib.suppress(Exception):
                if job_id is None and call is not None:
                    state = await self._send(requests.in_short(requests.as_job(call)), _ONCE)
                    # A job that is over needs no cancellation.
                    job_id = None if state.over else state.id
                if job_id is not None:
                    await self._send(requests.in_short(requests.cancellation(job_id)), _ONCE)

        self._io.start(cancel(job_id))
