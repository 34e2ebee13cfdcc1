"""Both beam searches over a token automaton.

`AbsSearch` is Algorithm 1 of the paper (Collura et al. 2025). `BankedSearch` is the default: candidates are ranked by
log-probability minus cost to go and shared out over distances, a soft form of dynamic beam allocation (Post and Vilar
2018). Both keep the rows of a beam as arrays, find candidates by token class, and collect the n best answers. `drive`
advances one search, the engine advances many.
"""

from __future__ import annotations

from decoding.search.abs_search import AbsSearch
from decoding.search.banked_search import BankedSearch
from decoding.search.driver import drive, generate, rows_of, search_of

__all__ = [
    "AbsSearch",
    "BankedSearch",
    "drive",
    "generate",
    "rows_of",
    "search_of",
]
