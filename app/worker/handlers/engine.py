"""The memory of the engine, and the reports of its progress."""

from __future__ import annotations

import logging
from typing import Any

from app.messages import GenerationOptions
from app.observability import metrics
from app.settings import MEASURED, Settings
from decoding.engine import free_bytes
from decoding.model import LanguageModel

FREE_SHARE = 4  # generations may use the free memory divided by this
TRACE_STEP_BYTES, TRACE_TOKEN_BYTES = 2**11, 2**9  # of a token in a trace, and of an alternative to it
log = logging.getLogger(__name__)


class EngineWatch:
    """Reports the engine's progress to the metrics. Lack of memory goes to the log. Called by the engine's thread."""

    def began(self, seconds: float) -> None:
        metrics.FIRST_STEP_SECONDS.observe(seconds)
        metrics.LAST_STEP.set_to_current_time()

    def stepped(self, seconds: float, rows: int) -> None:
        metrics.STEP_SECONDS.observe(seconds)
        metrics.BATCH_SIZE.observe(rows)
        metrics.LAST_STEP.set_to_current_time()

    def ran_out(self, action: str) -> None:
        metrics.OUT_OF_MEMORY.labels(action).inc()
        log.warning("the memory of the model's device ran out: %s", action.replace("_", " "))


def memory_bytes(model: LanguageModel[Any], settings: Settings) -> int:
    """The memory in bytes for all generations together."""
    if settings.inference.generation_memory_bytes != MEASURED:
        return settings.inference.generation_memory_bytes
    share = free_bytes(model.device) // FREE_SHARE
    log.info("generations may hold %d MiB on %s; ABS_GENERATION_MEMORY_BYTES sets it", share >> 20, model.device)
    return share


def trace_bytes(options: GenerationOptions) -> int:
    """The most bytes of the traces of all answers."""
    if not options.trace:
        return 0
    return options.n * options.max_tokens * (TRACE_STEP_BYTES + TRACE_TOKEN_BYTES * options.top_log_probs)
