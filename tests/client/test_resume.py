"""The client resumes broken streams."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from abs_client import (
    AbsError,
    Compilation,
    ConnectionFailedError,
    Done,
    F,
    InvalidResponseError,
    Restart,
    Retry,
    ServerError,
    Step,
    UnknownJobError,
)
from tests.client.both_clients import NO_JITTER, ask, with_both_clients
from tests.client.scripted_server import ANSWER, NO_REPLY, Reply, event, problem, scripted_server, step, stream_reply
from tests.servers.flaky_proxy import FlakyProxy

JOB = "1" * 32
SIZES = {"automaton": "a" * 64, "states": 2, "letters": 2, "token_states": 2, "token_classes": 2, "min_tokens": 2,
         "cached": True, "compile_ms": 0.0}  # fmt: skip
DONE_EVENT = event("done", ANSWER, "end")


def stream(client: Any) -> Any:
    return client.stream("p", F("dog"))


def summaries(events: list[Any]) -> list[Any]:
    return [event.step if isinstance(event, Step) else type(event) for event in events]


@with_both_clients
def test_a_stream_resumes_after_the_last_read_event(kind: str, waits: list[float]) -> None:
    beginning = stream_reply(b"retry: 1500\n\n", event("compiled", SIZES, "1"), step(2), step(3)[:20], truncated=True)
    remainder = stream_reply(step(3), event("unknown", {}, "4"), DONE_EVENT)
    with scripted_server(beginning, NO_REPLY, remainder) as server:
        events = ask(kind, server.url, stream, waits, retry=NO_JITTER)
    assert summaries(events) == [Compilation, 2, 3, Done] and events[-1].result.text == "a dog"
    first, second, third = server.requests
    assert (first.method, first.path, first.body["stream"]) == ("POST", "/generate", True)
    assert "idempotency-key" not in first.headers  # without a key, the service cancels on a disconnect
    for request in (second, third):
        assert (request.method, request.path) == ("GET", f"/jobs/{JOB}/events")
        assert request.headers["last-event-id"] == "2"
    assert waits == [1.5, 1.5]


@with_both_clients
def test_a_handover_reconnects_and_a_restart_is_reported(kind: str, waits: list[float]) -> None:
    reconnect = event("reconnect", {}, retry=500)
    restarted_stream = stream_reply(event("restarted", {"attempt": 2}, "7"), step(8), DONE_EVENT)
    with scripted_server(stream_reply(step(1), reconnect), restarted_stream) as server:
        events = ask(kind, server.url, stream, waits, retry=NO_JITTER)
    assert summaries(events) == [1, Restart, 8, Done] and events[1].attempt == 2
    assert waits == [0.5] and server.requests[1].headers["last-event-id"] == "1"


@with_both_clients
def test_a_failure_before_the_job_id_repeats_the_request(kind: str, waits: list[float]) -> None:
    with scripted_server(NO_REPLY, problem(503, "not_ready", {"retry_after_s": 2}), stream_reply(DONE_EVENT)) as server:
        assert summaries(ask(kind, server.url, stream, waits, retry=NO_JITTER)) == [Done]
    assert [request.path for request in server.requests] == ["/generate"] * 3 and waits == [1.0, 2]


@with_both_clients
def test_an_error_event_raises_and_ends_the_stream(kind: str) -> None:
    error_event = event("error", {"status": 500, "code": "worker_lost", "detail": "d", "attempts": 3}, "end")
    replies = (stream_reply(step(1), error_event), stream_reply(DONE_EVENT))
    with scripted_server(*replies) as server, pytest.raises(ServerError) as caught:
        ask(kind, server.url, stream, [])
    assert caught.value.problem["attempts"] == 3 and len(server.requests) == 1


@with_both_clients
@pytest.mark.parametrize(
    ("script", "error"),
    [
        ([stream_reply(step(1)), problem(404, "unknown_job")], UnknownJobError),
        ([stream_reply(step(1), event("done", {"choices": 3}, "end"))], InvalidResponseError),
        ([stream_reply(event("step", {"step": "x"}, "1"))], InvalidResponseError),
        ([stream_reply(b"event: step\ndata: {\n\n")], InvalidResponseError),
        ([Reply(200, b"{}", {"content-type": "application/json"})], InvalidResponseError),
        ([stream_reply(step(1)), *[NO_REPLY] * 9], ConnectionFailedError),
        ([stream_reply(step(1)), *[stream_reply()] * 9], ConnectionFailedError),
    ],
)  # fmt: skip
def test_a_stream_that_cannot_resume_raises(kind: str, script: list[Reply], error: type[AbsError]) -> None:
    with scripted_server(*script) as server, pytest.raises(error):
        ask(kind, server.url, stream, [], retry=Retry(tries=4))
    assert len(server.requests) <= 5


@with_both_clients
def test_every_event_resets_the_retry_count(kind: str) -> None:
    script = [stream_reply(step(number), truncated=True) for number in range(1, 8)]
    with scripted_server(*script, stream_reply(DONE_EVENT)) as server:
        assert summaries(ask(kind, server.url, stream, [], retry=Retry(tries=2))) == [*range(1, 8), Done]
    assert len(server.requests) == 8


class ResettingProxy(FlakyProxy):
    """A proxy that resets its connection in every third reply piece."""

    def __init__(self, url: str) -> None:
        super().__init__(Path())
        self._upstream, self._pieces = urlsplit(url), 0

    @property
    def url(self) -> str:
        return super().url.replace("redis", "http").removesuffix("/0")

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        assert self._upstream.hostname is not None
        return await asyncio.open_connection(self._upstream.hostname, self._upstream.port)

    def _breaks(self, how: str) -> bool:
        if how != "reply cut":
            return False
        self._pieces += 1
        self.broken[how] += self._pieces % 3 == 0
        return self._pieces % 3 == 0


@pytest.fixture
def proxy(url: str) -> Iterator[ResettingProxy]:
    with ResettingProxy(url) as resetting_proxy:
        yield resetting_proxy


@with_both_clients
def test_a_flaky_connection_repeats_no_event(kind: str, proxy: ResettingProxy, url: str) -> None:
    def events_of(address: str) -> list[Any]:
        retry = Retry(tries=40, backoff_s=0.01)
        constraint = F("dog") & F("ball")
        events: list[Any] = ask(kind, address, lambda c: c.stream("sentence:", constraint, max_tokens=16), retry=retry)
        return events

    events, resumed_events = events_of(url), events_of(proxy.url)
    assert proxy.broken["reply cut"] >= 1
    assert resumed_events[-1].result.text == events[-1].result.text
    steps = [event.step for event in resumed_events if isinstance(event, Step)]
    assert steps == sorted(set(steps)) and set(steps) <= {event.step for event in events if isinstance(event, Step)}
    assert summaries(resumed_events)[0] is Compilation and summaries(resumed_events)[-1] is Done


@with_both_clients
def test_a_plain_request_succeeds_over_a_flaky_connection(kind: str, proxy: ResettingProxy) -> None:
    retry = Retry(tries=40, backoff_s=0.01)
    texts = {
        ask(kind, proxy.url, lambda c: c.generate("sentence:", F("dog"), max_tokens=8, beams=2), retry=retry).text
        for _ in range(4)
    }
    assert len(texts) == 1 and proxy.broken["reply cut"] >= 1
