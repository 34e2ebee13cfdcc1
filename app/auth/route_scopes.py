"""Which key opens which path: one table. What is not in it stays shut."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from app.auth.keys import SCOPES, Key, KeyRing
from app.errors import CallerError, Forbidden, MethodNotAllowed, RouteNotFound, Unauthorized
from app.settings import Settings

_COMPILE, _EITHER, _ANY = ("compile",), ("generate", "compile"), SCOPES
HEALTH = ("GET", "/health")  # the one that needs no key
PAGE, PAGE_FILES = "/", "/static/"  # the playground, and what it is made of


@dataclass(frozen=True, slots=True)
class RouteScope:
    """A path and its method.

    scopes  a key with any of these opens it
    works   it takes a place among the requests that a key may have at once, and counts as one of those per minute;
            what only looks something up takes none, and counts a tenth
    """

    method: str
    path: str
    scopes: tuple[str, ...]
    works: bool = False


@dataclass(frozen=True, slots=True)
class RateLimitStatus:
    """A key's rate limit after a request.

    cap      requests allowed in a minute
    left     requests that remain
    reset_s  seconds until one more is allowed
    """

    cap: int
    left: int
    reset_s: int


ROUTE_SCOPES = (
    RouteScope("POST", "/generate", ("generate",), works=True),
    RouteScope("POST", "/decode", ("generate",), works=True),
    RouteScope("POST", "/compile", _COMPILE, works=True),
    RouteScope("POST", "/check", _COMPILE, works=True),
    RouteScope("GET", "/automata/{automaton}", _EITHER, works=True),  # may make an explanation
    RouteScope("GET", "/automata/{automaton}.dot", _EITHER, works=True),
    RouteScope("GET", "/automata/{automaton}.svg", _EITHER, works=True),
    RouteScope("GET", "/jobs/{job_id}", _EITHER),
    RouteScope("DELETE", "/jobs/{job_id}", _EITHER),
    RouteScope("GET", "/jobs/{job_id}/events", _EITHER, works=True),
    RouteScope("GET", "/v1/models", _EITHER),
    RouteScope("POST", "/v1/completions", ("generate",), works=True),
    RouteScope("POST", "/v1/chat/completions", ("generate",), works=True),
    RouteScope(*HEALTH, _ANY),
    RouteScope("GET", "/ready", _ANY),
    RouteScope("GET", "/version", _ANY),
    RouteScope("GET", "/openapi.json", _ANY),
    RouteScope("GET", "/metrics", ("admin",)),
    RouteScope("GET", PAGE, _ANY),
    RouteScope("GET", PAGE_FILES + "{file}", _ANY),
    RouteScope("GET", PAGE_FILES + "vendor/{file}", _ANY),
)
_PLACE = re.compile(r"\\\{[a-z_]+\\\}")


def _shape(path: str) -> re.Pattern[str]:
    return re.compile(_PLACE.sub("[^/]+", re.escape(path)))


_SHAPES = tuple((door, _shape(door.path)) for door in ROUTE_SCOPES)


def door_to(method: str, path: str) -> RouteScope:
    """The row of a request. Raises RouteNotFound, and MethodNotAllowed where the path has rows of other methods."""
    found = _doors_at(path)
    if not found:
        raise RouteNotFound("there is no such path")
    for door in found:
        if door.method == method:
            return door
    raise not_taken(path)


def not_taken(path: str) -> MethodNotAllowed:
    """The refusal of a method that none of a path's rows has."""
    methods = dict.fromkeys(door.method for door in _doors_at(path))
    return MethodNotAllowed("this path does not take that method", ", ".join(methods))


def _doors_at(path: str) -> list[RouteScope]:
    return [door for door, shape in _SHAPES if shape.fullmatch(path)]


def template_of(path: str) -> str:
    """The path of the first row that fits, with names in place of what differs; empty where none does."""
    return next((door.path for door, shape in _SHAPES if shape.fullmatch(path)), "")


def is_public(method: str, path: str, public_paths: Iterable[str]) -> bool:
    """Whether a request is answered without a key. The playground is open together with the files it is made of."""
    paths = (*public_paths, HEALTH[1])
    return method == "GET" and (path in paths or (PAGE in paths and path.startswith(PAGE_FILES)))


def bearer(authorization: str) -> str:
    """The text of the key that an Authorization header holds. Raises Unauthorized."""
    scheme, _, text = authorization.partition(" ")
    if scheme.lower() != "bearer":
        raise Unauthorized("send the key as Authorization: Bearer abs_...")
    return text.strip()


def opener(settings: Settings) -> Callable[[str, str], bool]:
    """Says whether a path of a worker's port may be read by who sends such an Authorization header.

    Raises SettingsInvalid where there is such a port, and a file of keys that cannot be read.
    """
    ring = KeyRing(Path(settings.keys_file)) if settings.keys_file and settings.metrics_port else None

    def opens(path: str, authorization: str) -> bool:
        if ring is None or is_public("GET", path, settings.public_paths):
            return True
        try:
            require_scope(ring.find(bearer(authorization)), door_to("GET", path))
        except CallerError:
            return False
        return True

    return opens


def require_scope(key: Key, door: RouteScope) -> None:
    """Raises Forbidden, naming the scope, where the key does not open the door."""
    if not set(key.scopes) & set(door.scopes):
        raise Forbidden(" or ".join(door.scopes))
