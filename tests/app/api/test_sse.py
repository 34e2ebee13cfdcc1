"""Server-sent events to a real client on a real socket."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from app.api import sse as stream
from tests.app import fake_handlers
from tests.app.event_stream import events
from tests.app.fake_service import fake_service
from tests.servers.processes import until
from tests.servers.service_process import ServiceProcess

S_MAX = 120.0
KEYWORDS = {"keywords": ["dog", "ball"]}
BODY = {"prompt": "sentence:", "constraint": KEYWORDS, "max_tokens": 16, "beams": 4, "stream": True}


@contextlib.contextmanager
def streaming(url: str, **options: Any) -> Iterator[httpx2.Response]:
    with httpx2.Client(base_url=url, timeout=S_MAX) as http, http.stream("POST", "/generate", json=BODY | options) as r:
        yield r


@pytest.fixture
def model_url(running_service: ServiceProcess) -> str:
    """The URL of a separate process with the built-in model."""
    return running_service.url


@pytest.fixture
def fake_url(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a service with a fake generate handler.

    The parameter of the test names the handler.
    """
    with fake_service(monkeypatch, request.param, stream_grace_s=0.0) as url:
        yield url


three_steps = pytest.mark.parametrize("fake_url", ["open_three_steps"], indirect=True)
endless_steps = pytest.mark.parametrize("fake_url", ["open_endless_steps"], indirect=True)


def test_a_stream_sends_every_step_and_then_the_answer(model_url: str) -> None:
    with streaming(model_url, trace=True) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        stream_events = list(events(response.iter_lines()))
    assert [event.id for event in stream_events] == [*(str(number) for number in range(1, len(stream_events))), "end"]
    assert response.headers["location"] == f"/jobs/{response.headers['x-job-id']}"
    assert stream_events[-1].data["id"] == response.headers["x-job-id"]
    assert [stream_events[0].name, stream_events[-1].name] == ["compiled", "done"]
    steps = [event.data for event in stream_events[1:-1]]
    assert {event.name for event in stream_events[1:-1]} == {"step"}
    assert [step["step"] for step in steps] == list(range(1, len(steps) + 1))
    assert all(step["step"] + step["budget_after"] == BODY["max_tokens"] for step in steps)
    live = [sum(not row["finished"] for row in step["rows"]) for step in steps]
    assert max(live) <= 4 * BODY["beams"] and live[-1] <= BODY["beams"]  # up to four times as many at first
    choice = stream_events[-1].data["choices"][0]
    rows = [row for step in steps for row in step["rows"]]
    final_row = next(row for row in rows if row["finished"] and row["log_prob"] == choice["log_prob"])
    assert final_row["text"].strip() == choice["text"].strip()
    assert (final_row["distance"], final_row["state"]) == (0, choice["trace"][-1]["state"])
    assert len(steps) >= len(choice["trace"])


def test_a_row_of_a_step_continues_its_parent(model_url: str) -> None:
    with streaming(model_url, constraint={"regex": "[a-zäöü ]{3,30}🐕"}, beams=8) as response:
        steps = [event.data["rows"] for event in events(response.iter_lines()) if event.name == "step"]
    assert len(steps) > 3
    for before, after in itertools.pairwise(steps):
        for row in after:
            assert row["text"].rstrip("\ufffd").startswith(before[row["parent"]]["text"].rstrip("\ufffd"))


def test_the_last_event_equals_the_plain_answer(model_url: str) -> None:
    answer = httpx2.post(f"{model_url}/generate", json=BODY | {"stream": False}, timeout=S_MAX).json()
    with streaming(model_url) as response:
        last_event = list(events(response.iter_lines()))[-1].data
    assert last_event["choices"] == answer["choices"]
    assert last_event.keys() == answer.keys()


def test_an_immediate_error_is_a_plain_response(model_url: str) -> None:
    for options, code in (
        ({"constraint": {"regex": "a("}}, "constraint_syntax"),
        ({"max_tokens": 1}, "budget_too_small"),
        ({"beams": 0}, "invalid_request"),
    ):
        with streaming(model_url, **options) as response:
            assert response.status_code == 422
            assert response.headers["content-type"] == "application/problem+json"
            assert json.loads(response.read())["code"] == code


def test_a_worker_that_refuses_at_once_sets_the_status(model_url: str) -> None:
    with streaming(model_url, scope="full", prompt="a cat is", constraint={"not": {"keywords": ["cat"]}}) as response:
        assert response.status_code == 422
        assert json.loads(response.read())["code"] == "prompt_violates"


def test_a_deadline_ends_a_stream(model_url: str) -> None:
    constraint = {"min_words": 100}
    assert httpx2.post(f"{model_url}/compile", json={"constraint": constraint}, timeout=S_MAX).is_success
    with streaming(
        model_url, constraint=constraint, algorithm="abs", max_tokens=128, beams=128, timeout_s=1.5
    ) as response:
        stream_events = list(events(response.iter_lines()))
    assert (stream_events[-1].name, stream_events[-1].data["code"]) == ("error", "deadline")
    assert stream_events[-1].data["request_id"] == response.headers["x-request-id"]


@three_steps
def test_steps_arrive_while_the_generation_runs(fake_url: str) -> None:
    with streaming(fake_url) as response:
        stream_events = events(response.iter_lines())
        assert next(stream_events).name == "step"
        fake_handlers.go_on.set()
        assert [event.name for event in stream_events] == ["step", "step", "done"]


@three_steps
def test_without_a_stream_no_events_are_published(fake_url: str) -> None:
    fake_handlers.go_on.set()
    assert httpx2.post(f"{fake_url}/generate", json=BODY | {"stream": False}, timeout=S_MAX).is_success
    assert fake_handlers.progress_kinds == ["nothing"]
    with streaming(fake_url) as response:
        response.read()
    assert fake_handlers.progress_kinds == ["nothing", "steps"]


@three_steps
def test_a_bug_is_an_error_event_without_details(fake_url: str) -> None:
    fake_handlers.go_on.set()
    with streaming(fake_url, prompt="fail") as response:
        text = response.read().decode()
    assert '"code": "internal"' in text and "MARKER" not in text


@three_steps
def test_an_idle_stream_sends_heartbeats(fake_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "HEARTBEAT_S", 0.02)
    with streaming(fake_url) as response:
        lines = response.iter_lines()
        assert sum(line.startswith(":") for line, _ in zip(lines, range(60), strict=False)) > 3
        fake_handlers.go_on.set()
        assert "event: done" in list(lines)


@endless_steps
def test_a_disconnect_during_a_stream_cancels_its_job(fake_url: str) -> None:
    with streaming(fake_url) as response:
        stream_events = events(response.iter_lines())  # this reference keeps the connection open
        assert [next(stream_events).name for _ in range(5)] == ["step"] * 5
        assert not fake_handlers.stop_event.is_set()
    assert fake_handlers.stop_event.wait(S_MAX)


@endless_steps
def test_a_client_that_reads_nothing_delays_no_other_request(fake_url: str) -> None:
    with streaming(fake_url, prompt="long"):
        until(lambda: fake_handlers.steps_published > 2_000)  # far more than socket buffers hold
        assert httpx2.get(f"{fake_url}/health").is_success
        assert not fake_handlers.stop_event.is_set()
    assert fake_handlers.stop_event.wait(S_MAX)
