"""The processes of `abs up` under supervisor: its configuration, and what it is asked while they run."""

from __future__ import annotations

import http.client
import os
import re
import secrets
import shlex
import signal
import subprocess
import sys
import xmlrpc.client
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from supervisor.xmlrpc import SupervisorTransport

from app.errors import AppError, SettingsInvalid
from app.local.folder import Folder

USER = "abs"
LOG_BYTES = 10_000_000
LAST_WORDS = 2_000
RESTARTS_MAX = 20  # in a row, each a second later than the one before; then `abs up` asks for a new row
_UNSPEAKABLE = re.compile(r"[\n\r;#%]")  # supervisor's configuration has no sure way to write them


class LocalFailed(AppError):
    """A process of `abs up` does not start, or supervisor is gone; the message ends with its last words."""


@dataclass(frozen=True, slots=True)
class Program:
    """A process to keep alive. Those of a higher rank are stopped first, those of one rank at once.

    grace_s  what it has to end before it is killed
    """

    name: str
    command: tuple[str, ...]
    rank: int
    grace_s: float


@dataclass(frozen=True, slots=True)
class Status:
    """What supervisor says of a process: its state, in supervisor's words, and its number, 0 where it has none."""

    state: str
    pid: int
    said: str

    @property
    def failed(self) -> bool:
        """It ended before it had run for a second."""
        return self.state in ("BACKOFF", "FATAL")


def launched(command: tuple[str, ...], last_signal: signal.Signals, parent: int | Path) -> tuple[str, ...]:
    """The command as a program that is sent `last_signal` once its parent is gone: a number, or the file of one."""
    return (sys.executable, "-m", "app.local.launcher", str(int(last_signal)), str(parent), *command)


def _pid_file(folder: Folder) -> Path:
    """Where supervisor writes its number before it starts anything."""
    return folder.path / "supervisor.pid"


class Supervisor:
    """Supervisor at work on the programs. Nothing runs before `start`."""

    def __init__(self, folder: Folder, programs: tuple[Program, ...], environment: Mapping[str, str]) -> None:
        password = secrets.token_urlsafe(32)
        self._folder = folder
        self._grace_s = sum(program.grace_s for program in programs)
        self._group = {program.name: f"rank-{program.rank}" for program in programs}
        folder.write(folder.supervisor_conf, _configuration(folder, programs, password))
        folder.control_socket.unlink(missing_ok=True)
        _pid_file(folder).unlink(missing_ok=True)
        command = (sys.executable, "-m", "supervisor.supervisord", "-n", "-c", str(folder.supervisor_conf))
        self._output = folder.logs / "supervisor.log"
        with open(self._output, "wb") as words:
            self._process = subprocess.Popen(
                launched(command, signal.SIGTERM, os.getpid()),  # at our end it stops all other programs in order
                env=dict(environment), stdin=subprocess.DEVNULL, stdout=words, stderr=subprocess.STDOUT,
                pass_fds=(folder.lock,), start_new_session=True, umask=0o077,
            )
        self._transport = SupervisorTransport(USER, password, f"unix://{folder.control_socket}")
        self._asked = xmlrpc.client.ServerProxy("http://127.0.0.1", transport=self._transport).supervisor

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def start(self, name: str) -> None:
        """Start a program, or restart one that failed too often."""
        with suppress(xmlrpc.client.Fault):  # it runs already
            self._asked.startProcess(f"{self._group[name]}:{name}", False)

    def statuses(self) -> dict[str, Status]:
        """Every program's status; none while supervisor does not answer yet. Raises LocalFailed once it is gone."""
        if not self.alive:
            raise LocalFailed(f"supervisor is gone; its last words:\n{_tail(self._output)}")
        try:
            told = self._asked.getAllProcessInfo()
        except (OSError, http.client.HTTPException, xmlrpc.client.ProtocolError):
            self._transport.close()  # it would go on with the broken connection
            return {}
        assert isinstance(told, list)
        return {one["name"]: Status(one["statename"], one["pid"], one["spawnerr"]) for one in told}

    def last_words(self, name: str) -> str:
        """The end of a program's log."""
        return _tail(log_of(self._folder, name))

    def stop(self) -> None:
        """Stop all programs in their order, then supervisor; kill what does not end in time."""
        self._transport.close()
        self._process.terminate()
        try:
            self._process.wait(self._grace_s + 10)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """End supervisor at once, and with it, by the wish of the launcher, everything else."""
        self._transport.close()
        self._process.kill()
        self._process.wait()


def log_of(folder: Folder, name: str) -> Path:
    """Where a program's output goes."""
    return folder.logs / f"{name}.log"


def _tail(path: Path) -> str:
    with suppress(OSError), open(path, "rb") as file:
        file.seek(max(0, file.seek(0, 2) - LAST_WORDS))
        return file.read().decode(errors="replace").strip()
    return ""


def _configuration(folder: Folder, programs: tuple[Program, ...], password: str) -> str:
    sections = [
        f"""[supervisord]
nodaemon=true
logfile=/dev/null
logfile_maxbytes=0
pidfile={_value(_pid_file(folder))}
{"user=root" if os.geteuid() == 0 else ""}

[unix_http_server]
file={_value(folder.control_socket)}
chmod=0700
username={USER}
password={password}

[rpcinterface:supervisor]
supervisor.rpcinterface_factory=supervisor.rpcinterface:make_main_rpcinterface
"""
    ]
    for program in programs:
        command = shlex.join(launched(program.command, signal.SIGKILL, _pid_file(folder)))
        sections.append(
            f"""[program:{program.name}]
command={_value(command)}
autostart=false
autorestart=true
startsecs=1
startretries={RESTARTS_MAX}
stopsignal=TERM
stopwaitsecs={program.grace_s:.0f}
redirect_stderr=true
stdout_logfile={_value(log_of(folder, program.name))}
stdout_logfile_maxbytes={LOG_BYTES}
stdout_logfile_backups=2
"""
        )
    for rank in sorted({program.rank for program in programs}):
        names = ",".join(program.name for program in programs if program.rank == rank)
        sections.append(f"[group:rank-{rank}]\nprograms={names}\npriority={rank}\n")
    return "\n".join(sections)


def _value(text: Path | str) -> str:
    """A text for supervisor's configuration. Raises SettingsInvalid where that cannot hold it."""
    if _UNSPEAKABLE.search(str(text)):
        raise SettingsInvalid(f"`abs up` cannot work with a path that holds a line break, ';', '#' or '%': {text}")
    return str(text)
