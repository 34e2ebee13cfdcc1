"""The model alone: what it says where nobody asks for anything."""

from __future__ import annotations

from benchmarks.systems.base import Wanted
from benchmarks.systems.transformers_based import Generating


class Plain(Generating):
    """Greedy or beam search of transformers, without any constraint."""

    def constrain(self, wanted: Wanted) -> None:
        del wanted  # that is the point
