"""What stands before every route, around an application of one line."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from app.api.middleware.security import SecurityMiddleware
from app.auth import KeyRing, Limiter
from app.settings import Settings
from tests.app.access_keys import stored_key

Answer = tuple[int, dict[str, str], Any]
OPEN, REFUSED = 200, 421


class Inner:
    """The application behind the middleware; it records the requests that reach it."""

    def __init__(self, *headers: tuple[bytes, bytes]) -> None:
        self.seen: list[Any] = []
        self._headers = headers

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.seen.append(scope["state"])
        await send({"type": "http.response.start", "status": 200, "headers": list(self._headers)})
        await send({"type": "http.response.body", "body": b"{}"})


def ask(walls: SecurityMiddleware, method: str = "GET", path: str = "/v1/models", **headers: str) -> Answer:
    """Status, headers and JSON of an answer. Header names are spelt with underscores."""
    fields = [(name.replace("_", "-").lower().encode(), value.encode("latin-1")) for name, value in headers.items()]
    return asyncio.run(response_to(walls, method, path, fields))


async def response_to(walls: SecurityMiddleware, method: str, path: str, fields: list[tuple[bytes, bytes]]) -> Answer:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        raise AssertionError("nothing is to be read of a request")

    scope = {"type": "http", "method": method, "path": path, "raw_path": path.encode(), "query_string": b"",
             "headers": fields}
    await walls(scope, receive, send)
    got = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], got, json.loads(sent[1]["body"])


def walls_of(tmp_path: Path | None = None, inner: Any = None, **settings: Any) -> SecurityMiddleware:
    if tmp_path is None:
        return SecurityMiddleware(inner or Inner(), Settings(**settings), None, None)
    chosen = Settings(keys_file=str(tmp_path / "keys"), **settings)
    return SecurityMiddleware(inner or Inner(), chosen, KeyRing(tmp_path / "keys"), Limiter(chosen))


def made(tmp_path: Path, *scopes: str, **limits: Any) -> str:
    return stored_key(tmp_path / "keys", "anna", *(scopes or ("generate", "compile")), **limits)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", OPEN), ("localhost:8000", OPEN), ("LocalHost", OPEN), ("127.0.0.1:80", OPEN),
        ("[::1]:8000", OPEN), ("10.1.2.3", OPEN), ("api", OPEN), ("api_1:8000", OPEN), ("a.localhost", OPEN),
        ("evil.example", REFUSED),
        ("127.0.0.1.evil.example", REFUSED), ("localhost.evil.example:8000", REFUSED),
        ("localhost@evil.example", REFUSED),
        ("", REFUSED), ("a b", REFUSED), ("a/b", REFUSED), ("localhost:port", REFUSED), ("[::1", REFUSED),
        ("a" * 300, REFUSED), ("localhost.", REFUSED),
    ],
)
def test_a_foreign_host_header_is_refused(host: str, status: int) -> None:
    inner = Inner()
    found, _, body = ask(walls_of(inner=inner), host=host)
    assert found == status
    assert bool(inner.seen) == (status == OPEN)
    if status != OPEN:
        assert body["code"] == "host_refused"
        assert not host or host not in json.dumps(body)


def test_only_allowed_hosts_are_accepted() -> None:
    walls = walls_of(allowed_hosts=("api.example.org", ".example.net"))
    hosts = ("api.example.org", "a.example.net:80", "example.org", "localhost")
    assert [ask(walls, host=host)[0] for host in hosts] == [OPEN, OPEN, REFUSED, REFUSED]
    assert ask(walls_of(allowed_hosts=("*",)), host="any.where")[0] == OPEN
    assert ask(walls_of(host="api.example.org"), host="api.example.org:8000")[0] == OPEN
    assert ask(walls_of())[0] == OPEN, "HTTP/1.0 may name no host"


def test_two_host_headers_are_refused() -> None:
    fields = [(b"host", b"localhost"), (b"host", b"localhost")]
    assert asyncio.run(response_to(walls_of(), "GET", "/v1/models", fields))[0] == REFUSED


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "localhost:8000", "origin": "http://localhost:8000"}, 200),
        ({"host": "localhost:8000", "origin": "https://localhost:8000"}, 200),
        ({"host": "localhost:8000", "origin": "http://localhost:9000"}, 403),
        ({"host": "localhost", "origin": "https://evil.example"}, 403),
        ({"host": "localhost", "origin": "null"}, 403),
        ({"origin": "http://"}, 403),
        ({"host": "localhost", "origin": "https://page.example"}, 200),
        ({"host": "localhost", "sec_fetch_site": "cross-site", "sec_fetch_mode": "no-cors"}, 403),
        ({"host": "localhost", "sec_fetch_site": "same-site", "sec_fetch_mode": "cors"}, 403),
        ({"host": "localhost", "sec_fetch_site": "same-origin", "sec_fetch_mode": "cors"}, 200),
        ({"host": "localhost", "sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate"}, 200),
        ({"host": "localhost", "sec_fetch_site": "none", "sec_fetch_mode": "navigate"}, 200),
    ],
)
def test_requests_of_other_origins_are_refused(headers: dict[str, str], status: int) -> None:
    inner = Inner()
    found, got, _ = ask(
        walls_of(inner=inner, allowed_origins=("https://page.example",)), "POST", "/generate", **headers
    )
    assert (found, bool(inner.seen)) == (status, status == 200)
    assert not any(name.startswith("access-control") for name in got)


def test_too_many_or_too_long_headers_are_refused() -> None:
    walls = walls_of(header_fields_max=4, header_bytes_max=200)
    assert ask(walls, **{f"x{number}": "" for number in range(4)})[0] == 200
    many, long = {f"x{number}": "" for number in range(5)}, {"x": "y" * 190}
    for headers, limit in ((many, "header_fields_max"), (long, "header_bytes_max")):
        status, got, body = ask(walls, **headers)
        assert (status, body["code"], body["limit"]) == (431, "headers_too_large", limit)
        assert got["connection"] == "close"
    assert ask(walls, path="/" + "a" * 200)[0] == 431


def test_ambiguous_body_framing_is_refused() -> None:
    status, got, body = ask(walls_of(), "POST", "/generate", content_length="3", transfer_encoding="chunked")
    assert (status, body["code"], got["connection"]) == (400, "malformed_request", "close")


def test_security_headers_are_defaults_that_routes_may_override() -> None:
    for status, got, _ in (ask(walls_of()), ask(walls_of(), host="evil.example")):
        assert got["x-content-type-options"] == "nosniff", status
        assert got["content-security-policy"] == "default-src 'none'; frame-ancestors 'none'"
        assert (got["referrer-policy"], got["cache-control"]) == ("no-referrer", "no-store")
    own = Inner((b"Cache-Control", b"public, max-age=60"), (b"Content-Security-Policy", b"default-src 'self'"))
    _, got, _ = ask(walls_of(inner=own))
    assert (got["cache-control"], got["content-security-policy"]) == ("public, max-age=60", "default-src 'self'")
    _, got, _ = ask(walls_of(inner=Inner((b"content-type", b"image/svg+xml"))))
    assert got["content-security-policy"].endswith("style-src 'unsafe-inline'")


def test_a_response_without_fields_gets_the_security_headers() -> None:
    async def bare(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 204})
        await send({"type": "http.response.body", "body": b"{}"})

    status, got, _ = ask(walls_of(inner=bare))
    assert (status, got["x-content-type-options"], got["cache-control"]) == (204, "nosniff", "no-store")


def test_with_keys_responses_are_not_stored_by_shared_caches(tmp_path: Path) -> None:
    text = made(tmp_path)
    walls = walls_of(tmp_path, Inner((b"cache-control", b"public, max-age=60")))
    assert ask(walls, authorization=f"Bearer {text}")[1]["cache-control"] == "private, max-age=60"


def test_without_a_key_only_health_answers(tmp_path: Path) -> None:
    made(tmp_path)
    inner = Inner()
    walls = walls_of(tmp_path, inner)
    assert ask(walls, path="/health")[0] == 200 and len(inner.seen) == 1
    for method, path in (("GET", "/ready"), ("POST", "/generate"), ("GET", "/nowhere"), ("GET", "/health/"),
                         ("HEAD", "/health"), ("POST", "/health"), ("OPTIONS", "/generate"), ("GET", "/openapi.json")):
        status, got, body = ask(walls, method, path)
        assert (status, body["code"], got["www-authenticate"]) == (401, "unauthorized", 'Bearer realm="abs"'), path
    assert len(inner.seen) == 1
    assert ask(walls_of(tmp_path, public_paths=("/ready",)), path="/ready")[0] == 200


@pytest.mark.parametrize(
    "given", ["", "Bearer", "Bearer ", "Basic YTpi", "bearer abs_MARKER", "Bearer {} {}", "{}", "Token {}"]
)
def test_an_invalid_key_gets_401_and_is_not_repeated(given: str, tmp_path: Path) -> None:
    text = made(tmp_path)
    status, _, body = ask(walls_of(tmp_path), authorization=given.format(text, text))
    assert status == 401
    assert text not in json.dumps(body) and "MARKER" not in json.dumps(body)


def test_two_authorization_headers_are_refused(tmp_path: Path) -> None:
    field = (b"authorization", b"Bearer " + made(tmp_path).encode())
    assert asyncio.run(response_to(walls_of(tmp_path), "GET", "/v1/models", [field, field]))[0] == 401


def test_a_key_opens_its_scopes_and_sets_the_owner(tmp_path: Path) -> None:
    text = made(tmp_path, "compile")
    inner = Inner()
    walls = walls_of(tmp_path, inner)
    assert ask(walls, "POST", "/compile", authorization=f"bearer {text}")[0] == 200
    assert inner.seen[0]["owner"] == "anna"
    status, _, body = ask(walls, "POST", "/generate", authorization=f"Bearer {text}")
    assert (status, body["code"], body["scope"]) == (403, "forbidden", "generate")
    assert ask(walls, "GET", "/metrics", authorization=f"Bearer {text}")[0] == 403
    assert ask(walls, "GET", "/nowhere", authorization=f"Bearer {text}")[0] == 404
    status, got, _ = ask(walls, "PUT", "/compile", authorization=f"Bearer {text}")
    assert (status, got["allow"]) == (405, "POST")
    assert len(inner.seen) == 1


def test_without_keys_requests_have_no_owner() -> None:
    inner = Inner()
    assert ask(walls_of(inner=inner), "POST", "/generate", authorization="Bearer whatever")[0] == 200
    assert inner.seen[0]["owner"] == ""


def test_a_rate_limited_key_gets_a_retry_time(tmp_path: Path) -> None:
    text = made(tmp_path, requests_per_minute=2)

    async def scenario() -> list[Answer]:
        walls, field = walls_of(tmp_path), (b"authorization", f"Bearer {text}".encode())
        return [await response_to(walls, "POST", "/generate", [field]) for _ in range(3)]

    first, second, third = asyncio.run(scenario())
    assert (first[0], first[1]["ratelimit-limit"], first[1]["ratelimit-remaining"]) == (200, "2", "1")
    assert second[1]["ratelimit-remaining"] == "0" and 1 <= int(second[1]["ratelimit-reset"]) <= 60
    status, got, body = third
    assert (status, body["code"], body["limit"], body["cap"]) == (429, "rate_limited", "requests_per_minute", 2)
    assert got["retry-after"] == got["ratelimit-reset"] == str(body["retry_after_s"])
    assert got["ratelimit-remaining"] == "0"


async def test_a_request_holds_its_slot_until_it_is_answered(tmp_path: Path) -> None:
    text = made(tmp_path, concurrency_max=1)
    let_go, arrived = asyncio.Event(), asyncio.Event()

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        arrived.set()
        await let_go.wait()
        await Inner()(scope, receive, send)

    walls, field = walls_of(tmp_path, slow), (b"authorization", f"Bearer {text}".encode())
    first = asyncio.create_task(response_to(walls, "POST", "/generate", [field]))
    await arrived.wait()
    status, _, body = await response_to(walls, "POST", "/generate", [field])
    assert (status, body["limit"], body["cap"]) == (429, "concurrency_max", 1)
    let_go.set()
    assert (await first)[0] == 200
    assert (await response_to(walls, "POST", "/generate", [field]))[0] == 200
