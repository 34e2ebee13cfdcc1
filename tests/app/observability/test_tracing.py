"""Spans sent to a local OTLP collector."""

from __future__ import annotations

import gzip
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from app.errors import SettingsInvalid
from app.observability import tracing
from app.settings import Settings
from tests.app.conftest import service_client
from tests.servers.processes import served_by_thread

CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@dataclass
class Collector:
    """The received spans and bytes; `url` is the address."""

    url: str = ""
    spans: list[Span] = field(default_factory=list)
    raw: bytes = b""


@pytest.fixture
def collector() -> Iterator[Collector]:
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            body = gzip.decompress(body) if self.headers.get("content-encoding") == "gzip" else body
            assert self.path == "/v1/traces" and self.headers["content-type"] == "application/x-protobuf"
            collector.raw += body
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                collector.spans += [span for scope in resource.scope_spans for span in scope.spans]
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with served_by_thread(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as collector.url:
        yield collector


def attributes(span: Span) -> dict[str, str]:
    return {item.key: item.value.string_value or str(item.value.int_value) for item in span.attributes}


def test_a_request_and_its_jobs_continue_the_callers_trace(collector: Collector) -> None:
    body = {"prompt": "MARKERPROMPT", "constraint": {"regex": "MARKERWORD a+"}, "max_tokens": 40, "beams": 2}
    with service_client(otlp_endpoint=collector.url) as client:
        headers = {"traceparent": CALLER, "x-request-id": "r-9"}
        assert client.post("/generate", json=body, headers=headers).status_code == 200
    spans = {span.name: span for span in collector.spans if span.trace_id.hex() == CALLER.split("-")[1]}
    request_span, compile_span, generate_span, decode_span = (
        spans[name] for name in ("POST /generate", "compile", "generate", "decode")
    )
    assert request_span.parent_span_id.hex() == CALLER.split("-")[2]
    assert {compile_span.parent_span_id, generate_span.parent_span_id} == {request_span.span_id}
    assert decode_span.parent_span_id == generate_span.span_id
    assert attributes(request_span)["abs.request_id"] == "r-9" and attributes(request_span)["abs.status"] == "200"
    assert attributes(generate_span)["abs.outcome"] == "ok"
    assert attributes(decode_span)["abs.rows"] == "6"  # three rows for each of two beams
    assert b"MARKER" not in collector.raw


def test_a_failed_span_has_the_error_name_without_message(collector: Collector) -> None:
    with tracing.exporting(Settings.of(otlp_endpoint=collector.url)):
        with pytest.raises(ValueError), tracing.span("a", size=1):
            raise ValueError("MARKER of a prompt")
        with tracing.span("b") as span:
            assert tracing.traceparent().startswith("00-")
            tracing.fail(span, "LimitExceeded")
    statuses = {span.name: span.status for span in collector.spans}
    assert statuses["a"] == Status(code=Status.STATUS_CODE_ERROR, message="ValueError")
    assert statuses["b"] == Status(code=Status.STATUS_CODE_ERROR, message="LimitExceeded")
    assert b"MARKER" not in collector.raw
    assert tracing.traceparent() == ""


def test_an_unreachable_collector_delays_no_request() -> None:
    with tracing.exporting(Settings.of(otlp_endpoint="http://127.0.0.1:1")):
        for _ in range(100):
            with tracing.span("a"):
                pass


def test_disabled_tracing_imports_and_propagates_nothing() -> None:
    code = (
        "import sys\n"
        "from app.observability import tracing\n"
        "from app.main import create_app\n"
        "from app.settings import Settings\n"
        "with tracing.exporting(Settings()), tracing.span('a') as span:\n"
        "    tracing.note(span, a=1); tracing.fail(span, 'x'); span.update_name('b')\n"
        "    assert tracing.traceparent() == ''\n"
        "costly = ('opentelemetry.sdk', 'opentelemetry.exporter')\n"
        "assert not [name for name in sys.modules if name.startswith(costly)]\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_missing_tracing_packages_are_named_in_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    settings = Settings.of(otlp_endpoint="http://127.0.0.1:1")
    with pytest.raises(SettingsInvalid, match=r"ABS_OTLP_ENDPOINT.*abs-server\[otel\]"), tracing.exporting(settings):
        raise AssertionError
