"""Spans, logs and metrics of real requests, recorded."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.app.observability import recorded_service
from tests.servers.forkserver import run_process

RUN_S_MAX = 300.0


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a service exported, and its log. The providers of a process cannot be replaced, so it is a process."""
    folder: Path = tmp_path_factory.mktemp("recording")
    package = folder / "recording-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: recording\nVersion: 1.0\n", encoding="utf-8")
    provider = f"[opentelemetry_logger_provider]\nrecording = {recorded_service.__name__}:RecordingLogger\n"
    (package / "entry_points.txt").write_text(provider, encoding="utf-8")
    process = run_process([recorded_service.__name__, str(folder)], os.environ, RUN_S_MAX)
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout) | {"stderr": process.stderr}


def test_requests_succeed_and_fail_under_recording(recording: dict[str, Any]) -> None:
    assert recording["statuses"] == [200, 200, 422, 422, 422, 200, 200, 404, 401, 500]
    names = {span["name"] for span in recording["spans"]}
    assert {"POST /generate", "POST /compile", "POST other", "compile", "generate", "decode"} <= names
    messages = [record["text"] for record in recording["logs"]]
    assert any("RuntimeError" in message for message in messages) and "request" in messages


@pytest.mark.parametrize("signal", ["spans", "logs", "metrics", "stderr"])
def test_no_signal_holds_caller_text_or_a_key(recording: dict[str, Any], signal: str) -> None:
    exported = json.dumps(recording[signal])
    assert recorded_service.MARK not in exported
    assert recording["key"].rpartition("_")[2] not in exported


def test_only_our_spans_are_exported(recording: dict[str, Any]) -> None:
    for span in recording["spans"]:
        assert not span["events"], span["name"]
        assert all(name.startswith("abs.") for name in span["attributes"]), span["attributes"]
    assert recording["metrics"] == "None", "metrics are Prometheus's"
    assert not recording["events"], "logs are the logging module's"
