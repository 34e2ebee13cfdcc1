"""The operators of a block and their memory, by PyTorch's profiler."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch.profiler import ProfilerActivity, profile


@dataclass
class RecordedOperators:
    """The record of a block, complete at its end.

    counted  how often each operator ran, also inside other operators
    peak     the most bytes alive at once that the block allocated, with what kernels allocate for themselves
    """

    counted: Counter[str] = field(default_factory=Counter)
    peak: int = 0


@contextlib.contextmanager
def recorded_operators(*, memory: bool = False) -> Iterator[RecordedOperators]:
    """Record the operators of the body, and its memory if asked for."""
    record = RecordedOperators()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=memory) as profiler:
        yield record
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        events: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    record.counted.update(event["name"].removeprefix("aten::") for event in events if event.get("cat") == "cpu_op")
    alive: dict[int, int] = {}  # the bytes at each address; what was allocated earlier may end here and does not count
    total = 0
    for event in sorted((event for event in events if event["name"] == "[memory]"), key=lambda event: event["ts"]):
        address, size = event["args"]["Addr"], event["args"]["Bytes"]
        total += size if size > 0 else -alive.pop(address, 0)
        if size > 0:
            alive[address] = size
        record.peak = max(record.peak, total)
