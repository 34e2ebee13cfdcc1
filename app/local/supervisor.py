"""Runs the processes of `abs up` under supervisor. It writes the configuration and calls the RPC interface."""

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
LOG_TAIL_BYTES = 2_000
RESTARTS_MAX = 20  # consecutive ones, each a second later than the last; then `abs up` starts a new series
_UNESCAPABLE = re.compile(r"[\n\r;#%]")  # cannot be escaped in supervisor's configuration


class LocalFailed(AppError):
    """A process of `abs up`, or supervisor itself, has failed. The message ends with its log."""


@dataclass(frozen=True, slots=True)
class Program:
    """A process to keep alive. Processes of higher rank stop first, those of one rank together.

    grace_s  time to end before it is killed
    """

    name: str
    command: tuple[str, ...]
    rank: int
    grace_s: float


@dataclass(frozen=True, slots=True)
class ProcessStatus:
    """The status of a process under supervisor. It has supervisor's name of the state, the process id or 0, and the
    error of a failed start.
    """

    state: str
    pid: int
    spawn_error: str

    @property
    def failed(self) -> bool:
        """Whether it ended within its first second."""
        return self.state in ("BACKOFF", "FATAL")


def with_launcher(command: tuple[str, ...], last_signal: signal.Signals, parent: int | Path) -> tuple[str, ...]:
    """The command behind a launcher. The launcher sends it `last_signal` when its parent ends.

    parent  the process id, or the file that has it
    """
    return (sys.executable, "-m", "app.local.launcher", str(int(last_signal)), str(parent), *command)


def _pid_file(folder: Folder) -> Path:
    """The file with the process id of supervisor. Supervisor writes it before it starts a process."""
    return folder.path / "supervisor.pid"


class Supervisor:
    """A running supervisor with its programs; none of them runs before `start`."""

    def __init__(self, folder: Folder, programs: tuple[Program, ...], environment: Mapping[str, str]) -> None:
        password = secrets.token_urlsafe(32)  # of this run, in a file that only its owner can read
        self._folder = folder
        self._grace_s = sum(program.grace_s for program in programs)
        self._group = {program.name: f"rank-{program.rank}" for program in programs}
        folder.write(folder.supervisor_conf, _configuration(folder, programs, password))
        folder.control_socket.unlink(missing_ok=True)
        _pid_file(folder).unlink(missing_ok=True)
        command = (sys.executable, "-m", "supervisor.supervisord", "-n", "-c", str(folder.supervisor_conf))
        self._output = folder.logs / "supervisor.log"
        with open(self._output, "wb") as output:
            self._process = subprocess.Popen(
                # When this process ends, supervisor stops all programs in order.
                with_launcher(command, signal.SIGTERM, os.getpid()),
                env=dict(environment), stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                pass_fds=(folder.lock,), start_new_session=True, umask=0o077,
            )
        self._transport = SupervisorTransport(USER, password, f"unix://{folder.control_socket}")
        self._rpc = xmlrpc.client.ServerProxy("http://127.0.0.1", transport=self._transport).supervisor

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def start(self, name: str) -> None:
        """Starts a program, or restarts one that failed too often."""
        with suppress(xmlrpc.client.Fault):  # it is already running
            self._rpc.startProcess(f"{self._group[name]}:{name}", False)

    def statuses(self) -> dict[str, ProcessStatus]:
        """The status of every program, empty until supervisor answers. Raises LocalFailed after it has ended."""
        if not self.alive:
            raise LocalFailed(f"supervisor has ended; its log:\n{_tail(self._output)}")
        try:
            processes = self._rpc.getAllProcessInfo()
        except (OSError, http.client.HTTPException, xmlrpc.client.ProtocolError):
            self._transport.close()  # it would reuse the broken connection
            return {}
        assert isinstance(processes, list)
        return {info["name"]: ProcessStatus(info["statename"], info["pid"], info["spawnerr"]) for info in processes}

    def log_tail(self, name: str) -> str:
        """The end of a program's log."""
        return _tail(log_of(self._folder, name))

    def stop(self) -> None:
        """Stops all programs in their order, then supervisor. Programs that do not end in time are killed."""
        self._transport.close()
        self._process.terminate()
        try:
            self._process.wait(self._grace_s + 10)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """Kills supervisor; the launchers then kill all other processes."""
        self._transport.close()
        self._process.kill()
        self._process.wait()


def log_of(folder: Folder, name: str) -> Path:
    """The file of a program's output."""
    return folder.logs / f"{name}.log"


def _tail(path: Path) -> str:
    with suppress(OSError), open(path, "rb") as file:
        file.seek(max(0, file.seek(0, 2) - LOG_TAIL_BYTES))
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
        command = shlex.join(with_launcher(program.command, signal.SIGKILL, _pid_file(folder)))
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
    """A value in supervisor's configuration. Raises SettingsInvalid if it cannot be escaped."""
    if _UNESCAPABLE.search(str(text)):
        raise SettingsInvalid(f"`abs up` does not support a path with a line break, ';', '#' or '%': {text}")
    return str(text)
