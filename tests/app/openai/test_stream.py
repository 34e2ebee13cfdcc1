"""OpenAI streams across worker changes, storage failures and leaving clients."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
from collections.abc import AsyncGenerator, Iterator
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest
from openai import OpenAI

from app.broker import JobEvent
from app.errors import StorageDown, UnknownAutomaton
from app.messages import (
    ChoiceBody,
    GenerateJobResult,
    Job,
    RestartMessage,
    Result,
    StepMessage,
    StepRowBody,
    UsageBody,
    dump,
)
from app.messages.jobs import News
from app.models import open_model_files
from app.openai import stream as streaming
from app.openai.render import CompletionWriter
from app.openai.requests import CompletionRequest
from app.openai.stream import ChunkStream, StreamedAnswer
from app.openai.translate import translate_completion
from app.service import SubmissionContext, SubmittedJob
from app.settings import BUILT_IN_MODEL
from tests.app import fake_handlers
from tests.app.fake_service import fake_service

Story = list[Job | Result | News | Exception]


def step(number: int, text: str, finished: bool = False) -> StepMessage:
    return StepMessage(number, 9 - number, (StepRowBody(text, 0, 0, int(not finished), 0.0, 0.0, -1.0, finished),))


class TellingService:
    """A scripted source of stream events; an error is a storage failure."""

    def __init__(self, scenario: Story, text: str) -> None:
        self.files = open_model_files(BUILT_IN_MODEL)
        self._story, self._text = scenario, text
        self._away = 1
        self.left: list[str | None] = []
        self.read_from: list[str] = []
        self.jobs = SimpleNamespace(
            unsubscribe_soon=lambda *job_ids: self.left.extend(job_ids), events=self.events, result=self.result
        )
        self.constraints = SimpleNamespace(automaton=self._raise_unknown)

    async def _raise_unknown(self, automaton: str) -> Any:
        raise UnknownAutomaton("it was dropped")

    async def events(self, job_id: str, after: str) -> AsyncGenerator[JobEvent, None]:
        self.read_from.append(after)
        for number, news in enumerate(self._story):
            if isinstance(news, Exception):
                if after == str(number - 1):
                    continue
                raise news
            if not after or number > int(after):
                yield JobEvent(str(number), dump(news))

    async def result(self, job_id: str) -> Result:
        if self._away:
            self._away -= 1
            raise StorageDown
        choice = ChoiceBody(self._text, "eos", -1.0, -1.0, True, (), None)
        return GenerateJobResult("0" * 64, (choice,), 5, UsageBody(2, 4, 1), fake_handlers.NO_TIME, (4,))


def events_of(
    scenario: Story, text: str, monkeypatch: pytest.MonkeyPatch, **options: object
) -> tuple[list[str], TellingService]:
    """The data of all events that a client is sent."""
    monkeypatch.setattr(streaming, "STORAGE_RETRY_MS", 1)
    service = TellingService(scenario, text)
    request = CompletionRequest.model_validate({"prompt": "a", "stream": True, "seed": 5, **options})
    translation = translate_completion(request, 64)
    stream_answer = StreamedAnswer(
        service, SubmittedJob("job", math.inf, 1.0, SubmissionContext()), translation,  # type: ignore[arg-type]
        CompletionWriter("job", "captions", translation, 0), usage=False,
    )
    sent_chunks: list[bytes] = []

    async def send(message: Any) -> None:
        sent_chunks.append(message.get("body", b""))

    async def receive() -> Any:
        await asyncio.Event().wait()

    asyncio.run(ChunkStream([stream_answer], "request", {})({"type": "http"}, receive, send))
    lines = b"".join(sent_chunks).decode().splitlines()
    return [line.removeprefix("data: ") for line in lines if line.startswith("data: ")], service


def texts(events: list[str]) -> list[str]:
    return [json.loads(event)["choices"][0]["text"] for event in events if "choices" in event]


@pytest.mark.parametrize("options", [{"seed": 5}, {"seed": None, "beams": 2}], ids=["sample", "search"])
def test_a_restarted_worker_repeats_no_text(options: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    scenario: Story = [
        step(1, "a"), step(2, "a dog"), RestartMessage(2), step(1, "a"), step(2, "a dog"), step(3, "a dog runs"),
    ]
    events, service = events_of(scenario, "a dog runs.", monkeypatch, **options)
    assert texts(events) == ["a", " dog", " runs", "."] and events[-1] == "[DONE]"
    assert service.left == ["job"]


def test_a_retry_with_a_different_answer_ends_in_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario: Story = [step(1, "a dog"), RestartMessage(2), step(1, "a"), step(2, "a cat")]
    events, _ = events_of(scenario, "a cat runs.", monkeypatch)
    assert texts(events) == ["a dog"] and "[DONE]" not in events
    error = json.loads(events[-1])["error"]
    assert (error["code"], error["type"]) == ("cancelled", "server_error")
    assert "discard the partial text" in error["message"]


def test_a_stream_resumes_after_a_storage_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario: Story = [step(1, "a"), step(2, "a dog"), StorageDown(), step(3, "a dog runs")]
    events, service = events_of(scenario, "a dog runs.", monkeypatch)
    assert texts(events) == ["a", " dog", " runs", "."] and events[-1] == "[DONE]"
    assert service.read_from == ["", "1"]


@pytest.fixture
def fake_service_url(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a service with the fake handler of the parameter."""
    with fake_service(monkeypatch, request.param, stream_grace_s=60.0) as url:
        yield url


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("fake_service_url", ["open_endless_steps"], indirect=True)
def test_a_disconnect_cancels_the_request_at_once(fake_service_url: str, stream: bool) -> None:
    body = {"prompt": "a", "max_tokens": 8, "stream": stream}
    patience, route = httpx2.Timeout(60, read=1.0), f"{fake_service_url}/v1/completions"
    with contextlib.suppress(httpx2.ReadTimeout), httpx2.stream("POST", route, json=body, timeout=patience) as response:
        next(response.iter_lines())
    assert fake_handlers.stop_event.wait(60), "no caller can come back"


@pytest.mark.parametrize("fake_service_url", ["open_three_steps"], indirect=True)
def test_the_first_chunk_is_sent_during_generation(fake_service_url: str) -> None:
    with OpenAI(base_url=f"{fake_service_url}/v1", api_key="none", max_retries=0, timeout=60) as ai:
        stream = iter(ai.completions.create(model="captions", prompt="a", stream=True, seed=1))
        assert next(stream).choices[0].text == "dog"
        fake_handlers.go_on.set()
        assert [chunk.choices[0].finish_reason for chunk in stream] == ["stop"]
