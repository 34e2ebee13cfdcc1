"""One process of a group that shares a model by tensor parallelism.

Every process of a group holds a part of each layer. All must make the same passes in the same order, since each pass
exchanges sums between them. This module is what all of them do while they load; then the first one calls the model
(`tensor_parallel`), and the others repeat its calls (`follower`).
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
from torch import distributed
from transformers import AutoConfig, PreTrainedModel
from transformers.distributed.configuration_utils import DistributedConfig

from decoding.errors import ModelUnavailable
from decoding.model.huggingface import HuggingFaceModel
from decoding.model.loading import load_model

OPEN, CLOSE = "open", "close"  # calls of the first process beside those of a model
STARTED, LOADED, OPENED, FAILED = "started", "loaded", "opened", "failed"  # replies of the others
_BACKENDS = {"cpu": "gloo", "cuda": "nccl"}
_HEADS = ("num_attention_heads", "num_key_value_heads")


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """A process of a group, and the model of the group. It is sent to the process as JSON.

    path, dtype  as `load_model` takes them
    adapters     folders of LoRA adapters by their names
    batch_invariant  as `HuggingFaceModel` takes it
    rank, size   the number of this process, from 0, and how many there are
    folder       where the processes find each other
    threads      of each process on the CPU
    timeout_s    the longest that a process waits for the others within a pass
    """

    path: str
    dtype: str
    adapters: Mapping[str, str]
    batch_invariant: bool
    rank: int
    size: int
    folder: str
    threads: int
    timeout_s: float


def group_device() -> str:
    """The kind of device that a group runs on. It is the library's choice, with one GPU for each process."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def require_divisible(path: str, size: int, device: str) -> None:
    """Raise ModelUnavailable where `size` processes cannot share a model."""
    if "tp_size" not in inspect.signature(DistributedConfig).parameters:
        raise ModelUnavailable("this version of transformers cannot split models: install a newer one")
    if distributed.is_initialized():
        raise ModelUnavailable("this process shares a model already, and can share one only")
    kind = group_device()
    if device not in ("auto", kind):
        raise ModelUnavailable(
            f"several processes share a model on {kind}, not on {device!r}: set ABS_DEVICE to auto or {kind}; "
            "CUDA_VISIBLE_DEVICES selects the GPUs"
        )
    if kind == "cuda" and torch.cuda.device_count() < size:
        raise ModelUnavailable(f"{size} processes need a GPU each, and there are {torch.cuda.device_count()}")
    try:
        config = AutoConfig.from_pretrained(path, local_files_only=Path(path).exists(), trust_remote_code=False)
    except Exception as error:  # the library and its file readers have no common error class
        raise ModelUnavailable(f"the configuration of {path!r} cannot be read: {error}") from error
    text = config.get_text_config()
    if not getattr(text, "base_model_tp_plan", None):
        raise ModelUnavailable(
            f"transformers cannot split models of the type {text.model_type!r}: unset ABS_TENSOR_PARALLEL, or serve a "
            "model with a tensor parallel plan"
        )
    for name in _HEADS:
        heads = getattr(text, name, None)
        if heads is not None and heads % size:
            raise ModelUnavailable(f"{size} processes cannot share the model's {heads} {name} evenly")


def join_group(member: GroupMember) -> None:
    """Connect this process with the others. Returns once all have called it. Raises ModelUnavailable."""
    kind = group_device()
    bound = torch.device(kind, member.rank) if kind == "cuda" else None
    if bound is None:
        torch.set_num_threads(member.threads)
    else:
        torch.cuda.set_device(bound)
    try:
        distributed.init_process_group(
            _BACKENDS[kind], init_method=(Path(member.folder) / "members").as_uri(), rank=member.rank,
            world_size=member.size, timeout=timedelta(seconds=member.timeout_s), device_id=bound,
        )
    except (RuntimeError, ValueError) as error:
        raise ModelUnavailable(f"process {member.rank} cannot join its group: {error}") from error


def leave_group() -> None:
    """Disconnect this process."""
    distributed.destroy_process_group()


def load_part(member: GroupMember) -> PreTrainedModel:
    """Load this process's part of the model. Raises ModelUnavailable."""
    return load_model(member.path, group_device(), member.dtype, tensor_parallel=member.size)


def open_part(member: GroupMember, part: PreTrainedModel) -> HuggingFaceModel:
    """The model of a part, with its parts of the adapters. All processes call it at the same time.

    It makes trial passes. Raises ModelUnavailable where an adapter cannot be read or split, or the model gives this
    process the log-probs of some ids only.
    """
    model = HuggingFaceModel.of_loaded(part, batch_invariant=member.batch_invariant)
    model.add_adapters(member.adapters)
    # What a model measures at its first use are passes, which one process alone could not make later.
    model.bytes_for(1, 1, 1)
    model.score(model.eos_ids[:1], model.eos_ids[:1])
    _, log_probs = model.prefill(model.eos_ids[:1])
    if len(log_probs) != model.vocab_size:
        raise ModelUnavailable(f"its plan leaves the log-probs split: {len(log_probs)} of {model.vocab_size} ids")
    return model


def decisions(model: HuggingFaceModel) -> tuple[bool, bool]:
    """What the trials of a model have found. Processes that found different things would make different passes."""
    return model.supports_batching, model.rows_independent
