"""The checks before every route. They cover the size of the header, Host and Origin, keys and their limits.

All of it is decided before the first byte of a body is read.
"""

from __future__ import annotations

import contextlib
import ipaddress
import re
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.errors import problem
from app.api.middleware.request_log import id_of_request, response_headers
from app.auth import KeyCharges, KeyRing, RateLimitStatus, bearer, is_public, require_scope, scope_of
from app.errors import (
    CallerError,
    HeadersTooLarge,
    HostRefused,
    MalformedRequest,
    OriginRefused,
    RateLimited,
    ServiceBusy,
    Unauthorized,
)
from app.settings import Settings

if TYPE_CHECKING:
    from app.auth import Limiter

ANY = "*"
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,253})(:[0-9]{1,5})?")
_OWN_SITE = ("", "same-origin", "none")
REALM = 'Bearer realm="abs"'
STRICT_CSP, SVG_STYLED = "default-src 'none'; frame-ancestors 'none'", "; style-src 'unsafe-inline'"
_SAFE = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "content-security-policy": STRICT_CSP,
    "cache-control": "no-store",
}


class SecurityMiddleware:
    """ASGI middleware. It sets what the request's state holds of its key.

    owner    the name of the key, "" without keys
    charges  what charges the key; None without a rate limit
    policy   the policy of the key; None without one
    """

    def __init__(self, app: ASGIApp, settings: Settings, ring: KeyRing | None, limiter: Limiter | None) -> None:
        self._app = app
        self._settings = settings
        self._ring, self._limiter = ring, limiter
        self._origins = Origins(settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # WebSockets are not served
            return
        name = id_of_request(scope)
        guarded = _HeaderInjector(send, private=self._ring is not None)
        state = scope["state"]
        state["owner"], state["policy"] = "", None
        try:
            self._require_small(scope)
            _require_unambiguous(scope)
            self._origins.require(scope)
            async with self._admitted(scope, guarded):
                await self._app(scope, receive, guarded)
        except (CallerError, ServiceBusy) as error:
            if guarded.started:  # a second header would corrupt the answer
                raise
            headers = {"connection": "close"} if isinstance(error, HeadersTooLarge | MalformedRequest) else {}
            if isinstance(error, Unauthorized):
                headers["www-authenticate"] = REALM
            if isinstance(error, RateLimited):
                guarded.rate_limit = RateLimitStatus(error.cap, 0, error.retry_after_s)
            await problem(error, name, headers)(scope, receive, guarded)

    def _require_small(self, scope: Scope) -> None:
        """Raises HeadersTooLarge. A server in front may have limits of its own; ours hold behind any."""
        fields, settings = scope["headers"], self._settings
        if len(fields) > settings.server.header_fields_max:
            raise HeadersTooLarge("header_fields_max", settings.server.header_fields_max)
        target = len(scope.get("raw_path") or b"") + len(scope.get("query_string") or b"")
        if target + sum(len(name) + len(value) + 4 for name, value in fields) > settings.server.header_bytes_max:
            raise HeadersTooLarge("header_bytes_max", settings.server.header_bytes_max)

    @contextlib.asynccontextmanager
    async def _admitted(self, scope: Scope, guarded: _HeaderInjector) -> AsyncIterator[None]:
        """Check the key, and hold its concurrency slot during the body.

        Raises Unauthorized, Forbidden, RouteNotFound, MethodNotAllowed, RateLimited.
        """
        method, path = scope["method"], scope["path"]
        if self._ring is None or is_public(method, path, self._settings.auth.public_paths):
            yield
            return
        headers = Headers(scope=scope)
        # Anthropic's clients send the second field.
        keys = [*map(bearer, headers.getlist("authorization")), *headers.getlist("x-api-key")]
        if len(keys) != 1:
            advice = "send one key: Authorization: Bearer abs_..., or x-api-key: abs_..."
            raise Unauthorized(f"the request has {'several API keys' if keys else 'no API key'}: {advice}")
        key, state = self._ring.find(keys[0]), scope["state"]
        state["owner"], state["policy"] = key.name, key.policy
        state["charges"] = KeyCharges(self._limiter, key) if self._limiter else None
        # The scope is checked before the rate limit, so a forbidden request is not counted.
        route_scope = scope_of(method, path)
        require_scope(key, route_scope)
        if self._limiter is None:
            yield
            return
        async with self._limiter.admitted(key, route_scope) as guarded.rate_limit:
            yield


def _require_unambiguous(scope: Scope) -> None:
    """Raises MalformedRequest for a request that a proxy could read differently. That is one of another HTTP version,
    or one with both a length and chunks.
    """
    if scope.get("http_version", "1.1") not in ("1.0", "1.1"):
        raise MalformedRequest("the request is not HTTP/1.1: use HTTP/1.1")
    headers = Headers(scope=scope)
    if "content-length" in headers and "transfer-encoding" in headers:
        raise MalformedRequest("a request has a Content-Length or a Transfer-Encoding, not both")


class _HeaderInjector:
    """A `send` that adds the security headers to an answer.

    private   keys are required, so no shared cache may store an answer
    started   whether the header of the answer is sent
    rate_limit  the key's rate limit, sent in the RateLimit fields
    """

    def __init__(self, send: Send, private: bool) -> None:
        self._send = send
        self._private = private
        self.started = False
        self.rate_limit: RateLimitStatus | None = None

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started = True
            headers = response_headers(message)
            if self._private and "cache-control" in headers:
                shared = ", ".join(headers.getlist("cache-control"))
                headers["cache-control"] = shared.replace("public", "private")
            if headers.get("content-type", "").startswith("image/svg"):  # a picture opened as a page keeps its colours
                headers.setdefault("content-security-policy", STRICT_CSP + SVG_STYLED)
            for name, value in _SAFE.items():
                headers.setdefault(name, value)
            if (status := self.rate_limit) is not None:
                headers["ratelimit-limit"] = str(status.cap)
                headers["ratelimit-remaining"] = str(status.remaining)
                headers["ratelimit-reset"] = str(status.reset_s)
        await self._send(message)


class Origins:
    """Checks the Host and the Origin of requests.

    A web page can make a browser send requests to services of its network: from its own address, which the Origin
    shows, or through a name of its own that resolves to this service (DNS rebinding), which the Host shows. Without
    `allowed_hosts`, the names that such a page cannot have are accepted: addresses, names without a dot, and the host
    that the service is bound to. With API keys any name is accepted, because no page has a key.
    """

    def __init__(self, settings: Settings) -> None:
        self._hosts = tuple(name.lower() for name in settings.auth.allowed_hosts)
        self._bound = settings.server.host.lower()
        self._pages = tuple(page.lower() for page in settings.auth.allowed_origins)
        self._any = ANY in self._hosts or bool(settings.auth.keys_file and not self._hosts)

    def require(self, scope: Scope) -> None:
        """Raises HostRefused and OriginRefused."""
        headers = Headers(scope=scope)
        host = self._host(headers)
        origin = headers.get("origin", "").lower()
        if origin:
            if origin not in (f"http://{host}", f"https://{host}", *self._pages) or not host:
                raise OriginRefused(
                    "requests from pages of other origins are refused: add the origin to ABS_ALLOWED_ORIGINS"
                )
        elif headers.get("sec-fetch-site", "") not in _OWN_SITE and headers.get("sec-fetch-mode") != "navigate":
            raise OriginRefused("requests from pages of other origins are refused")

    def _host(self, headers: Headers) -> str:
        """The host of the request in lower case. It is empty if there is none, which HTTP/1.0 permits."""
        values = headers.getlist("host")
        if not values:
            return ""
        match = _HOST.fullmatch(values[0]) if len(values) == 1 else None
        if match is None:
            raise HostRefused("the Host header is not a host")
        if not self._is_allowed(match[1].strip("[]").lower()):
            raise HostRefused("the Host header names another host: add it to ABS_ALLOWED_HOSTS")
        return values[0].lower()

    def _is_allowed(self, name: str) -> bool:
        if self._any:
            return True
        if self._hosts:
            return any(name == host or (host.startswith(".") and name.endswith(host)) for host in self._hosts)
        return "." not in name or name.endswith(".localhost") or name == self._bound or _is_address(name)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a socket bound to `host`."""
    if host.lower() == "localhost":
        return True
    return _is_address(host) and ipaddress.ip_address(host).is_loopback
