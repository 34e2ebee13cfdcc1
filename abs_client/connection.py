"""Where the service is and how it is spoken to: what both clients make their connections of."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar

import httpx2

from abs_client.calls import Reply, Request, hash_of, header_value
from abs_client.errors import ConnectionFailed
from abs_client.results import Result
from abs_client.stories import STREAM_READ_S

T = TypeVar("T")
BASE_URL = "http://127.0.0.1:8000"
READ_S = 330.0  # no answer takes longer: the service's own deadlines end at 300 s unless it is set up otherwise
CONNECT_S, PICTURE_S = 10.0, 5.0
EVENT_BYTES_MAX = 2**26


@dataclass(frozen=True)
class Connection:
    """A service's address, a key where it needs one, and how long nothing may come from it.

    base_url  ABS_BASE_URL where none is given, else http://127.0.0.1:8000
    api_key   ABS_API_KEY, or what is in the file that ABS_API_KEY_FILE names; "" sends none. Space around it is no
              part of it; InvalidRequest is raised where it holds what no header can
    """

    base_url: str | None = None
    api_key: str | None = field(default=None, repr=False)
    read_s: float = READ_S

    def options(self, **further: Any) -> dict[str, Any]:
        """What an HTTP client of httpx2 is made with. Raises InvalidRequest where the key cannot be sent."""
        key = (_key() if self.api_key is None else self.api_key).strip()
        headers = {"accept": "application/json, text/event-stream", "user-agent": "abs-client"}
        if key:
            headers["authorization"] = f"Bearer {header_value('the API key', key)}"
        url = self.base_url or os.environ.get("ABS_BASE_URL") or BASE_URL
        timeout = httpx2.Timeout(self.read_s, connect=CONNECT_S)
        return {"base_url": url, "headers": headers, "timeout": timeout, **further}

    def timeout(self, request: Request, streams: bool = False) -> httpx2.Timeout:
        """How long a request may take to connect, and how long nothing may come."""
        read_s = STREAM_READ_S if streams else request.read_s or self.read_s
        return httpx2.Timeout(read_s, connect=min(CONNECT_S, read_s))

    def shown(self, answer: T) -> T:
        """The answer; a result with the way to its picture."""
        if not isinstance(answer, Result):
            return answer
        return replace(answer, svg=cache(partial(self.picture, answer.automaton)))

    def picture(self, automaton: str) -> str:
        """The SVG of an automaton, by a connection of its own: results outlive clients, and notebooks do not wait.

        Raises ConnectionFailed, AbsError.
        """
        try:
            with httpx2.Client(**self.options(timeout=PICTURE_S)) as http:
                response = http.get(f"/automata/{hash_of(automaton)}.svg")
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise ConnectionFailed(f"no picture ({type(error).__name__})") from error
        if not response.is_success:
            raise reply_of(response).error(None)
        return response.text


def reply_of(response: httpx2.Response) -> Reply:
    """What came back, once its body is read; of an answer of events without one."""
    return Reply(response.status_code, dict(response.headers), response.content if response.is_closed else b"")


def has_events(response: httpx2.Response) -> bool:
    """Whether the body is a stream of events, to be read one by one."""
    return response.is_success and response.headers.get("content-type", "").startswith("text/event-stream")


def opened(kind: Any, options: dict[str, Any]) -> Any:
    """An HTTP client of this kind. Raises ConnectionFailed where the URL is none."""
    try:
        return kind(**options)
    except httpx2.InvalidURL as error:
        raise ConnectionFailed(f"{options['base_url']!r} is not a URL ({error})") from error


def _key() -> str:
    given, file = os.environ.get("ABS_API_KEY"), os.environ.get("ABS_API_KEY_FILE")
    if given is None and file:
        return Path(file).read_text(encoding="utf-8")
    return given or ""
