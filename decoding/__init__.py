"""Turns a token automaton and a language model into satisfying answers.

`generate` answers in the caller's own process, `ConstrainedModel` many times, and `ConstraintLogitsProcessor` serves a
loop of the caller's own. `search` finds the best answers, `sampling` draws random ones, `label_decoding` reads a matrix
of log-probs, `label_scoring` searches labels with a scorer, and `engine` batches the generations of many requests.
Torch is imported only in this package, and only on first use: importing the package itself loads nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from decoding.library import Answer, ConstrainedModel, TracedToken, generate, vocabulary_of
    from decoding.logits_processor import ConstraintLogitsProcessor
    from decoding.options import SearchOptions
    from decoding.sampling import SamplingOptions

__all__ = [
    "Answer", "ConstrainedModel", "ConstraintLogitsProcessor", "SamplingOptions", "SearchOptions", "TracedToken",
    "generate", "vocabulary_of",
]  # fmt: skip
_MODULE_OF = {
    "ConstraintLogitsProcessor": "logits_processor", "SamplingOptions": "sampling", "SearchOptions": "options",
}  # fmt: skip


def __getattr__(name: str) -> object:
    """A name of `__all__`, imported on its first use."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULE_OF.get(name, 'library')}"), name)
