"""OpenTelemetry spans of requests and jobs. Without an exporter they cost one comparison.

opentelemetry is imported only if an exporter is set. A span has sizes and outcomes, never a prompt, a text, a
constraint or a key.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Literal

from app import __version__
from app.errors import SettingsInvalid
from app.settings import Settings

SERVICE = "abs-server"
EXPORT_S_MAX = 5.0  # timeout of sending a batch of spans, also at the end of the process
Kind = Literal["INTERNAL", "SERVER", "CONSUMER"]
_tracer: Any = None  # of this process; None without an exporter


class Span:
    """A span that can be changed; does nothing without an exporter."""

    def __init__(self, inner: Any = None) -> None:
        self._inner = inner

    def note(self, **attributes: str | int | float | bool) -> None:
        """Sets attributes with the prefix `abs.`."""
        if self._inner is not None:
            self._inner.set_attributes({f"abs.{name}": value for name, value in attributes.items()})

    def rename(self, name: str) -> None:
        """Changes the name of the span."""
        if self._inner is not None:
            self._inner.update_name(name)

    def fail(self, reason: str) -> None:
        """Marks the span as failed. `reason` is the name of an error, never its message, which may quote a prompt."""
        if self._inner is not None:
            from opentelemetry.trace import Status, StatusCode

            self._inner.set_status(Status(StatusCode.ERROR, reason))


_NO_SPAN = Span()


@contextlib.contextmanager
def exporting(settings: Settings) -> Iterator[None]:
    """Exports the spans of the body to `otlp_endpoint`, if it is set. The last spans are sent at the end.

    Raises SettingsInvalid if it is set and the extra `otel` is not installed.
    """
    global _tracer
    if not settings.telemetry.otlp_endpoint:
        yield
        return
    provider = _provider(settings)
    before, _tracer = _tracer, provider.get_tracer(SERVICE, __version__)
    try:
        yield
    finally:
        _tracer = before
        provider.shutdown()


def _provider(settings: Settings) -> Any:
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        advice = "needs packages that are not installed: pip install 'abs-server[otel]'"
        raise SettingsInvalid(f"ABS_OTLP_ENDPOINT {advice}") from None
    resource = Resource.create({"service.name": SERVICE, "service.version": __version__})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    exporter = OTLPSpanExporter(f"{settings.telemetry.otlp_endpoint.rstrip('/')}/v1/traces", timeout=EXPORT_S_MAX)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider


@contextlib.contextmanager
def span(
    name: str, parent: str = "", kind: Kind = "INTERNAL", **attributes: str | int | float | bool
) -> Iterator[Span]:
    """A span around the body. Its parent is `parent` (a W3C traceparent) or the current span."""
    if _tracer is None:
        yield _NO_SPAN
        return
    from opentelemetry.trace import SpanKind
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    context = TraceContextTextMapPropagator().extract({"traceparent": parent}) if parent else None
    with _tracer.start_as_current_span(
        name, context, SpanKind[kind], record_exception=False, set_status_on_exception=False
    ) as inner:
        current = Span(inner)
        current.note(**attributes)
        try:
            yield current
        except BaseException as error:
            current.fail(type(error).__name__)
            raise


def traceparent() -> str:
    """The W3C traceparent of the current span, empty without an exporter."""
    if _tracer is None:
        return ""
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    return carrier.get("traceparent", "")
