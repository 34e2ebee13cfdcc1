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
LATE_S = 0.05  # by how much a line may be late that an event loop has to tell, and that is no warning
QUIET = ("coredis", "filelock", "httpcore2", "httpx2", "huggingface_hub", "streaq")  # they tell each call, some whole
_bound: ContextVar[Mapping[str, object]] = ContextVar("bound", default={})  # noqa: B039 - never changed in place


def set_up(settings: Settings) -> None:
    """Have this process write its log as the settings say, in place of whatever was set up before."""
    handler = Together(sys.stderr)
    handler.setFormatter(JsonLines() if settings.log_format == "json" else TextLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]  # those that were there are not ours to close
    root.setLevel(settings.log_level.upper())
    for name in QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)


@contextlib.contextmanager
def bound(**fields: object) -> Iterator[None]:
    """Every line of the body bears these fields, but the empty ones, beside those that were bound before."""
    token = _bound.set({**_bound.get(), **{name: value for name, value in fields.items() if value != ""}})
    try:
        yield
    finally:
        _bound.reset(token)


def current_request() -> str:
    """The id of the request at hand, empty where there is none."""
    return str(_bound.get().get("request_id", ""))


def event(log: logging.Logger, level: int, name: str, **fields: object) -> None:
    """Log something that happened, by a fixed name, with fields of its own."""
    log.log(level, name, extra={FIELDS: fields})


def _fields(record: logging.LogRecord) -> dict[str, object]:
    return {**_bound.get(), **getattr(record, FIELDS, {})}


class Together(logging.StreamHandler[TextIO]):
    """Writes what an event loop says within `LATE_S` at once: on a busy machine each line by itself is dear to all who
    pass it on. Warnings, and what is said elsewhere, are written on the spot, with all that was said before.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._lines: list[str] = []
        self._flushing: asyncio.AbstractEventLoop | None = None  # that will soon

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._lines.append(self.format(record) + self.terminator)
            if record.levelno >= logging.WARNING or (loop := _loop()) is None:
                self.flush()
            elif self._flushing is not loop:
                self._flushing = loop
                loop.call_later(LATE_S, self._flush_late)
        except Exception:
            self.handleError(record)

    def flush(self) -> None:
        """Write what is left to write."""
        with self.lock or contextlib.nullcontext():
            lines, self._lines, self._flushing = self._lines, [], None
            if lines:
                self.stream.write("".join(lines))
            super().flush()

    def _flush_late(self) -> None:
        with contextlib.suppress(ValueError):  # the stream was closed meanwhile
            self.flush()


def _loop() -> asyncio.AbstractEventLoop | None:
    """The event loop of this thread, if it runs one."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


class TextLines(logging.Formatter):
    """One line for people: time, level, logger, message, then `name=value` for each field."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        fields = [f"{name}={_shown(value)}" for name, value in _fields(record).items()]
        return " ".join([super().formatMessage(record), *fields])


class JsonLines(logging.Formatter):
    """One JSON object a line: time (UTC), level, logger, `event` or `message`, the fields, and a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        stamp = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        what = "event" if hasattr(record, FIELDS) else "message"
        line = {"time": stamp, "level": record.levelname.lower(), "logger": record.name, what: record.getMessage()}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps({**_fields(record), **line}, default=str)


def _shown(value: object) -> str:
    """A value of a field; one that would not stand alone is quoted."""
    text = f"{value:.1f}" if isinstance(value, float) else str(value)
    return text if text.isprintable() and " " not in text else json.dumps(text)
