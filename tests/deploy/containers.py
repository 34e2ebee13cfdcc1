"""The commands and environments of docker-compose.yml as local processes.

What a container has by itself is given by this table; nothing else of the file is changed:

    /run/secrets/NAME, mounted folders   the files and folders outside that compose would mount there
    volumes of compose                   a folder of the test
    redis:6379, in the secrets           127.0.0.1 and a free port, by make_secrets itself
    ports 6379, 8000, 9100               a free port for each service that names one
    abs, python                          this environment's
    valkey-server                        the server that `abs up` would run
    the image's environment              what ENV of the Dockerfile says, but for PATH; and PATH of this environment
    user, limits, networks, capabilities those of the test
"""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from app.local.server import find_server
from tests.deploy import dockerfile
from tests.servers.processes import free_port

PORT = re.compile(r"(?<![0-9])(6379|8000|9100)(?![0-9])")


def seconds(text: str) -> float:
    """A duration as compose writes it: 45s."""
    return float(text.removesuffix("s"))


def ask_server(port: int, lines: bytes) -> bytes:
    """The replies of a Redis server to commands. Raises OSError."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(lines + b"QUIT\r\n")
        return b"".join(iter(lambda: connection.recv(65_536), b""))


def make_secrets(folder: Path, *options: str, **run: Any) -> subprocess.CompletedProcess[str]:
    """Runs deploy/make_secrets.py; `run` are further arguments of subprocess.run."""
    command = [sys.executable, str(dockerfile.ROOT / "deploy" / "make_secrets.py"), "--folder", str(folder), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, **run)


class Service:
    """One service of the compose file."""

    def __init__(self, name: str, described: Mapping[str, Any], outside: Mapping[str, str], folder: Path) -> None:
        self.name = name
        self.described = described
        self._folder = folder / name
        self._folder.mkdir()
        self._mounts = dict(outside) | self._volumes()
        self.ports: dict[str, str] = {}
        self.process: subprocess.Popen[bytes] | None = None

    def _volumes(self) -> dict[str, str]:
        mounts = {}
        for volume in self.described.get("volumes", ()):
            outside, inside = volume.split(":")[:2]
            here = outside if outside.startswith(("/", ".")) else str(self._folder / outside)
            mounts[inside] = str((dockerfile.ROOT / here).resolve())
            Path(mounts[inside]).mkdir(exist_ok=True)
        return mounts

    def here(self, text: str) -> str:
        """A word of a command, with the container's parts replaced."""
        for inside, outside in sorted(self._mounts.items(), key=lambda pair: -len(pair[0])):
            text = re.sub(rf"(?<![\w/]){re.escape(inside)}(?![\w])", outside.replace("\\", "\\\\"), text)
        return PORT.sub(lambda found: self.ports.setdefault(found[0], str(free_port())), text)

    def command(self, words: list[str]) -> list[str]:
        """A command as it runs here."""
        program, *rest = words
        programs = {
            "abs": [sys.executable, "-m", "app.main"], "python": [sys.executable], "valkey-server": [find_server().path]
        }
        return [*programs[program], *map(self.here, rest)]

    def environment(self) -> dict[str, str]:
        """The environment of the service's processes."""
        target = self.described.get("build", {}).get("target")
        given = (dockerfile.environment(target) if target else {}) | dict(self.described.get("environment", {}))
        own = {"PATH": str(Path(sys.executable).parent), "HOME": str(self._folder), "OMP_NUM_THREADS": "1"}
        return {name: self.here(value) for name, value in given.items() if name != "PATH"} | own

    def start(self) -> None:
        """Start the service's process."""
        with open(self._folder / "log", "wb") as log:
            self.process = subprocess.Popen(
                self.command(self.described["command"]), cwd=self._folder, env=self.environment(),
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
            )

    def healthy(self) -> bool:
        """What the service's health check says."""
        assert self.process is not None and self.process.poll() is None, self.log()
        kind, *words = self.described["healthcheck"]["test"]
        if kind == "CMD-SHELL":
            return self._server_healthy(words[0])
        done = subprocess.run(self.command(words), cwd=self._folder, env=self.environment(), capture_output=True)
        return done.returncode == 0

    def _server_healthy(self, line: str) -> bool:
        """The ping of valkey-cli with this user and password."""
        match = re.fullmatch(r"valkey-cli .*--user (\w+) --pass (\w+) ping \| grep -q PONG", line)
        assert match, line
        try:
            return b"PONG" in ask_server(int(self.ports["6379"]), f"AUTH {match[1]} {match[2]}\r\nPING\r\n".encode())
        except OSError:
            return False

    def stop(self) -> int:
        """The stop signal; returns the exit status. Fails past the grace period."""
        assert self.process is not None
        self.process.send_signal(signal.Signals[self.described["stop_signal"]])
        return self.process.wait(seconds(self.described["stop_grace_period"]))

    def log(self) -> str:
        """What it wrote."""
        return f"{self.name}: " + (self._folder / "log").read_text(errors="replace")[-4_000:]

    def end(self) -> None:
        """Leave no process behind."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
