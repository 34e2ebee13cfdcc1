"""The worker's side of the sandbox. It sends requests to the processes of a fork server and says why one failed."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from app.environment import child_environment
from app.errors import InternalError
from app.worker.sandbox.server import DONE, EXIT_FAILED, EXIT_NO_MEMORY, REPORT, STARTED
from compiler.errors import CompileCancelled, LimitExceeded
from compiler.limits import Limits

GRACE_S = 2.0  # beyond compile_s_max: the compiler's own check comes first, and then the result is encoded
ANSWER_BYTES_MAX = 128 * 2**20
START_S_MAX = 120.0  # a large vocabulary on a busy machine
_LATE_S = 5.0  # time for a new process, beyond that of a job, after which the server counts as lost
_POLL_MS = 20  # interval of looks for a cancellation
_END_S_MAX = 1.0
_ATTEMPTS = 2
_CANCELLED, _TIMED_OUT = b"C", b"T"  # outcomes of a job, beside the messages of its process
_CRASHES = (signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS)
_BOOT = (
    "import json, sys; boot = json.loads(sys.argv[1]); sys.path[:] = boot.pop('path'); "
    "from app.worker.sandbox.server import main; main(**boot)"
)
log = logging.getLogger(__name__)


class Sandbox:
    """Runs requests one at a time, each in a process under `limits`.

    target  "module:function": called once with the bytes of `setup`, it returns the function from requests to answers.
            Any exception of that function except MemoryError is a bug
    The server is warm when the constructor returns. Raises InternalError if it does not start.
    """

    def __init__(self, target: str, setup: bytes, limits: Limits) -> None:
        self._target, self._setup, self._limits = target, setup, limits
        self._lock = threading.Lock()
        self._since: float | None = None  # start of the current attempt, None between requests
        self._server = _ForkServer(target, setup, limits)

    @property
    def pid(self) -> int:
        """The process id of the server."""
        return self._server.pid

    @property
    def overdue_s(self) -> float:
        """Seconds by which the current request exceeds all its limits.

        It is negative within them and without a request.
        """
        since = self._since
        return -math.inf if since is None else time.monotonic() - since - self._limits.compile_s_max - GRACE_S

    def run(self, request: bytes, cancelled: Callable[[], bool]) -> bytes:
        """The answer to a request.

        cancelled  called repeatedly; the job is killed once it returns True
        Raises LimitExceeded if the job exceeded its time or memory, CompileCancelled if it was cancelled, and
        InternalError if it died otherwise. A server that dies is replaced, and the request is sent once more.
        """
        with self._lock:
            try:
                for _ in range(_ATTEMPTS):
                    if cancelled():
                        raise CompileCancelled("the compilation was cancelled")
                    self._since = time.monotonic()
                    try:
                        return self._server.run(request, cancelled)
                    except _ProcessLost:
                        continue
                    except _ServerLost as error:
                        log.warning("the compile process is replaced: %s", error)
                        self._server.close()
                        self._server = _ForkServer(self._target, self._setup, self._limits)
                raise InternalError("the compile process died at every attempt")
            finally:
                self._since = None

    def close(self) -> None:
        """End the server, which otherwise ends with this object or process."""
        self._server.close()


def start_server(boot: Mapping[str, object], files: Sequence[int]) -> subprocess.Popen[bytes]:
    """Starts a server, which inherits open files. `boot` has the arguments of its `main`, and its import path."""
    return subprocess.Popen(
        [sys.executable, "-I", "-c", _BOOT, json.dumps(boot)],
        env=child_environment(),
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        pass_fds=files,
        start_new_session=True,
    )


class _ServerLost(Exception):
    """The fork server has ended or does not answer."""


class _ProcessLost(Exception):
    """The process of a job was killed before it started the job."""


class _ForkServer:
    """One process of the fork server."""

    def __init__(self, target: str, setup: bytes, limits: Limits) -> None:
        self._limits = limits
        self._seconds = limits.compile_s_max + GRACE_S
        self._control, theirs = socket.socketpair()
        directory = tempfile.mkdtemp(prefix="abs-compile-")
        with theirs, _file(setup) as setup_file:
            files = {"setup": setup_file.fileno(), "control": theirs.fileno()}
            boot = {
                "path": [os.path.abspath(entry) for entry in sys.path],
                "target": target,
                **files,
                "directory": directory,
                "cpu_s": math.ceil(self._seconds),
                "memory_bytes": limits.compile_memory_bytes_max,
                "file_bytes": ANSWER_BYTES_MAX,
            }
            self._process = start_server(boot, tuple(files.values()))
        # Runs at the end of this process too, so no server stays behind.
        self._standby: list[socket.socket] = []  # that of the next process; empty until its report is read
        self._end = weakref.finalize(self, _end, self._process, self._control, self._standby, directory)
        self._job = 0  # the id of the last process for a job, and of its session
        try:
            self._read_report(START_S_MAX)
        except _ServerLost as error:
            self.close()
            raise InternalError(f"the compile process does not start ({error}): see the worker's log") from error

    @property
    def pid(self) -> int:
        return self._process.pid

    def run(self, request: bytes, cancelled: Callable[[], bool]) -> bytes:
        """The answer to a request. Raises _ServerLost, _ProcessLost, and the errors of Sandbox.run."""
        if not self._standby:
            self._read_report(self._seconds + _LATE_S)
        with self._standby.pop() as process, _file(request) as order, _file() as answer:
            with contextlib.suppress(OSError):  # it has just died, as will be seen
                socket.send_fds(process, [b"J"], [order.fileno(), answer.fileno()])
            outcome = self._wait(process, cancelled)
            with contextlib.suppress(OSError):  # the server is gone, as will be seen
                self._control.sendall(b"E")
            if outcome == DONE:  # the next job reads the report, because the end of a process takes time
                answer.seek(0)
                return answer.read()
        raise self._reason(outcome, *self._read_report(self._seconds + _LATE_S))

    def _wait(self, process: socket.socket, cancelled: Callable[[], bool]) -> bytes:
        """Wait until a job is done, cancelled, late or dead.

        The result is DONE, _CANCELLED, _TIMED_OUT, or the last message of a process that died.
        """
        events, message, ends = select.poll(), b"", time.monotonic() + self._seconds
        events.register(process, select.POLLIN)
        while time.monotonic() < ends:
            if events.poll(_POLL_MS):
                last, message = message, _receive(process)
                if message != STARTED:
                    return message or last
            elif cancelled():
                return _CANCELLED
        return _TIMED_OUT

    def _reason(self, outcome: bytes, status: int, peak_bytes: int) -> Exception:
        """Why a job has no answer. `status` and `peak_bytes` are those of its process."""
        seconds, cap = self._limits.compile_s_max, self._limits.compile_memory_bytes_max
        if outcome == _CANCELLED:
            return CompileCancelled("the compilation was cancelled")
        if outcome == _TIMED_OUT or status == -signal.SIGXCPU:
            return LimitExceeded("compile_s_max", seconds, self._seconds)
        if outcome != STARTED and status == -signal.SIGKILL:
            return _ProcessLost()
        # Libraries abort without memory, or raise what is no Exception, as those in Rust do.
        starved = (status == EXIT_FAILED or -status in _CRASHES) and peak_bytes > cap / 2
        # A signal that we did not send is from a system short of memory.
        if starved or status in (EXIT_NO_MEMORY, -signal.SIGKILL):
            return LimitExceeded("compile_memory_bytes_max", cap, peak_bytes)
        how = signal.Signals(-status).name if status < 0 else f"exit status {status}"
        return InternalError(f"the process of a compilation ended by itself ({how})")

    def _read_report(self, within_s: float) -> tuple[int, int]:
        """Wait for the next process. Returns the status and the peak memory of the last. Raises _ServerLost."""
        self._control.settimeout(within_s)
        try:
            report, opened, _, _ = socket.recv_fds(self._control, REPORT.size, 1)
        except OSError as error:
            raise _ServerLost("it does not answer") from error
        if not opened:
            raise _ServerLost("it is gone")
        os.set_inheritable(opened[0], False)
        self._standby.append(socket.socket(fileno=opened[0]))
        self._job, status, peak_bytes = REPORT.unpack(report)
        return status, peak_bytes

    def close(self) -> None:
        """End the server. Processes of its last job that it could not end are killed."""
        self._end()
        if self._process.returncode != 0 and self._job:
            _end_session(self._job)


def _end(
    process: subprocess.Popen[bytes], control: socket.socket, standby: list[socket.socket], directory: str
) -> None:
    """End a server by closing its socket, and remove its directory. A server that does not end is killed."""
    for opened in (control, *standby):
        opened.close()  # the server ends its job before itself, so killing it comes second
    try:
        process.wait(_END_S_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    shutil.rmtree(directory, ignore_errors=True)


def _end_session(session: int) -> None:
    """Kill every process of a session whose server died before it could."""
    # By session, because the processes of a job may be in several process groups.
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # ended meanwhile
            fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
            if int(fields[3]) == session:
                os.kill(int(entry.name), signal.SIGKILL)


def _receive(process: socket.socket) -> bytes:
    """The next message of a process. It is empty once the process has ended."""
    try:
        return process.recv(1)
    except OSError:
        return b""


@contextlib.contextmanager
def _file(content: bytes = b"") -> Iterator[IO[bytes]]:
    """An open file without a name that contains `content`. On Linux it is in memory."""
    memory = sys.platform == "linux"
    with os.fdopen(os.memfd_create("abs-job"), "w+b") if memory else tempfile.TemporaryFile() as file:
        file.write(content)
        file.seek(0)
        yield file
