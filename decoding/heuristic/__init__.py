"""Estimated cost from a state to acceptance.

The cost to go is the cheapest path to acceptance under the model's unigram prior. Value iteration finds it over the
factored automaton, saturation over a pushdown automaton. The prior is the mean of the model's distributions over its
own samples. For a model that seldom writes EOS, the tokens by which its texts end have costs of their own.
"""

from __future__ import annotations

from decoding.heuristic.endings import Endings, find_endings
from decoding.heuristic.unigram import cost_to_go, exit_costs, product_costs, unigram_prior

__all__ = ["Endings", "cost_to_go", "exit_costs", "find_endings", "product_costs", "unigram_prior"]
