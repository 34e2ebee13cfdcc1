"""Writes a process's log to standard error, as text or JSON lines.

The log never holds a caller's input. This module owns the fields that name the request, the job and the worker. Tasks
inherit these fields; a thread must bind them again.
"""

from __future__ import annotations

import contextlib
import json
import logging
import queue
import sys
import threading
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from logging.handlers import QueueHandler, QueueListener

from pythonjsonlogger.core import RESERVED_ATTRS, BaseJsonFormatter, LogData
from pythonjsonlogger.json import JsonFormatter

from app.settings import Settings

QUIET = ("filelock", "httpcore2", "httpx2", "huggingface_hub", "opentelemetry", "redis")  # they log each call
_NAMES = {"levelname": "level", "name": "logger", "exc_info": "traceback"}  # in our lines
FINISH_S_MAX = 1.0
_listeners: list[QueueListener] = []
_bound: ContextVar[Mapping[str, object]] = ContextVar("bound", default={})  # noqa: B039 - never changed in place


@contextlib.contextmanager
def writing(settings: Settings) -> Iterator[None]:
    """Writes the log of this process during the body.

    A line is formatted where it is logged and written by a thread, so a slow reader of the log delays no request.
    """
    lines: queue.SimpleQueue[logging.LogRecord] = queue.SimpleQueue()
    kind = JsonFormatter if settings.telemetry.log_format == "json" else TextFormatter
    handler = QueueHandler(lines)
    unlogged = [*RESERVED_ATTRS, "color_message"]  # uvicorn's message with escape sequences
    fields = ["levelname", "name", "message"]
    handler.setFormatter(kind(fields, rename_fields=_NAMES, timestamp="time", reserved_attrs=unlogged))
    handler.addFilter(_add_bound_fields)
    listener = QueueListener(lines, logging.StreamHandler(sys.stderr))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(settings.telemetry.log_level.upper())
    for name in QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
    listener.start()
    _listeners.append(listener)
    try:
        yield
    finally:
        root.removeHandler(handler)
        _listeners.remove(listener)
        listener.stop()


def finish(s_max: float = FINISH_S_MAX) -> None:
    """Write the lines so far, before a process ends at once. Later lines are lost.

    A slow reader of the log delays the end by at most `s_max` seconds.
    """
    for listener in _listeners:
        stopping = threading.Thread(target=listener.stop, daemon=True)
        stopping.start()
        stopping.join(s_max)


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


def _add_bound_fields(record: logging.LogRecord) -> bool:
    vars(record).update(_bound.get())
    return True


class TextFormatter(BaseJsonFormatter):
    """One text line: time, level, logger, message, then `name=value` for each field."""

    def jsonify_log_record(self, log_data: LogData) -> str:
        fields = dict(log_data)
        head = [fields.pop(name) for name in ("time", "level", "logger", "message")]
        traceback = fields.pop("traceback", None)
        line = "{} {} {}: {}".format(*head) + "".join(f" {name}={_field_text(value)}" for name, value in fields.items())
        return line if traceback is None else f"{line}\n{traceback}"


def _field_text(value: object) -> str:
    """The text of a field. It is quoted if it contains spaces or control characters."""
    text = f"{value:.1f}" if isinstance(value, float) else str(value)
    return text if text.isprintable() and " " not in text else json.dumps(text)
