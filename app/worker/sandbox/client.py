"""The worker's side of the sandbox. It sends requests to a fork server and reports why one failed."""

from __future__ import annotations

import contextlib
import dataclasses
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
from collections.abc import Callable, Iterator
from pathlib import Path

from app.errors import InternalError
from app.settings import child_environment
from app.worker.sandbox import protocol
from app.worker.sandbox.protocol import Budget, Report
from compiler.errors import CompileCancelled, LimitExceeded
from compiler.limits import Limits

GRACE_S = 2.0  # beyond compile_s_max: the compiler's own check comes first, and then the result is encoded
ANSWER_BYTES_MAX = 128 * 2**20
START_S_MAX = 120.0  # a large vocabulary on a busy machine
_LATE_S = 5.0  # delay of a report after which the server counts as lost
_POLL_MS = 20  # interval of looks for a cancellation
_END_S_MAX = 1.0
_ATTEMPTS = 2
_CRASHES = (signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS)
_BOOT = (
    "import json, sys; boot = json.loads(sys.argv[1]); sys.path[:] = boot.pop('path'); "
    "from app.worker.sandbox.server import main; main(boot)"
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
        self._server = self._start()

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
                return self._attempts(request, cancelled)
            finally:
                self._since = None

    def _attempts(self, request: bytes, cancelled: Callable[[], bool]) -> bytes:
        for _ in range(_ATTEMPTS):
            if cancelled():
                raise CompileCancelled("the compilation was cancelled")
            self._since = time.monotonic()
            with _file(request) as order, _file() as answer:
                try:
                    ended = self._server.run(order, answer, cancelled)
                except _ServerLost as error:
                    log.warning("the compile process is replaced: %s", error)
                    self._server.close()
                    self._server = self._start()
                    continue
                if ended.kind == protocol.DONE:
                    return _content(answer)
                raise self._reason(ended)
        raise InternalError("the compile process died at every attempt")

    def close(self) -> None:
        """End the server, which otherwise ends with this object or process."""
        self._server.close()

    def _start(self) -> _ForkServer:
        budget = Budget(
            wall_s=self._limits.compile_s_max + GRACE_S,
            cpu_s=math.ceil(self._limits.compile_s_max + GRACE_S),
            memory_bytes=self._limits.compile_memory_bytes_max,
            file_bytes=ANSWER_BYTES_MAX,
        )
        return _ForkServer(self._target, self._setup, budget)

    def _reason(self, ended: Report) -> Exception:
        """Why a job has no answer."""
        seconds, cap = self._limits.compile_s_max, self._limits.compile_memory_bytes_max
        signalled = ended.kind == protocol.SIGNALLED
        if ended.kind == protocol.CANCELLED:
            return CompileCancelled("the compilation was cancelled")
        if ended.kind == protocol.TIMED_OUT or (signalled and ended.number == signal.SIGXCPU):
            return LimitExceeded("compile_s_max", seconds, seconds + GRACE_S)
        starved = ended.number in _CRASHES and ended.peak_bytes > cap / 2  # libraries abort without memory
        killed = ended.number == signal.SIGKILL  # not by us, so by a system short of memory
        reported = (ended.kind, ended.number) == (protocol.EXITED, protocol.EXIT_NO_MEMORY)
        if reported or (signalled and (starved or killed)):
            return LimitExceeded("compile_memory_bytes_max", cap, ended.peak_bytes)
        how = signal.Signals(ended.number).name if signalled else f"exit status {ended.number}"
        return InternalError(f"the process of a compilation ended by itself ({how})")


class _ServerLost(Exception):
    """The fork server has ended or does not answer."""


class _ForkServer:
    """One process of the fork server."""

    def __init__(self, target: str, setup: bytes, budget: Budget) -> None:
        self._budget = budget
        self._job: int | None = None  # the session of the last job that started
        self._control, theirs = socket.socketpair()
        directory = tempfile.mkdtemp(prefix="abs-compile-")
        with theirs, _file(setup) as opened:
            boot = {
                "path": [os.path.abspath(entry) for entry in sys.path],
                "target": target,
                "directory": directory,
                "control": theirs.fileno(),
                "setup": opened,
                "budget": dataclasses.asdict(budget),
            }
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-c", _BOOT, json.dumps(boot)],
                env=child_environment(),
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(), opened),
                start_new_session=True,
            )
        # Runs at the end of this process too, so no server stays behind.
        self._end = weakref.finalize(self, _end, self._process, self._control, directory)
        try:
            self._next_report(time.monotonic() + START_S_MAX)
        except _ServerLost as error:
            self.close()
            raise InternalError(f"the compile process does not start ({error}): see the worker's log") from error

    @property
    def pid(self) -> int:
        return self._process.pid

    def run(self, request: int, answer: int, cancelled: Callable[[], bool]) -> Report:
        """Run a job on two open files and return how it ended. Raises _ServerLost."""
        self._job = None
        late = time.monotonic() + self._budget.wall_s + _LATE_S
        try:
            socket.send_fds(self._control, [protocol.JOB], [request, answer])
        except OSError as error:
            raise _ServerLost("it is gone") from error
        while True:
            report = self._next_report(late, cancelled)
            if report.kind in protocol.ENDS:
                return report
            self._job = report.number

    def close(self) -> None:
        """End the server. Processes of its last job that it could not end are killed."""
        self._end()
        if self._process.returncode != 0 and self._job is not None:
            _end_session(self._job)

    def _next_report(self, late: float, cancelled: Callable[[], bool] = lambda: False) -> Report:
        """The server's next report; a cancellation is sent to it once. Raises _ServerLost."""
        events, cancel_sent = select.poll(), False
        events.register(self._control, select.POLLIN)
        try:
            while time.monotonic() < late:
                if events.poll(_POLL_MS):
                    data = self._control.recv(protocol.REPORT_BYTES, socket.MSG_WAITALL)
                    if len(data) == protocol.REPORT_BYTES:
                        return Report.unpack(data)
                    raise _ServerLost("it is gone")
                if not cancel_sent and cancelled():
                    self._control.sendall(protocol.CANCEL)
                    cancel_sent = True
        except OSError as error:
            raise _ServerLost("it is gone") from error
        raise _ServerLost("it does not answer")


def _end(process: subprocess.Popen[bytes], control: socket.socket, directory: str) -> None:
    """End a server by closing its socket, and remove its directory. A server that does not end is killed."""
    control.close()  # the server ends its job before itself, so killing it comes second
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


@contextlib.contextmanager
def _file(content: bytes = b"") -> Iterator[int]:
    """An open file without a name that contains `content`. On Linux it is in memory. Its position is 0."""
    with contextlib.ExitStack() as stack:
        if sys.platform == "linux":
            opened = os.memfd_create("abs-job")
            stack.callback(os.close, opened)
        else:
            opened = stack.enter_context(tempfile.TemporaryFile()).fileno()
        with os.fdopen(opened, "wb", closefd=False) as file:
            file.write(content)
        os.lseek(opened, 0, os.SEEK_SET)
        yield opened


def _content(opened: int) -> bytes:
    """The content of an open file."""
    with os.fdopen(opened, "rb", closefd=False) as file:
        file.seek(0)
        return file.read()
