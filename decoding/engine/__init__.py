"""Continuous batching: many generations through one model.

The scheduler admits requests by the memory that they may come to hold, and every decode step reads the rows of all of
them at once. Where memory runs out, a request is preempted and started over. What a generation answers does not depend
on the others.
"""

from __future__ import annotations

from decoding.engine.engine import Engine
from decoding.engine.memory import (
    describe_device,
    free_bytes,
    gpu_bytes,
    is_out_of_memory,
    release_memory,
    request_bytes_max,
)
from decoding.engine.top_tokens import TopTokensRecorder

__all__ = [
    "Engine", "TopTokensRecorder", "describe_device", "free_bytes", "gpu_bytes", "is_out_of_memory",
    "release_memory", "request_bytes_max",
]  # fmt: skip
