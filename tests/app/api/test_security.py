"""The security middleware around a trivial application."""

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
OK, MISDIRECTED = 200, 421


class RecordingApp:
    """The application behind the middleware; it records its requests."""

    def __init__(self, *headers: tuple[bytes, bytes]) -> None:
        self.states: list[Any] = []
        self._headers = headers

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.states.append(scope["state"])
        await send({"type": "http.response.start", "status": 200, "headers": list(self._headers)})
        await send({"type": "http.response.body", "body": b"{}"})


def ask(middleware: SecurityMiddleware, method: str = "GET", path: str = "/v1/models", **headers: str) -> Answer:
    """Status, headers and JSON of an answer.

    Header names are spelt with underscores.
    """
    fields = [(name.replace("_", "-").lower().encode(), value.encode("latin-1")) for name, value in headers.items()]
    return asyncio.run(response_to(middleware, method, path, fields))


async def response_to(
    middleware: SecurityMiddleware, method: str, path: str, fields: list[tuple[bytes, bytes]]
) -> Answer:
    messages: list[Any] = []

    async def send(message: Any) -> None:
        messages.append(message)

    async def receive() -> Any:
        raise AssertionError("the request body was read")

    scope = {"type": "http", "method": method, "path": path, "raw_path": path.encode(), "query_string": b"",
             "headers": fields}
    await middleware(scope, receive, send)
    answer_headers = {name.decode(): value.decode() for name, value in messages[0]["headers"]}
    return messages[0]["status"], answer_headers, json.loads(messages[1]["body"])


def middleware_of(tmp_path: Path | None = None, app: Any = None, **settings: Any) -> SecurityMiddleware:
    if tmp_path is None:
        return SecurityMiddleware(app or RecordingApp(), Settings.of(**settings), None, None)
    key_settings = Settings.of(keys_file=str(tmp_path / "keys"), **settings)
    return SecurityMiddleware(app or RecordingApp(), key_settings, KeyRing(tmp_path / "keys"), Limiter(key_settings))


def add_key(tmp_path: Path, *scopes: str, **limits: Any) -> str:
    return stored_key(tmp_path / "keys", "anna", *(scopes or ("generate", "compile")), **limits)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", OK), ("localhost:8000", OK), ("LocalHost", OK), ("127.0.0.1:80", OK),
        ("[::1]:8000", OK), ("10.1.2.3", OK), ("api", OK), ("api_1:8000", OK), ("a.localhost", OK),
        ("evil.example", MISDIRECTED),
        ("127.0.0.1.evil.example", MISDIRECTED), ("localhost.evil.example:8000", MISDIRECTED),
        ("localhost@evil.example", MISDIRECTED),
        ("", MISDIRECTED), ("a b", MISDIRECTED), ("a/b", MISDIRECTED), ("localhost:port", MISDIRECTED),
        ("[::1", MISDIRECTED), ("a" * 300, MISDIRECTED), ("localhost.", MISDIRECTED),
    ],
)
def test_a_foreign_host_header_is_refused(host: str, status: int) -> None:
    app = RecordingApp()
    answer_status, _, body = ask(middleware_of(app=app), host=host)
    assert answer_status == status
    assert bool(app.states) == (status == OK)
    if status != OK:
        assert body["code"] == "host_refused"
        assert not host or host not in json.dumps(body)


def test_only_allowed_hosts_are_accepted() -> None:
    middleware = middleware_of(allowed_hosts=("api.example.org", ".example.net"))
    hosts = ("api.example.org", "a.example.net:80", "example.org", "localhost")
    assert [ask(middleware, host=host)[0] for host in hosts] == [OK, OK, MISDIRECTED, MISDIRECTED]
    assert ask(middleware_of(allowed_hosts=("*",)), host="any.where")[0] == OK
    assert ask(middleware_of(host="api.example.org"), host="api.example.org:8000")[0] == OK
    assert ask(middleware_of())[0] == OK, "an HTTP/1.0 request may lack a host"


def test_two_host_headers_are_refused() -> None:
    fields = [(b"host", b"localhost"), (b"host", b"localhost")]
    assert asyncio.run(response_to(middleware_of(), "GET", "/v1/models", fields))[0] == MISDIRECTED


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
    app = RecordingApp()
    answer_status, fields, _ = ask(
        middleware_of(app=app, allowed_origins=("https://page.example",)), "POST", "/generate", **headers
    )
    assert (answer_status, bool(app.states)) == (status, status == 200)
    assert not any(name.startswith("access-control") for name in fields)


def test_too_many_or_too_long_headers_are_refused() -> None:
    middleware = middleware_of(header_fields_max=4, header_bytes_max=200)
    assert ask(middleware, **{f"x{number}": "" for number in range(4)})[0] == 200
    many_headers, long_header = {f"x{number}": "" for number in range(5)}, {"x": "y" * 190}
    for headers, limit in ((many_headers, "header_fields_max"), (long_header, "header_bytes_max")):
        status, fields, body = ask(middleware, **headers)
        assert (status, body["code"], body["limit"]) == (431, "headers_too_large", limit)
        assert fields["connection"] == "close"
    assert ask(middleware, path="/" + "a" * 200)[0] == 431


def test_ambiguous_body_framing_is_refused() -> None:
    status, fields, body = ask(middleware_of(), "POST", "/generate", content_length="3", transfer_encoding="chunked")
    assert (status, body["code"], fields["connection"]) == (400, "malformed_request", "close")


def test_security_headers_are_defaults_that_routes_may_override() -> None:
    for status, fields, _ in (ask(middleware_of()), ask(middleware_of(), host="evil.example")):
        assert fields["x-content-type-options"] == "nosniff", status
        assert fields["content-security-policy"] == "default-src 'none'; frame-ancestors 'none'"
        assert (fields["referrer-policy"], fields["cache-control"]) == ("no-referrer", "no-store")
    app = RecordingApp((b"Cache-Control", b"public, max-age=60"), (b"Content-Security-Policy", b"default-src 'self'"))
    _, fields, _ = ask(middleware_of(app=app))
    assert (fields["cache-control"], fields["content-security-policy"]) == ("public, max-age=60", "default-src 'self'")
    _, fields, _ = ask(middleware_of(app=RecordingApp((b"content-type", b"image/svg+xml"))))
    assert fields["content-security-policy"].endswith("style-src 'unsafe-inline'")


def test_a_response_without_fields_gets_the_security_headers() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 204})
        await send({"type": "http.response.body", "body": b"{}"})

    status, fields, _ = ask(middleware_of(app=app))
    assert (status, fields["x-content-type-options"], fields["cache-control"]) == (204, "nosniff", "no-store")


def test_with_keys_responses_are_not_stored_by_shared_caches(tmp_path: Path) -> None:
    text = add_key(tmp_path)
    middleware = middleware_of(tmp_path, RecordingApp((b"cache-control", b"public, max-age=60")))
    assert ask(middleware, authorization=f"Bearer {text}")[1]["cache-control"] == "private, max-age=60"


def test_without_a_key_only_health_answers(tmp_path: Path) -> None:
    add_key(tmp_path)
    app = RecordingApp()
    middleware = middleware_of(tmp_path, app)
    assert ask(middleware, path="/health")[0] == 200 and len(app.states) == 1
    for method, path in (("GET", "/ready"), ("POST", "/generate"), ("GET", "/nowhere"), ("GET", "/health/"),
                         ("HEAD", "/health"), ("POST", "/health"), ("OPTIONS", "/generate"), ("GET", "/openapi.json")):
        status, fields, body = ask(middleware, method, path)
        assert (status, body["code"], fields["www-authenticate"]) == (401, "unauthorized", 'Bearer realm="abs"'), path
    assert len(app.states) == 1
    public = middleware_of(tmp_path, public_paths=("/ready",))
    assert [ask(public, method, "/ready")[0] for method in ("GET", "POST")] == [200, 401]


@pytest.mark.parametrize(
    "authorization", ["", "Bearer", "Bearer ", "Basic YTpi", "bearer abs_MARKER", "Bearer {} {}", "{}", "Token {}"]
)
def test_an_invalid_key_gets_401_and_is_not_repeated(authorization: str, tmp_path: Path) -> None:
    text = add_key(tmp_path)
    status, _, body = ask(middleware_of(tmp_path), authorization=authorization.format(text, text))
    assert status == 401
    assert text not in json.dumps(body) and "MARKER" not in json.dumps(body)


def test_two_authorization_headers_are_refused(tmp_path: Path) -> None:
    field = (b"authorization", b"Bearer " + add_key(tmp_path).encode())
    assert asyncio.run(response_to(middleware_of(tmp_path), "GET", "/v1/models", [field, field]))[0] == 401


def test_a_key_may_stand_in_the_field_of_anthropic(tmp_path: Path) -> None:
    text, app = add_key(tmp_path, "compile"), RecordingApp()
    middleware = middleware_of(tmp_path, app)

    def status_of(*fields: tuple[str, str]) -> int:
        encoded = [(name.encode(), value.encode()) for name, value in fields]
        return asyncio.run(response_to(middleware, "POST", "/compile", encoded))[0]

    assert status_of(("x-api-key", text)) == 200
    assert [state["owner"] for state in app.states] == ["anna"]
    for value in (text[:-1] + "x", f"Bearer {text}", ""):
        assert status_of(("x-api-key", value)) == 401
    for second in (("x-api-key", text), ("authorization", f"Bearer {text}")):
        assert status_of(("x-api-key", text), second) == 401, "which key counts is not left to chance"


def test_a_key_opens_its_scopes_and_sets_the_owner(tmp_path: Path) -> None:
    text = add_key(tmp_path, "compile")
    app = RecordingApp()
    middleware = middleware_of(tmp_path, app)
    assert ask(middleware, "POST", "/compile", authorization=f"bearer {text}")[0] == 200
    assert app.states[0]["owner"] == "anna"
    for method, path, scope in (("POST", "/generate", "generate"), ("GET", "/metrics", "admin")):
        status, _, body = ask(middleware, method, path, authorization=f"Bearer {text}")
        assert (status, body["code"], body["scope"]) == (403, "forbidden", scope) and scope in body["detail"]
    assert ask(middleware, "GET", "/nowhere", authorization=f"Bearer {text}")[0] == 404
    status, fields, _ = ask(middleware, "PUT", "/compile", authorization=f"Bearer {text}")
    assert (status, fields["allow"]) == (405, "POST")
    assert len(app.states) == 1


def test_without_keys_requests_have_no_owner() -> None:
    app = RecordingApp()
    assert ask(middleware_of(app=app), "POST", "/generate", authorization="Bearer whatever")[0] == 200
    assert app.states[0]["owner"] == ""


async def test_a_rate_limited_key_gets_a_retry_time(tmp_path: Path) -> None:
    text = add_key(tmp_path, requests_per_minute=2)
    middleware, field = middleware_of(tmp_path), (b"authorization", f"Bearer {text}".encode())
    first, second, third = [await response_to(middleware, "POST", "/generate", [field]) for _ in range(3)]
    assert (first[0], first[1]["ratelimit-limit"], first[1]["ratelimit-remaining"]) == (200, "2", "1")
    assert second[1]["ratelimit-remaining"] == "0" and 1 <= int(second[1]["ratelimit-reset"]) <= 60
    status, fields, body = third
    assert (status, body["code"], body["limit"], body["cap"]) == (429, "rate_limited", "requests_per_minute", 2)
    assert fields["retry-after"] == fields["ratelimit-reset"] == str(body["retry_after_s"])
    assert fields["ratelimit-remaining"] == "0"


async def test_a_request_holds_its_slot_until_it_is_answered(tmp_path: Path) -> None:
    text = add_key(tmp_path, concurrency_max=1)
    release, arrival = asyncio.Event(), asyncio.Event()

    async def slow_app(scope: Any, receive: Any, send: Any) -> None:
        arrival.set()
        await release.wait()
        await RecordingApp()(scope, receive, send)

    middleware, field = middleware_of(tmp_path, slow_app), (b"authorization", f"Bearer {text}".encode())
    first = asyncio.create_task(response_to(middleware, "POST", "/generate", [field]))
    await arrival.wait()
    status, _, body = await response_to(middleware, "POST", "/generate", [field])
    assert (status, body["limit"], body["cap"]) == (429, "concurrency_max", 1)
    release.set()
    assert (await first)[0] == 200
    assert (await response_to(middleware, "POST", "/generate", [field]))[0] == 200
