"""What a worker and its fork server say to each other, over one pair of sockets. Nothing in it comes from a caller.

worker to server    JOB, with two open files beside it: the request, and an empty one for the answer; or CANCEL
server to worker    one Report for each event: READY once, then STARTED and one of the ends for each job

Requests and answers go past the server, in files that live in memory: a hostile one never touches it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

JOB, CANCEL = b"J", b"C"

READY = b"redy"  # the server can take jobs
STARTED = b"strt"  # number: the id of the process that gets the job, and of its session; the last one said counts
DONE = b"done"  # the answer is complete; its process is collected after this is said, for that takes a while
EXITED = b"exit"  # ended before it was done; number: the exit status, one of those below
SIGNALLED = b"sign"  # number: the signal
TIMED_OUT = b"time"  # killed by the server, as it ran longer than `wall_s`
CANCELLED = b"canc"  # killed by the server, as the worker asked for it
ENDS = (DONE, EXITED, SIGNALLED, TIMED_OUT, CANCELLED)

EXIT_DONE, EXIT_FAILED, EXIT_NO_MEMORY = 0, 1, 3  # done; a bug; an allocation failed

_REPORT = struct.Struct("<4sqq")
REPORT_BYTES = _REPORT.size


@dataclass(frozen=True, slots=True)
class Report:
    """One event. `number` as its kind says; `peak_bytes` is the most that the job held beyond the server."""

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
    """What a job may use.

    wall_s        seconds on the clock
    cpu_s         whole seconds of processor time, for each of its processes
    memory_bytes  address space beyond what the server itself has
    file_bytes    size of each file it writes, its answer among them
    """

    wall_s: float
    cpu_s: int
    memory_bytes: int
    file_bytes: int
