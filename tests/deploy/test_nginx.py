"""Our nginx configuration in front of real processes."""

from __future__ import annotations

import contextlib
import functools
import json
import re
import signal
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from abs_client import Client, F
from app import errors
from app.settings import Settings
from tests.app.event_stream import events, numbers
from tests.servers.certificates import write_certificates
from tests.servers.nginx import SHIPPED, proxied, require_nginx
from tests.servers.processes import free_port, until
from tests.servers.service_process import ServiceProcess
from tests.servers.small_server import Address, Server, read_all, small_server

GET = b"GET %s HTTP/1.1\r\nHost: localhost\r\n%sConnection: close\r\n\r\n"
POST = b"POST /check HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
PER_ADDRESS = 100  # connections
forked_server = functools.partial(small_server, forked=True)
CONFIGURATION = (SHIPPED / "nginx.conf").read_text(encoding="utf-8")


@pytest.fixture(scope="module", autouse=True)
def nginx() -> str:
    return require_nginx()


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Address]]:
    with forked_server() as server, proxied(tmp_path_factory.mktemp("small"), server.port) as port:
        yield server, Address(port)


@pytest.fixture(scope="module")
def url(running_service: ServiceProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with proxied(tmp_path_factory.mktemp("nginx"), running_service.port) as port:
        yield f"http://127.0.0.1:{port}"


def seconds(directive: str) -> float:
    """The time that the last directive of this name sets."""
    return float(re.findall(rf"\b{directive} (\d+)s;", CONFIGURATION)[-1])


def test_limits_agree_with_those_of_the_service() -> None:
    settings = Settings()
    assert f"client_max_body_size {settings.server.body_bytes_max // 2**20}m;" in CONFIGURATION
    assert seconds("keepalive_timeout") < settings.server.keep_alive_s
    assert seconds("proxy_read_timeout") > settings.requests.timeout_s_max
    assert seconds("client_body_timeout") > settings.server.body_timeout_s, "the service answers slow bodies first"
    assert f"limit_conn addresses {PER_ADDRESS};" in CONFIGURATION


def test_refusals_have_the_codes_and_titles_of_the_service() -> None:
    tables = dict(re.findall(r"map \$status \$(code|title) \{(.*?)\}", CONFIGURATION, re.DOTALL))
    codes, titles = (dict(re.findall(r'(\d+|default) "?([^";]+)"?;', tables[name])) for name in ("code", "title"))
    facts = {kind.facts.code: kind.facts for kind in vars(errors).values() if hasattr(kind, "facts")}
    assert codes.keys() == titles.keys()
    for status, code in codes.items():
        expected = (titles[status], "503" if status == "default" else status)
        assert (facts[code].title, str(facts[code].status)) == expected


def test_an_event_arrives_before_the_stream_ends(small: tuple[Server, Address]) -> None:
    server, proxy = small
    with proxy.connect() as connection:
        connection.sendall(GET % (b"/event", b""))
        received = b""
        while b"data: 1" not in received:
            part = connection.recv(65_536)
            assert part, received
            received += part
    assert server.line() == "http.disconnect", "the proxy tells the service that the reader left"


def test_a_stream_resumes_after_the_last_event(url: str) -> None:
    body = {"prompt": "sentence:", "constraint": {"ltlf": "F(dog)"}, "max_tokens": 20, "stream": True}
    with httpx2.stream("POST", f"{url}/generate", json=body, timeout=60) as response:
        whole = list(events(response.iter_lines()))
        job = response.headers["x-job-id"]
    assert whole[-1].name == "done" and len(numbers(whole)) > 5
    rest = whole[len(whole) // 2 :]
    headers = {"last-event-id": rest[0].id}
    with httpx2.stream("GET", f"{url}/jobs/{job}/events", headers=headers, timeout=60) as response:
        resumed = list(events(response.iter_lines()))
    assert [event.id for event in resumed] == [event.id for event in rest[1:]] and numbers(resumed)


def test_the_client_generates_through_the_proxy(url: str) -> None:
    with Client(url) as client:
        assert "bird" in client.generate("sentence:", F("bird"), max_tokens=12).text


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"host": "evil.example"}, 421),
        ({"host": "evil.example", "x-forwarded-host": "localhost"}, 421),
        ({"x-forwarded-host": "evil.example", "forwarded": "host=evil.example"}, 200),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "http://evil.example", "x-forwarded-host": "evil.example"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
    ],
)
def test_host_and_origin_are_those_of_the_client(url: str, fields: dict[str, str], status: int) -> None:
    assert httpx2.get(f"{url}/health", headers=fields).status_code == status
    assert httpx2.get(f"{url}/health", headers={"origin": url}).status_code == 200


def test_a_request_without_host_is_answered(small: tuple[Server, Address]) -> None:
    _, proxy = small
    assert proxy.ask(b"GET /health HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.1 200 ")


def test_request_ids_pass_and_end_in_refusals(small: tuple[Server, Address]) -> None:
    server, proxy = small
    for sent, returned in ((b"mine-1", b"mine-1"), (b'"}<script>', None)):
        answer = proxy.ask(GET % (b"/health", b"X-Request-Id: " + sent + b"\r\n"))
        assert returned is None or b"x-request-id: " + returned in answer.lower()
        refusal = proxy.ask(b"TRACE / HTTP/1.1\r\nHost: a\r\nX-Request-Id: " + sent + b"\r\n\r\n")
        problem = json.loads(refusal.partition(b"\r\n\r\n")[2])
        assert problem["status"] == 405 and (returned is None or problem["request_id"] == returned.decode())
        assert "script" not in refusal.decode()
    assert server.process.poll() is None


def test_a_body_over_the_limit_is_refused_unread(small: tuple[Server, Address]) -> None:
    answer = small[1].ask(POST % 2**22)
    assert answer.startswith(b"HTTP/1.1 413 ") and b'"code": "body_too_large"' in answer
    head = b"POST /check HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunks = b"10000\r\n%b\r\n" % (b" " * 2**16) * 33
    assert small[1].ask(head + chunks + b"0\r\n\r\n").startswith(b"HTTP/1.1 413 ")


def test_connections_of_one_address_are_limited(small: tuple[Server, Address]) -> None:
    _, proxy = small
    with contextlib.ExitStack() as stack:
        for _ in range(PER_ADDRESS):
            stack.enter_context(proxy.connect(source="127.0.0.2")).sendall(POST % 10)
        time.sleep(0.5)
        with proxy.connect(source="127.0.0.2") as connection:
            connection.sendall(GET % (b"/health", b""))
            answer = read_all(connection)
        assert answer.startswith(b"HTTP/1.1 429 ") and b'"code": "rate_limited"' in answer
        assert b"retry-after: 1" in answer.lower()
        assert proxy.ask(GET % (b"/health", b"")).startswith(b"HTTP/1.1 200 "), "another address is served"


def test_a_client_that_leaves_ends_its_request(small: tuple[Server, Address]) -> None:
    server, proxy = small
    with proxy.connect() as connection:
        connection.sendall(GET % (b"/slow", b""))
        time.sleep(0.3)
    assert server.line() == "http.disconnect"


def test_a_rolling_update_breaks_no_idempotent_request(tmp_path: Path) -> None:
    statuses: list[int] = []
    stop = threading.Event()
    with forked_server() as first, forked_server() as second, proxied(tmp_path, first.port, second.port) as port:

        def send() -> None:
            with httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as http:
                while not stop.wait(0.01):  # more requests would only take the server's time
                    statuses.append(http.get("/health").status_code)

        threads = [threading.Thread(target=send) for _ in range(8)]
        for thread in threads:
            thread.start()
        try:
            until(lambda: len(statuses) > 25, "requests are answered", 60)
            first.process.send_signal(signal.SIGTERM)
            assert first.process.wait(90) == 0
            answered = len(statuses)
            until(lambda: len(statuses) > answered + 25, "requests are answered after the end of a server", 60)
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        assert set(statuses) == {200}
        second.process.kill()
        second.process.wait()
        response = httpx2.get(f"http://127.0.0.1:{port}/health")
        assert (response.status_code, response.json()["code"]) == (503, "not_ready")
        assert response.headers["retry-after"] == "1"


@pytest.mark.parametrize(("method", "status"), [(b"POST", 503), (b"GET", 200)])
def test_the_proxy_repeats_a_sent_get_but_no_post(
    tmp_path: Path, small: tuple[Server, Address], method: bytes, status: int
) -> None:
    # The proxy holds a body that arrives with its header, so it could send it again.
    fields = b"Content-Type: application/json\r\nContent-Length: 2\r\n" if method == b"POST" else b""
    request = (GET % (b"/slow", fields)).replace(b"GET", method) + (b"{}" if method == b"POST" else b"")
    with (
        forked_server() as first, proxied(tmp_path, first.port, small[0].port) as port,
        Address(port).connect() as connection,
    ):  # fmt: skip
        connection.sendall(request)
        time.sleep(0.5)  # it answers after a second
        first.process.kill()
        assert connection.recv(65_536).startswith(b"HTTP/1.1 %d " % status)


def test_a_post_that_a_process_refused_reaches_another(tmp_path: Path, small: tuple[Server, Address]) -> None:
    with proxied(tmp_path, free_port(), small[0].port) as port:
        for _ in range(4):
            assert httpx2.post(f"http://127.0.0.1:{port}/health", json={"a": 1}).status_code == 200


def test_the_shipped_tls_lines_serve_https(tmp_path: Path, small: tuple[Server, Address]) -> None:
    write_certificates(tmp_path)
    listen = (SHIPPED / "listen-tls.conf").read_text(encoding="utf-8").replace("listen 8443", "listen 127.0.0.1:PORT")
    for file, ours in (("tls.crt", "server.pem"), ("tls.key", "server.key")):
        listen = listen.replace(f"/run/secrets/{file}", str(tmp_path / ours))
    with proxied(tmp_path / "nginx", small[0].port, listen=listen) as port:
        url = f"https://127.0.0.1:{port}"
        trusted = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
        response = httpx2.get(f"{url}/health", headers={"origin": url}, verify=trusted)
        assert response.status_code == 200 and "strict-transport-security" in response.headers
        plain = httpx2.get(f"http://127.0.0.1:{port}/health")
        assert (plain.status_code, plain.json()["code"]) == (400, "malformed_request")
