"""Arrays on a device; knows no model and no search.

The search's small arrays are numpy's on the CPU and torch's elsewhere, behind one way of writing. The ids of a
vocabulary lie on the device in chunks of one token class each. `TokenStates` is the interface to the states of an
automaton: `ExplicitStates` has all of them in tables, `LazyStates` numbers those that a generation meets. The exact
top-k selection with ties and the floor under log-probs are here too. `Graphs` replays functions of tensors as CUDA
graphs.
"""

from __future__ import annotations

from decoding.tensors.backend import (
    LOG_PROB_FLOOR,
    Array,
    arange,
    fill_at,
    library,
    like,
    rank_in_group,
    rows_at_a_time,
    scratch_bytes,
    take,
    take_columns,
    to_device,
    to_float64,
    top_k_stable,
    top_k_unordered,
    with_floor,
)
from decoding.tensors.explicit_states import ExplicitStates
from decoding.tensors.graphs import CudaCapture, GraphCapture, Graphs
from decoding.tensors.lazy_states import LazyStates
from decoding.tensors.token_states import HostStates, Successors, TokenStates
from decoding.tensors.token_tables import TokenTables

__all__ = [
    "LOG_PROB_FLOOR", "Array", "CudaCapture", "ExplicitStates", "GraphCapture", "Graphs", "HostStates", "LazyStates",
    "Successors", "TokenStates", "TokenTables", "arange", "fill_at", "library", "like", "rank_in_group",
    "rows_at_a_time", "scratch_bytes", "take", "take_columns", "to_device", "to_float64", "top_k_stable",
    "top_k_unordered", "with_floor",
]  # fmt: skip
