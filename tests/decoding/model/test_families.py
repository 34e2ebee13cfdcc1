"""Each family of models against full passes, and the table of them."""

from __future__ import annotations

import pytest
import torch

from decoding.model import HuggingFaceModel
from decoding.model.plain_cache import PlainReader, cache_bytes
from tests.decoding.model.families import FAMILIES, PAGE, family, reading
from tests.decoding.model.test_huggingface import check_against_full_passes


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.sample(17)
def test_a_family_is_read_as_documented_and_rightly(name: str) -> None:
    model = HuggingFaceModel.of_loaded(family(name))
    assert f"| `{name}` | {reading(model)} |" in PAGE.read_text(encoding="utf-8")
    check_against_full_passes(model, family(name))


@pytest.mark.parametrize("name", ["mamba", "lfm2"])
def test_a_row_s_memory_counts_the_states_of_recurrent_layers(name: str) -> None:
    model = family(name)
    cache = PlainReader(model).prefill([1, 2, 3])[0].cache
    states = model.config.hidden_size * 3 * torch.float32.itemsize  # at least: of one layer of three positions
    keys_and_values = sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers if hasattr(layer, "keys"))
    assert cache_bytes(cache) >= keys_and_values + states
