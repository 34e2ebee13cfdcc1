"""Replays functions of tensors as CUDA graphs, where shapes repeat.

A step of a search is some 200 small kernels, and a GPU computes each in less time than the host takes to start it. A
graph starts all of them by one call. It is captured as PyTorch's notes on CUDA semantics say: after a warm-up on a side
stream, with arguments in static buffers, and with a pool of memory for what the function allocates.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

_CAPTURE_USE = 3  # a graph is captured at this use of a shape: a capture takes as long as several uses
_RETRY_USES = 256  # after a capture that found no memory
_ALIGNMENT_BYTES = 256  # of an argument's buffer, as PyTorch's allocator aligns arrays

Function = Callable[..., tuple[Tensor, ...]]
"""A function of tensors. It reads no array on the host, makes no shape that depends on data, and depends on nothing
else that changes; its captured operations are repeated without it."""


class GraphCapture(Protocol):
    """Records what a function does on the device."""

    def __call__(self, function: Callable[[], tuple[Tensor, ...]]) -> tuple[Callable[[], None], tuple[Tensor, ...]]:
        """What repeats the function's operations, and the tensors that each repetition fills."""


class CudaCapture:
    """Captures CUDA graphs on a device; obeys `GraphCapture`. All graphs allocate from one pool.

    Graphs of one pool may overwrite each other's arrays, so their replays must take turns, and outputs must be copied
    before the next replay.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream, self._pool = torch.cuda.Stream(device), torch.cuda.graph_pool_handle()

    def __call__(self, function: Callable[[], tuple[Tensor, ...]]) -> tuple[Callable[[], None], tuple[Tensor, ...]]:
        with torch.cuda.device(self._device):
            current, graph = torch.cuda.current_stream(), torch.cuda.CUDAGraph()
            self._stream.wait_stream(current)
            # The outer stream is restored also where a capture fails: `torch.cuda.graph` then may leave its own.
            with torch.cuda.stream(self._stream):
                function()  # the warm-up, in which libraries allocate what they keep
                # Another thread may score a finished answer meanwhile; its allocations must not end the capture.
                with torch.cuda.graph(
                    graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"
                ):
                    outputs = function()
            current.wait_stream(self._stream)
        return graph.replay, outputs


@dataclass(slots=True, eq=False)
class _Shape:
    """A function with arguments of certain shapes. `graph`: its arguments, its replay, its outputs; None: not captured.
    """

    uses: int = 0
    graph: tuple[list[Tensor], Callable[[], None], tuple[Tensor, ...]] | None = None


class Graphs:
    """Graphs of functions by the shapes of their arguments. Thread-safe on one stream.

    capture     records a function's operations
    shapes_max  that are remembered, and so the most graphs; the least recently used is dropped

    Arguments are copied into a buffer that all graphs share, and outputs are copied out of their pool.
    """

    def __init__(self, capture: GraphCapture, shapes_max: int = 32) -> None:
        self._capture, self._shapes_max = capture, shapes_max
        self._shapes: OrderedDict[Hashable, _Shape] = OrderedDict()
        self._buffer = torch.empty(0, dtype=torch.uint8)
        self._lock = threading.Lock()
        self.replays = 0

    @torch.inference_mode()
    def run(self, key: Hashable, function: Function, arguments: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """What the function returns. It is replayed where there is a graph.

        key  of the function: functions with equal keys must do the same, whatever they refer to
        """
        shapes = tuple((argument.shape, argument.dtype) for argument in arguments)
        with self._lock:
            shape = self._shapes.setdefault((key, shapes), _Shape())
            self._shapes.move_to_end((key, shapes))
            if len(self._shapes) > self._shapes_max:
                self._shapes.popitem(last=False)
            shape.uses += 1
            if shape.graph is None and shape.uses >= _CAPTURE_USE:
                shape.graph = self._captured(function, arguments)
                shape.uses = 0 if shape.graph else -_RETRY_USES
            if shape.graph is None:
                return function(*arguments)
            buffers, replay, outputs = shape.graph
            for buffer, argument in zip(buffers, arguments, strict=True):
                buffer.copy_(argument)
            replay()
            self.replays += 1
            return tuple(output.clone() for output in outputs)

    def _captured(
        self, function: Function, arguments: Sequence[Tensor]
    ) -> tuple[list[Tensor], Callable[[], None], tuple[Tensor, ...]] | None:
        """A graph of the function. None where there is no memory for it."""
        try:
            buffers = self._buffers(arguments)
            for buffer, argument in zip(buffers, arguments, strict=True):
                buffer.copy_(argument)  # the warm-up may read them as positions
            return buffers, *self._capture(lambda: function(*buffers))
        except torch.OutOfMemoryError:
            return None

    def _buffers(self, arguments: Sequence[Tensor]) -> list[Tensor]:
        """Static buffers for the arguments. They are views of one buffer, since replays take turns."""
        ends = [0]
        for argument in arguments:
            ends.append(ends[-1] + argument.nbytes + -argument.nbytes % _ALIGNMENT_BYTES)
        if ends[-1] > len(self._buffer):  # graphs of smaller arguments keep the former one
            self._buffer = torch.empty(ends[-1], dtype=torch.uint8, device=arguments[0].device)
        return [
            self._buffer[begin : begin + argument.nbytes].view(argument.dtype).view(argument.shape)
            for begin, argument in zip(ends, arguments, strict=False)
        ]
