"""Random LoRA adapters in the files of the library peft; merging."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"
PREFIX = "base_model.model."
_BLOCK = re.compile(r"\.(h|layers|blocks)\.")
RANK, ALPHA = 2, 8.0


def linear_layers(model: nn.Module) -> list[str]:
    """The layers that adapters usually change: the linear ones inside the blocks."""
    return [
        name for name, layer in model.named_modules()
        if isinstance(layer, nn.Linear | Conv1D) and _BLOCK.search(name) and "expert" not in name
    ]  # fmt: skip


def write_adapter(
    folder: Path, model: nn.Module, *, layers: Sequence[str] = (), seed: int = 0, size: float = 0.3, **config: Any
) -> Path:
    """Save an adapter with random matrices, by default for all linear layers. Returns its folder."""
    draw, weights = torch.Generator().manual_seed(seed), dict[str, Tensor]()
    chosen = layers or linear_layers(model)
    for name in chosen:
        outputs, inputs = _shape(model.get_submodule(name))
        weights[f"{PREFIX}{name}.lora_A.weight"] = size * torch.randn(RANK, inputs, generator=draw)
        weights[f"{PREFIX}{name}.lora_B.weight"] = size * torch.randn(outputs, RANK, generator=draw)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(weights, folder / WEIGHTS)
    written = {
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "r": RANK, "lora_alpha": ALPHA, "bias": "none",
        "target_modules": sorted({name.rpartition(".")[2] for name in chosen}), "lora_dropout": 0.1, **config,
    }  # fmt: skip
    (folder / CONFIG).write_text(json.dumps(written))
    return folder


def merge(model: nn.Module, folder: Path, scale_of: Callable[[str], float] = lambda layer: ALPHA / RANK) -> None:
    """Add the products of an adapter's matrices to a model."""
    weights = load_file(folder / WEIGHTS)
    for key, a in weights.items():
        if ".lora_A." in key:
            name = key.removeprefix(PREFIX).removesuffix(".lora_A.weight")
            layer: Any = model.get_submodule(name)
            product = scale_of(name) * (weights[key.replace("lora_A", "lora_B")] @ a)
            with torch.no_grad():
                layer.weight += product.t() if isinstance(layer, Conv1D) else product


def _shape(layer: Any) -> tuple[int, int]:
    """The outputs and inputs of a layer."""
    outputs, inputs = layer.weight.t().shape if isinstance(layer, Conv1D) else layer.weight.shape
    return outputs, inputs
