"""Starts the compile sandbox within a fifth of its processor time.

In a run of several test processes, each has a process that its sandboxes are forked from, with all imports and full
caches. preforked.py starts them. The tables of JSON formats, which take half of the rest, are not compiled in advance:
a job that needs one compiles it. See quick_start.py.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, cast

from app.environment import child_environment
from app.settings import Settings
from app.worker.sandbox import client, compile_task, server
from compiler.json_schema import FORMATS
from compiler.vocab import byte_vocabulary
from tests.servers.forkserver import PREFORKED
from tests.servers.processes import START_S_MAX, die_with_parent, until

ORDER_BYTES_MAX = 2**16
TESTER = "PYTEST_XDIST_WORKER"  # environment variable: the name of the test process, whose services inherit it
NUMBER = struct.Struct("i")  # of a process, in what the system tells of a connection
_start_server = client.start_server


def open_job(setup: bytes) -> tuple[Callable[[bytes], bytes], bytes]:
    """The function from requests to answers, with a request to rehearse it."""
    *others, schema = compile_task.WARM_UP
    object_schema = schema["json_schema"]
    assert isinstance(object_schema, dict)
    properties = {name: each for name, each in object_schema["properties"].items() if name not in FORMATS}
    warm_up = (*others, {"json_schema": object_schema | {"properties": properties}})
    setattr(compile_task, "WARM_UP", warm_up)  # noqa: B010  # it is constant, as types go
    return compile_task.open_job(setup)


class ForkedServer:
    """A sandbox's server with the Popen methods that its client calls."""

    def __init__(self, boot: Mapping[str, object], files: Sequence[int]) -> None:
        self._line, _ = _connection()
        socket.send_fds(self._line, [json.dumps([boot, files, child_environment()]).encode()], files)
        self.pid, self.returncode = int(self._line.recv(16)), cast("int | None", None)

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            self._line.settimeout(timeout)
            try:
                self.returncode = int(self._line.recv(16))
            except TimeoutError:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0) from None
            self._line.close()
        return self.returncode

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)


def start_server(boot: Mapping[str, object], files: Sequence[int]) -> subprocess.Popen[bytes]:
    """Forks a sandbox's server where this run can, otherwise starts it."""
    if os.environ.get(PREFORKED):
        return cast("subprocess.Popen[bytes]", ForkedServer(boot, files))
    return _start_server(boot, files)


def parent_of_sandboxes() -> int | None:
    """The process that the sandboxes of this test process are forked from."""
    if not os.environ.get(PREFORKED):
        return None
    line, pid = _connection()
    line.close()
    return pid


def _connection() -> tuple[socket.socket, int]:
    """A connection to the process that forks sandboxes, and its number."""
    line, path = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET), Path(os.environ[PREFORKED], os.environ[TESTER])
    until(lambda: not line.connect_ex(str(path)), "sandboxes can be forked", START_S_MAX)
    credentials = line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 3 * NUMBER.size)
    return line, NUMBER.unpack_from(credentials)[0]


def serve(folder: Path, testers: int) -> NoReturn:
    """Forks a process for each test process. For each order it forks one that starts a sandbox's server."""
    open_job(compile_task.pack_setup(Settings(), byte_vocabulary()))
    gc.collect()
    gc.freeze()
    for tester in range(1, testers):
        if os.fork() == 0:
            die_with_parent()
            _serve(folder / f"gw{tester}")
    _serve(folder / "gw0")


def _serve(path: Path) -> NoReturn:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(str(path))
    listener.listen(64)
    while True:
        line, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            _run(line)
        line.close()
        with contextlib.suppress(ChildProcessError):  # reaped here, their processor time counts as that of this process
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass


def _run(line: socket.socket) -> NoReturn:
    order, opened, _, _ = socket.recv_fds(line, ORDER_BYTES_MAX, 2)
    if not order:
        os._exit(0)
    pid = os.fork()
    if pid == 0:
        line.close()
        _run_server(*json.loads(order), opened)
    for file in opened:
        os.close(file)
    with contextlib.suppress(OSError):  # the client has ended
        line.send(str(pid).encode())
        line.send(str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])).encode())
    os._exit(0)


def _run_server(boot: dict[str, Any], files: list[int], environment: dict[str, str], opened: list[int]) -> NoReturn:
    """Runs the server as after `client.start_server`. Its files have other numbers here."""
    try:
        os.setsid()
        os.chdir("/")
        os.environ.clear()
        os.environ.update(environment)
        sys.path[:] = boot.pop("path")
        number = dict(zip(files, opened, strict=True))
        server.main(**{**boot, "setup": number[boot["setup"]], "control": number[boot["control"]]})
    finally:
        traceback.print_exc()
        os._exit(1)
