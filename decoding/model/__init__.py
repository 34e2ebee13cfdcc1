"""One language model, read in batches.

`LanguageModel` is the protocol: prefill a prompt, then decode steps over the rows of many generations. A Hugging Face
model is read with prefix sharing, one tree of keys and values per generation and tree attention over a batch, where a
trial at load finds the results equal to the bit; else with the library's own cache, one generation at a time. Long
feeds are read in chunks. Several processes can share a model by tensor parallelism.
"""

from __future__ import annotations

from decoding.model.chunked_feed import piece_rows
from decoding.model.huggingface import HuggingFaceModel
from decoding.model.loading import eos_ids_of, load_scoring_model
from decoding.model.plain_cache import cache_name
from decoding.model.protocol import (
    LanguageModel,
    ObserveScores,
    ScoredSequence,
    Scores,
    StepInput,
    WholePrompts,
    begin_text,
)
from decoding.model.tensor_parallel import TensorParallelModel

__all__ = [
    "HuggingFaceModel", "LanguageModel", "ObserveScores", "ScoredSequence", "Scores", "StepInput",
    "TensorParallelModel", "WholePrompts", "begin_text", "cache_name", "eos_ids_of", "load_scoring_model", "piece_rows",
]  # fmt: skip
