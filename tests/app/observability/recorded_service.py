"""A service whose telemetry is recorded and printed.

`python -m tests.app.observability.recorded_service FOLDER` sends requests over HTTP, some of which fail, with the mark
in each input and in the message of an unhandled exception. The SDK records spans and metrics. Its module for logs is
private, so doubles record logs: a handler, and the provider that OTEL_PYTHON_LOGGER_PROVIDER names by an entry point.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import sys
from pathlib import Path

import httpx2
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from app.api import routes
from app.observability import logs
from app.settings import Settings
from tests.app.access_keys import bearer, stored_key
from tests.app.real_server import listening
from tests.servers import quick_start  # noqa: F401  the model is measured once, the sandbox has fewer tables
from tests.servers.small_model import small_model

MARK = "MARKER"
GENERATE = {"prompt": f"{MARK} dog", "constraint": {"regex": "a{2,4}"}, "max_tokens": 20, "beams": 2}
REQUESTS = (
    ("/generate", GENERATE), (f"/generate?{MARK}={MARK}", GENERATE | {"constraint": {"regex": f"({MARK}|a)"}}),
    ("/compile", {"constraint": {"regex": f"({MARK}"}}), ("/compile", {"constraint": {MARK: MARK}}),
    ("/generate", GENERATE | {"max_tokens": MARK}), ("/check", {"constraint": {"regex": "a+"}, "text": MARK}),
    ("/v1/completions", {"model": "captions", "prompt": MARK, "max_tokens": 4}), (f"/{MARK}", {}),
)


EVENTS: list[str] = []  # what libraries send to the provider


class RecordingLogger:
    """A logger of OpenTelemetry and its provider. It keeps what it is sent."""

    def get_logger(self, *arguments: object, **options: object) -> RecordingLogger:
        return self

    def emit(self, *arguments: object, **fields: object) -> None:
        EVENTS.append(f"{arguments} {fields}")


class RecordingHandler(logging.Handler):
    """Keeps what OpenTelemetry exports of each record: message, fields, traceback."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[dict[str, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        fields = {name: str(value) for name, value in vars(record).items()}
        self.records.append(fields | {"text": self.format(record)})


def failing_answer(*arguments: object) -> object:
    """Fails with a message that quotes the prompt and the answer."""
    raise RuntimeError(f"{MARK}: {arguments}") from ValueError(MARK)


def main() -> None:
    """Record the requests and print everything. The folder holds the entry point of the provider of logs."""
    sys.path.insert(0, sys.argv[1])
    os.environ["OTEL_PYTHON_LOGGER_PROVIDER"] = "recording"
    provided = importlib.import_module("tests.app.observability.recorded_service")  # `__main__` is another module
    spans, reader, handler = InMemorySpanExporter(), InMemoryMetricReader(), RecordingHandler()
    tracer_provider = TracerProvider()
    tracer_provider.add_span_processor(SimpleSpanProcessor(spans))
    trace.set_tracer_provider(tracer_provider)
    metrics.set_meter_provider(MeterProvider([reader]))
    logging.getLogger().addHandler(handler)
    keys = Path(sys.argv[1]) / "keys"
    key = stored_key(keys, "anna", "generate", "compile", requests_per_minute=0)
    settings = Settings.of(
        model=small_model(), keys_file=str(keys), log_format="json", log_level="debug", public_paths=("/ready",)
    )
    with (
        logs.writing(settings), listening(settings) as port,
        httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=60, headers=bearer(key)) as http,
    ):
        statuses = [http.post(path, json=body).status_code for path, body in REQUESTS]
        statuses.append(http.post("/generate", json=GENERATE, headers=bearer(f"abs_{MARK}")).status_code)
        routes.answer_of = failing_answer
        statuses.append(http.post("/generate", json=GENERATE).status_code)
    print(json.dumps({
        "statuses": statuses, "spans": [json.loads(span.to_json()) for span in spans.get_finished_spans()],
        "logs": handler.records, "events": provided.EVENTS,
        "metrics": str(reader.get_metrics_data()), "key": key,
    }))


if __name__ == "__main__":
    main()
