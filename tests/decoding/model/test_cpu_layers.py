"""Linear layers of oneDNN against plain ones, and the memory they keep."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable
from typing import Any

import pytest
import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.activations import NewGELUActivation
from transformers.pytorch_utils import Conv1D

from decoding.model import HuggingFaceModel, StepInput
from decoding.model.cpu_layers import OneDnnLinear, rows_computed, use_onednn_layers
from tests.decoding.random_models import gpt2_of, llama_of
from tests.servers.forkserver import run_process


@pytest.fixture(autouse=True)
def small_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers of the tests' models are large enough to be replaced."""
    monkeypatch.setattr("decoding.model.cpu_layers._WEIGHTS_MIN", 2**15)


def _gpt2() -> PreTrainedModel:
    return gpt2_of(vocab_size=301, n_positions=64, n_embd=192, n_head=3)


def _llama(tied: bool, width: int = 192) -> PreTrainedModel:
    sizes = {"vocab_size": 301, "hidden_size": width, "intermediate_size": 256, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 3, "num_key_value_heads": 3}
    return llama_of(**sizes, **heads, tie_word_embeddings=tied, attention_bias=True)


@pytest.mark.parametrize("model", [_gpt2(), _llama(True), _llama(False)], ids=["gpt2", "tied", "untied"])
def test_a_model_with_onednn_layers_computes_the_same(model: PreTrainedModel) -> None:
    ids = torch.arange(20)[None] * 7 % 301
    with torch.inference_mode():
        expected = model(ids).logits
        layers = sum(type(layer) in (nn.Linear, Conv1D, NewGELUActivation) for layer in model.modules())
        embeddings = model.get_input_embeddings().weight.clone()
        assert use_onednn_layers(model) == layers
        torch.testing.assert_close(model(ids).logits, expected, atol=1e-5, rtol=1e-4)
    assert torch.equal(model.get_input_embeddings().weight, embeddings)


def test_a_layer_gives_its_weights_back() -> None:
    weight = torch.randn(200, 300)
    expected, layer = weight.clone(), OneDnnLinear(weight, None)
    assert layer.weight is weight
    del weight
    assert torch.equal(layer.weight, expected)


def test_a_tied_head_s_weights_are_read_without_a_copy() -> None:
    model = _llama(tied=True)
    assert use_onednn_layers(model) and isinstance(model.lm_head, OneDnnLinear)
    assert model.lm_head.weight is model.get_input_embeddings().weight


def test_a_rows_result_is_independent_of_the_batch_size() -> None:
    layer = OneDnnLinear(torch.randn(500, 192), torch.randn(500))
    rows = torch.randn(70, 192)
    expected = layer(rows)
    for count in range(2, 70):
        assert torch.equal(layer(rows[:count]), expected[:count])


@pytest.mark.parametrize("shape", [(192,), (0, 192), (1, 5, 192), (3, 7, 192), (2, 3, 11, 192)])
def test_a_layer_keeps_the_shape_of_its_input(shape: tuple[int, ...]) -> None:
    weight, bias = torch.randn(300, 192), torch.randn(300)
    rows = torch.randn(shape)
    expected = nn.functional.linear(rows, weight, bias)
    torch.testing.assert_close(OneDnnLinear(weight, bias)(rows), expected, atol=1e-4, rtol=1e-4)


def test_batch_sizes_are_rounded_up_to_few_close_values() -> None:
    result = [rows_computed(count) for count in range(5000)]
    for count, computed in enumerate(result):
        assert count <= computed <= count + max(3, count // 8)
        assert rows_computed(computed) == computed
    assert result == sorted(result) and result[1] == 1
    assert len(set(result[:1001])) <= 50


def test_small_half_precision_and_subclassed_layers_are_not_replaced() -> None:
    assert use_onednn_layers(_llama(False, width=12)) == 0
    assert use_onednn_layers(_gpt2().bfloat16()) == 0

    class Own(nn.Linear):
        pass

    model = _llama(False)
    model.lm_head = Own(192, 301, bias=False)
    use_onednn_layers(model)
    assert type(model.lm_head) is Own


def test_a_layer_with_a_different_result_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OneDnnLinear, "forward", lambda self, rows: rows.new_ones(*rows.shape[:-1], len(self.weight)))
    assert use_onednn_layers(_llama(False)) == 0


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
