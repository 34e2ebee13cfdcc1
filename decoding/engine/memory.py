"""How much memory a device has, and the limits that admission control keeps on it.


The limits begin with the configured values. Where memory runs out, the limit concerned falls to what has held, so that
the next step does not fail in the same way. After SOUND_STEPS steps without failure the limits rise by half, since
other users of the memory may have released it. The module knows no model.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import torch

ROWS_MAX = 2**62  # of a pass about which nothing is known yet
SOUND_STEPS = 256  # after this many steps without failure, lowered limits rise by half
_CGROUPS = (  # what a container may use, and what it does: version 2, version 1
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)

_FAILURES = (  # what libraries say whose errors have no class of their own for it
    "out of memory", "can't allocate memory", "ALLOC_FAILED", "could not create a memory",
)  # fmt: skip
T = TypeVar("T")


class MemoryBudget:
    """The limits as they are now.

    memory_bytes  what the generations that run may come to hold together; one by itself may always be tried
    rows          of one pass; the rows of one generation are never parted, so that its bits stay the same
    """

    def __init__(self, memory_bytes: int, rows: int = ROWS_MAX) -> None:
        self.memory_bytes, self._memory_bytes_most = memory_bytes, memory_bytes
        self.rows, self._rows_most = rows, rows
        self._sound = 0

    def crowd_failed(self, left_bytes: int) -> None:
        """A generation found no memory.

        left_bytes  what the remaining generations may come to hold; the limit falls to it
        """
        self.memory_bytes, self._sound = min(self.memory_bytes, left_bytes), 0

    def pass_failed(self, rows_held: int) -> None:
        """A pass had to be parted. `rows_held`: the most rows that were then read at once."""
        self.rows, self._sound = max(1, min(self.rows, rows_held)), 0

    def step_held(self) -> None:
        """A step found the memory for all its passes."""
        self._sound += 1
        if self._sound == SOUND_STEPS:
            self._sound = 0
            self.rows = min(self._rows_most, _raised(self.rows))
            self.memory_bytes = min(self._memory_bytes_most, _raised(self.memory_bytes))

    def passes(self, parts: Iterable[T], rows_of: Callable[[T], int]) -> Iterator[list[T]]:
        """The parts of a step in as few passes as may be, in their order; each has one at least."""
        group: list[T] = []
        rows = 0
        for part in parts:
            if group and rows + rows_of(part) > self.rows:
                yield group
                group, rows = [], 0
            group.append(part)
            rows += rows_of(part)
        if group:
            yield group


def _raised(limit: int) -> int:
    return limit + max(1, limit // 2)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether something failed for want of memory, on whatever device."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _FAILURES)


def release_memory(device: torch.device) -> None:
    """Give back what PyTorch keeps of a GPU's memory for later: in pieces it may be too small for what is wanted."""
    if device.type == "cuda":
        torch.cuda.empty_cache()


def free_bytes(device: torch.device) -> int:
    """Bytes that could be allocated on a device now: a GPU's own, else what this machine or its container has left."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return min([_available(), *(left for left in map(_left_of, _CGROUPS) if left is not None)])


def gpu_bytes(device: torch.device) -> dict[str, int]:
    """A GPU's memory in bytes: free, total, and what this process has taken of it. Empty for another device."""
    if device.type != "cuda":
        return {}
    free, total = torch.cuda.mem_get_info(device)
    return {"free": free, "total": total, "reserved": torch.cuda.memory_reserved(device)}


def describe_device(name: str) -> str:
    """The device of this name, "auto" as a model is loaded with it, in words. Raises RuntimeError where it has none."""
    device = torch.device(("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else name)
    torch.zeros(1, device=device).add(1)
    known = torch.cuda.get_device_name(device) if device.type == "cuda" else f"{torch.get_num_threads()} threads"
    return f"{device}: {known}, {free_bytes(device) / 2**30:.1f} GiB free, torch {torch.__version__}"


def _available() -> int:
    """What the system would give without swapping; where it does not say so, what it has in all."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))


def _left_of(cgroup: tuple[str, str]) -> int | None:
    """What a control group leaves, None where there is none or it sets no limit."""
    try:
        limit, used = (Path(path).read_text(encoding="ascii").strip() for path in cgroup)
        return max(0, int(limit) - int(used))
    except (OSError, ValueError):
        return None
