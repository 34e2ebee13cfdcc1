"""The memory that a model retains beside its generations. It must not grow with each new number of rows."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable
from typing import Any

import pytest
import torch

from decoding.model import HuggingFaceModel, StepInput
from decoding.model.cpu_layers import rows_computed
from tests.decoding.random_models import llama_of
from tests.servers.forkserver import run_process

ROWS_MAX = 256
NUMBERS = range(2, ROWS_MAX, 7)
KEPT_MIB_MAX = 10.0  # a layer that kept something for each number would come to more than 40
_S_MAX = 300


class _MallInfo(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
        )
    ]  # fmt: skip


def _in_use_mib() -> float:
    """The memory that the process has allocated and not freed. Memory that the allocator caches does not count."""
    mallinfo2 = ctypes.CDLL(None).mallinfo2
    mallinfo2.restype = _MallInfo
    info: Any = mallinfo2()
    return float(info.uordblks + info.hblkhd) / 2**20


def _read(model: HuggingFaceModel, numbers: Iterable[int]) -> None:
    """Runs a prompt, a step and a check of each size. The size is the number of tokens or rows."""
    for number in numbers:
        prompt = [1 + token % 50 for token in range(number)]
        session, _ = model.prefill(prompt)
        model.step(
            [StepInput(session, torch.zeros(number, dtype=torch.int64), torch.ones(number, 1, dtype=torch.int64))]
        )
        model.score(prompt[:3], prompt)


def _growth_mib() -> float:
    """The growth over many numbers of rows, after a warm-up."""
    model = HuggingFaceModel(llama_of(hidden_size=192, intermediate_size=256, max_position_embeddings=2 * ROWS_MAX))
    assert model.supports_batching
    _read(model, sorted({rows_computed(number) for number in range(1, ROWS_MAX + 1)}))
    start_mib = _in_use_mib()
    _read(model, NUMBERS)
    return _in_use_mib() - start_mib


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="the C library does not say what is in use")
def test_memory_does_not_grow_with_new_batch_sizes() -> None:
    process = run_process([__name__], os.environ, _S_MAX)  # what other tests have had kept would count here
    assert float(process.stdout) < KEPT_MIB_MAX, process.stderr


if __name__ == "__main__":
    print(_growth_mib())
