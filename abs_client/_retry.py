"""When to send a request again, and after how long. The clients do the waiting."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import httpx2

from abs_client.errors import AbsError, BusyError, ConnectionFailedError, InvalidResponseError


@dataclass(frozen=True)
class Retry:
    """How often a request that may succeed later is sent again.

    tries          attempts in all; 1 never sends a request again
    total_s        seconds from the first attempt; no wait ends later
    backoff_s      first wait in seconds where the service names none; it doubles with each attempt
    backoff_s_max  the longest such wait in seconds
    clock, random  replace those of the standard library, for tests

    A wait that the service names (`retry_after_s`) is kept and lengthened at random by up to 1 s, so that clients which
    were rejected together do not return together.

    >>> Retry(tries=1)  # never sends a request again
    Retry(tries=1, total_s=120.0, ...)
    """

    tries: int = 8
    total_s: float = 120.0
    backoff_s: float = 0.5
    backoff_s_max: float = 10.0
    clock: Callable[[], float] = field(default=time.monotonic, repr=False)
    random: Callable[[], float] = field(default=random.random, repr=False)


class RetryState:
    """The attempts of one request so far. The first one is counted at the start."""

    def __init__(self, retry: Retry) -> None:
        self._retry = retry
        self.reset()

    def reset(self) -> None:
        """Reset the attempts' count and clock, because the request made progress."""
        self._attempt, self._started = 1, self._retry.clock()

    def wait_s(self, retry_after_s: float | None = None) -> float | None:
        """Count the next attempt and return the seconds before it. None if no attempt is left."""
        retry, jitter = self._retry, self._retry.random()
        if self._attempt >= retry.tries:
            return None
        if retry_after_s is None:
            # Exponential backoff; the jitter takes off up to half of each wait.
            wait = min(retry.backoff_s_max, retry.backoff_s * 2.0 ** (self._attempt - 1)) * (0.5 + jitter / 2)
        else:
            wait = retry_after_s + jitter * min(1.0, 0.1 + retry_after_s / 4)
        # The caller gets the error at once if the wait would end too late.
        if retry.clock() - self._started + wait > retry.total_s:
            return None
        self._attempt += 1
        return wait

    def wait_or_raise(self, error: AbsError, default_s: float | None = None) -> float:
        """The seconds before the next attempt. Raises the error if there is none, or if it would fail alike.

        default_s  wait where the service names none, instead of the backoff
        """
        # A broken connection may hide that the request arrived, but every request of this package is safe to send
        # again. A URL or header that httpx2 itself rejects stays wrong.
        permanent = isinstance(error.__cause__, httpx2.UnsupportedProtocol | httpx2.LocalProtocolError)
        transient = is_transient(error) or (isinstance(error, ConnectionFailedError) and not permanent)
        named_s = getattr(error, "retry_after_s", None)
        wait_s = self.wait_s(default_s if named_s is None else named_s) if transient else None
        if wait_s is None:
            raise error
        return wait_s


def is_transient(error: AbsError) -> bool:
    """Whether the same request may succeed later.

    It may after a BusyError, after a 408 (the body arrived too slowly) and after a 502 (a proxy reached no server).
    """
    return isinstance(error, BusyError) or error.status in (408, 502)


def no_response(failure: httpx2.RequestError) -> AbsError:
    """The error of a request that got no response. Its cause is `failure`."""
    if not isinstance(failure, httpx2.TransportError) or isinstance(failure, httpx2.SSEError):
        error: AbsError = InvalidResponseError(f"the response cannot be read ({type(failure).__name__}: {failure})")
    else:
        try:
            url = str(failure.request.url.copy_with(userinfo=b"", path="/", query=None))
        except RuntimeError:  # raised by httpx2 for an error that was created without a request
            url = "the service"
        # LocalProtocolError may quote the header that it rejects, such as the API key.
        reason = "" if isinstance(failure, httpx2.LocalProtocolError) else f"{failure}"
        cause = f"({type(failure).__name__}: {reason})".replace(": )", ")")
        text = f"no response from {url} {cause}: check the URL, or start the service with abs serve"
        error = ConnectionFailedError(text)
    error.__cause__ = failure
    return error
