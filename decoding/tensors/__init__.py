"""Arrays on a device; knows no model and no search.

The search's small arrays are numpy's on the CPU and torch's elsewhere, behind one way of writing. An automaton's tables
lie on the device with the ids of a vocabulary in chunks of one token class each. `TokenStates` has the states of both
kinds of automata. The exact top-k selection with ties and the floor under log-probs are here too.
"""

from __future__ import annotations

from decoding.tensors.automaton_tables import Tables
from decoding.tensors.backend import (
    LOG_PROB_FLOOR,
    Array,
    arange,
    library,
    like,
    rank_in_group,
    rows_at_a_time,
    scratch_bytes,
    take,
    take_columns,
    to_float64,
    top_k_stable,
    top_k_unordered,
    with_floor,
)
from decoding.tensors.token_states import TokenStates, begin_states

__all__ = [
    "LOG_PROB_FLOOR", "Array", "Tables", "TokenStates", "arange", "begin_states", "library", "like", "rank_in_group",
    "rows_at_a_time", "scratch_bytes", "take", "take_columns", "to_float64", "top_k_stable", "top_k_unordered",
    "with_floor",
]  # fmt: skip
