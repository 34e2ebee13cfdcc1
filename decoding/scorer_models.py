"""Loads scorers of labels from files.

They are causal models of Hugging Face in safetensors, or ONNX models, which onnxruntime reads. Both kinds read whole
prefixes, without a cache. One thread at a time reads a model.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from decoding.errors import ModelUnavailable
from decoding.label_scoring import LabelScorer
from decoding.model import load_scoring_model

ONNX_FILE = "model.onnx"
_POSITIONS_AT_ONCE = 2**13  # rows times ids in one forward pass, a bound on the logits in memory
_INTEGERS = {"tensor(int64)": np.int64, "tensor(int32)": np.int32}
Ids = NDArray[np.int64]
Logits = NDArray[np.floating[Any]]
_LastLogits = Callable[[Ids], Logits]
"""The logits after the last id of each row: from int64 [N, T] to [N, V]."""


@dataclass(frozen=True, slots=True)
class LabelIds:
    """The model's ids of labels, beginning and end. Those of the labels stand in the order of their numbers."""

    labels: tuple[int, ...]
    begin: int
    end: int


def open_scorer(folder: Path, ids: LabelIds, *, device: str = "auto") -> LabelScorer:
    """The scorer in a folder. It is `model.onnx` if there is one, else the safetensors.

    Ids that are neither labels nor the end get no probability. Raises ModelUnavailable.
    """
    onnx = folder / ONNX_FILE
    return _Scorer(_onnx_logits(onnx) if onnx.exists() else _hugging_face_logits(folder, device), ids)


class _Scorer:
    """A `LabelScorer` of a model. It turns labels into the model's ids, and logits into log-probs of labels."""

    def __init__(self, last_logits: _LastLogits, ids: LabelIds) -> None:
        self._last_logits, self._begin, self._lock = last_logits, ids.begin, threading.Lock()
        self._columns = np.array([*ids.labels, ids.end])
        width = self._read([[]]).shape[1]
        if self._columns.max() >= width:
            raise ModelUnavailable(f"the scorer has {width} outputs, and its tokenizer the id {self._columns.max()}")

    def __call__(self, prefixes: list[list[int]]) -> NDArray[np.float64]:
        result = np.empty((len(prefixes), len(self._columns)))
        for places in _equal_lengths(prefixes):
            rows = [self._columns[prefixes[place]].tolist() for place in places]
            logits = self._read(rows)[:, self._columns].astype(np.float64)
            shifted = logits - logits.max(axis=1, keepdims=True)
            result[places] = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
        return result

    def _read(self, rows: list[list[int]]) -> Logits:
        ids = np.array([[self._begin, *row] for row in rows], dtype=np.int64)
        with self._lock:
            return self._last_logits(ids)


def _equal_lengths(prefixes: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    """The places of prefixes by length, in parts of a bounded size. Nothing is padded so."""
    by_length: dict[int, list[int]] = {}
    for place, prefix in enumerate(prefixes):
        by_length.setdefault(len(prefix), []).append(place)
    for length, places in by_length.items():
        size = max(1, _POSITIONS_AT_ONCE // (length + 1))
        for begin in range(0, len(places), size):
            yield places[begin : begin + size]


def _hugging_face_logits(folder: Path, device: str) -> _LastLogits:
    model = load_scoring_model(str(folder), device)

    @torch.inference_mode()
    def last_logits(ids: Ids) -> Logits:
        output = model(torch.from_numpy(ids).to(model.device), use_cache=False)
        logits: Logits = output.logits[:, -1].float().cpu().numpy()
        return logits

    return last_logits


def _onnx_logits(file: Path) -> _LastLogits:
    try:
        import onnxruntime  # an extra
    except ImportError as error:
        raise ModelUnavailable(f"{file} needs onnxruntime: install abs-server[onnx]") from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # small models; a pool of threads for each scorer would spin
    try:
        session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # the library has no common error class
        raise ModelUnavailable(f"onnxruntime cannot load {file}: {error}") from error
    inputs = {each.name: each.type for each in session.get_inputs()}
    makers: dict[str, Callable[[Ids], Ids]] = {
        "input_ids": lambda ids: ids, "attention_mask": np.ones_like,
        "position_ids": lambda ids: np.broadcast_to(np.arange(ids.shape[1]), ids.shape),
    }  # fmt: skip
    unknown = sorted(name for name, kind in inputs.items() if name not in makers or kind not in _INTEGERS)
    outputs = [each.name for each in session.get_outputs()]
    if unknown or "input_ids" not in inputs or "logits" not in outputs:
        raise ModelUnavailable(
            f"{file} must have the output logits, and of the inputs {', '.join(makers)} at least the first, of "
            f"integers; it has the outputs {', '.join(outputs)} and the inputs {', '.join(inputs)}: export it without "
            "a cache"
        )

    def last_logits(ids: Ids) -> Logits:
        feed = {name: np.ascontiguousarray(makers[name](ids), _INTEGERS[kind]) for name, kind in inputs.items()}
        logits: Logits = session.run(["logits"], feed)[0][:, -1]
        return logits

    return last_logits
