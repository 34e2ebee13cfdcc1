"""Retries of requests and their waits, with a scripted service."""

from __future__ import annotations

import email.utils
import time
from typing import Any

import pytest

from abs_client import (
    Client,
    ConnectionFailedError,
    F,
    InvalidRequestError,
    InvalidResponseError,
    NotReadyError,
    QueueFullError,
    RateLimitError,
    RequestError,
    Retry,
    ServerError,
    ServiceUnavailableError,
)
from abs_client._retry import RetryState
from abs_client._transport import Endpoint
from tests.client.both_clients import NO_JITTER, ask, unreachable_url, with_both_clients
from tests.client.scripted_server import ANSWER, NO_REPLY, Reply, answer, event, problem, scripted_server, stream_reply


def generate(client: Any) -> Any:
    return client.generate("p", F("dog"))


@with_both_clients
def test_a_busy_service_is_retried_with_the_same_key(kind: str, waits: list[float]) -> None:
    refusals = [problem(429, "rate_limited", {"retry_after_s": 7}), problem(503, "draining", retry_after="3")]
    with scripted_server(*refusals, answer()) as server:
        assert ask(kind, server.url, generate, waits, retry=NO_JITTER).text == "a dog"
    assert waits == [7, 3]
    keys = {request.headers["idempotency-key"] for request in server.requests}
    assert len(server.requests) == 3 and len(keys) == 1 and len(keys.pop()) > 20
    with scripted_server(answer()) as second_server:
        ask(kind, second_server.url, generate)
    assert second_server.requests[0].headers["idempotency-key"] != server.requests[0].headers["idempotency-key"]


@with_both_clients
def test_connection_failures_are_retried_with_doubling_backoff(kind: str, waits: list[float]) -> None:
    partial_reply = Reply(200, b'{"id"', {"content-type": "application/json"}, truncated=True)
    with scripted_server(NO_REPLY, partial_reply, Reply(502, b"<html>"), NO_REPLY, answer()) as server:
        assert ask(kind, server.url, generate, waits, retry=NO_JITTER).raw["newer"] == {"field": 1}
    assert waits == [0.25, 0.5, 1, 2] and len(server.requests) == 5


@with_both_clients
@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (problem(422, "invalid_request"), InvalidRequestError),
        (problem(500, "internal"), ServerError),
        (Reply(200, b"<html>"), InvalidResponseError),
        (answer([]), InvalidResponseError),
        (answer({name: value for name, value in ANSWER.items() if name != "choices"}), InvalidResponseError),
        (answer({**ANSWER, "choices": [{"text": 3}]}), InvalidResponseError),
        (Reply(307, b"", {"location": "/elsewhere"}), RequestError),
        (Reply(404, b"<html>"), RequestError),
    ],
)  # fmt: skip
def test_permanent_errors_are_not_retried(kind: str, reply: Reply, error: type[Exception]) -> None:
    with scripted_server(reply, answer()) as server, pytest.raises(error):
        ask(kind, server.url, generate, [])
    assert len(server.requests) == 1


@with_both_clients
def test_attempts_and_time_are_bounded(kind: str, waits: list[float]) -> None:
    not_ready = problem(503, "not_ready", {"reasons": ["loading"]})
    with scripted_server(*[not_ready] * 9) as server, pytest.raises(NotReadyError) as caught:
        ask(kind, server.url, generate, waits, retry=Retry(tries=3))
    assert len(server.requests) == 3 and len(waits) == 2 and caught.value.reasons == ["loading"]
    queue_full = problem(429, "queue_full", {"retry_after_s": 300})
    with scripted_server(queue_full) as server, pytest.raises(QueueFullError) as refusal:
        ask(kind, server.url, generate, waits)
    assert len(waits) == 2 and refusal.value.retry_after_s == 300


@with_both_clients
def test_a_connection_error_names_the_address(kind: str, waits: list[float]) -> None:
    with pytest.raises(ConnectionFailedError, match=r"127\.0\.0\.1:9") as caught:
        ask(kind, str(unreachable_url()), generate, waits, retry=Retry(tries=3))
    assert len(waits) == 2 and caught.value.__cause__ is not None
    with pytest.raises(ConnectionFailedError, match="not a URL"):
        ask(kind, "http://[::1", generate)


@with_both_clients
@pytest.mark.parametrize("url", ["ftp://127.0.0.1", "127.0.0.1:8000"])
def test_an_invalid_address_is_not_retried(kind: str, url: str, waits: list[float]) -> None:
    with pytest.raises(ConnectionFailedError):
        ask(kind, url, generate, waits)
    assert not waits


def test_retry_after_may_be_a_date(waits: list[float]) -> None:
    date = email.utils.formatdate(time.time() + 30, usegmt=True)
    with scripted_server(Reply(503, b"", {"retry-after": date}), answer()) as server:
        ask("sync", server.url, generate, waits, retry=NO_JITTER)
    assert 25 < waits[0] <= 30


def test_retry_delays_of_many_clients_are_spread() -> None:
    waits = [RetryState(Retry()).wait_s(10.0) for _ in range(50)]
    assert all(wait is not None and 10 <= wait <= 11 for wait in waits) and len(set(waits)) == 50
    default_waits = [RetryState(Retry()).wait_s() for _ in range(50)]
    assert all(wait is not None and 0.25 <= wait <= 0.5 for wait in default_waits) and len(set(default_waits)) == 50


def test_the_time_limit_includes_request_durations() -> None:
    now = [0.0]
    state = RetryState(Retry(total_s=10, clock=lambda: now[0], random=lambda: 0.0))
    assert state.wait_s(3.0) == 3
    now[0] = 8.0
    assert state.wait_s(3.0) is None
    state.reset()
    assert state.wait_s(3.0) == 3


@with_both_clients
def test_ready_asks_once_and_wait_until_ready_polls(kind: str, waits: list[float]) -> None:
    not_ready = problem(503, "not_ready", {"reasons": ["a worker: loading"]})
    with scripted_server(not_ready) as server:
        readiness = ask(kind, server.url, lambda client: client.ready(), [])
    assert not readiness and readiness.reasons == ("a worker: loading",) and len(server.requests) == 1
    with scripted_server(not_ready, NO_REPLY, Reply(502), answer({"status": "ready"})) as server:
        ask(kind, server.url, lambda client: client.wait_until_ready(), waits)
    assert len(waits) == 3
    with scripted_server(*[problem(503, "storage_down")] * 3) as server, pytest.raises(ServiceUnavailableError):
        ask(kind, server.url, lambda client: client.wait_until_ready(0.0), [])


@with_both_clients
def test_job_polling_backs_off_and_times_out(kind: str) -> None:
    state = {"id": "2" * 32, "kind": "generate", "state": "running", "submitted": 1.0, "attempt": 1, "ahead": 0,
             "result": None, "error": None}  # fmt: skip
    failed_job = {**state, "state": "failed", "error": {"status": 429, "code": "rate_limited", "detail": "d"}}
    cancelled_job = {**state, "state": "cancelled"}
    now = [0.0]

    def clock() -> float:
        now[0] += 10.0
        return now[0]

    def result(client: Any) -> Any:
        return client.job("2" * 32).result(timeout_s=25.0)

    options: dict[str, Any] = {"retry": Retry(clock=clock)}
    with scripted_server(*[answer(state)] * 3) as server, pytest.raises(TimeoutError, match="running after 25 s"):
        ask(kind, server.url, result, [], **options)
    with scripted_server(answer(failed_job)) as server, pytest.raises(RateLimitError):
        ask(kind, server.url, result, [])
    assert len(server.requests) == 1  # the job failed with 429, not the request
    with scripted_server(answer(cancelled_job)) as server, pytest.raises(Exception, match="was cancelled"):
        ask(kind, server.url, result, [])


def test_a_key_is_sent_from_where_the_environment_has_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    (tmp_path / "key").write_text("from-a-file\n", encoding="utf-8")
    with scripted_server(*[answer()] * 4) as server:
        monkeypatch.setenv("ABS_BASE_URL", server.url)
        sources = {"NONE": "", "ABS_API_KEY_FILE": str(tmp_path / "key"), "ABS_API_KEY": " from-a-variable\n"}
        for name, value in sources.items():
            monkeypatch.setenv(name, value)
            with Client() as client:
                generate(client)
        with Client(api_key="given") as client:
            generate(client)
    keys = [request.headers.get("authorization") for request in server.requests]
    assert keys == [None, "Bearer from-a-file", "Bearer from-a-variable", "Bearer given"]


def test_the_repr_of_an_endpoint_omits_its_key() -> None:
    assert "abs_secret" not in repr(Endpoint(api_key="abs_secret"))


@pytest.mark.parametrize("key", ["abs_s\u00e9cret", "abs_se\ncret", "abs_se cret", "abs_se\x00cret"])
def test_a_key_invalid_in_headers_is_refused_without_quoting(key: str) -> None:
    with pytest.raises(InvalidRequestError) as refusal:
        Client("http://127.0.0.1:1", key)
    assert "API key" in str(refusal.value) and "cret" not in str(refusal.value)
    with Client("http://127.0.0.1:1") as client:
        for method in (client.generate, client.submit):
            with pytest.raises(InvalidRequestError, match="idempotency_key"):
                method("p", F("dog"), idempotency_key=key)
        with pytest.raises(InvalidRequestError, match="idempotency_key"):
            client.compile(F("dog"), idempotency_key=key)


@with_both_clients
def test_a_base_url_may_have_a_path(kind: str) -> None:
    with scripted_server(answer(), stream_reply(event("done", ANSWER, "end"))) as server:
        ask(kind, f"{server.url}/behind/a/proxy/", generate)
        ask(kind, f"{server.url}/behind", lambda client: client.stream("p", F("dog")))
    assert [request.path for request in server.requests] == ["/behind/a/proxy/generate", "/behind/generate"]
