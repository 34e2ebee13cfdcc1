"""The memory of a device, and the limits that admission control keeps.

The limits begin with the configured values. Where memory runs out, the limit concerned falls to the amount that held,
so that the next step does not fail in the same way. After OK_STEPS steps without failure the limits rise by half, since
other users of the memory may have released it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import torch

ROWS_MAX = 2**62  # of a pass while no pass has failed
SMALL_SHARE = 8  # requests of at most the memory divided by this are small
OK_STEPS = 256  # after this many steps without failure, lowered limits rise by half
_CGROUPS = (  # a container's limit and its use: version 2, version 1
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)
_FAILURES = (  # in the messages of libraries that raise no class of their own for it
    "out of memory", "can't allocate memory", "ALLOC_FAILED", "could not create a memory",
)  # fmt: skip
T = TypeVar("T")


def small_bytes(memory_bytes: int) -> int:
    """The size of a small request. Those that overtake hold it together."""
    return memory_bytes // SMALL_SHARE


def request_bytes_max(memory_bytes: int) -> int:
    """The most that one request may take. It leaves room for small ones, so that no request keeps them waiting."""
    return memory_bytes - small_bytes(memory_bytes)


class MemoryBudget:
    """The limits at present.

    memory_bytes  of all running generations together; a generation by itself may always be tried
    rows          of one pass; the rows of one generation always share a pass, so that its bits stay the same

    >>> budget = MemoryBudget(memory_bytes=1000, rows=8)
    >>> list(budget.passes([5, 2, 4], rows_of=int))
    [[5, 2], [4]]
    """

    def __init__(self, memory_bytes: int, rows: int = ROWS_MAX) -> None:
        self.memory_bytes, self._memory_bytes_max = memory_bytes, memory_bytes
        self.rows, self._rows_max = rows, rows
        self._ok_steps = 0

    def on_request_oom(self, remaining_bytes: int) -> None:
        """Lower the limit after a generation found no memory.

        The new limit is the most that the remaining ones may come to hold.
        """
        # The remaining generations fit, since they go on running.
        self.memory_bytes, self._ok_steps = min(self.memory_bytes, remaining_bytes), 0

    def on_pass_oom(self, rows_ok: int) -> None:
        """A pass was split. `rows_ok`: the most rows that a pass of the same step then held."""
        self.rows, self._ok_steps = max(1, min(self.rows, rows_ok)), 0

    def on_step_ok(self) -> None:
        """A step found the memory for all its passes."""
        self._ok_steps += 1
        if self._ok_steps == OK_STEPS:
            self._ok_steps = 0
            self.rows = min(self._rows_max, _raise_limit(self.rows))
            self.memory_bytes = min(self._memory_bytes_max, _raise_limit(self.memory_bytes))

    def passes(self, feeds: Iterable[T], rows_of: Callable[[T], int]) -> Iterator[list[T]]:
        """The feeds of a step in as few passes as possible. They keep their order, and each pass has at least one."""
        group: list[T] = []
        rows = 0
        # Greedy and in order: a feed that is larger than the limit gets a pass by itself.
        for feed in feeds:
            if group and rows + rows_of(feed) > self.rows:
                yield group
                group, rows = [], 0
            group.append(feed)
            rows += rows_of(feed)
        if group:
            yield group


def _raise_limit(limit: int) -> int:
    return limit + max(1, limit // 2)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether something failed for lack of memory, on whatever device."""
    # Libraries of matrix products raise a plain RuntimeError, which only its message tells apart.
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _FAILURES)


def release_memory(device: torch.device) -> None:
    """Release the GPU memory that PyTorch caches. Its blocks may be too small for the next allocation."""
    if device.type == "cuda":
        torch.cuda.empty_cache()


def free_bytes(device: torch.device | None = None) -> int:
    """Bytes that could be allocated on a device now. Those of the CPU are this machine's or its container's."""
    if device is not None and device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return min([_available_bytes(), *(left for left in map(_free_bytes_of, _CGROUPS) if left is not None)])


def gpu_bytes(device: torch.device) -> dict[str, int]:
    """A GPU's memory in bytes: free, total, and reserved by this process. Empty for another device."""
    if device.type != "cuda":
        return {}
    free, total = torch.cuda.mem_get_info(device)
    return {"free": free, "total": total, "reserved": torch.cuda.memory_reserved(device)}


def describe_device(name: str) -> str:
    """Describe the device of this name in words.

    "auto" means the device that a model is loaded on. Raises RuntimeError where there is no such device.
    """
    device = torch.device(("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else name)
    torch.zeros(1, device=device).add(1)  # a driver that does not fit fails here, not at the first request
    kind = torch.cuda.get_device_name(device) if device.type == "cuda" else f"{torch.get_num_threads()} threads"
    return f"{device}: {kind}, {free_bytes(device) / 2**30:.1f} GiB free, torch {torch.__version__}"


def _available_bytes() -> int:
    """The bytes that the system could allocate without swapping.

    It is the total memory where the system does not report them.
    """
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))


def _free_bytes_of(cgroup: tuple[str, str]) -> int | None:
    """The bytes that a control group leaves. None where there is none or it sets no limit ("max")."""
    try:
        limit, used = (Path(path).read_text(encoding="ascii").strip() for path in cgroup)
        return max(0, int(limit) - int(used))
    except (OSError, ValueError):
        return None
