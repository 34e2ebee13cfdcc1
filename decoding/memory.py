"""How much memory a device still has, and what it looks like when that is not enough."""

from __future__ import annotations

import os
from pathlib import Path

import torch

_CGROUPS = (  # what a container may use, and what it does: version 2, version 1
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)

_FAILURES = (  # what libraries say whose errors have no class of their own for it
    "out of memory", "can't allocate memory", "ALLOC_FAILED", "could not create a memory",
)  # fmt: skip


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
