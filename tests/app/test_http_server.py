"""Clients on real sockets, with and without proxy, and the shutdown."""

from __future__ import annotations

import contextlib
import re
import select
import signal
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from app import http_server
from app.errors import SettingsInvalid
from app.http_server import exposure_warning, require_guarded
from app.settings import Settings
from tests.servers.nginx import proxied, require_nginx
from tests.servers.processes import until
from tests.servers.small_server import BIG_BYTES, S_MAX, Address, Server, read_all, small_server

GET = b"GET %s HTTP/1.1\r\nHost: localhost\r\n%s\r\n"
CLOSE = b"Connection: close\r\n"
LIMITS = {"keep_alive_s": 1, "body_timeout_s": 1, "write_timeout_s": 1, "shutdown_grace_s": 5}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with small_server(**LIMITS) as server:
        yield server


@pytest.fixture(scope="module")
def proxy(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Address]:
    require_nginx()
    with proxied(tmp_path_factory.mktemp("nginx"), server.port, client_s=1) as port:
        yield Address(port)


@pytest.fixture(scope="module", params=["bare", "behind a proxy"])
def address(request: pytest.FixtureRequest) -> Address:
    found: Address = request.getfixturevalue("server" if request.param == "bare" else "proxy")
    return found


@pytest.fixture(autouse=True)
def others_are_served(server: Server) -> Iterator[None]:
    yield
    assert answers(server)


def answers(address: Address) -> bool:
    return address.ask(GET % (b"/health", CLOSE)).startswith(b"HTTP/1.1 200 ")


def one_answer(connection: socket.socket) -> bytes:
    """The answer of /health on a keep-alive connection."""
    answer = b""
    while not answer.endswith(b"ok\r\n0\r\n\r\n"):
        part = connection.recv(65_536)
        assert part
        answer += part
    return answer


def is_closed(connection: socket.socket) -> bool:
    """Sends one more byte. Whether the other side has closed the connection."""
    try:
        connection.sendall(b"a")
    except ConnectionError:
        return True
    return False


def test_a_silent_connection_is_closed(proxy: Address) -> None:
    start = time.monotonic()
    with proxy.connect() as connection:
        assert read_all(connection) == b""
    assert time.monotonic() - start > 0.5, "not at once"


def test_a_slow_header_times_out_without_delaying_others(proxy: Address) -> None:
    def all_closed() -> bool:
        assert answers(proxy)
        return all([is_closed(connection) for connection in connections])

    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(proxy.connect()) for _ in range(20)]
        for connection in connections:
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
        until(all_closed, "a byte at a time does not extend the time")


def test_a_second_header_has_no_more_time_than_the_first(proxy: Address) -> None:
    with proxy.connect() as connection:
        connection.sendall(GET % (b"/health", b""))
        assert one_answer(connection).startswith(b"HTTP/1.1 200 ")
        connection.sendall(b"GET /hea")
        assert read_all(connection) == b""


def test_an_idle_connection_is_closed(address: Address) -> None:
    with address.connect() as connection:
        connection.sendall(GET % (b"/health", b""))
        assert read_all(connection).startswith(b"HTTP/1.1 200 ")


def test_a_slow_body_times_out(address: Address) -> None:
    with address.connect() as connection:
        connection.sendall(b"POST /check HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{")
        while not select.select([connection], [], [], 0.1)[0]:  # a byte at a time does not extend the time
            connection.sendall(b" ")
        answer = read_all(connection)
    assert answer.startswith(b"HTTP/1.1 408 ") and b"the body did not arrive" in answer


def test_an_unread_body_does_not_keep_a_connection_open(proxy: Address) -> None:
    with proxy.connect() as connection:
        connection.sendall(b"POST /check HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 1000\r\n\r\n")
        assert connection.recv(65_536).startswith(b"HTTP/1.1 421 ")
        until(lambda: is_closed(connection), "the connection is closed")


@pytest.mark.parametrize("path", [b"/big", b"/events"])
def test_a_client_that_does_not_read_is_disconnected(path: bytes, address: Address, server: Server) -> None:
    with address.connect(receive_bytes=4_096) as connection:
        connection.sendall(GET % (path, b""))
        time.sleep(3)
        assert answers(server)
        assert len(read_all(connection)) < BIG_BYTES
    if path == b"/events":
        assert server.line() in ("client gone", "http.disconnect")


def test_a_slow_reader_receives_the_whole_response(address: Address) -> None:
    received_bytes = 0
    with address.connect() as connection:
        connection.sendall(GET % (b"/big", CLOSE))
        deadline = time.monotonic() + 2.5
        while part := connection.recv(1_000_000 if time.monotonic() < deadline else 2**24):
            received_bytes += len(part)
            time.sleep(0.05 if time.monotonic() < deadline else 0)
    assert received_bytes > BIG_BYTES


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (GET % (b"/health", b"X: " + b"y" * 20_000 + b"\r\n"), b"431"),
        (GET % (b"/" + b"a" * 30_000, b""), b"431"),
        (b"GET /health HTTP/1.1\r\nX: " + b"y" * 100_000, b"4.."),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", b"400"),
        (b"GET /health HTTP/1.1\r\n\r\n", b"400"),
        (b"GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", b"400"),
        (GET % (b"/health", b"X: a\x00b\r\n"), b"400"),
        (GET % (b"/health", b"Content-Length: 1\r\nContent-Length: 2\r\n"), b"400"),
        (GET % (b"/health", b"Content-Length: +1\r\n"), b"400"),
        (GET % (b"/health", b"Transfer-Encoding: gzip, chunked\r\n"), b"400"),
        (GET % (b"/health", b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n"), b"400"),
        (GET % (b"/health", b"Transfer-Encoding: chunked\r\n") + b"zz\r\n", b"400"),
        (GET % (b"/health", b"Transfer-Encoding: chunked\r\n") + b"f" * 30 + b"\r\n", b"4.."),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"400"),
    ],
)
def test_a_malformed_request_is_answered_once_and_disconnected(
    request_: bytes, status: bytes, address: Address, server: Server
) -> None:
    answer = address.ask(request_ + GET % (b"/health", b""))
    assert re.match(rb"HTTP/1.1 %s " % status, answer), answer[:200]
    assert answer.count(b"HTTP/1.1 ") == 1, "the bytes after a malformed request are not read as a request"
    if address is not server:
        assert b"content-type: application/problem+json" in answer.lower()


def test_pipelined_requests_are_answered_in_order(address: Address) -> None:
    answer = address.ask(GET % (b"/slow", b"") + GET % (b"/health", b"") * 3 + GET % (b"/health", CLOSE))
    assert answer.count(b"HTTP/1.1 200 ") == 5


def test_an_upgrade_request_is_ignored(address: Address) -> None:
    fields = b"Connection: Upgrade, close\r\nUpgrade: websocket\r\nSec-WebSocket-Key: eA==\r\n"
    assert address.ask(GET % (b"/health", fields)).startswith(b"HTTP/1.1 200 ")


def test_garbage_collection_leaves_out_what_a_start_made(server: Server) -> None:
    objects = re.search(rb"\r\n(\d+)\r\n0\r\n\r\n$", server.ask(GET % (b"/frozen", CLOSE)))
    assert objects is not None
    assert int(objects[1]) > 10_000


def test_a_draining_server_finishes_requests_and_exits_with_0() -> None:
    with small_server(**LIMITS) as server, server.connect() as busy_connection, server.connect() as idle_connection:
        busy_connection.sendall(GET % (b"/slow", b""))
        idle_connection.sendall(GET % (b"/health", b""))
        assert one_answer(idle_connection)
        time.sleep(0.3)
        server.process.send_signal(signal.SIGTERM)
        assert server.line() == "draining"
        assert read_all(idle_connection) == b""
        assert read_all(busy_connection).startswith(b"HTTP/1.1 200 ")
        assert server.process.wait(S_MAX) == 0
        with pytest.raises(OSError):
            server.connect()


@pytest.mark.parametrize(("host", "warns"), [("127.0.0.1", False), ("0.0.0.0", True)])
def test_an_application_that_does_not_start_is_reported(
    host: str, warns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def failing(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "lifespan.startup.failed"})

    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert http_server.serve(failing, listener, Settings.of(host=host)) is False
    assert ("put a proxy in front" in caplog.text.lower()) is warns


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example.org"])
def test_a_public_address_requires_keys_or_explicit_permission(host: str) -> None:
    with pytest.raises(SettingsInvalid, match=r"ABS_KEYS_FILE.*127\.0\.0\.1.*ABS_ALLOW_UNAUTHENTICATED=yes"):
        require_guarded(Settings.of(host=host))
    require_guarded(Settings.of(host=host, allow_unauthenticated=True))
    require_guarded(Settings.of(host=host, keys_file="keys"))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "localhost", "::1"])
def test_a_local_address_requires_nothing_and_warns_of_nothing(host: str) -> None:
    require_guarded(Settings.of(host=host))
    assert exposure_warning(Settings.of(host=host)) == ""


def test_a_public_address_without_a_proxy_gives_a_warning() -> None:
    settings = Settings.of(host="0.0.0.0", keys_file="keys")
    assert "ABS_BEHIND_PROXY=yes" in exposure_warning(settings)
    assert exposure_warning(settings.changed(behind_proxy=True)) == ""
