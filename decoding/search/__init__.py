"""Both beam searches over a token automaton.

`Search` is the protocol, with one class for each algorithm. `AbsSearch` is the paper's Algorithm 1. `BankedSearch` is
the default: candidates are ranked by log-probability minus cost to go and shared out over distances, a soft form of
dynamic beam allocation (Post and Vilar 2018). Both extend one base class: rows are arrays, candidates are found by
token class, and the n best answers are collected. `drive` advances one search, the engine advances many.
"""

from __future__ import annotations

from decoding.search.abs_search import AbsSearch
from decoding.search.banked_search import BankedSearch
from decoding.search.beam_search import Search
from decoding.search.driver import drive, generate, rows_of, search_of

__all__ = ["AbsSearch", "BankedSearch", "Search", "drive", "generate", "rows_of", "search_of"]
