"""Arrays on a device; knows no model and no search.

The search's small arrays are numpy's on the CPU and torch's elsewhere, behind one way of writing. An automaton's tables
lie on the device with the ids of a vocabulary in chunks of one token class each. Exact top-k selection with ties, the
push-up of the paper's Equation 2, and the draw of tokens for independent rows are here.
"""

from __future__ import annotations

from decoding.tensors.automaton_tables import Tables
from decoding.tensors.backend import (
    LOG_PROB_FLOOR,
    Array,
    count_up,
    floored,
    library,
    like,
    real,
    rows_at_a_time,
    scratch_bytes,
    take,
    take_columns,
)
from decoding.tensors.top_k import place_in_group, top, top_in_order

__all__ = [
    "LOG_PROB_FLOOR",
    "Array",
    "Tables",
    "count_up",
    "floored",
    "library",
    "like",
    "place_in_group",
    "real",
    "rows_at_a_time",
    "scratch_bytes",
    "take",
    "take_columns",
    "top",
    "top_in_order",
]
