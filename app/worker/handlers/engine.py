"""A worker's model, its memory, and the reports of its progress."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Any

from app.environment import group_environment
from app.messages import GenerationOptions
from app.observability import logs, metrics
from app.settings import MEASURED, Settings
from decoding.engine import free_bytes, request_bytes_max
from decoding.model import HuggingFaceModel, LanguageModel, TensorParallelModel
from decoding.tensors import CudaCapture, Graphs

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


def open_model(
    folder: str, settings: Settings, adapters: Mapping[str, str]
) -> HuggingFaceModel | TensorParallelModel:
    """Load the model, into several processes where the settings say so. Those are the ones that `close_model` ends.

    adapters  folders of LoRA adapters by their names
    """
    inference = settings.inference
    if inference.tensor_parallel == 1:
        model = HuggingFaceModel.load(
            folder, device=inference.device, dtype=inference.dtype, batch_invariant=inference.batch_invariant
        )
        model.add_adapters(adapters)
        model.keep_prompts(inference.prompt_cache_bytes, metrics.prompt_chunk)
        return model
    return TensorParallelModel.load(
        folder, size=inference.tensor_parallel, device=inference.device, dtype=inference.dtype,
        timeout_s=settings.process.stall_timeout_s, adapters=adapters, batch_invariant=inference.batch_invariant,
        environment=group_environment(), on_loss=_end_process,
    )


def open_graphs(model: LanguageModel[Any], settings: Settings) -> Graphs | None:
    """The CUDA graphs of a model's searches.

    None where the settings ask for none, or the model is on no GPU.
    """
    if not settings.inference.cuda_graphs:
        return None
    if model.device.type != "cuda":
        log.warning("ABS_CUDA_GRAPHS has no effect: the model is on the device %s", model.device)
        return None
    return Graphs(CudaCapture(model.device))


def close_model(model: LanguageModel[Any]) -> None:
    """End the other processes that share the model."""
    if isinstance(model, TensorParallelModel):
        model.close()


def ranks_alive(model: LanguageModel[Any]) -> int:
    """The number of processes that share the model and are alive."""
    return model.ranks_alive if isinstance(model, TensorParallelModel) else 1


def _end_process(reason: str) -> None:
    """End this process, whose model has lost a part. Its supervisor restarts it, and leases of its jobs expire."""
    log.critical("%s: this process ends, since the model has lost a part; its jobs are taken again", reason)
    logs.finish()
    os._exit(1)


def memory_bytes(model: LanguageModel[Any], settings: Settings) -> int:
    """The memory in bytes for all generations together."""
    if settings.inference.generation_memory_bytes != MEASURED:
        return settings.inference.generation_memory_bytes
    prompts = settings.inference.prompt_cache_bytes if isinstance(model, HuggingFaceModel) else 0
    share = max(0, free_bytes(model.device) - prompts) // FREE_SHARE
    if model.device.type == "cpu":  # where all processes of the model take from the same memory
        share //= settings.inference.tensor_parallel
    log.info("generations may hold %d MiB on %s; ABS_GENERATION_MEMORY_BYTES sets it", share >> 20, model.device)
    return share


def label_bytes_max(settings: Settings) -> int:
    """The most bytes that one search for labels may take. It runs on the host."""
    share = free_bytes() // FREE_SHARE
    return request_bytes_max(settings.inference.generation_memory_bytes or share)


def trace_bytes(options: GenerationOptions) -> int:
    """The most bytes of the traces of all answers."""
    if not options.trace:
        return 0
    return options.n * options.max_tokens * (TRACE_STEP_BYTES + TRACE_TOKEN_BYTES * options.top_log_probs)
