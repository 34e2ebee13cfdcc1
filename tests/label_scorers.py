"""Small real scorers of labels. They are recurrent networks and transformers, also as files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

LABELS = ("submit", "check", "pay", "reject")
SPECIAL = ("<s>", "</s>", "<pad>", "<unk>")  # with the ids 0 to 3, before the labels
BEGIN, END = 0, 1


class GruScorer(nn.Module):
    """A recurrent network over ids, of random weights that differ much."""

    def __init__(self, vocabulary: int, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.embedding, self.gru = nn.Embedding(vocabulary, 6), nn.GRU(6, 8, batch_first=True)
        self.last = nn.Linear(8, vocabulary, bias=False)
        with torch.no_grad():
            self.last.weight *= 8
        self.calls = 0

    @torch.no_grad()
    def logits(self, ids: Sequence[Sequence[int]]) -> torch.Tensor:
        """The logits after the last id of each row."""
        found: torch.Tensor = self.last(self.gru(self.embedding(torch.tensor(ids)))[0])[:, -1]
        return found

    def __call__(self, prefixes: list[list[int]]) -> NDArray[np.float64]:
        """The log-probs of a `LabelScorer`. The ids are the labels, the end, and the beginning."""
        self.calls += 1
        width = self.embedding.num_embeddings
        rows = [self.logits([[width - 1, *prefix]])[0, :-1].log_softmax(dim=0) for prefix in prefixes]
        return torch.stack(rows).double().numpy()


def write_tokenizer(folder: Path, labels: Sequence[str] = LABELS, **config: object) -> None:
    """The tokenizer and configuration of a scorer."""
    added = [{"id": number, "content": name, "special": True} for number, name in enumerate(SPECIAL)]
    vocab = {name: number for number, name in enumerate((*SPECIAL, *labels))}
    model = {"type": "WordLevel", "vocab": vocab, "unk_token": "<unk>"}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps({"added_tokens": added, "model": model}))
    if config:
        (folder / "config.json").write_text(json.dumps(config))


def write_llama(folder: Path, labels: Sequence[str] = LABELS, positions: int = 16) -> LlamaForCausalLM:
    """A transformer in safetensors, of random weights that differ much."""
    torch.manual_seed(1)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(SPECIAL) + len(labels), hidden_size=16, intermediate_size=16, num_hidden_layers=2,
            num_attention_heads=2, max_position_embeddings=positions, bos_token_id=BEGIN, eos_token_id=END,
            initializer_range=1.0,
        )
    ).eval()
    model.save_pretrained(folder)
    write_tokenizer(folder, labels)
    return model


def write_onnx(folder: Path, network: GruScorer, *inputs: str) -> None:
    """A recurrent network in ONNX. It does not read the further inputs."""
    onnx = pytest.importorskip("onnx", reason="onnx, which writes the model of this test, is not installed")
    helper = onnx.helper

    def gates(name: str) -> NDArray[Any]:
        reset, update, new = getattr(network.gru, name).detach().numpy().reshape(3, 8, -1)
        return np.concatenate([update, reset, new])[None]  # ONNX has another order

    bias = np.concatenate([gates("bias_ih_l0"), gates("bias_hh_l0")], axis=1)[:, :, 0]
    constants = {
        "embedding": network.embedding.weight.detach().numpy(), "w": gates("weight_ih_l0"), "r": gates("weight_hh_l0"),
        "b": bias, "last": network.last.weight.detach().numpy().T.copy(), "axis": np.array([1]),
    }  # fmt: skip
    nodes = [
        helper.make_node("Gather", ["embedding", "input_ids"], ["embedded"]),
        helper.make_node("Transpose", ["embedded"], ["by_time"], perm=[1, 0, 2]),
        helper.make_node("GRU", ["by_time", "w", "r", "b"], ["all"], hidden_size=8, linear_before_reset=1),
        helper.make_node("Squeeze", ["all", "axis"], ["states"]),
        helper.make_node("Transpose", ["states"], ["by_row"], perm=[1, 0, 2]),
        helper.make_node("MatMul", ["by_row", "last"], ["logits"]),
    ]
    given = [helper.make_tensor_value_info(name, onnx.TensorProto.INT64, ["n", "t"]) for name in ("input_ids", *inputs)]
    result = [helper.make_tensor_value_info("logits", onnx.TensorProto.FLOAT, ["n", "t", "v"])]
    weights = [onnx.numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "scorer", given, result, weights)
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / "model.onnx"
    )
