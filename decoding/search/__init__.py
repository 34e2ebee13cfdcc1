"""Both beam searches over a token automaton.

`AbsSearch` is Algorithm 1 of the paper (Collura et al. 2025). `BankedSearch` is the default: candidates are ranked by
log-probability minus cost to go and shared out over distances, a soft form of dynamic beam allocation (Post and Vilar
2018). Both extend `BeamSearch`: rows are arrays, candidates are found by token class, and the n best answers are
collected. `drive` advances one search, the engine advances many.
"""

from __future__ import annotations

from decoding.search.abs_search import AbsSearch
from decoding.search.banked_search import BankedSearch
from decoding.search.beam_search import BeamSearch
from decoding.search.driver import drive, generate, rows_of, search_of

__all__ = ["AbsSearch", "BankedSearch", "BeamSearch", "drive", "generate", "rows_of", "search_of"]
