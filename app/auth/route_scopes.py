"""The table of routes with the scopes that permit them. Any other route is rejected."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from app.auth.keys import SCOPES, Key, KeyRing
from app.errors import CallerError, Forbidden, MethodNotAllowed, RouteNotFound, Unauthorized
from app.settings import Settings

_COMPILE, _EITHER, _ANY = ("compile",), ("generate", "compile"), SCOPES
HEALTH = ("GET", "/health")  # needs no key
PAGE, PAGE_FILES = "/", "/static/"  # the playground and its files


@dataclass(frozen=True, slots=True)
class RouteScope:
    """A path and its method.

    scopes          a key with any of these may call it
    counts_as_work  it needs one of the key's concurrency slots, and counts as one request of the rate limit; a
                    look-up needs no slot and counts as a tenth
    """

    method: str
    path: str
    scopes: tuple[str, ...]
    counts_as_work: bool = False


@dataclass(frozen=True, slots=True)
class RateLimitStatus:
    """A key's rate limit after a request.

    cap        requests allowed in a minute
    remaining  requests that remain
    reset_s    seconds until one more is allowed
    """

    cap: int
    remaining: int
    reset_s: int


ROUTE_SCOPES = (
    RouteScope("POST", "/generate", ("generate",), counts_as_work=True),
    RouteScope("POST", "/decode", ("generate",), counts_as_work=True),
    RouteScope("POST", "/compile", _COMPILE, counts_as_work=True),
    RouteScope("POST", "/check", _COMPILE, counts_as_work=True),
    RouteScope("GET", "/automata/{automaton}", _EITHER, counts_as_work=True),  # may make an explanation
    RouteScope("GET", "/automata/{automaton}.dot", _EITHER, counts_as_work=True),
    RouteScope("GET", "/automata/{automaton}.svg", _EITHER, counts_as_work=True),
    RouteScope("GET", "/jobs/{job_id}", _EITHER),
    RouteScope("DELETE", "/jobs/{job_id}", _EITHER),
    RouteScope("GET", "/jobs/{job_id}/events", _EITHER, counts_as_work=True),
    RouteScope("GET", "/v1/models", _EITHER),
    RouteScope("GET", "/v1/models/{model}", _EITHER),
    RouteScope("GET", "/v1/models/{owner}/{model}", _EITHER),  # names of the Hugging Face hub
    RouteScope("POST", "/tokenize", ("generate",), counts_as_work=True),
    RouteScope("POST", "/v1/tokenize", ("generate",), counts_as_work=True),
    RouteScope("POST", "/detokenize", ("generate",), counts_as_work=True),
    RouteScope("POST", "/v1/detokenize", ("generate",), counts_as_work=True),
    RouteScope("POST", "/v1/responses", ("generate",), counts_as_work=True),
    RouteScope("POST", "/v1/messages", ("generate",), counts_as_work=True),
    RouteScope("POST", "/v1/messages/count_tokens", ("generate",), counts_as_work=True),
    RouteScope("POST", "/v1/embeddings", _ANY),
    RouteScope("POST", "/v1/completions", ("generate",), counts_as_work=True),
    RouteScope("POST", "/v1/chat/completions", ("generate",), counts_as_work=True),
    RouteScope(*HEALTH, _ANY),
    RouteScope("GET", "/ready", _ANY),
    RouteScope("GET", "/version", _ANY),
    RouteScope("GET", "/openapi.json", _ANY),
    RouteScope("GET", "/metrics", ("admin",)),
    RouteScope("GET", PAGE, _ANY),
    RouteScope("GET", PAGE_FILES + "{file}", _ANY),
    RouteScope("GET", PAGE_FILES + "{folder}/{file}", _ANY),
)
_PARAMETER = re.compile(r"\\\{[a-z_]+\\\}")


def _shape(path: str) -> re.Pattern[str]:
    return re.compile(_PARAMETER.sub("[^/]+", re.escape(path)))


_SHAPES = tuple((scope, _shape(scope.path)) for scope in ROUTE_SCOPES)


def scope_of(method: str, path: str) -> RouteScope:
    """The row of a request. Raises RouteNotFound, and MethodNotAllowed if the path has only rows of other methods."""
    scopes = _scopes_at(path)  # several rows: one for each method
    if not scopes:
        raise RouteNotFound("there is no such path")
    for scope in scopes:
        if scope.method == method:
            return scope
    raise method_not_allowed(path)


def method_not_allowed(path: str) -> MethodNotAllowed:
    """The error for a method that the path does not have. It lists the allowed methods."""
    methods = dict.fromkeys(scope.method for scope in _scopes_at(path))
    allowed = ", ".join(methods)
    return MethodNotAllowed(f"this path does not allow that method: send {allowed.replace(', ', ' or ')}", allowed)


def _scopes_at(path: str) -> list[RouteScope]:
    return [scope for scope, shape in _SHAPES if shape.fullmatch(path)]


def template_of(path: str) -> str:
    """The path template of the first matching row, empty if none matches."""
    return next((scope.path for scope, shape in _SHAPES if shape.fullmatch(path)), "")


def is_public(method: str, path: str, public_paths: Iterable[str]) -> bool:
    """Whether a request needs no key. If the playground is public, its files are too."""
    paths = (*public_paths, HEALTH[1])
    return method == "GET" and (path in paths or (PAGE in paths and path.startswith(PAGE_FILES)))


def bearer(authorization: str) -> str:
    """The key in an Authorization header. Raises Unauthorized."""
    scheme, _, text = authorization.partition(" ")
    if scheme.lower() != "bearer":
        raise Unauthorized("send the key as Authorization: Bearer abs_...")
    return text.strip()


def metrics_guard(settings: Settings) -> Callable[[str, str], bool]:
    """A function that checks the Authorization header of the metrics port. It decides by header and path.

    Raises SettingsInvalid if the keys file cannot be read.
    """
    keys_file = settings.auth.keys_file if settings.telemetry.metrics_port else ""
    ring = KeyRing(Path(keys_file)) if keys_file else None

    def permits(path: str, authorization: str) -> bool:
        if ring is None or is_public("GET", path, settings.auth.public_paths):
            return True
        try:
            require_scope(ring.find(bearer(authorization)), scope_of("GET", path))
        except CallerError:
            return False
        return True

    return permits


def require_scope(key: Key, scope: RouteScope) -> None:
    """Raises Forbidden if the key has none of the required scopes."""
    if not set(key.scopes) & set(scope.scopes):
        raise Forbidden(" or ".join(scope.scopes))
