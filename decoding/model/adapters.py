"""LoRA adapters, which add low-rank terms to layers of a shared model.

An adapter adds B A x to what some linear layers make of x (Hu et al. 2021). The model's own weights stay, so that rows
with different adapters share a pass, as in Punica (Chen et al. 2023): a layer adds to the rows of each generation the
terms of its adapter. These are products of that generation's rows alone, so its bits do not depend on the batch.

Of a layer that several processes share by tensor parallelism, each one holds the part of a term that fits its part of
the layer: rows of B where the outputs are split, columns of A where the inputs are, as in vLLM.

Files are those of the library peft. Anything in them that could change a result in another way is an error.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, distributed, nn
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.functional import linear
from transformers.pytorch_utils import Conv1D

from decoding.errors import ModelUnavailable

CONFIG_FILE, WEIGHTS_FILE = "adapter_config.json", "adapter_model.safetensors"
_KEY = re.compile(r"base_model\.model\.(.+)\.lora_([AB])\.weight")
_INITIAL = (True, False, "gaussian", "orthogonal", "eva")  # the others change the model's own weights, too
_READ = {"peft_type", "bias", "init_lora_weights", "lora_alpha", "alpha_pattern", "use_rslora"}
# options that say where terms are, or how they were trained
_HARMLESS = {
    "auto_mapping", "base_model_name_or_path", "eva_config", "exclude_modules", "fan_in_fan_out", "inference_mode",
    "layers_pattern", "layers_to_transform", "lora_dropout", "megatron_core", "peft_version", "qalora_group_size", "r",
    "rank_pattern", "revision", "target_modules", "task_type",
}  # fmt: skip
_ALL = -1  # rows of a part: all


class LowRankTerm(NamedTuple):
    """What an adapter adds to a layer: B A x, with A [r, in] and B [out, r], which has the scale of the term."""

    a: Tensor
    b: Tensor


Layers = Mapping[str, Mapping[str, LowRankTerm]]
"""The terms of each layer by adapter. Layers have the names of the model's modules."""
_parts: ContextVar[Sequence[tuple[str, int]]] = ContextVar("parts", default=())


@contextlib.contextmanager
def apply_adapters(parts: Sequence[tuple[str, int]]) -> Iterator[None]:
    """Add the terms of adapters in the passes of the body.

    parts  of a pass, in their order: an adapter, and the number of its rows
    """
    token = _parts.set(parts)
    try:
        yield
    finally:
        _parts.reset(token)


def apply_adapter(adapter: str) -> contextlib.AbstractContextManager[None]:
    """Add an adapter's terms to all rows of the passes."""
    return apply_adapters([(adapter, _ALL)])


def read_adapters(model: nn.Module, folders: Mapping[str, str]) -> Layers:
    """The terms of the adapters in these folders, by layer.

    Raises ModelUnavailable where a folder has no LoRA adapter in safetensors that fits the model.
    """
    layers: dict[str, dict[str, LowRankTerm]] = {}
    for adapter, folder in folders.items():
        try:
            config, weights = _read_files(Path(folder))
            for layer, term in _terms(config, weights, model).items():
                layers.setdefault(layer, {})[adapter] = term
        except ModelUnavailable as error:
            raise ModelUnavailable(f"the adapter {adapter!r} cannot be read from {folder}: {error}") from None
    return layers


def attach(model: nn.Module, layers: Layers) -> None:
    """Make the layers of a model add terms within `apply_adapters`."""
    for name, terms in layers.items():
        model.get_submodule(name).register_forward_hook(_TermAdder(name, terms))


@contextlib.contextmanager
def require_calls(model: nn.Module, layers: Iterable[str]) -> Iterator[None]:
    """Raise ModelUnavailable if the body does not call one of these layers.

    Its terms would have no effect.
    """
    uncalled = set(layers)
    handles = [
        model.get_submodule(name).register_forward_hook(lambda *_, name=name: uncalled.discard(name))
        for name in layers
    ]  # fmt: skip
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
    if uncalled:
        raise ModelUnavailable(f"the model does not call {min(uncalled)}, which an adapter changes")


@dataclass(slots=True, eq=False)
class _TermAdder:
    """A hook that adds the terms of a layer to its output. The layer reads all rows of a pass, in their order.

    terms         this process's part of them, from the first call on
    splits_input  whether the process has a part of each input only, so that A x is a sum over the processes
    """

    name: str
    terms: Mapping[str, LowRankTerm]
    splits_input: bool = False
    is_fitted: bool = False

    def __call__(self, layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        parts = _parts.get()
        if not any(adapter in self.terms for adapter, _ in parts):
            return
        rows, changed = inputs[0].flatten(0, -2), output.view(-1, output.shape[-1])
        if not self.is_fitted:  # within the trial of an adapter, which all processes of a group make
            self._fit(layer, rows, changed)
        places, begin = list[tuple[LowRankTerm, slice]](), 0
        for adapter, count in parts:
            end = len(rows) if count == _ALL else begin + count
            if term := self.terms.get(adapter):
                places.append((term, slice(begin, end)))
            begin = end
        if begin != len(rows):
            raise ModelUnavailable(
                f"an adapter changes {self.name}, which does not read the rows of a pass in their order"
            )
        # The alignment of an operand can change the last bit of a product, so it must not depend on the batch.
        reduced = [linear(rows[place].clone(), term.a) for term, place in places]
        if self.splits_input:
            reduced = _sum_over_processes(reduced)
        for (term, place), each in zip(places, reduced, strict=True):
            changed[place] += linear(each, term.b)

    def _fit(self, layer: nn.Module, rows: Tensor, output: Tensor) -> None:
        """Keep the parts of the terms that fit this process's layer.

        The widths of input and output tell which parts they are. Raises ModelUnavailable where none fit.
        """
        shape = _shape(layer)
        assert shape is not None  # `read_adapters` takes no other layers
        splits_output, self.splits_input = output.shape[-1] != shape[0], rows.shape[-1] != shape[1]
        weight = getattr(layer, "weight", None)
        if isinstance(weight, DTensor) and not splits_output and not _is_same_everywhere(output):
            raise ModelUnavailable(f"an adapter changes {self.name}, whose outputs its group sums after the layer")
        if splits_output or self.splits_input:
            if not isinstance(weight, DTensor) or weight.shape != shape:  # such as packed weights
                raise ModelUnavailable(f"an adapter changes {self.name}, whose weights are split in an unknown way")
            self.terms = {
                adapter: LowRankTerm(
                    _local_part(term.a, weight) if self.splits_input else term.a,
                    _local_part(term.b, weight) if splits_output else term.b,
                )
                for adapter, term in self.terms.items()
            }
        if any((len(b), a.shape[1]) != (output.shape[-1], rows.shape[-1]) for a, b in self.terms.values()):
            raise ModelUnavailable(f"an adapter changes {self.name}, which is split by inputs and outputs")
        self.is_fitted = True


def _local_part(matrix: Tensor, weight: DTensor) -> Tensor:
    """This process's part of a matrix that is split like the weight."""
    return distribute_tensor(matrix, weight.device_mesh, weight.placements, src_data_rank=None).to_local().clone()


def _is_same_everywhere(output: Tensor) -> bool:
    """Whether all processes have the same outputs. If they have summands, a term would be added once by each."""
    return all(torch.allclose(output, other, rtol=1e-2, atol=1e-3) for other in _of_all_processes(output))


def _sum_over_processes(summands: Sequence[Tensor]) -> list[Tensor]:
    """The sums over all processes, by one exchange.

    A library's own sum may choose its order by the size of the batch, so these are added in the order of the processes.
    Each is a tensor of its own, since its alignment must not depend on the batch, either.
    """
    total = functools.reduce(torch.add, _of_all_processes(torch.cat([each.flatten() for each in summands])))
    sums = total.split([each.numel() for each in summands])
    return [each.view_as(summand).clone() for each, summand in zip(sums, summands, strict=True)]


def _of_all_processes(tensor: Tensor) -> list[Tensor]:
    """The tensor of each process, in the order of their ranks."""
    tensor = tensor.contiguous()
    tensors = [torch.empty_like(tensor) for _ in range(distributed.get_world_size())]
    distributed.all_gather(tensors, tensor)
    return tensors


def _read_files(folder: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    try:
        config = json.loads((folder / CONFIG_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelUnavailable(f"it has no readable {CONFIG_FILE} ({type(error).__name__})") from error
    if not isinstance(config, dict):
        raise ModelUnavailable(f"{CONFIG_FILE} is not a JSON object")
    try:
        return config, load_file(folder / WEIGHTS_FILE)
    except (OSError, SafetensorError) as error:
        raise ModelUnavailable(
            f"it has no readable {WEIGHTS_FILE} ({type(error).__name__}); files of other formats are not read: save "
            "the adapter with safetensors"
        ) from error


def _terms(config: Mapping[str, Any], weights: Mapping[str, Tensor], model: nn.Module) -> dict[str, LowRankTerm]:
    """The terms by layer."""
    _require_lora(config)
    halves: dict[str, dict[str, Tensor]] = {}
    for key, weight in weights.items():
        match = _KEY.fullmatch(key)
        if match is None:
            raise ModelUnavailable(f"{key} is no matrix of a low-rank term; only those are read")
        halves.setdefault(match[1], {})[match[2]] = weight
    if not halves:
        raise ModelUnavailable("it has no low-rank terms")
    return {layer: _term(layer, parts, config, model) for layer, parts in halves.items()}


def _require_lora(config: Mapping[str, Any]) -> None:
    if config.get("peft_type") != "LORA":
        raise ModelUnavailable(f"its type is {config.get('peft_type')!r}, and only LORA is read")
    initial = config.get("init_lora_weights", True)
    if config.get("bias", "none") != "none" or initial not in _INITIAL:
        raise ModelUnavailable("it changes weights of the model itself (bias or init_lora_weights): merge it into them")
    unknown = sorted(name for name, value in config.items() if value and name not in _READ | _HARMLESS)
    if unknown:
        raise ModelUnavailable(f"it has {', '.join(unknown)}, which is not supported: merge it into the model")


def _term(layer: str, halves: Mapping[str, Tensor], config: Mapping[str, Any], model: nn.Module) -> LowRankTerm:
    try:
        module = model.get_submodule(layer)
    except AttributeError:
        raise ModelUnavailable(f"the model has no layer {layer}") from None
    shape = _shape(module)
    if shape is None or "expert" in layer:  # which rows an expert reads depends on the rows
        raise ModelUnavailable(f"the model's {layer} is no linear layer that reads every token")
    if halves.keys() != {"A", "B"}:
        raise ModelUnavailable(f"a matrix of {layer} is missing")
    a, b = halves["A"], halves["B"]
    if a.dim() != 2 or (b.shape[0], *a.shape[1:]) != shape or b.shape[1:] != a.shape[:1]:
        raise ModelUnavailable(
            f"{layer} has {shape[1]} inputs and {shape[0]} outputs, which matrices of the shapes {tuple(a.shape)} and "
            f"{tuple(b.shape)} do not fit"
        )
    scale = _alpha(layer, config) / (math.sqrt(len(a)) if config.get("use_rslora") else len(a))
    tensors = [*module.parameters(), *module.buffers()]
    dtype = next((each.dtype for each in model.parameters() if each.is_floating_point()), torch.float32)
    a, b = (each.to(tensors[0].device, dtype) for each in (a, b.float() * scale))
    if not (a.isfinite().all() and b.isfinite().all()):
        raise ModelUnavailable(f"the matrices of {layer} have numbers that are not finite")
    return LowRankTerm(a, b)


def _shape(module: nn.Module) -> tuple[int, int] | None:
    """The outputs and inputs of a linear layer. None for another one."""
    if isinstance(module, Conv1D):
        return module.weight.shape[1], module.weight.shape[0]
    outputs, inputs = (getattr(module, name, None) for name in ("out_features", "in_features"))
    return (outputs, inputs) if isinstance(outputs, int) and isinstance(inputs, int) else None


def _alpha(layer: str, config: Mapping[str, Any]) -> float:
    """The numerator of a term's scale. `alpha_pattern` has others for the ends of some layers' names."""
    patterns = config.get("alpha_pattern") or {}
    found = (alpha for pattern, alpha in patterns.items() if re.fullmatch(rf"(.*\.)?({pattern})", layer))
    alpha = next(found, config.get("lora_alpha"))
    if not isinstance(alpha, int | float):
        raise ModelUnavailable("its lora_alpha is no number")
    return float(alpha)
