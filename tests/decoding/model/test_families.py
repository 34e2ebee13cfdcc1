"""Each family of models against full passes, and the table of them."""

from __future__ import annotations

import pytest

from decoding.model import HuggingFaceModel
from tests.decoding.model.families import FAMILIES, PAGE, family, reading
from tests.decoding.model.test_huggingface import check_against_full_passes


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.sample(17)
def test_a_family_is_read_as_documented_and_rightly(name: str) -> None:
    model = HuggingFaceModel.of_loaded(family(name))
    assert f"| `{name}` | {reading(model)} |" in PAGE.read_text(encoding="utf-8")
    check_against_full_passes(model, family(name))
