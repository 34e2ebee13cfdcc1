"""Adapters of a model that several processes share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import PreTrainedModel

from decoding.model import HuggingFaceModel, TensorParallelModel
from tests.decoding.model.compared_steps import NATS, compare_steps, feed
from tests.decoding.model.families import family
from tests.decoding.random_models import llama_of
from tests.lora_adapters import linear_layers, write_adapter

# Biases are added after the sum over the processes, and so are terms. Phi 3 exchanges more often: its layers are split
# by weights alone, neither by inputs nor by outputs.
MODELS: dict[str, Callable[[], PreTrainedModel]] = {
    "llama": lambda: llama_of(attention_bias=True, mlp_bias=True), "phi3": lambda: family("phi3"),
}  # fmt: skip
pytestmark = pytest.mark.long


@pytest.fixture(scope="module", params=MODELS)
def models(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A group and one process. An adapter changes each kind of layer, one all of them."""
    folder, bare = tmp_path_factory.mktemp("shared"), MODELS[request.param]()
    bare.save_pretrained(folder / "model")
    layers = linear_layers(bare)
    kinds = sorted({name.rpartition(".")[2] for name in layers})
    of_kind = {kind: [name for name in layers if name.endswith(kind)] for kind in kinds} | {"all": layers}
    folders = {
        kind: str(write_adapter(folder / kind, bare, layers=of_kind[kind], seed=seed, size=2.0))
        for seed, kind in enumerate(of_kind)
    }
    single = HuggingFaceModel.load(str(folder / "model"))
    single.add_adapters(folders)
    group = TensorParallelModel.load(str(folder / "model"), size=2, adapters=folders)
    yield SimpleNamespace(group=group, single=single, adapters=tuple(folders))
    group.close()


def test_all_kinds_of_layers_add_terms_in_one_batch(models: Any) -> None:
    assert len(models.adapters) in (5, 8)
    compare_steps(models.group, models.single, 1, ("", *models.adapters, "", "all"))
    compare_steps(models.group, models.single, 2)  # a step without any


def test_each_adapter_of_a_group_scores_like_one_process(models: Any) -> None:
    tokens = [number * 7 % 61 for number in range(1, 20)]
    plain = torch.tensor(models.group.score([5], tokens).log_probs)
    for adapter in models.adapters:
        found, expected = (
            torch.tensor(model.with_adapter(adapter).score([5], tokens).log_probs)
            for model in (models.group, models.single)
        )
        torch.testing.assert_close(found, expected, atol=NATS, rtol=0)
        assert (found - plain).abs().max() > 10 * NATS, adapter


def test_generations_of_a_group_ignore_adapters_beside_them(models: Any) -> None:
    view, rows = models.group.with_adapter("all"), torch.tensor([[3], [4]])

    def scored(*others: str) -> torch.Tensor:
        sessions = [each.prefill([1, 2])[0] for each in (view, *map(models.group.with_adapter, others))]
        log_probs: torch.Tensor = models.group.step([feed(each, [0, 0], rows) for each in sessions])[0].log_probs
        return log_probs

    assert models.group.rows_independent
    assert torch.equal(scored(), scored("o_proj", "", "all"))
