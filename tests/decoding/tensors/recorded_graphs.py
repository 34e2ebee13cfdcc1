"""Graphs on the CPU.

A function's calls of torch are recorded and repeated, as a CUDA graph repeats kernels.
Also the calls for which the host would wait on a GPU, which no graph may hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode, resolve_name

_READS = {
    "item", "tolist", "cpu", "numpy", "nonzero", "argwhere", "masked_select", "unique", "unique_consecutive",
    "bincount", "equal", "allclose", "is_nonzero", "__bool__", "__int__", "__float__", "__index__", "__array__",
    "__contains__",
}  # fmt: skip
_COPIES = {"tensor", "as_tensor", "asarray"}  # of the host's memory, unless they get a tensor


class NotCapturable(Exception):
    """A function that no graph can repeat."""


class HostWaits(TorchFunctionMode):
    """Records the calls for which a GPU's host waits.

    They bring data to the host, make a shape that depends on data, or copy the host's memory to the device.
    """

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = (resolve_name(func) or str(func)).rsplit(".", 1)[-1]
        copies = name in _COPIES and not isinstance(args[0], Tensor)
        by_mask = name in ("__getitem__", "__setitem__") and any(part.dtype == torch.bool for part in _tensors(args[1]))
        moves = name == "to" and any(isinstance(part, str) and part == "cpu" for part in args[1:])
        if name in _READS or copies or by_mask or moves:
            self.calls.append(name)
        return func(*args, **(kwargs or {}))


class RecordedCapture:
    """Captures on the CPU; obeys `GraphCapture`.

    A replay makes the same calls with the same tensors, and writes what they return into the tensors that they
    returned at first. Python between them is not repeated, so results differ where it depends on what has changed.
    """

    def __init__(self) -> None:
        self.captures = 0

    def __call__(self, function: Callable[[], tuple[Tensor, ...]]) -> tuple[Callable[[], None], tuple[Tensor, ...]]:
        self.captures += 1
        calls = _Calls()
        with calls:
            outputs = function()
        if calls.calls or calls.copies_host:
            raise NotCapturable(f"calls of the host: {', '.join(calls.calls) or 'a copy'}")
        for output in outputs:
            output.fill_(77)  # a capture computes nothing: before the first replay outputs may hold anything
        return calls.replay, outputs


class _Calls(HostWaits):
    """The calls of a function, in their order: function, arguments and results."""

    def __init__(self) -> None:
        super().__init__()
        self._recorded: list[tuple[Any, tuple[Any, ...], dict[str, Any], Any]] = []

    @property
    def copies_host(self) -> bool:
        """Whether an array of the host is copied. The host does not wait for it, but no replay copies it again."""
        return any(kwargs.get("non_blocking") for _, _, kwargs, _ in self._recorded)

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = super().__torch_function__(func, types, args, kwargs)
        self._recorded.append((func, args, kwargs or {}, result))
        return result

    def replay(self) -> None:
        for func, args, kwargs, results in self._recorded:
            arguments = {tensor.untyped_storage().data_ptr() for tensor in _tensors((args, tuple(kwargs.values())))}
            for result, again in zip(_tensors(results), _tensors(func(*args, **kwargs)), strict=True):
                if result.shape != again.shape:
                    raise NotCapturable(f"a shape that {resolve_name(func)} makes depends on data")
                if result.untyped_storage().data_ptr() not in arguments:  # else a view, or changed in place
                    result.copy_(again)


def _tensors(value: Any) -> Iterator[Tensor]:
    """All tensors in nested tuples and lists."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for part in value:
            yield from _tensors(part)
