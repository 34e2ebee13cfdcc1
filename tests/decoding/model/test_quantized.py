"""Quantized checkpoints of installed libraries answer under constraints, and of others fail."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from compiler.lifting import from_table
from decoding.errors import ModelUnavailable
from decoding.model import HuggingFaceModel, StepInput, loading
from decoding.options import SearchOptions
from decoding.search import generate
from tests.decoding.random_models import V, llama_of
from tests.lora_adapters import write_adapter
from tests.quantized_models import METHODS

NATS = 0.5
WIDE = {"hidden_size": 1024, "intermediate_size": 1024, "num_hidden_layers": 1}  # whose exact layers oneDNN computes
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")


@pytest.fixture(params=METHODS)
def method(request: pytest.FixtureRequest) -> Iterator[str]:
    """Each method whose library is installed."""
    library, _ = METHODS[request.param]
    pytest.importorskip(library, reason=f"{library} is not installed: CONTRIBUTING.md says how to run this test")
    yield request.param


def test_quantized_checkpoints_answer_share_prompts_and_take_adapters(method: str, tmp_path: Path) -> None:
    bare = llama_of(**WIDE)
    bare.save_pretrained(tmp_path / "exact")
    write_adapter(tmp_path / "a", bare, size=0.05)
    METHODS[method][1](tmp_path / "exact", tmp_path / "quantized")
    models = [HuggingFaceModel.load(str(tmp_path / name), device="cpu") for name in ("quantized", "exact")]
    table, accepting = np.array([[0, 1], [1, 0]]), np.array([False, True])
    automaton = from_table(np.arange(V) % 2, table, accepting, 0, eos_ids=models[1].eos_ids)
    options, log_probs = SearchOptions(automaton.min_tokens + 6, beams=4), list[float]()
    found = list[list[torch.Tensor]]()
    for model in models:
        (answer,) = generate(model, [1, 2, 3], automaton, options)
        assert automaton.distance[reduce(automaton.advance, answer.tokens, automaton.start)] == 0
        log_probs.append(answer.log_prob)
        model.add_adapters({"a": str(tmp_path / "a")})
        assert model.supports_batching
        sessions = [model.with_adapter(adapter).prefill([1, 2, 3]) for adapter in ("", "a")]
        feeds = [StepInput(session, torch.tensor([0, 0]), torch.tensor([[4], [5]])) for session, _ in sessions]
        found.append([first for _, first in sessions] + [scores.log_probs for scores in model.step(feeds)])
    for quantized, exact in zip(*found, strict=True):
        torch.testing.assert_close(quantized, exact, atol=NATS, rtol=0)
    assert log_probs[0] == pytest.approx(log_probs[1], abs=8 * NATS)
    assert models[0].tolerance == NATS  # rounding may differ by a step where activations are rounded


@pytest.mark.parametrize(("quantization", "advice"), [
    ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "pip install accelerate bitsandbytes"),
    ({"quant_method": "gptq", "bits": 4, "group_size": 32}, "pip install gptqmodel optimum"),
    ({"quant_method": "awq", "bits": 4}, "pip install gptqmodel"),
    ({"quant_method": "torchao"}, "pip install torchao"),
    ({"quant_method": "compressed-tensors"}, "pip install compressed-tensors"),
])  # fmt: skip
def test_a_checkpoint_without_its_library_names_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, quantization: dict[str, Any], advice: str
) -> None:
    llama_of().save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"quantization_config": quantization}))
    monkeypatch.setattr(loading, "find_spec", lambda name: None)
    with pytest.raises(ModelUnavailable) as error:
        HuggingFaceModel.load(str(tmp_path))
    assert str(error.value).endswith(f"not installed: {advice}") and quantization["quant_method"] in str(error.value)
