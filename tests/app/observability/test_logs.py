"""Log records of requests and jobs, without secrets or caller text."""

from __future__ import annotations

import io
import json
import logging
import sys
import threading
from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from app.observability import logs
from app.settings import Settings

SECRETS = ("MARKERPROMPT", "MARKERWORD", "MARKERQUERY", "MARKERHEADER")


@pytest.fixture(autouse=True)
def root() -> Iterator[None]:
    """Restores the level of the root logger after the test."""
    level = logging.getLogger().level
    yield
    logging.getLogger().setLevel(level)


def test_a_slow_reader_of_the_log_delays_no_request(monkeypatch: pytest.MonkeyPatch) -> None:
    class BlockingStream(io.StringIO):
        def write(self, text: str) -> int:
            assert readable.wait(30)
            return super().write(text)

    readable, stream = threading.Event(), BlockingStream()
    monkeypatch.setattr(sys, "stderr", stream)
    with logs.writing(Settings()):
        for number in range(3):
            logging.getLogger("app.a").info("line %d", number)
        readable.set()
    assert [line.rpartition(" ")[2] for line in stream.getvalue().splitlines()] == ["0", "1", "2"]


def test_the_log_ends_with_its_context(capsys: pytest.CaptureFixture[str]) -> None:
    handlers = list(logging.getLogger().handlers)
    with logs.writing(Settings()):
        logging.getLogger("app.a").warning("inside")
    logging.getLogger("app.a").warning("outside")
    assert logging.getLogger().handlers == handlers
    assert [line.rpartition(" ")[2] for line in capsys.readouterr().err.splitlines()] == ["inside"]


def test_every_line_of_json_is_one_object_with_its_fields(capsys: pytest.CaptureFixture[str]) -> None:
    log = logging.getLogger("app.a")
    with logs.writing(Settings.of(log_format="json", log_level="debug")):
        with logs.bound(request_id="r-1", worker=""):
            log.warning("two\nlines of “text”")
            log.info("job_done", extra={"ms": 1.5, "odd": object})
        try:
            raise ValueError("broken")
        except ValueError:
            log.exception("it failed")
    warning, event, error = map(json.loads, capsys.readouterr().err.splitlines())
    assert warning["message"] == "two\nlines of “text”"
    assert warning["level"] == "WARNING" and warning["logger"] == "app.a"
    assert warning["request_id"] == "r-1" and "worker" not in warning
    assert str(warning["time"]).endswith("+00:00")
    assert event["message"] == "job_done" and event["ms"] == 1.5 and event["request_id"] == "r-1"
    assert error["message"] == "it failed" and "ValueError: broken" in str(error["traceback"])
    assert "request_id" not in error


def test_text_log_lines_end_with_their_fields(capsys: pytest.CaptureFixture[str]) -> None:
    log = logging.getLogger("app.a")
    with logs.writing(Settings()), logs.bound(request_id="r-1"):
        log.info("request", extra={"ms": 12.345, "why": "two words"})
        log.debug("hidden")
        try:
            raise ValueError("broken")
        except ValueError:
            log.exception("it failed")
    line, error, *traceback = capsys.readouterr().err.splitlines()
    assert line.endswith('INFO app.a: request ms=12.3 why="two words" request_id=r-1')
    assert error.endswith("ERROR app.a: it failed request_id=r-1") and traceback[-1] == "ValueError: broken"


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
    client: TestClient, capsys: pytest.CaptureFixture[str]
) -> None:
    body = {"prompt": "MARKERPROMPT", "constraint": {"regex": "MARKERWORD (dog|cat)"}, "max_tokens": 40, "beams": 2}
    headers = {"x-request-id": "r-7", "x-other": "MARKERHEADER"}
    with logs.writing(Settings.of(log_format="json", log_level="debug")):
        assert client.post("/generate?a=MARKERQUERY", json=body, headers=headers).status_code == 200
        assert client.post("/compile", json={"constraint": {"regex": "(MARKERWORD"}}).status_code == 422
    text = capsys.readouterr().err
    assert not [secret for secret in SECRETS if secret in text]
    lines = list(map(json.loads, text.splitlines()))
    own_lines = [line for line in lines if line.get("request_id") == "r-7"]
    requests, jobs = ([line for line in own_lines if line["message"] == name] for name in ("request", "job_done"))
    assert [line["route"] for line in requests] == ["/generate"]
    assert requests[0]["status"] == 200 and requests[0]["method"] == "POST"
    assert requests[0]["bytes"] > 100 and requests[0]["ms"] > 0
    assert {line["kind"] for line in jobs} == {"compile", "generate"}
    assert all(line["outcome"] == "ok" and line["job_id"] and line["worker"] for line in jobs)
    refusals = [line for line in lines if line.get("code") == "constraint_syntax"]
    assert [(line["status"], line["route"]) for line in refusals] == [(422, "/compile")]


def test_a_successful_probe_is_not_logged(client: TestClient, capsys: pytest.CaptureFixture[str]) -> None:
    with logs.writing(Settings.of(log_format="json")):
        client.get("/health")
        client.get("/no/such/path/MARKERQUERY")
    (line,) = map(json.loads, capsys.readouterr().err.splitlines())
    assert line["route"] == "other" and line["status"] == 404 and line["code"] == "not_found"


def test_uvicorn_and_libraries_log_no_requests() -> None:
    with logs.writing(Settings.of(log_level="debug")):
        for name in logs.QUIET:
            assert not logging.getLogger(name).isEnabledFor(logging.INFO), name
