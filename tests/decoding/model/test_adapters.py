"""LoRA adapters: equal to merged models, apart in batches; what is refused."""

from __future__ import annotations

import json
import math
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import PreTrainedModel

from decoding.errors import ModelUnavailable
from decoding.model import HuggingFaceModel, StepInput, shared_prefix
from tests.decoding.random_models import PLAIN, SHARED, llama_of
from tests.lora_adapters import ALPHA, CONFIG, RANK, WEIGHTS, merge, write_adapter
from tests.tables import table

NATS = 1e-4
STEPS: list[tuple[list[int], list[list[int]]]] = [([0, 0, 0], [[1], [2], [3]]), ([2, 0], [[4, 5], [6, 7]])]
WIDE = {"hidden_size": 1024, "num_hidden_layers": 1}  # whose layers oneDNN computes
LAYERS = ["model.layers.0.self_attn.q_proj", "model.layers.1.mlp.down_proj"]
MODELS: dict[str, Callable[[], PreTrainedModel]] = {
    "llama, wide": lambda: llama_of(**WIDE), **SHARED,
    **{name: make for name, (make, _) in PLAIN.items() if name != "jamba, states"},
}  # fmt: skip


def _with_adapters(
    make: Callable[[], PreTrainedModel], folder: Path, *names: str, **options: Any
) -> HuggingFaceModel:
    """A model with adapters of these names, each of them random."""
    bare = make()
    folders = {
        name: str(write_adapter(folder / name, bare, seed=number, **options)) for number, name in enumerate(names)
    }
    model = HuggingFaceModel(bare)
    model.add_adapters(folders)
    return model


def _log_probs(model: HuggingFaceModel, prompt: list[int]) -> list[Tensor]:
    """After a prompt, after steps that fork, and of an answer."""
    session, first = model.prefill(prompt)
    results = [first]
    for parents, tokens in STEPS:
        (scores,) = model.step([StepInput(session, torch.tensor(parents), torch.tensor(tokens))])
        results += [scores.log_probs, scores.token_log_probs]
    return [*results, torch.tensor(model.score(prompt, [7, 8, 9]).log_probs)]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.sample(4)
def test_an_adapter_gives_the_log_probs_of_the_merged_model(name: str, tmp_path: Path) -> None:
    make = MODELS[name]
    model, merged, bare = _with_adapters(make, tmp_path, "a"), make(), HuggingFaceModel(make())
    merge(merged, tmp_path / "a")
    prompt = list(range(1, 9))
    results, without = _log_probs(model.with_adapter("a"), prompt), _log_probs(model, prompt)
    torch.testing.assert_close(results, _log_probs(HuggingFaceModel(merged), prompt), atol=NATS, rtol=0)
    assert not torch.allclose(results[0], without[0], atol=100 * NATS)
    torch.testing.assert_close(without, _log_probs(bare, prompt), atol=0, rtol=0)


@pytest.mark.parametrize("name", ["llama, wide", *SHARED, "stablelm, options lost on the way"])
@pytest.mark.sample(5)
def test_generations_with_different_adapters_share_steps_with_the_same_bits(name: str, tmp_path: Path) -> None:
    model = _with_adapters(MODELS[name], tmp_path, "a", "b")
    generations = [(adapter, [number, 5, 6]) for number, adapter in enumerate(("", "a", "b", "a", ""), 1)]
    sessions = [model.with_adapter(adapter).prefill(prompt)[0] for adapter, prompt in generations]
    together: list[list[Tensor]] = [[] for _ in generations]
    for parents, tokens in STEPS:
        feeds = [StepInput(session, torch.tensor(parents), torch.tensor(tokens)) for session in sessions]
        for results, scores in zip(together, model.step(feeds), strict=True):
            results += [scores.log_probs, scores.token_log_probs]
    for (adapter, prompt), results in zip(generations, together, strict=True):
        expected = _log_probs(model.with_adapter(adapter), prompt)[1:-1]
        torch.testing.assert_close(results, expected, atol=0 if model.rows_independent else NATS, rtol=0)


def test_the_prompt_cache_keeps_adapters_apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(shared_prefix._CHUNK_TOKENS, "cpu", 4)
    cached, uncached = (_with_adapters(llama_of, tmp_path, "a", "b") for _ in range(2))
    found: list[bool] = []
    cached.keep_prompts(10**9, found.append)
    prompt = list(range(1, 14))
    for _ in range(2):
        for adapter in ("", "a", "b"):
            results, expected = (_log_probs(each.with_adapter(adapter), prompt) for each in (cached, uncached))
            torch.testing.assert_close(results, expected, atol=0, rtol=0)
    assert sum(found) == len(found) / 2  # all chunks of the second round


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::UserWarning:peft", "ignore::FutureWarning:transformers")
@pytest.mark.parametrize("options", [
    {}, {"use_rslora": True}, {"init_lora_weights": "gaussian"}, {"fan_in_fan_out": True},
    {"alpha_pattern": {"layers.1.mlp.down_proj": 3}, "rank_pattern": {"q_proj": RANK}},
    {"alpha_pattern": {"q_proj": 5.0, "model.layers.0.self_attn.q_proj": 1.0}},
])  # fmt: skip
def test_scales_are_those_of_the_library_peft(options: dict[str, Any], tmp_path: Path) -> None:
    peft = pytest.importorskip("peft", reason="peft is not installed: tests/requirements-linux.txt names it")
    model = _with_adapters(llama_of, tmp_path, "a", layers=LAYERS, **options)
    reference = HuggingFaceModel(peft.PeftModel.from_pretrained(llama_of(), tmp_path / "a").merge_and_unload())
    results, expected = _log_probs(model.with_adapter("a"), [1, 2]), _log_probs(reference, [1, 2])
    torch.testing.assert_close(results, expected, atol=NATS, rtol=0)


@pytest.mark.parametrize(("options", "scales"), [
    ({"use_rslora": True, "alpha_pattern": {"mlp.down_proj": 3}}, (ALPHA / math.sqrt(RANK), 3 / math.sqrt(RANK))),
    ({"fan_in_fan_out": True, "alpha_pattern": {"layers.1.mlp.down_proj": 3}, "rank_pattern": {"q_proj": RANK}},
     (ALPHA / RANK, 3 / RANK)),
    ({"init_lora_weights": "gaussian", "alpha_pattern": {"q_proj": 5.0, LAYERS[0]: 1.0}}, (5 / RANK, ALPHA / RANK)),
])  # fmt: skip
def test_scales_follow_rank_and_patterns(options: dict[str, Any], scales: tuple[float, float], tmp_path: Path) -> None:
    model, merged = _with_adapters(llama_of, tmp_path, "a", layers=LAYERS, **options), llama_of()
    merge(merged, tmp_path / "a", dict(zip(LAYERS, scales, strict=True)).__getitem__)
    results, expected = _log_probs(model.with_adapter("a"), [1, 2]), _log_probs(HuggingFaceModel(merged), [1, 2])
    torch.testing.assert_close(results, expected, atol=NATS, rtol=0)


def _changed(case: dict[str, Any], folder: Path) -> Path:
    write_adapter(folder, llama_of())
    config, weights = json.loads((folder / CONFIG).read_text()), load_file(folder / WEIGHTS)
    config |= case.get("config", {})
    weights |= {key: torch.ones(shape) for key, shape in case.get("shapes", {}).items()}
    (folder / CONFIG).write_text(json.dumps({name: value for name, value in config.items() if value != ""}))
    save_file({key: each for key, each in weights.items() if key not in case.get("remove", ())}, folder / WEIGHTS)
    return folder


@pytest.fixture(scope="module")
def bare() -> HuggingFaceModel:
    """A model that takes none of the adapters below."""
    return HuggingFaceModel(llama_of())


@pytest.mark.parametrize("case", table("adapters")["case"], ids=lambda case: case["name"])
def test_an_adapter_that_would_read_otherwise_is_refused(
    case: dict[str, Any], bare: HuggingFaceModel, tmp_path: Path
) -> None:
    with pytest.raises(ModelUnavailable, check=lambda error: case["reason"] in str(error) and len(str(error)) < 400):
        bare.add_adapters({"a": str(_changed(case, tmp_path))})


class _Marker:
    """A pickle that writes a file where it is read."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self._path,)


@pytest.mark.parametrize("name", [WEIGHTS, "adapter_model.bin"])
def test_a_pickle_is_never_read(name: str, bare: HuggingFaceModel, tmp_path: Path) -> None:
    write_adapter(tmp_path, llama_of())
    (tmp_path / WEIGHTS).unlink()
    (tmp_path / name).write_bytes(pickle.dumps(_Marker(tmp_path / "ran")))
    with pytest.raises(ModelUnavailable, match=r"no readable adapter_model\.safetensors .* save the adapter with"):
        bare.add_adapters({"a": str(tmp_path)})
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("text", [None, "{", "[]", b"\xff"])
def test_a_folder_without_a_configuration_is_refused(text: Any, bare: HuggingFaceModel, tmp_path: Path) -> None:
    write_adapter(tmp_path, llama_of())
    (tmp_path / CONFIG).unlink() if text is None else (tmp_path / CONFIG).write_bytes(
        text if isinstance(text, bytes) else text.encode()
    )
    with pytest.raises(ModelUnavailable, match=rf"'a' .* {CONFIG}"):
        bare.add_adapters({"a": str(tmp_path)})


def test_a_layer_that_the_model_does_not_call_is_refused(tmp_path: Path) -> None:
    def make() -> PreTrainedModel:
        model = llama_of()
        model.model.layers[0].spare = torch.nn.Linear(8, 8)
        return model

    with pytest.raises(ModelUnavailable, match=r"does not call model\.layers\.0\.spare"):
        _with_adapters(make, tmp_path, "a")
