"""Loads causal language models from files. It also reads the EOS ids and lengths in their configuration."""

from __future__ import annotations

import contextlib
import logging as standard_logging
import threading
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel
from transformers.distributed.configuration_utils import DistributedConfig
from transformers.utils import logging

from decoding.errors import ModelUnavailable

DTYPES = ("auto", "float32", "bfloat16", "float16")
CONTEXT_NAMES = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length")
_LOADING = threading.Lock()  # the library replaces functions of its own and of torch while it loads a model
_QUANTIZERS = {  # what reads quantized checkpoints of a method, by the names of distributions
    "awq": ("gptqmodel",), "bitsandbytes": ("accelerate", "bitsandbytes"), "gptq": ("gptqmodel", "optimum"),
    "compressed-tensors": ("compressed-tensors",), "torchao": ("torchao",),
}  # fmt: skip
ROPE_BY_LENGTH = {"dynamic", "longrope"}  # positions that depend on the longest row of a pass


def load_model(
    path_or_name: str, device: str, dtype: str, *, safetensors_only: bool = False, tensor_parallel: int = 1
) -> PreTrainedModel:
    """Load a model from a directory, or from the hub by name. It is placed on its device.

    device  "auto" takes a GPU where there is one; else a torch device
    dtype   one of DTYPES; "auto" is float32 on the CPU (half precision is slow and coarse there), the checkpoint's own
            elsewhere
    safetensors_only  whether weights of other formats are refused
    tensor_parallel   number of processes of the group that share the model; each loads its part on its own device

    Raises ModelUnavailable where no causal language model can be loaded, the library of a quantized one is absent, or
    device or dtype is unknown.
    """
    if dtype not in DTYPES:
        raise ModelUnavailable(f"the dtype {dtype!r} is none of {', '.join(DTYPES)}")
    local = Path(path_or_name).exists()
    options: dict[str, Any] = {"use_safetensors": True} if safetensors_only else {}
    try:
        if tensor_parallel > 1:
            options["distributed_config"] = DistributedConfig(tp_size=tensor_parallel)
        target = torch.device(("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device)
        chosen = ("float32" if target.type == "cpu" else "auto") if dtype == "auto" else dtype
        _require_quantizer(path_or_name, local)
        with _LOADING, _without_progress_bars():
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                path_or_name, dtype=chosen, local_files_only=local, output_loading_info=True, trust_remote_code=False,
                **options,
            )
        model, report = loaded
        if tensor_parallel == 1:
            model = model.to(target)
    except ModelUnavailable:
        raise
    except Exception as error:  # the library and its file readers have no common error class
        raise ModelUnavailable(f"no causal language model can be loaded from {path_or_name!r}: {error}") from error
    missing = sorted(report.get("missing_keys", ()))
    if missing:  # an encoder loaded as a decoder, or a broken download: it would run with random weights
        raise ModelUnavailable(f"{path_or_name!r} lacks weights of a causal language model, such as {missing[0]}")
    typed: PreTrainedModel = model
    return typed


def _require_quantizer(path_or_name: str, local: bool) -> None:
    """Raise ModelUnavailable where the library of a quantized checkpoint is absent."""
    config, _ = PreTrainedConfig.get_config_dict(path_or_name, local_files_only=local)
    method = (config.get("quantization_config") or {}).get("quant_method", "")
    absent = [name for name in _QUANTIZERS.get(method, ()) if find_spec(name.replace("-", "_")) is None]
    if absent:
        raise ModelUnavailable(
            f"{path_or_name!r} is quantized by {method}, and its libraries are not installed: pip install "
            + " ".join(absent)
        )
    if method == "bitsandbytes":  # else it logs a line for each layer of each pass
        standard_logging.getLogger("bitsandbytes.autograd._functions").setLevel(standard_logging.ERROR)


def has_reduced_precision(model: PreTrainedModel) -> bool:
    """Whether two correct passes may differ by steps of rounding. They do in half precision, or quantized."""
    return model.dtype not in (torch.float32, torch.float64) or bool(getattr(model, "is_quantized", False))


def load_scoring_model(folder: str, device: str) -> PreTrainedModel:
    """Load a model of a folder that is read without a cache. Only weights in safetensors are read.

    Raises ModelUnavailable.
    """
    if not Path(folder).is_dir():
        raise ModelUnavailable(f"there is no folder {folder!r}")
    model = load_model(folder, device, "auto", safetensors_only=True)
    model.eval().requires_grad_(False)
    return model


def eos_ids_of(model: PreTrainedModel) -> tuple[int, ...]:
    """The ids that end a text, at least one. Raises ModelUnavailable without any."""
    # The generation settings come first: chat models add there the id that ends a turn.
    for settings in (model.generation_config, model.config.get_text_config()):
        value = getattr(settings, "eos_token_id", None)
        if value is not None:
            ids = tuple(dict.fromkeys(int(eos) for eos in (value if isinstance(value, list | tuple) else [value])))
            if ids and all(0 <= eos < model.config.get_text_config().vocab_size for eos in ids):
                return ids
    raise ModelUnavailable(f"the model {model.name_or_path!r} names no token that ends a text")


def context_length_of(config: Any) -> int | None:
    """The longest input in tokens; None where there is no limit."""
    # Some rotary positions change for all tokens once a text passes the length of the first training. Keys in the cache
    # would no longer equal those of one pass over the whole text, so the context ends there.
    lengths = [getattr(config, name, None) for name in CONTEXT_NAMES]
    longest = next((length for length in lengths if isinstance(length, int) and length > 0), None)
    original = _original_length(config)
    return longest if original is None else min(original, longest or original)


def rope_types(parameters: Any) -> set[str]:
    """The kinds of rotary positions, at any depth. There is one for all layers, or one for each kind of layer."""
    return {str(part[name]) for part in _dicts(parameters) for name in ("rope_type", "type") if name in part}


def _original_length(config: Any) -> int | None:
    """The length past which rotary positions change for all tokens. None where there is none."""
    parameters = getattr(config, "rope_parameters", None)
    if not ROPE_BY_LENGTH & rope_types(parameters):
        return None
    name = "original_max_position_embeddings"
    lengths = (getattr(config, name, None), *(part.get(name) for part in _dicts(parameters)))
    return min((length for length in lengths if isinstance(length, int) and length > 0), default=None)


def _dicts(parameters: Any) -> Iterator[dict[str, Any]]:
    """The parameters, and the dicts at any depth in them."""
    if isinstance(parameters, dict):
        yield parameters
        for value in parameters.values():
            yield from _dicts(value)


@contextlib.contextmanager
def _without_progress_bars() -> Iterator[None]:
    """Turns the library's progress bars off: the caller owns the terminal."""
    enabled = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if enabled:
            logging.enable_progress_bar()
