"""Keeps the processes of `abs up` alive. They are its children, and their output passes through it."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from logging.handlers import RotatingFileHandler
from pathlib import Path

from app.errors import AppError
from app.local.folder import Folder

LOG_BYTES = 10_000_000
LOG_BACKUPS = 2
LOG_TAIL_BYTES = 2_000
OUTPUT_S = 1.0  # time to read the output of a process that has ended
QUICK_S = 10.0  # a process that ends earlier has hardly started
QUICK_EXITS_MAX = 20  # in a row
BACKOFF_S, BACKOFF_S_MAX = 0.1, 5.0  # before a restart; doubled by each quick end in a row
EventSink = Callable[[Mapping[str, object]], None]


class LocalFailed(AppError):
    """A process of `abs up` has failed. The message ends with its log."""


@dataclass(frozen=True, slots=True)
class Program:
    """A process to keep alive. Processes of higher rank stop first, those of one rank together.

    grace_s      time to end before it is killed
    environment  variables besides those of every process
    """

    name: str
    command: tuple[str, ...]
    rank: int
    grace_s: float
    environment: Mapping[str, str] = field(default_factory=dict)


class Supervisor:
    """Runs programs, and restarts those that end.

    emit      receives an object for each process that ended or started again
    restarts  whether a process that ends is restarted; until it is set, such an end is a failure
    failure   raises LocalFailed after a failure, or once a program has exited too often soon after its start
    """

    def __init__(
        self, folder: Folder, programs: tuple[Program, ...], environment: Mapping[str, str], emit: EventSink
    ) -> None:
        self.restarts, self.failure = False, asyncio.get_running_loop().create_future()
        self._folder, self._environment, self._emit = folder, environment, emit
        self._programs = {program.name: program for program in programs}
        self._logs = {name: _log_file(folder, name) for name in self._programs}
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._readers: set[asyncio.Task[None]] = set()
        self._stopping = False

    @property
    def pids(self) -> dict[str, int]:
        """The process id of each running program."""
        return {name: process.pid for name, process in self._processes.items()}

    def start(self, name: str) -> None:
        """Start a program, and keep it alive from now on."""
        self._tasks[name] = asyncio.create_task(self._keep_alive(self._programs[name]))

    def require_success(self) -> None:
        """Raises LocalFailed after a failure."""
        if self.failure.done():
            self.failure.result()

    async def stop(self) -> None:
        """Stop all programs in their order. Those that do not end in time are killed."""
        self._stopping = True
        for rank in sorted({program.rank for program in self._programs.values()}, reverse=True):
            programs = [program for program in self._programs.values() if program.rank == rank]
            await asyncio.gather(*(self._stop(program) for program in programs))
        for reader in self._readers:
            reader.cancel()
        for log in self._logs.values():
            log.close()

    def kill(self) -> None:
        """Kill all processes. `stop` then ends at once."""
        self._stopping = True
        for process in self._processes.values():
            _send(process, signal.SIGKILL)

    async def _stop(self, program: Program) -> None:
        task, process = self._tasks.get(program.name), self._processes.get(program.name)
        if task is None:
            return
        if process is None:
            task.cancel()  # it waits for its restart, or has failed
            await asyncio.wait({task})
            return
        _send(process, signal.SIGTERM)
        if not (await asyncio.wait({task}, timeout=program.grace_s))[0]:
            _send(process, signal.SIGKILL)
            await asyncio.wait({task})

    async def _keep_alive(self, program: Program) -> None:
        quick_ends = quick_exits = 0
        try:
            while True:
                started = time.monotonic()
                status = await self._run_once(program)
                if self._stopping:
                    return
                quick = time.monotonic() - started < QUICK_S
                quick_ends = quick_ends + 1 if quick else 0
                # SIGKILL comes from outside, such as from the kernel when memory runs out: a restart may succeed.
                quick_exits = quick_exits + 1 if quick and status != -signal.SIGKILL else 0
                if not self.restarts or quick_exits >= QUICK_EXITS_MAX:
                    raise LocalFailed(self._message(program.name, status))
                await asyncio.sleep(min(BACKOFF_S_MAX, BACKOFF_S * 2**quick_ends))
        except (LocalFailed, OSError) as error:
            if not self.failure.done():
                self.failure.set_exception(error)

    async def _run_once(self, program: Program) -> int:
        """Start a program and wait for its end. Returns its exit status, or minus the number of its signal."""
        # Not asyncio's own pipe: `wait` would then last until the children of the process have closed it, too.
        read_end, write_end = os.pipe()
        reader = asyncio.create_task(self._pass_on(program.name, read_end))
        self._readers.add(reader)
        reader.add_done_callback(self._readers.discard)
        try:
            process = await asyncio.create_subprocess_exec(
                # Each process ends with the supervisor, even if the supervisor is killed.
                *with_launcher(program.command, signal.SIGKILL, os.getpid()),
                env={**self._environment, **program.environment}, stdin=asyncio.subprocess.DEVNULL,
                stdout=write_end, stderr=asyncio.subprocess.STDOUT, pass_fds=(self._folder.lock,),
                # Ctrl-C in a terminal then reaches the supervisor only, which stops the programs in order. They stay in
                # its session, because Linux compares the niceness of processes within a session only (autogroups).
                process_group=0,
            )
        finally:
            os.close(write_end)
        self._processes[program.name] = process
        if self.restarts:
            self._emit({"event": "started", "process": program.name, "pid": process.pid})
        status = await process.wait()
        del self._processes[program.name]
        await asyncio.wait({reader}, timeout=OUTPUT_S)
        if self.restarts:
            self._emit({"event": "ended", "process": program.name, "pid": process.pid, "status": status})
        return status

    async def _pass_on(self, name: str, read_end: int) -> None:
        """Copy output to the log, and with the name to standard error."""
        output, rest = asyncio.StreamReader(), b""
        with open(read_end, "rb", buffering=0) as pipe:
            loop = asyncio.get_running_loop()
            transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(output), pipe)
            with closing(transport):  # a child of the program may hold the pipe open to the end
                while chunk := await output.read(2**16):
                    *lines, rest = (rest + chunk).split(b"\n")
                    self._write(name, lines)
        self._write(name, [rest] if rest else [])

    def _write(self, name: str, lines: list[bytes]) -> None:
        texts = [line.decode(errors="replace") for line in lines]
        for text in texts:
            self._logs[name].emit(logging.makeLogRecord({"msg": text}))
        # The reader of standard error may have closed it.
        with suppress(OSError):
            sys.stderr.writelines(f"{name} | {text}\n" for text in texts)
            sys.stderr.flush()

    def _message(self, name: str, status: int) -> str:
        how = f"ended by {signal.Signals(-status).name}" if status < 0 else f"exited with status {status}"
        when = f"within {QUICK_S:g} s of its start, {QUICK_EXITS_MAX} times" if self.restarts else "at its start"
        return f"the process {name} {how} {when}; its log:\n{_tail(log_of(self._folder, name))}"


def with_launcher(command: tuple[str, ...], last_signal: signal.Signals, parent: int) -> tuple[str, ...]:
    """The command behind a launcher. The launcher sends it `last_signal` when the process `parent` ends."""
    return (sys.executable, "-m", "app.local.launcher", str(int(last_signal)), str(parent), *command)


def log_of(folder: Folder, name: str) -> Path:
    """The file of a program's output."""
    return folder.logs / f"{name}.log"


def _log_file(folder: Folder, name: str) -> RotatingFileHandler:
    path = log_of(folder, name)
    return RotatingFileHandler(path, maxBytes=LOG_BYTES, backupCount=LOG_BACKUPS, encoding="utf-8", delay=True)


def _send(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        process.send_signal(number)


def _tail(path: Path) -> str:
    with suppress(OSError), open(path, "rb") as file:
        file.seek(max(0, file.seek(0, 2) - LOG_TAIL_BYTES))
        return file.read().decode(errors="replace").strip()
    return ""
