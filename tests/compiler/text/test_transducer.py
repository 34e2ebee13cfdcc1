"""Which column of the joint product belongs to which constraint."""

from __future__ import annotations

import pytest

from compiler.text.transducer import ProductLayout


@pytest.mark.parametrize("optional_parts", range(4))
@pytest.mark.parametrize("readings", [1, 2])
def test_the_columns_of_a_product_are_numbered_without_gaps(optional_parts: int, readings: int) -> None:
    layout = ProductLayout(optional_parts, readings)
    columns = [layout.WORDS]
    for reading in range(readings):
        columns += [layout.mandatory(reading), *layout.optional(reading)]
    assert columns == list(range(1 + readings * (1 + optional_parts)))
