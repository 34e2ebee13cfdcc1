"""The address of a service, and its HTTP clients of httpx2."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar

import httpx2

from abs_client._requests import HttpRequest, error_in, hash_of, header_value
from abs_client.errors import ConnectionFailedError
from abs_client.results import Result

T = TypeVar("T")
BASE_URL = "http://127.0.0.1:8000"
READ_S = 330.0  # above the service's default limit of 300 s for the deadline of a request
STREAM_READ_S = 45.0  # the service sends something every 15 s
CONNECT_S, PICTURE_S = 10.0, 5.0
EVENT_BYTES_MAX = 2**26  # the last event holds the whole result


@dataclass(frozen=True)
class Endpoint:
    """The address of a service, its API key, and a timeout.

    base_url  default: ABS_BASE_URL, else http://127.0.0.1:8000
    api_key   default: ABS_API_KEY, else the content of the file ABS_API_KEY_FILE; "" sends none. White space around it
              is removed
    read_s    seconds without data after which a connection counts as dead
    """

    base_url: str | None = None
    api_key: str | None = field(default=None, repr=False)
    read_s: float = READ_S

    def options(self, **options: Any) -> dict[str, Any]:
        """The arguments of an HTTP client. Raises InvalidRequestError for a key that no header can hold."""
        # A file ends in a line break, which no header may hold.
        key = (_key_of_environment() if self.api_key is None else self.api_key).strip()
        headers = {"accept": "application/json, text/event-stream", "user-agent": "abs-client"}
        if key:
            headers["authorization"] = f"Bearer {header_value('the API key', key)}"
        url = self.base_url or os.environ.get("ABS_BASE_URL") or BASE_URL
        timeout = httpx2.Timeout(self.read_s, connect=CONNECT_S)
        return {"base_url": url, "headers": headers, "timeout": timeout, **options}

    def prepare(self, http: httpx2.Client | httpx2.AsyncClient, request: HttpRequest, streams: bool) -> httpx2.Request:
        """The request for httpx2, with its time limits.

        They bound the seconds to connect and the seconds without data.
        """
        read_s = STREAM_READ_S if streams else request.read_s or self.read_s
        # A cancellation has two seconds in all, so connecting may not take longer than reading.
        timeout = httpx2.Timeout(read_s, connect=min(CONNECT_S, read_s))
        headers = {**({} if request.body is None else {"content-type": "application/json"}), **request.headers}
        return http.build_request(
            request.method, request.path, content=request.content, headers=headers, timeout=timeout
        )

    def with_picture(self, value: T) -> T:
        """A Result with the function `svg`, which fetches its picture once. Other values are unchanged."""
        if not isinstance(value, Result):
            return value
        return replace(value, svg=cache(partial(self._fetch_picture, value.automaton)))

    def _fetch_picture(self, automaton: str) -> str:
        """The SVG of an automaton. Raises ConnectionFailedError, AbsError."""
        try:
            # A result outlives its client, and a notebook displays it synchronously: hence a client of its own.
            with httpx2.Client(**self.options(timeout=PICTURE_S)) as http:
                response = http.get(f"/automata/{hash_of(automaton)}.svg")
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise ConnectionFailedError(f"no picture ({type(error).__name__})") from error
        if not response.is_success:
            raise error_in(response, None)
        return response.text


def open_client(kind: Any, options: dict[str, Any]) -> Any:
    """An HTTP client of this class. Raises ConnectionFailedError for an invalid URL."""
    try:
        return kind(**options)
    except httpx2.InvalidURL as error:
        raise ConnectionFailedError(f"{options['base_url']!r} is not a URL ({error})") from error


def _key_of_environment() -> str:
    key, path = os.environ.get("ABS_API_KEY"), os.environ.get("ABS_API_KEY_FILE")
    if key is None and path:
        return Path(path).read_text(encoding="utf-8")
    return key or ""
