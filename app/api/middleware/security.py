"""The checks before every route: size of the header, Host and Origin, keys and their limits.

All of it is decided before the first byte of a body is read.
"""

from __future__ import annotations

import contextlib
import ipaddress
import re
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from app.api.errors import problem
from app.api.middleware.asgi import App, Message, Receive, Send, header, headers_named, id_of_request, send_problem
from app.auth import Key, KeyCharges, KeyRing, RateLimitStatus, bearer, is_public, require_scope, scope_of
from app.errors import (
    Busy,
    CallerError,
    HeadersTooLarge,
    HostRefused,
    MalformedRequest,
    OriginRefused,
    RateLimited,
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
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-resource-policy": b"same-origin",
    b"content-security-policy": STRICT_CSP.encode(),
    b"cache-control": b"no-store",
}


class SecurityMiddleware:
    """ASGI middleware. Sets `owner` and `charges` of the request's state: the name of its key, "" without keys, and
    what charges that key, None without a rate limit.
    """

    def __init__(self, app: App, settings: Settings, ring: KeyRing | None, limiter: Limiter | None) -> None:
        self._app = app
        self._settings = settings
        self._ring, self._limiter = ring, limiter
        self._origins = Origins(settings)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # WebSockets are not served
            return
        name = id_of_request(scope)
        guarded = _HeaderInjector(send, private=self._ring is not None)
        state = scope["state"]
        state["owner"] = ""
        try:
            self._require_small(scope)
            _require_unambiguous(scope)
            self._origins.require(scope)
            async with self._admitted(scope, guarded):
                await self._app(scope, receive, guarded)
        except (CallerError, Busy) as error:
            if guarded.started:  # a second header would corrupt the answer
                raise
            headers = {"connection": "close"} if isinstance(error, HeadersTooLarge | MalformedRequest) else {}
            if isinstance(error, Unauthorized):
                headers["www-authenticate"] = REALM
            if isinstance(error, RateLimited):
                guarded.rate_limit = RateLimitStatus(error.cap, 0, error.retry_after_s)
            await send_problem(guarded, problem(error, name, headers))

    def _require_small(self, scope: Message) -> None:
        """Raises HeadersTooLarge. A server in front may have limits of its own; ours hold behind any."""
        fields, settings = scope["headers"], self._settings
        if len(fields) > settings.header_fields_max:
            raise HeadersTooLarge("header_fields_max", settings.header_fields_max)
        target = len(scope.get("raw_path") or b"") + len(scope.get("query_string") or b"")
        if target + sum(len(name) + len(value) + 4 for name, value in fields) > settings.header_bytes_max:
            raise HeadersTooLarge("header_bytes_max", settings.header_bytes_max)

    @contextlib.asynccontextmanager
    async def _admitted(self, scope: Message, guarded: _HeaderInjector) -> AsyncIterator[None]:
        """Check the key, and hold its concurrency slot during the body.

        Raises Unauthorized, Forbidden, RouteNotFound, MethodNotAllowed, RateLimited.
        """
        method, path = scope["method"], scope["path"]
        if self._ring is None or is_public(method, path, self._settings.public_paths):
            yield
            return
        key, state = self._key(scope, self._ring), scope["state"]
        state["owner"] = key.name
        state["charges"] = KeyCharges(self._limiter, key) if self._limiter else None
        # The scope is checked before the rate limit, so a forbidden request is not counted.
        route_scope = scope_of(method, path)
        require_scope(key, route_scope)
        if self._limiter is None:
            yield
            return
        async with self._limiter.admitted(key, route_scope) as guarded.rate_limit:
            yield

    def _key(self, scope: Message, ring: KeyRing) -> Key:
        values = headers_named(scope, b"authorization")
        if len(values) != 1:
            raise Unauthorized("send one header, Authorization: Bearer abs_...")
        return ring.find(bearer(values[0]))


def _require_unambiguous(scope: Message) -> None:
    """Raises MalformedRequest for another HTTP, and a body with a length and chunks: a proxy may go by the other."""
    if scope.get("http_version", "1.1") not in ("1.0", "1.1"):
        raise MalformedRequest("this service speaks HTTP/1.1")
    if headers_named(scope, b"content-length") and headers_named(scope, b"transfer-encoding"):
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
            message["headers"] = self._headers(list(message.get("headers", [])))
        await self._send(message)

    def _headers(self, headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        fields = [(name.lower(), value) for name, value in headers]
        kind = next((value for name, value in fields if name == b"content-type"), b"")
        safe = dict(_SAFE)
        if kind.startswith(b"image/svg"):  # a picture that is opened by itself keeps its colours
            safe[b"content-security-policy"] = (STRICT_CSP + SVG_STYLED).encode()
        if self._private:
            fields = [(name, _unshared(value) if name == b"cache-control" else value) for name, value in fields]
        present = {name for name, _ in fields}
        fields += [(name, value) for name, value in safe.items() if name not in present]
        return fields + _rate_limit_fields(self.rate_limit)


def _unshared(cache_control: bytes) -> bytes:
    return cache_control.replace(b"public", b"private")


def _rate_limit_fields(status: RateLimitStatus | None) -> list[tuple[bytes, bytes]]:
    if status is None:
        return []
    figures = {"limit": status.cap, "remaining": status.remaining, "reset": status.reset_s}
    return [(f"ratelimit-{name}".encode(), str(figure).encode()) for name, figure in figures.items()]


class Origins:
    """Checks the Host and the Origin of requests.

    A web page can make a browser send requests to services of its network: from its own address, which the Origin
    shows, or through a name of its own that resolves to this service (DNS rebinding), which the Host shows. Without
    `allowed_hosts`, the names that such a page cannot have are accepted: addresses, names without a dot, and the host
    that the service is bound to. With API keys any name is accepted, because no page has a key.
    """

    def __init__(self, settings: Settings) -> None:
        self._hosts = tuple(name.lower() for name in settings.allowed_hosts)
        self._bound = settings.host.lower()
        self._pages = tuple(page.lower() for page in settings.allowed_origins)
        self._any = ANY in self._hosts or bool(settings.keys_file and not self._hosts)

    def require(self, scope: Message) -> None:
        """Raises HostRefused and OriginRefused."""
        host = self._host(scope)
        origin = header(scope, b"origin").lower()
        if origin:
            if origin not in (f"http://{host}", f"https://{host}", *self._pages) or not host:
                raise OriginRefused(
                    "requests from pages of other origins are refused; ABS_ALLOWED_ORIGINS lists those let in"
                )
        elif header(scope, b"sec-fetch-site") not in _OWN_SITE and header(scope, b"sec-fetch-mode") != "navigate":
            raise OriginRefused("requests from pages of other origins are refused")

    def _host(self, scope: Message) -> str:
        """The host that the request names, in lower case; nothing where it names none, as HTTP/1.0 may."""
        values = headers_named(scope, b"host")
        if not values:
            return ""
        match = _HOST.fullmatch(values[0]) if len(values) == 1 else None
        if match is None:
            raise HostRefused("the Host header is not a host")
        if not self._is_allowed(match[1].strip("[]").lower()):
            raise HostRefused("the Host header names another host than this one; ABS_ALLOWED_HOSTS lists those let in")
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
    """Whether only this machine can reach what is bound to `host`."""
    if host.lower() == "localhost":
        return True
    return _is_address(host) and ipaddress.ip_address(host).is_loopback
