"""The messages between a worker and its fork server. They use one pair of sockets. None contains data of a caller.

worker to server    JOB, with two open files beside it: the request, and an empty one for the answer; or CANCEL
server to worker    one Report for each event: READY once, then STARTED and one of the ends for each job

Requests and answers bypass the server in files in memory, so the server never parses hostile data.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

JOB, CANCEL = b"J", b"C"

READY = b"redy"  # the server can take jobs
STARTED = b"strt"  # number: the id of the process that gets the job, and of its session; the last report counts
DONE = b"done"  # the answer is complete; its process is collected after this report, because that takes time
EXITED = b"exit"  # ended before it was done; number: the exit status, one of those below
SIGNALLED = b"sign"  # number: the signal
TIMED_OUT = b"time"  # killed by the server because it ran longer than `wall_s`
CANCELLED = b"canc"  # killed by the server at the worker's request
ENDS = (DONE, EXITED, SIGNALLED, TIMED_OUT, CANCELLED)

EXIT_DONE, EXIT_FAILED, EXIT_NO_MEMORY = 0, 1, 3  # done; a bug; an allocation failed

_REPORT = struct.Struct("<4sqq")
REPORT_BYTES = _REPORT.size


@dataclass(frozen=True, slots=True)
class Report:
    """One event. The kind defines `number`; `peak_bytes` is the job's peak memory beyond the server's."""

    kind: bytes
    number: int = 0
    peak_bytes: int = 0

    def pack(self) -> bytes:
        return _REPORT.pack(self.kind, self.number, self.peak_bytes)

    @staticmethod
    def unpack(data: bytes) -> Report:
        return Report(*_REPORT.unpack(data))


@dataclass(frozen=True, slots=True)
class Budget:
    """The resources that a job may use.

    wall_s        seconds on the clock
    cpu_s         whole seconds of processor time, for each of its processes
    memory_bytes  address space beyond what the server itself has
    file_bytes    size of each file it writes, its answer among them
    """

    wall_s: float
    cpu_s: int
    memory_bytes: int
    file_bytes: int
