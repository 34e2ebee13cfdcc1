"""Each family of models against full passes, and the table of them."""

from __future__ import annotations

import inspect
import re
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import PreTrainedModel

from decoding.errors import ModelUnavailable
from decoding.model import HuggingFaceModel, cache_name
from decoding.model.plain_cache import PlainReader, cache_bytes
from tests.decoding.model.families import FAMILIES, PAGE, family, header, reading
from tests.decoding.model.test_huggingface import check_against_full_passes

LOCK = Path(__file__).parents[3] / "locks/inference.txt"


def test_the_table_of_families_is_of_the_locked_release() -> None:
    release = re.search(r"^transformers==(\S+)", LOCK.read_text(encoding="utf-8"), re.MULTILINE)
    assert release and header(release[1]) in PAGE.read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.sample(9)
def test_a_family_is_read_as_documented_and_rightly(name: str) -> None:
    model, page = HuggingFaceModel.of_loaded(family(name)), PAGE.read_text(encoding="utf-8").splitlines()
    if header(version("transformers")) in page:  # older releases share the prompts of fewer families
        assert f"| `{name}` | {reading(model)} |" in page
    check_against_full_passes(model, family(name))


@pytest.mark.parametrize("name", ["mamba", "lfm2"])
def test_a_row_s_memory_counts_the_states_of_recurrent_layers(name: str) -> None:
    model = family(name)
    cache = PlainReader(model).prefill([1, 2, 3])[0].cache
    states = model.config.hidden_size * 3 * torch.float32.itemsize  # at least: of one layer of three positions
    keys_and_values = sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers if hasattr(layer, "keys"))
    assert cache_bytes(cache) >= keys_and_values + states


def _with_cache_named(name: str, model: PreTrainedModel) -> PreTrainedModel:
    """A model that takes and returns its cache by this name. It ignores other arguments."""
    forward, own_name = model.forward, cache_name(model)

    def renamed(input_ids: torch.Tensor, use_cache: bool = True, **options: Any) -> Any:
        out = forward(input_ids, use_cache=use_cache, **{own_name: options.get(name)})
        return SimpleNamespace(logits=out.logits, **{name: getattr(out, own_name)})

    signature = inspect.signature(renamed)
    parameter = inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None)
    *named, others = signature.parameters.values()
    renamed.__signature__ = signature.replace(parameters=[*named, parameter, others])  # type: ignore[attr-defined]
    model.forward = renamed
    return model


@pytest.mark.parametrize("name", ["cache", "past_key_values", "cache_params"])
@pytest.mark.parametrize("kind", ["gpt2", "mamba"])
def test_a_cache_has_the_name_of_any_release(name: str, kind: str) -> None:
    check_against_full_passes(HuggingFaceModel.of_loaded(_with_cache_named(name, family(kind))), family(kind))


def test_a_model_whose_cache_has_another_name_is_refused() -> None:
    with pytest.raises(ModelUnavailable, match="no cache"):
        HuggingFaceModel.of_loaded(_with_cache_named("state", family("gpt2")))
