"""From bytes to tokens, with exact distances.

A byte transducer is run over a trie of the vocabulary, so that a state and a token give the next state. Tokens that act
alike in every state share a class. The distance of a state is the fewest tokens to acceptance, found by breadth-first
search from the accepting states. The result is a `TokenAutomaton`, all that decoding sees of the compiler.
"""

from __future__ import annotations

from compiler.lifting.construction import lift
from compiler.lifting.effects import DEAD_EFFECT, UNSEEN
from compiler.lifting.rows import ByteEffects, SparseRows, SparseTable
from compiler.lifting.sparse_walk import plain_states
from compiler.lifting.token_automaton import BUDGET_MAX, DEAD_EDGE, UNREACHABLE, TokenAutomaton, from_table
from compiler.lifting.token_masks import TokenMasks
from compiler.lifting.trie_walk import SparseTokenClasses, TokenClasses, sparse_token_classes, token_classes

__all__ = [
    "BUDGET_MAX", "DEAD_EDGE", "DEAD_EFFECT", "UNREACHABLE", "UNSEEN", "ByteEffects", "SparseRows", "SparseTable",
    "SparseTokenClasses", "TokenAutomaton", "TokenClasses", "TokenMasks", "from_table", "lift", "plain_states",
    "sparse_token_classes", "token_classes",
]  # fmt: skip
