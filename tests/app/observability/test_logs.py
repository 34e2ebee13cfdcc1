"""Log records of requests and jobs, without secrets or caller text."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import threading
from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from app.observability import logs
from app.settings import Settings

SECRETS = ("MARKERPROMPT", "MARKERWORD", "MARKERQUERY", "MARKERHEADER")


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    """The root logger, restored after the test."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield root
    root.handlers[:] = handlers
    root.setLevel(level)


def flushed_log(root: logging.Logger, capsys: pytest.CaptureFixture[str]) -> str:
    """The log text, including buffered records."""
    for handler in root.handlers:
        handler.flush()
    return capsys.readouterr().err


def test_log_records_are_buffered_and_warnings_flush_them(root: logging.Logger) -> None:
    class RecordingStream(io.StringIO):
        def write(self, text: str) -> int:
            pieces.append(text)
            return len(text)

    async def scenario() -> None:
        for number in range(3):
            log.info("line %d", number)
        assert pieces == []
        log.warning("look")
        assert pieces.pop().count("\n") == 4, "a warning flushes the records before it"
        log.info("late")
        log.info("later")
        async with asyncio.timeout(30):
            while not pieces:
                await asyncio.sleep(logs.BUFFER_S)
        assert pieces.pop() == "late\nlater\n"
        log.info("left over")

    pieces: list[str] = []
    log = logging.getLogger("app.a")
    root.handlers[:] = [logs.BufferedHandler(RecordingStream())]
    root.setLevel(logging.INFO)
    asyncio.run(scenario())
    assert pieces == []
    log.info("outside")
    assert pieces == ["left over\noutside\n"]


def test_every_line_of_json_is_one_object_with_its_fields(
    root: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    logs.set_up(Settings.of(log_format="json", log_level="debug"))
    log = logging.getLogger("app.a")
    with logs.bound(request_id="r-1", worker=""):
        log.warning("two\nlines of “text”")
        logs.event(log, logging.INFO, "job_done", ms=1.5, odd=object)
    try:
        raise ValueError("broken")
    except ValueError:
        log.exception("it failed")
    warning, event, error = map(json.loads, capsys.readouterr().err.splitlines())
    assert warning["message"] == "two\nlines of “text”"
    assert warning["level"] == "warning" and warning["logger"] == "app.a"
    assert warning["request_id"] == "r-1" and "worker" not in warning
    assert str(warning["time"]).endswith("+00:00")
    assert event["event"] == "job_done" and event["ms"] == 1.5 and "message" not in event
    assert error["message"] == "it failed" and "ValueError: broken" in str(error["traceback"])
    assert "request_id" not in error


def test_text_log_lines_end_with_their_fields(root: logging.Logger, capsys: pytest.CaptureFixture[str]) -> None:
    logs.set_up(Settings())
    with logs.bound(request_id="r-1"):
        logs.event(logging.getLogger("app.a"), logging.INFO, "request", ms=12.345, why="two words")
        logging.getLogger("app.a").debug("hidden")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith('INFO app.a: request request_id=r-1 ms=12.3 why="two words"')


def test_a_field_that_is_bound_stays_in_its_thread() -> None:
    ids: list[str] = []
    with logs.bound(request_id="r-1"):
        thread = threading.Thread(target=lambda: ids.append(logs.current_request()))
        thread.start()
        thread.join()
        assert logs.current_request() == "r-1"
        with logs.bound(request_id="r-2"):
            assert logs.current_request() == "r-2"
        assert logs.current_request() == "r-1"
    assert [*ids, logs.current_request()] == ["", ""]


def test_log_lines_follow_a_request_by_id_without_contents(
    client: TestClient, root: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    logs.set_up(Settings.of(log_format="json", log_level="debug"))
    body = {"prompt": "MARKERPROMPT", "constraint": {"regex": "MARKERWORD (dog|cat)"}, "max_tokens": 40, "beams": 2}
    headers = {"x-request-id": "r-7", "x-other": "MARKERHEADER"}
    assert client.post("/generate?a=MARKERQUERY", json=body, headers=headers).status_code == 200
    assert client.post("/compile", json={"constraint": {"regex": "(MARKERWORD"}}).status_code == 422
    text = flushed_log(root, capsys)
    assert not [secret for secret in SECRETS if secret in text]
    event_lines = [line for line in map(json.loads, text.splitlines()) if "event" in line]
    request_lines = [line for line in event_lines if line.get("request_id") == "r-7"]
    requests, jobs = ([line for line in request_lines if line["event"] == event] for event in ("request", "job_done"))
    assert [line["route"] for line in requests] == ["/generate"]
    assert requests[0]["status"] == 200 and requests[0]["method"] == "POST"
    assert requests[0]["bytes"] > 100 and requests[0]["ms"] > 0
    assert {line["kind"] for line in jobs} == {"compile", "generate"}
    assert all(line["outcome"] == "ok" and line["job_id"] and line["worker"] for line in jobs)
    refusals = [line for line in event_lines if line.get("code") == "constraint_syntax"]
    assert [(line["status"], line["route"]) for line in refusals] == [(422, "/compile")]


def test_a_successful_probe_is_not_logged(client: TestClient, root: logging.Logger,
                                                 capsys: pytest.CaptureFixture[str]) -> None:
    logs.set_up(Settings.of(log_format="json"))
    client.get("/health")
    client.get("/no/such/path/MARKERQUERY")
    (line,) = (json.loads(line) for line in flushed_log(root, capsys).splitlines())
    assert line["route"] == "other" and line["status"] == 404 and line["code"] == "not_found"


def test_uvicorn_and_libraries_log_no_requests(root: logging.Logger) -> None:
    logs.set_up(Settings.of(log_level="debug"))
    for name in logs.QUIET:
        assert not logging.getLogger(name).isEnabledFor(logging.INFO), name
