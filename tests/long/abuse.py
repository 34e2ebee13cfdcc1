"""Attacks on a running service; takes minutes. test_abuse.py is the short form.

    python -m tests.long.abuse [--examples 100] [--size 10]

A real process with keys is attacked in many ways while a witness goes on sending requests: no attack may
cause refusals of honest requests, long waits, or leftovers. Behind the proxy every attacker is let go. Without it some
are not: `BARE_EXCEPTIONS` lists them, and a run fails if the list is not true.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import json
import os
import random
import select
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2

from app.auth import add_key, new_key
from tests.app.worker.test_bombs import BOMBS
from tests.servers.nginx import nginx_path, proxied
from tests.servers.processes import resident_bytes
from tests.servers.service_process import ServiceProcess, serving
from tests.servers.small_model import small_model

ROOT = Path(__file__).parent
WAIT_S_MAX = 30.0  # for an honest request, on a machine that is busy with the attack
GROWTH_BYTES_MAX = 256 * 2**20
SOCKET_S_MAX = 120.0
EXCEPTION_S = 5.0  # how long an exception is watched; the limits of QUICK are shorter
QUICK = {"body_timeout_s": 2, "write_timeout_s": 2, "keep_alive_s": 5, "compile_s_max": 1}
PER_ADDRESS = 100  # connections with a request, as deploy/nginx/nginx.conf has it
ATTACKER = "127.0.0.2"  # the witness has another address


def client_of(port: int, key: str, s_max: float) -> httpx2.Client:
    """A client with a key that waits so long for an answer."""
    url, headers = f"http://127.0.0.1:{port}", {"authorization": f"Bearer {key}"}
    return httpx2.Client(base_url=url, headers=headers, timeout=s_max, verify=False)


class Witness:
    """Sends honest requests while its body runs, and at least one."""

    def __init__(self, port: int, key: str) -> None:
        self._port, self._key = port, key
        self.answers: list[float] = []
        self.faults: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Witness:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        with client_of(self._port, self._key, WAIT_S_MAX) as http:
            while True:
                start = time.monotonic()
                try:
                    answer = http.post("/check", json={"constraint": {"regex": "a+"}, "text": "aa"})
                    if answer.status_code != 200:
                        self.faults.append(answer.text)
                except httpx2.HTTPError as error:
                    self.faults.append(type(error).__name__)
                self.answers.append(time.monotonic() - start)
                if self._stop.wait(0.2):
                    return


class ClientHeld(AssertionError):
    """The service goes on serving an attacker that it should let go."""


class Attack:
    """The means of an attacker: address, key, size, client, time."""

    def __init__(self, port: int, key: str, size: int, http: httpx2.Client, s_max: float) -> None:
        self.port, self.size, self.http, self.s_max = port, size, http, s_max
        self.chance = random.Random(size)
        self.key = f"Authorization: Bearer {key}\r\n".encode()

    def connect(self) -> socket.socket:
        """A new connection."""
        return socket.create_connection(("127.0.0.1", self.port), SOCKET_S_MAX, (ATTACKER, 0))

    def ask(self, request: bytes) -> bytes:
        """What comes back, until the connection ends."""
        with self.connect() as connection, contextlib.suppress(ConnectionError, TimeoutError):
            connection.sendall(request)
            connection.shutdown(socket.SHUT_WR)
            return b"".join(iter(lambda: connection.recv(65_536), b""))
        return b""

    def post(self, body: bytes, **headers: str) -> httpx2.Response:
        """A request to compile."""
        return self.http.post("/compile", content=body, headers={"content-type": "application/json", **headers})


def silent_connections(attack: Attack) -> None:
    """Many connections that send nothing."""
    _trickle(attack, b"", b"")


def slow_headers(attack: Attack) -> None:
    """Many connections that send a header byte by byte."""
    _trickle(attack, b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Slow: ", b"a")


def slow_bodies(attack: Attack) -> None:
    """Many connections that send a body byte by byte."""
    fields = b"Content-Type: application/json\r\nContent-Length: 100000\r\n"
    _trickle(attack, b"POST /compile HTTP/1.1\r\nHost: localhost\r\n" + attack.key + fields + b"\r\n{", b" ")


def bodies_of_refused_requests(attack: Attack) -> None:
    """Many refused connections that go on sending the body."""
    _trickle(attack, b"POST /compile HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n{", b" ", reads=True)


def silent_readers(attack: Attack) -> None:
    """Connections that ask for much and read nothing."""
    request = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n" + attack.key + b"\r\n"
    with contextlib.ExitStack() as stack:
        readers = [stack.enter_context(attack.connect()) for _ in range(3 * attack.size)]
        for reader in readers:
            reader.settimeout(0.5)
            with contextlib.suppress(OSError):
                reader.sendall(request * 200)
        _wait_until_closed(readers, _is_reset, attack.s_max)


def many_connections(attack: Attack) -> None:
    """More requests at once than one address may have."""
    head = b"POST /compile HTTP/1.1\r\nHost: localhost\r\n" + attack.key + b"Content-Length: 10\r\n\r\n"
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(attack.connect()) for _ in range(PER_ADDRESS + 20)]
        for connection in connections:
            connection.sendall(head)
        answers = [connection.recv(65_536) for connection in connections]
    if sum(answer.startswith(b"HTTP/1.1 429 ") for answer in answers) < 20:
        raise ClientHeld("one address has all the connections that it wants")


def _trickle(attack: Attack, head: bytes, more: bytes, reads: bool = False) -> None:
    """Sends the head, then the rest in pieces on many connections."""
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(attack.connect()) for _ in range(20 * attack.size)]
        for connection in connections:
            connection.sendall(head)
        _wait_until_closed(connections, lambda connection: not _still_open(connection, more, reads), attack.s_max)


def _wait_until_closed(
    connections: list[socket.socket], closed: Callable[[socket.socket], bool], s_max: float
) -> None:
    """Raises ClientHeld if some stay open."""
    deadline = time.monotonic() + s_max
    while connections and time.monotonic() < deadline:
        connections = [connection for connection in connections if not closed(connection)]
        time.sleep(0.2)
    if connections:
        raise ClientHeld(f"{len(connections)} connections stay open")


def _still_open(connection: socket.socket, more: bytes, reads: bool) -> bool:
    """Sends more. Any answer counts as the end, or with `reads` only the end of the connection."""
    try:
        connection.setblocking(False)
        connection.sendall(more)
        while connection.recv(65_536):
            if not reads:
                return False
        return False
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        connection.settimeout(SOCKET_S_MAX)


def _is_reset(connection: socket.socket) -> bool:
    """Whether the other side has reset the connection, found without reading."""
    poll = select.poll()
    poll.register(connection, 0)
    return bool(poll.poll(0))


def noise(attack: Attack) -> None:
    """Requests with bytes changed, left out and put in, at random."""
    valid_request = (
        b"POST /compile HTTP/1.1\r\nHost: localhost\r\n" + attack.key
        + b'Content-Type: application/json\r\nContent-Length: 32\r\n\r\n{"constraint": {"regex": "a+"}}\n'
    )
    for _ in range(100 * attack.size):
        data = bytearray(valid_request)
        for _ in range(attack.chance.randrange(1, 8)):
            index = attack.chance.randrange(len(data))
            change = attack.chance.randrange(3)
            data[index : index + (change != 1)] = b"" if change == 2 else bytes([attack.chance.randrange(256)])
        output = attack.ask(bytes(data))
        # nginx answers a request line without a version as HTTP/0.9, by a body alone.
        expected = (b"HTTP/1.1 4", b"HTTP/1.1 200 ", b'{"type": "urn:abs-server:error:malformed_request"')
        assert not output or output.startswith(expected), (bytes(data), output[:300])


def bad_json(attack: Attack) -> None:
    """Bodies that are deep, long, ambiguous, compressed or no JSON at all."""
    deep, large = b"[" * 100_000 + b"]" * 100_000, b'{"constraint": {"regex": "' + b"a" * 900_000 + b'"}}'
    bodies = [
        deep, b'{"a":' * 100_000, large, b'{"constraint": NaN}', b'{"constraint": {"max_chars": 1e999}}',
        b'{"constraint": {"regex": "\\ud800"}}', b'{"constraint": {}, "constraint": {}}', b"\xff\xfe{}", b"9" * 5_000,
        b'{"constraint": {"regex": "a"}} trailing', b"", b"null", b'"a"', b"\x00" * 1_000,
        json.dumps({"constraint": {"all": [{"regex": "a"}] * 50_000}}).encode(),
    ]
    for body in bodies * attack.size:
        answer = attack.post(body)
        assert 400 <= answer.status_code < 500, (body[:60], answer.text)
        assert len(answer.content) < 4_000
    bomb = gzip.compress(b" " * 100_000_000)
    assert attack.post(bomb, **{"content-encoding": "gzip"}).status_code == 415


def many_faults(attack: Attack) -> None:
    """Bodies with hundreds of thousands of faults, and constraints that parse slowly."""
    formulas = [{"ltlf": " & ".join(f"X(!w{one} | F(w{(one * 7 + k) % 30}))" for one in range(25))} for k in range(900)]
    bodies = (
        ("/check", {"constraint": {"regex": "a"}, "labels": [1] * 300_000}),
        ("/compile", dict.fromkeys(map(str, range(90_000)), 1)),
        ("/decode", {"constraint": {}, "labels": ["a"], "log_probs": [["x"] * 200_000]}),
        ("/v1/chat/completions", {"messages": [{}] * 300_000}),
        ("/compile", {"constraint": {"all": formulas[:256]}, "explain": False}),
    )
    for path, body in bodies * attack.size:
        answer = attack.http.post(path, json=body)
        assert answer.status_code == 422, (path, answer.text)
        assert len(answer.content) < 4_000


def compile_bombs(attack: Attack) -> None:
    """Small constraints that ask for enormous work."""
    for name, constraint, limits in attack.chance.sample(BOMBS, min(len(BOMBS), 4 * attack.size)):
        answer = attack.http.post("/compile", json={"constraint": constraint})
        if answer.status_code == 200:
            assert "" in limits, name
        else:
            assert (answer.status_code, answer.json()["code"]) == (422, "constraint_too_large"), (name, answer.text)


ATTACKS: tuple[Callable[[Attack], None], ...] = (
    silent_connections, slow_headers, slow_bodies, bodies_of_refused_requests, silent_readers, many_connections, noise,
    bad_json, many_faults, compile_bombs,
)
BARE_EXCEPTIONS = {  # without a proxy
    silent_connections: "uvicorn waits without limit for the first request of a connection",
    slow_headers: "uvicorn has no time limit for a header",
    bodies_of_refused_requests: "uvicorn reads on after an answer, without a time limit while data arrives",
    silent_readers: "uvicorn closes a connection only after its client has read the last 64 KiB",
    many_connections: "uvicorn has no limit for each address",
}


@contextlib.contextmanager
def attacked_service() -> Iterator[tuple[ServiceProcess, str]]:
    """A service with a key that has every scope and no limits."""
    with tempfile.TemporaryDirectory() as folder:
        text, key = new_key(
            "fuzz", ("generate", "compile", "admin"), requests_per_minute=0, concurrency_max=0, beam_tokens_per_minute=0
        )
        keys = Path(folder) / "keys"
        add_key(keys, key)
        with serving(Path(folder), model=small_model(), keys_file=keys, OMP_NUM_THREADS=1, **QUICK) as service:
            service.wait_until_ready(text)
            yield service, text


@contextlib.contextmanager
def attacked_proxy(service: ServiceProcess) -> Iterator[int]:
    """The port of a proxy in front of the service."""
    with tempfile.TemporaryDirectory() as folder, proxied(Path(folder), service.port, client_s=2) as port:
        yield port


def attack_all(service: ServiceProcess, key: str, size: int, proxy: int | None = None) -> dict[str, float]:
    """Runs every attack and returns the witness's longest waits in s. Raises AssertionError.

    The attacker and the witness send to the service, or to the port of the proxy before it.
    """
    waits, port = {}, proxy or service.port
    with Witness(port, key) as witness:  # once, to come to rest
        time.sleep(1)
    memory_before = resident_bytes(service.process.pid)
    for attack in ATTACKS:
        held, exception = "", proxy is None and attack in BARE_EXCEPTIONS
        with Witness(port, key) as witness, client_of(port, key, SOCKET_S_MAX) as http:
            try:
                attack(Attack(port, key, size, http, EXCEPTION_S if exception else SOCKET_S_MAX))
            except ClientHeld as error:
                held = str(error)
        assert bool(held) is exception, (attack.__name__, held)
        assert not witness.faults, (attack.__name__, witness.faults)
        waits[attack.__name__] = max(witness.answers)
        assert service.process.poll() is None
    assert resident_bytes(service.process.pid) - memory_before < GROWTH_BYTES_MAX
    assert "Traceback" not in service.log and key not in service.log
    return waits


def schemathesis(service: ServiceProcess, key: str, folder: Path, *options: str) -> str:
    """What schemathesis says of the live service. Raises AssertionError where it finds anything.

    All its checks are on but one: DELETE calls a job off, it does not make it unknown.
    """
    command = [
        str(Path(sys.executable).parent / "schemathesis"), "--config-file", str(ROOT / "schemathesis.toml"), "run",
        f"{service.url}/openapi.json", "--header", f"Authorization: Bearer {key}", "--checks", "all",
        "--exclude-checks", "use_after_free", "--seed", "1", "--request-timeout", "60", *options,
    ]
    environment = os.environ | {"SCHEMATHESIS_HOOKS": str(ROOT / "schemathesis_hooks.py"), "NO_COLOR": "1"}
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True)
    output = done.stdout + done.stderr
    assert done.returncode == 0, f"{output[-8_000:]}\n{service.log[-4_000:]}"
    return output


def main() -> None:
    """Attack, and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=100, help="of schemathesis, for each path")
    parser.add_argument("--size", type=int, default=10, help="of the other attacks")
    options = parser.parse_args()
    with attacked_service() as (service, key):
        for name, wait_s in attack_all(service, key, options.size).items():
            print(f"without a proxy, {name}: honest requests waited {wait_s:.2f} s at most")
        for attack, reason in BARE_EXCEPTIONS.items():
            print(f"without a proxy, {attack.__name__} goes on: {reason}")
        if nginx_path() is None:
            sys.exit("not run behind the proxy: install nginx-light or nginx")
        with attacked_proxy(service) as port:
            for name, wait_s in attack_all(service, key, options.size, port).items():
                print(f"behind the proxy, {name}: honest requests waited {wait_s:.2f} s at most")
        with tempfile.TemporaryDirectory() as folder:
            print(schemathesis(service, key, Path(folder), "--max-examples", str(options.examples))[-600:])


if __name__ == "__main__":
    main()
