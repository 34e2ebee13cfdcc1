"""Quantized checkpoints of small models, as each method writes them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, TorchAoConfig

GROUP = 32  # inputs that share a scale of 4 bits
Write = Callable[[Path, Path], None]
"""Writes the model of the first folder, in float32, to the second one."""


def _by_library(config: Callable[[], Any]) -> Write:
    """Let the library quantize while it loads, then save."""

    def write(source: Path, folder: Path) -> None:
        model = AutoModelForCausalLM.from_pretrained(
            source, quantization_config=config(), device_map="cpu", dtype="float32"
        )
        model.save_pretrained(folder)

    return write


def _torchao(name: str) -> Any:
    return TorchAoConfig(resolve_name(f"torchao.quantization:{name}")(version=2))


def _by_hand(parts_of: Callable[[str, Tensor], dict[str, Tensor]], **config: Any) -> Write:
    """Write other parts for each weight [out, in] of a block."""

    def write(source: Path, folder: Path) -> None:
        model: Any = AutoModelForCausalLM.from_pretrained(source, dtype="float32")
        stored = dict[str, Tensor]()
        for name, weight in model.state_dict().items():
            if name.endswith("_proj.weight"):
                stored |= parts_of(name.removesuffix(".weight"), weight)
            elif name != "lm_head.weight" or not model.config.tie_word_embeddings:
                stored[name] = weight.contiguous()
        folder.mkdir()
        save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
        (folder / "config.json").write_text(json.dumps(model.config.to_dict() | {"quantization_config": config}))

    return write


def _floats_of_8_bits(name: str, weight: Tensor) -> dict[str, Tensor]:
    """A float for each weight, and a scale for each output."""
    scale = weight.abs().amax(dim=1, keepdim=True) / torch.finfo(torch.float8_e4m3fn).max
    return {f"{name}.weight": (weight / scale).to(torch.float8_e4m3fn), f"{name}.weight_scale": scale}


def _four_bits(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Codes of 4 bits, int64 [in, out], and scales [groups, out]. 8 stands for 0."""
    groups = weight.view(len(weight), -1, GROUP)
    scales = groups.abs().amax(dim=2) / 7
    codes = (groups / scales[:, :, None]).round().clamp(-8, 7) + 8
    return codes.view_as(weight).t().long(), scales.t().contiguous().half()


def _packed(codes: Tensor, order: Sequence[int] = range(8)) -> Tensor:
    """Eight codes of the last axis in each int32."""
    eights = codes.unflatten(-1, (-1, 8))[..., list(order)]
    words = (eights << torch.arange(0, 32, 4)).sum(dim=-1)
    return torch.where(words >= 2**31, words - 2**32, words).int().contiguous()


def _gptq(name: str, weight: Tensor) -> dict[str, Tensor]:
    """Codes are packed along the inputs, and zeros stored less one."""
    codes, scales = _four_bits(weight)
    group, zeros = torch.arange(len(codes)).int() // GROUP, _packed(torch.full(scales.shape, 7))
    qweight = _packed(codes.t()).t().contiguous()
    return {f"{name}.qweight": qweight, f"{name}.scales": scales, f"{name}.qzeros": zeros, f"{name}.g_idx": group}


def _awq(name: str, weight: Tensor) -> dict[str, Tensor]:
    """Codes are packed along the outputs, even ones first."""
    codes, scales = _four_bits(weight)
    order = (0, 2, 4, 6, 1, 3, 5, 7)
    zeros = _packed(torch.full(scales.shape, 8), order)
    return {f"{name}.qweight": _packed(codes, order), f"{name}.scales": scales, f"{name}.qzeros": zeros}


METHODS: dict[str, tuple[str, Write]] = {
    "bitsandbytes, 4 bits": ("bitsandbytes", _by_library(
        lambda: BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4"))),
    "bitsandbytes, 8 bits": ("bitsandbytes", _by_library(lambda: BitsAndBytesConfig(load_in_8bit=True))),
    "torchao, 8 bits": ("torchao", _by_library(lambda: _torchao("Int8WeightOnlyConfig"))),
    "torchao, 8 bits and activations": ("torchao", _by_library(
        lambda: _torchao("Int8DynamicActivationInt8WeightConfig"))),
    "compressed-tensors, floats of 8 bits": ("compressed_tensors", _by_hand(
        _floats_of_8_bits, quant_method="compressed-tensors", format="float-quantized", ignore=["lm_head"],
        quantization_status="compressed", config_groups={"group_0": {"targets": ["Linear"], "weights": {
            "num_bits": 8, "type": "float", "symmetric": True, "strategy": "channel"}}})),
    "gptq, 4 bits": ("gptqmodel", _by_hand(
        _gptq, quant_method="gptq", bits=4, group_size=GROUP, sym=True, desc_act=False, checkpoint_format="gptq")),
    "awq, 4 bits": ("gptqmodel", _by_hand(
        _awq, quant_method="awq", bits=4, group_size=GROUP, zero_point=True, version="gemm")),
}  # fmt: skip
"""The library of each method, and a function that writes a checkpoint."""
