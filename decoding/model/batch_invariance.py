"""Finds batch sizes at which results do not depend on the batch.

A trial compares the bits of a row for different numbers of other rows.

Matrix products choose their order of summation by the number of rows, so a row's log-probs may differ in the last bit
from one batch to another. Passes are padded to a multiple at which they do not. It is found by trial with the model's
own matrices, since it depends on their shapes, the library and the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from transformers import PreTrainedModel

from decoding.model.cpu_layers import layer_widths

_ROWS_TRIED = {"cpu": 96, "cuda": 768}  # the largest pass of the trial
_MULTIPLES = (1, 2, 4, 8, 16, 32, 64)
_VECTOR = 32  # elements that the CPU's elementwise loops take at once; they may round the remainder differently


def independent_multiple(model: PreTrainedModel, read: Callable[[Tensor], Tensor], threads: int) -> int | None:
    """The least multiple of rows that makes results independent of the batch. None where no such multiple was found.

    read     the log-probs float32 [rows, V] after each of int64 [1, rows] ids, each of which sees itself alone
    threads  that share a matrix product
    """
    # How many rows an expert reads depends on which expert the other rows choose: no padding can fix that.
    if any("expert" in name for name, _ in model.named_modules()):
        return None
    most = _ROWS_TRIED.get(model.device.type, 96)
    ids = torch.arange(most, device=model.device)[None] * 7919 % int(model.config.get_text_config().vocab_size)
    expected = read(ids)
    for multiple in _multiples(model, threads):
        # Small numbers, where libraries switch between kernels, and one large number.
        sizes = {multiple * times for times in (1, 2, 3, 5, 7)} | {most // 2 - most // 2 % multiple}
        if all(_same_bits(read, ids, expected, rows) for rows in sorted(sizes) if 0 < rows < most):
            return multiple
    return None


def _multiples(model: PreTrainedModel, threads: int) -> list[int]:
    """The multiples to be tried."""
    # If possible only those that leave no remainder in any thread's part of an elementwise loop. A remainder differs by
    # the number of rows, and whether its last bit does is chance: no trial would find it reliably.
    widths = layer_widths(model) if model.device.type == "cpu" else set()
    for unit in (_VECTOR * threads, _VECTOR):
        if even := [count for count in _MULTIPLES if all(count * width % unit == 0 for width in widths)]:
            return even
    return list(_MULTIPLES)


def _same_bits(read: Callable[[Tensor], Tensor], ids: Tensor, expected: Tensor, rows: int) -> bool:
    last = ids.shape[1] - rows - 1  # other rows than the first, at other positions
    return all(torch.equal(read(ids[:, at : at + rows]), expected[at : at + rows]) for at in (0, last))
