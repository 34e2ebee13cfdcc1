"""Which models can be loaded, and what their files say."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    BertConfig,
    BertForMaskedLM,
    DynamicCache,
    GenerationConfig,
    Phi3Config,
    RwkvConfig,
)

from decoding.errors import ModelUnavailable
from decoding.model import HuggingFaceModel
from tests.decoding.random_models import gpt2_of, make_model


def test_sizes_and_end_tokens_are_read_from_the_models_files(captions: HuggingFaceModel, shared: Path) -> None:
    assert (captions.vocab_size, captions.eos_ids, captions.context_length) == (4096, (0,), 256)
    stories = HuggingFaceModel.load(str(shared / "models" / "stories260k"))
    assert (stories.vocab_size, stories.eos_ids, stories.context_length) == (512, (2,), 512)


def test_end_tokens_of_the_generation_config_take_precedence() -> None:
    model = gpt2_of()
    model.generation_config = GenerationConfig(eos_token_id=[59, 60, 59])
    adapter = HuggingFaceModel(model)
    assert adapter.eos_ids == (59, 60)
    assert (adapter.vocab_size, adapter.context_length) == (61, 48)


def test_a_model_without_an_end_token_is_refused() -> None:
    with pytest.raises(ModelUnavailable, match="ends a text"):
        HuggingFaceModel(gpt2_of(eos_token_id=None))


@pytest.mark.parametrize("dtype", ["auto", "float32", "bfloat16", "float16"])
def test_half_precision_weights_use_float32_on_cpu_by_default(tmp_path: Path, dtype: str) -> None:
    gpt2_of().half().save_pretrained(tmp_path)
    model = HuggingFaceModel.load(str(tmp_path), device="cpu", dtype=dtype)
    reference = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float16).float().eval()
    with torch.inference_mode():
        expected = reference(input_ids=torch.tensor([[1, 2]])).logits[0, -1].log_softmax(0)
    single = dtype in ("auto", "float32")
    assert model.tolerance == (0.01 if single else 0.5)
    torch.testing.assert_close(model.prefill([1, 2])[1], expected, atol=2e-4 if single else 0.05, rtol=0)


def test_a_folder_without_a_causal_model_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "encoder").mkdir()
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    BertForMaskedLM(BertConfig(vocab_size=20, eos_token_id=3, **sizes)).save_pretrained(tmp_path / "encoder")
    gpt2_of().save_pretrained(tmp_path / "cut")
    weights = tmp_path / "cut" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    for name in ("empty", "encoder", "cut"):
        with pytest.raises(ModelUnavailable, match=name):
            HuggingFaceModel.load(str(tmp_path / name))


def test_a_model_whose_cache_cannot_be_reordered_is_refused(tmp_path: Path) -> None:
    config = RwkvConfig(vocab_size=61, hidden_size=24, num_hidden_layers=2, eos_token_id=60)
    make_model(config).save_pretrained(tmp_path)
    with pytest.raises(ModelUnavailable, match="reordered"):
        HuggingFaceModel.load(str(tmp_path))


def test_a_model_whose_rows_fail_to_be_reordered_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(cache: object, rows: torch.Tensor) -> None:
        raise IndexError("out of range")

    gpt2_of().save_pretrained(tmp_path)
    monkeypatch.setattr(DynamicCache, "reorder_cache", fails)
    with pytest.raises(ModelUnavailable, match="reordered: out of range"):
        HuggingFaceModel.load(str(tmp_path))


def test_longrope_models_end_the_context_at_the_original_length() -> None:
    config = Phi3Config(
        vocab_size=61, hidden_size=24, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, eos_token_id=60, pad_token_id=0, max_position_embeddings=128,
        original_max_position_embeddings=32, rope_parameters={
            "rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0] * 6, "long_factor": [2.0] * 6,
            "original_max_position_embeddings": 32, "factor": 4.0,
        },
    )  # fmt: skip
    model = make_model(config)
    adapter = HuggingFaceModel(model)
    assert adapter.context_length == 32
    ids = list(range(1, 33))
    with torch.inference_mode():
        log_probs = model(input_ids=torch.tensor([ids])).logits[0].log_softmax(-1)
    expected = log_probs[15:31].gather(1, torch.tensor(ids[16:])[:, None])[:, 0]
    torch.testing.assert_close(torch.tensor(adapter.score(ids[:16], ids[16:]).log_probs), expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("wrong", [{"device": "abacus"}, {"dtype": "int8"}])
def test_devices_and_precisions_that_do_not_exist_are_refused(tmp_path: Path, wrong: dict[str, str]) -> None:
    gpt2_of().save_pretrained(tmp_path)
    with pytest.raises(ModelUnavailable, match=next(iter(wrong.values()))):
        HuggingFaceModel.load(str(tmp_path), **wrong)
