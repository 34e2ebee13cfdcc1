"""A generate worker whose device has too little memory, for tests: python -m tests.short_worker ROWS

It is `abs worker generate` as it is, with its model; but a pass over more than ROWS rows fails as it does on a GPU
whose memory runs out, in the middle: with keys and values of half its layers written.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from typing import Any

import torch

from app.cli.worker_process import run_worker
from app.settings import read_settings
from decoding.model import HuggingFaceModel
from decoding.model.prefix_tree import PrefixTree

LAYERS_WRITTEN = 3


def shorten(rows_max: int) -> None:
    """Have every model of this process fail so."""
    step, store = HuggingFaceModel.step, PrefixTree.store
    fails = [False]

    def scarce_step(model: HuggingFaceModel, feeds: Sequence[Any]) -> Any:
        serves = threading.current_thread().name == "engine"  # what is tried while the model is loaded has its memory
        fails[0] = serves and sum(len(feed.parents) for feed in feeds) > rows_max
        return step(model, feeds)

    def scarce_store(tree: PrefixTree, layer: int, *columns: torch.Tensor) -> Any:
        if fails[0] and layer == LAYERS_WRITTEN:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB")
        return store(tree, layer, *columns)

    HuggingFaceModel.step = scarce_step  # type: ignore[method-assign]
    PrefixTree.store = scarce_store  # type: ignore[method-assign]


if __name__ == "__main__":
    shorten(int(sys.argv[1]))
    run_worker("generate", read_settings())
