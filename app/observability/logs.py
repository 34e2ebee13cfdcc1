"""Writes a process's log to standard error, as text or JSON lines.

The log never holds a caller's input. This module owns the fields that name the request, the job and the worker. Tasks
inherit these fields; a thread must bind them again.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import sys
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import TextIO

from app.settings import Settings

FIELDS = "fields"  # the attribute of a record that holds its own fields
BUFFER_S = 0.05  # how long a line below WARNING may be buffered in an event loop
QUIET = ("filelock", "httpcore2", "httpx2", "huggingface_hub", "redis")  # they log each call
_bound: ContextVar[Mapping[str, object]] = ContextVar("bound", default={})  # noqa: B039 - never changed in place


def set_up(settings: Settings) -> None:
    """Configures the log of this process. All earlier handlers are replaced."""
    handler = BufferedHandler(sys.stderr)
    handler.setFormatter(JsonLines() if settings.telemetry.log_format == "json" else TextLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]  # the earlier handlers stay open: other code may own them
    root.setLevel(settings.telemetry.log_level.upper())
    for name in QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)


@contextlib.contextmanager
def bound(**fields: object) -> Iterator[None]:
    """Adds fields to every line of the body, except empty ones."""
    token = _bound.set({**_bound.get(), **{name: value for name, value in fields.items() if value != ""}})
    try:
        yield
    finally:
        _bound.reset(token)


def current_request() -> str:
    """The id of the current request, empty if there is none."""
    return str(_bound.get().get("request_id", ""))


def event(log: logging.Logger, level: int, name: str, **fields: object) -> None:
    """Logs an event by a fixed name, with fields."""
    log.log(level, name, extra={FIELDS: fields})


def _fields(record: logging.LogRecord) -> dict[str, object]:
    return {**_bound.get(), **getattr(record, FIELDS, {})}


class BufferedHandler(logging.StreamHandler[TextIO]):
    """Buffers records for up to `BUFFER_S` when called from an event loop.

    One write for many lines is cheaper for the process and for readers of the log. It flushes at once for WARNING and
    above, and outside an event loop.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._lines: list[str] = []
        self._flushing: asyncio.AbstractEventLoop | None = None  # the loop that has a flush scheduled

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._lines.append(self.format(record) + self.terminator)
            if record.levelno >= logging.WARNING or (loop := _loop()) is None:
                self.flush()
            elif self._flushing is not loop:
                self._flushing = loop
                loop.call_later(BUFFER_S, self._flush_scheduled)
        except Exception:
            self.handleError(record)

    def flush(self) -> None:
        """Writes the buffered lines."""
        with self.lock or contextlib.nullcontext():
            lines, self._lines, self._flushing = self._lines, [], None
            if lines:
                self.stream.write("".join(lines))
            super().flush()

    def _flush_scheduled(self) -> None:
        with contextlib.suppress(ValueError):  # the stream is closed
            self.flush()


def _loop() -> asyncio.AbstractEventLoop | None:
    """The event loop of this thread, if it runs one."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


class TextLines(logging.Formatter):
    """One text line: time, level, logger, message, then `name=value` for each field."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        fields = [f"{name}={_field_text(value)}" for name, value in _fields(record).items()]
        return " ".join([super().formatMessage(record), *fields])


class JsonLines(logging.Formatter):
    """Formats each record as one line of JSON. It has the time (UTC), level, logger, `event` or `message`, the fields,
    and a traceback.
    """

    def format(self, record: logging.LogRecord) -> str:
        stamp = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        what = "event" if hasattr(record, FIELDS) else "message"
        line = {"time": stamp, "level": record.levelname.lower(), "logger": record.name, what: record.getMessage()}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps({**_fields(record), **line}, default=str)


def _field_text(value: object) -> str:
    """The text of a field. It is quoted if it contains spaces or control characters."""
    text = f"{value:.1f}" if isinstance(value, float) else str(value)
    return text if text.isprintable() and " " not in text else json.dumps(text)
