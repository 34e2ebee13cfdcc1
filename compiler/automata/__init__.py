"""Finite automata over abstract symbols, characters and bytes.

A `Dfa` is a table of successors over numbered symbols. It is built by products and partition refinement, and read as
characters by `CharDfa` and the character transducers, which group code points into minterms. UTF-8 is a byte automaton
in front of these. All tables are numpy arrays. Nothing here knows a constraint, a token or JSON.
"""

from __future__ import annotations

from compiler.automata.acyclic import texts_dfa, words_dfa
from compiler.automata.characters import (
    ANYTHING,
    CODE_POINTS,
    NO_MINTERM,
    CharDfa,
    CharSet,
    Minterms,
    category,
    char_complement,
    char_intersection,
    char_union,
    charset,
    charset_complement,
    charset_union,
    coarsened,
    common_minterms,
    contains,
    describe,
    everything,
    ignore_case,
    literal,
    minterms,
    single,
)
from compiler.automata.counting import count_dfa, keyword_counts_dfa, sentences_dfa
from compiler.automata.dfa import Dfa, canonical, complement, is_empty, live_states, minimize
from compiler.automata.interning import (
    distinct,
    grown,
    hash_rows,
    hash_sparse_rows,
    ranks,
    spread,
    stable_order,
    unique_rows,
)
from compiler.automata.minimization import UNREACHABLE, refine, steps_along, steps_to
from compiler.automata.products import SINK, ProductGraph, explore, intersection, product, union
from compiler.automata.transducers import (
    DEAD,
    NO_END,
    ByteTransducer,
    CharTransducer,
    expand,
    inner_estimate,
    minimize_transducer,
    to_byte_transducer,
)
from compiler.automata.utf8_inverse import by_characters

__all__ = [
    "ANYTHING", "CODE_POINTS", "DEAD", "NO_END", "NO_MINTERM", "SINK", "UNREACHABLE", "ByteTransducer", "CharDfa",
    "CharSet", "CharTransducer", "Dfa", "Minterms", "ProductGraph", "by_characters", "canonical", "category",
    "char_complement", "char_intersection", "char_union", "charset", "charset_complement", "charset_union",
    "coarsened", "common_minterms", "complement", "contains", "count_dfa", "describe", "distinct", "everything",
    "expand", "explore", "grown", "hash_rows", "hash_sparse_rows", "ignore_case", "inner_estimate", "intersection",
    "is_empty", "keyword_counts_dfa", "literal", "live_states", "minimize", "minimize_transducer", "minterms",
    "product", "ranks", "refine", "sentences_dfa", "single", "spread", "stable_order", "steps_along", "steps_to",
    "texts_dfa", "to_byte_transducer", "union", "unique_rows", "words_dfa",
]  # fmt: skip
