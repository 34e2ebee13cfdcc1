"""OpenTelemetry spans of requests and jobs.

Without a provider the API of opentelemetry makes spans that do nothing; the SDK is imported only to export. A span has
sizes and outcomes, never a prompt, a text, a constraint or a key.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from app import __version__
from app.errors import SettingsInvalid
from app.settings import Settings

SERVICE = "abs-server"
EXPORT_S_MAX = 5.0  # timeout of sending a batch of spans, also at the end of the process
SERVER, CONSUMER = SpanKind.SERVER, SpanKind.CONSUMER
_TRACER = trace.get_tracer(SERVICE, __version__)
_W3C = TraceContextTextMapPropagator()
Attribute = str | int | float | bool


@contextlib.contextmanager
def exporting(settings: Settings) -> Iterator[None]:
    """Exports the spans of the body to `otlp_endpoint`, if it is set. The last spans are sent at the end.

    Raises SettingsInvalid if it is set and the extra `otel` is not installed.
    """
    if not settings.telemetry.otlp_endpoint:
        yield
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        advice = "needs packages that are not installed: pip install 'abs-server[otel]'"
        raise SettingsInvalid(f"ABS_OTLP_ENDPOINT {advice}") from None
    provider = trace.get_tracer_provider()
    if not isinstance(provider, TracerProvider):  # else it is the operator's
        resource = Resource.create({"service.name": SERVICE, "service.version": __version__})
        provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        trace.set_tracer_provider(provider)
    url = f"{settings.telemetry.otlp_endpoint.rstrip('/')}/v1/traces"
    processor = BatchSpanProcessor(OTLPSpanExporter(url, timeout=EXPORT_S_MAX))
    provider.add_span_processor(processor)
    try:
        yield
    finally:
        processor.shutdown()  # type: ignore[no-untyped-call]


@contextlib.contextmanager
def span(
    name: str, parent: str = "", kind: SpanKind = SpanKind.INTERNAL, **attributes: Attribute
) -> Iterator[Span]:
    """A span around the body. Its parent is `parent` (a W3C traceparent) or the current span."""
    context = _W3C.extract({"traceparent": parent}) if parent else None
    # Exceptions are not recorded, because their messages may quote a prompt.
    with _TRACER.start_as_current_span(
        name, context, kind, record_exception=False, set_status_on_exception=False
    ) as current:
        note(current, **attributes)
        try:
            yield current
        except BaseException as error:
            fail(current, type(error).__name__)
            raise


def note(current: Span, **attributes: Attribute) -> None:
    """Sets attributes with the prefix `abs.`."""
    current.set_attributes({f"abs.{name}": value for name, value in attributes.items()})


def fail(current: Span, reason: str) -> None:
    """Marks a span as failed. `reason` is the name of an error, never its message, which may quote a prompt."""
    current.set_status(Status(StatusCode.ERROR, reason))


def traceparent() -> str:
    """The W3C traceparent of the current span, empty without one."""
    carrier: dict[str, str] = {}
    _W3C.inject(carrier)
    return carrier.get("traceparent", "")
