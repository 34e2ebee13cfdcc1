"""Server-sent events as a client reads them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Event:
    """One event as it was sent."""

    name: str
    id: str
    data: dict[str, Any]


def events(lines: Iterator[str]) -> Iterator[Event]:
    """The events of a stream, without its comments."""
    fields: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(": ")
        if not line and "event" in fields:
            yield Event(fields["event"], fields.get("id", ""), json.loads(fields["data"]))
        if not line:
            fields = {}
        elif colon and name:
            fields[name] = value


def numbers(stream_events: list[Event]) -> list[int]:
    """The numbers of the steps among events."""
    return [event.data["step"] for event in stream_events if event.name == "step"]
