"""The adapter against full forward passes of the library's own models."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    BertConfig,
    BertForMaskedLM,
    GenerationConfig,
    GPT2Config,
    GPT2LMHeadModel,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
)

from compiler.token_automaton import from_table
from decoding.errors import ModelUnavailable, PromptEmpty
from decoding.model import HuggingFaceModel
from decoding.search import SearchOptions, generate
from decoding.trace import replay


def _gpt2(**changes: object) -> PreTrainedModel:
    torch.manual_seed(0)
    sizes = {"vocab_size": 61, "n_positions": 48, "n_embd": 24, "n_layer": 2, "n_head": 2}
    return GPT2LMHeadModel(GPT2Config(**{**sizes, "bos_token_id": 0, "eos_token_id": 60, **changes}))


def _mistral() -> PreTrainedModel:
    """Grouped keys and values, and a window shorter than the test's text."""
    torch.manual_seed(1)
    return MistralForCausalLM(
        MistralConfig(
            vocab_size=61, hidden_size=24, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=64, sliding_window=5, eos_token_id=60, bos_token_id=0,
        )
    )


def _full_pass(model: PreTrainedModel, rows: list[list[int]]) -> torch.Tensor:
    """Log-probs after the last id of each row, each row on its own, without a cache."""
    with torch.inference_mode():
        return torch.stack(
            [model(input_ids=torch.tensor([row]), use_cache=False).logits[0, -1].float().log_softmax(0) for row in rows]
        )


def _check_against_full_passes(model: HuggingFaceModel, plain: PreTrainedModel) -> None:
    """Rows that fork, swap, stay, double and vanish, ten steps long."""
    random = np.random.default_rng(0)
    prompt = random.integers(1, plain.config.vocab_size, 7).tolist()
    session, first = model.prefill(prompt)
    torch.testing.assert_close(first, _full_pass(plain, [prompt])[0], atol=2e-4, rtol=0)
    rows = [prompt]
    for parents in ([0, 0, 0], [0, 1, 2], [2, 0, 1], [1, 1], [0, 1], [1, 0, 0, 1], [3], [0], [0, 0], [1, 0]):
        tokens = random.integers(1, plain.config.vocab_size, len(parents)).tolist()
        rows = [[*rows[parent], token] for parent, token in zip(parents, tokens, strict=True)]
        found = model.step(session, parents, tokens)
        assert found.dtype == torch.float32
        torch.testing.assert_close(found, _full_pass(plain, rows), atol=2e-4, rtol=0)


@pytest.mark.parametrize("make", [_gpt2, _mistral])
def test_cached_steps_give_the_log_probs_of_full_passes(make: Callable[[], PreTrainedModel], tmp_path: Path) -> None:
    make().save_pretrained(tmp_path)
    _check_against_full_passes(HuggingFaceModel.load(str(tmp_path)), make().eval())


@pytest.mark.parametrize("name", ["captions", "stories260k", "tinystories-656k"])
def test_trained_models_give_the_log_probs_of_full_passes(name: str, shared: Path) -> None:
    path = shared / "models" / name
    plain = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, local_files_only=True).eval()
    _check_against_full_passes(HuggingFaceModel.load(str(path)), plain)


def test_two_generations_at_once_do_not_disturb_each_other() -> None:
    model, plain = HuggingFaceModel(_gpt2()), _gpt2().eval()
    one, _ = model.prefill([1, 2, 3])
    other, _ = model.prefill([4])
    model.step(one, [0, 0], [5, 6])
    model.step(other, [0, 0], [7, 8])
    torch.testing.assert_close(model.step(one, [1], [9]), _full_pass(plain, [[1, 2, 3, 6, 9]]), atol=2e-4, rtol=0)
    torch.testing.assert_close(model.step(other, [1], [9]), _full_pass(plain, [[4, 8, 9]]), atol=2e-4, rtol=0)


@pytest.mark.parametrize("length", [1, 2, 64, 65, 130])
def test_scoring_a_finished_continuation_equals_full_passes_at_every_length(length: int) -> None:
    model = HuggingFaceModel(_gpt2(n_positions=160))
    plain = _gpt2(n_positions=160).eval()
    tokens = np.random.default_rng(length).integers(1, 61, length).tolist()
    rescored = model.score([3, 4], tokens)
    with torch.inference_mode():
        rows = plain(input_ids=torch.tensor([[3, 4, *tokens]])).logits[0, 1:-1].float().log_softmax(1)
    expected = rows.gather(1, torch.tensor(tokens)[:, None])[:, 0]
    torch.testing.assert_close(torch.tensor(rescored.log_probs), expected, atol=2e-4, rtol=0)
    torch.testing.assert_close(torch.tensor(rescored.peaks), rows.amax(1), atol=2e-4, rtol=0)


def test_an_empty_prompt_begins_with_the_models_own_first_token() -> None:
    model = HuggingFaceModel(_gpt2())
    torch.testing.assert_close(model.prefill([])[1], _full_pass(_gpt2().eval(), [[0]])[0], atol=2e-4, rtol=0)
    with pytest.raises(PromptEmpty):
        HuggingFaceModel(_gpt2(bos_token_id=None)).prefill([])


def test_sizes_and_end_tokens_are_read_from_the_models_files(tmp_path: Path, shared: Path) -> None:
    captions = HuggingFaceModel.load(str(shared / "models" / "captions"))
    assert (captions.vocab_size, captions.eos_ids, captions.context_length) == (4096, (0,), 256)
    stories = HuggingFaceModel.load(str(shared / "models" / "stories260k"))
    assert (stories.vocab_size, stories.eos_ids, stories.context_length) == (512, (2,), 512)


def test_a_model_may_have_several_end_tokens_and_its_generation_settings_come_first() -> None:
    model = _gpt2()
    model.generation_config = GenerationConfig(eos_token_id=[59, 60, 59])
    adapter = HuggingFaceModel(model)
    assert adapter.eos_ids == (59, 60)
    assert (adapter.vocab_size, adapter.context_length) == (61, 48)


def test_a_model_without_an_end_token_is_refused() -> None:
    with pytest.raises(ModelUnavailable, match="ends a text"):
        HuggingFaceModel(_gpt2(eos_token_id=None))


def test_half_precision_weights_are_computed_in_single_precision_on_the_cpu(tmp_path: Path) -> None:
    _gpt2().half().save_pretrained(tmp_path)
    model = HuggingFaceModel.load(str(tmp_path), device="cpu")
    plain = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float16).float().eval()
    torch.testing.assert_close(model.prefill([1, 2])[1], _full_pass(plain, [[1, 2]])[0], atol=2e-4, rtol=0)


def test_what_is_not_a_causal_language_model_is_refused_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "encoder").mkdir()
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    BertForMaskedLM(BertConfig(vocab_size=20, eos_token_id=3, **sizes)).save_pretrained(tmp_path / "encoder")
    _gpt2().save_pretrained(tmp_path / "cut")
    weights = tmp_path / "cut" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    for name in ("empty", "encoder", "cut"):
        with pytest.raises(ModelUnavailable, match=name):
            HuggingFaceModel.load(str(tmp_path / name))


@pytest.mark.parametrize("name", ["captions", "stories260k"])
def test_a_trained_model_writes_answers_that_replay(name: str, shared: Path) -> None:
    """The constraint: two ids in order, and never a third; the trace comes from another pass of the model."""
    model = HuggingFaceModel.load(str(shared / "models" / name))
    token_class = np.full(model.vocab_size, 3)
    token_class[[300, 400, 500]] = [0, 1, 2]
    table = np.array([[1, 3, 3, 0], [1, 2, 3, 1], [2, 2, 3, 2], [3, 3, 3, 3]])
    automaton = from_table(token_class, table, np.array([False, False, True, False]), 0, model.eos_ids)
    for algorithm_options in ({"rank_by": "score"}, {"rank_by": "log_prob", "gamma": 2.0, "alpha_min": 0.25}):
        options = SearchOptions(max_tokens=14, beams=8, n=3, **algorithm_options)
        for answer in generate(model, [1, 10, 20], automaton, options):
            rescored = model.score([1, 10, 20], answer.tokens)
            trace = replay(automaton, answer, rescored, options, model.tolerance)
            assert [step.token for step in trace] == list(answer.tokens)
            assert answer.tokens.index(300) < answer.tokens.index(400)
            assert 500 not in answer.tokens
