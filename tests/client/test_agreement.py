"""Both clients have the same methods and give the same results."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest

from abs_client import (
    AbsError,
    AsyncClient,
    AsyncJob,
    AsyncStream,
    Client,
    F,
    GrammarConstraint,
    Job,
    Keywords,
    Ltlf,
    Policy,
    Retry,
    Stream,
)
from abs_client._io import run
from tests.client.both_clients import KINDS, ask
from tests.client.scripted_server import ANSWER, event, scripted_server, step, stream_reply

PAIRS = [(Client, AsyncClient), (Stream, AsyncStream), (Job, AsyncJob)]
SYNC_NAMES = {
    "aclose": "close", "__aiter__": "__iter__", "__anext__": "__next__", "__aenter__": "__enter__",
    "__aexit__": "__exit__",
}  # fmt: skip
VARYING = {"id", "timings", "compile_ms", "total_ms", "raw", "svg"}  # fields that two equal requests do not share

DOG = F("dog") & Keywords("ball")
POLICY = Policy(["precedence(confirm, delete)"])
TOOLS = [{"type": "function", "function": {"name": name}} for name in ("confirm", "delete")]
CALLS: dict[str, Callable[[Any, str], Any]] = {
    "generate": lambda client, _: client.generate("sentence:", DOG, max_tokens=8, beams=4, n=2, trace=True),
    "generate_rows": lambda client, _: client.generate_rows(["sentence:", "A"], DOG, max_tokens=8, beams=4),
    "stream": lambda client, _: client.stream("sentence:", DOG, max_tokens=8, beams=4, rejected_top_k=2),
    "compile": lambda client, _: client.compile(DOG),
    "check": lambda client, _: client.check(DOG, "a dog", conjuncts=True),
    "check_conversation": lambda client, _: client.check_conversation(POLICY, [], tools=TOOLS),
    "policy_states": lambda client, _: client.policy_states(POLICY, TOOLS),
    "decode": lambda client, _: client.decode([[-0.1, -3.0], [-0.1, -2.0]], F("b"), ["a", "b"]),
    "automaton": lambda client, automaton: client.automaton(automaton),
    "automaton_dot": lambda client, automaton: client.automaton_dot(automaton),
    "automaton_svg": lambda client, automaton: client.automaton_svg(automaton),
    "models": lambda client, _: client.models(),
    "version": lambda client, _: client.version(),
    "ready": lambda client, _: client.ready(),
    "wait_until_ready": lambda client, _: client.wait_until_ready(5.0),
    "job": lambda client, _: client.job("0" * 32).state(),
    "a grammar that does not parse": lambda client, _: client.compile(GrammarConstraint("root ::= (", "gbnf")),
    "a formula that does not parse": lambda client, _: client.compile(Ltlf("F(dog")),
    "a budget that is too small": lambda client, _: client.stream("sentence:", DOG, max_tokens=1),
    "an unknown option": lambda client, _: client.generate("sentence:", DOG, beems=3),
    "a text that is no text": lambda client, _: client.check(DOG, 3),
}  # fmt: skip
SUBMISSIONS: dict[str, Callable[[Any], Any]] = {
    "submit": lambda client: client.submit("sentence:", DOG, max_tokens=8, beams=4),
    "submit_compile": lambda client: client.submit_compile(DOG),
    "submit_decode": lambda client: client.submit_decode([[-0.1, -3.0]], F("b"), ["a", "b"]),
}


@pytest.fixture(scope="module")
def automaton(url: str) -> str:
    with Client(url) as client:
        return client.compile(F("dog")).automaton


def sync_name(text: str) -> str:
    """The synchronous name of a name, type or docstring."""
    words, text = {"aclose": "close", "StopAsyncIteration": "StopIteration"}, text.replace("await ", "")
    return re.sub(r"\w+", lambda word: words.get(word[0], word[0].removeprefix("Async")), text)


def public_members(owner: type) -> dict[str, Any]:
    special = (*SYNC_NAMES, *SYNC_NAMES.values())
    return {name: value for name, value in vars(owner).items() if not name.startswith("_") or name in special}


@pytest.mark.parametrize(("sync_class", "async_class"), PAIRS, ids=[pair[0].__name__ for pair in PAIRS])
def test_both_clients_have_the_same_methods(sync_class: type, async_class: type) -> None:
    sync_members, async_members = public_members(sync_class), public_members(async_class)
    assert {SYNC_NAMES.get(name, name) for name in async_members} == set(sync_members)
    for name, method in async_members.items():
        sync_method = sync_members[SYNC_NAMES.get(name, name)]
        if isinstance(method, property):
            method, sync_method = method.fget, sync_method.fget
        signature, sync_signature = inspect.signature(method), inspect.signature(sync_method)
        assert [*signature.parameters.values()] == [*sync_signature.parameters.values()], name
        assert sync_name(signature.return_annotation) == sync_signature.return_annotation, name
        assert sync_name(inspect.getdoc(method) or "") == (inspect.getdoc(sync_method) or ""), name
        assert not inspect.iscoroutinefunction(sync_method), name
        assert sync_method.__qualname__ == f"{sync_class.__name__}.{SYNC_NAMES.get(name, name)}"


def test_both_clients_have_the_same_parameters() -> None:
    parameters, async_parameters = (inspect.signature(owner).parameters for owner in (Client, AsyncClient))
    for parameter, async_parameter in zip(parameters.values(), async_parameters.values(), strict=True):
        assert (parameter.name, parameter.kind) == (async_parameter.name, async_parameter.kind)
        assert parameter.default == async_parameter.default or parameter.name == "sleep"
        assert all(f"    {parameter.name} " in (owner.__doc__ or "") for owner in (Client, AsyncClient))


def comparable(value: Any) -> Any:
    """The value without the fields that vary between equal requests."""
    if dataclasses.is_dataclass(value):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return type(value), {name: comparable(item) for name, item in fields.items() if name not in VARYING}
    if isinstance(value, dict):
        return {name: comparable(item) for name, item in value.items() if name not in VARYING}
    if isinstance(value, list | tuple):
        return [comparable(item) for item in value]
    return value


def outcome(kind: str, url: str, call: Callable[[Any], Any]) -> Any:
    """The comparable result of a call, or its error."""
    try:
        return comparable(ask(kind, url, call, retry=Retry(tries=1)))
    except (AbsError, TypeError) as error:
        return type(error), str(error), getattr(error, "status", None)


@pytest.mark.parametrize("name", CALLS)
def test_both_clients_give_the_same_result(name: str, url: str, automaton: str) -> None:
    call = CALLS[name]
    sync_outcome, async_outcome = (outcome(kind, url, lambda client: call(client, automaton)) for kind in KINDS)
    assert sync_outcome == async_outcome
    is_error = isinstance(sync_outcome, tuple) and issubclass(sync_outcome[0], Exception)
    assert is_error == (name not in dir(Client) or name == "job")


@pytest.mark.parametrize("name", SUBMISSIONS)
async def test_jobs_of_both_clients_give_the_same_result(name: str, url: str) -> None:
    def run_job() -> tuple[Any, ...]:
        with Client(url) as client:
            job = SUBMISSIONS[name](client)
            result = job.result(timeout_s=60)
            return job.state().state, job.cancel().state, job.events().until_done(), result, repr(client.job(job.id))

    async with AsyncClient(url) as client:
        job = await SUBMISSIONS[name](client)
        result = await job.result(timeout_s=60)
        states = (await job.state()).state, (await job.cancel()).state
        async_outcome = *states, await job.events().until_done(), result, repr(client.job(job.id))
    sync_outcome = await asyncio.to_thread(run_job)
    assert comparable(sync_outcome[:-1]) == comparable(async_outcome[:-1])
    assert sync_outcome[-1].startswith("Job('") and async_outcome[-1].startswith("AsyncJob('")


def test_the_table_of_calls_covers_every_method() -> None:
    methods = {name for name in vars(Client) if not name.startswith("_")}
    assert methods - {"close"} == (set(CALLS) & methods) | set(SUBMISSIONS)


async def test_the_synchronous_client_works_within_a_running_loop() -> None:
    """A notebook runs its cells within a loop."""
    script = stream_reply(step(1), truncated=True), stream_reply(step(2), event("done", ANSWER, "end"))
    waits: list[float] = []
    with scripted_server(*script, *script) as server, Client(server.url, sleep=waits.append) as client:
        assert client.stream("p", F("dog")).until_done().text == "a dog"
        dropped_stream = client.stream("p", F("dog"))
        assert next(dropped_stream) is not None
        del dropped_stream
    assert len(waits) == 1 and [request.method for request in server.requests] == ["POST", "GET", "POST", "DELETE"]
    await asyncio.sleep(0)  # a generator that was left to the loop would be closed here


def test_a_coroutine_that_suspends_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="awaits something besides its Io"):
        run(asyncio.sleep(0))
