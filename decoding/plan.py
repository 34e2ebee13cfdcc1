"""What is the same in all steps of a request: the options and the tables they need, on the device."""

from __future__ import annotations

from dataclasses import dataclass
from math import log, sqrt

import torch
from torch import Tensor

from compiler.token_automaton import UNREACHABLE
from decoding.beams import Tables
from decoding.options import SearchOptions
from decoding.ramp import push_up_table
from decoding.texts import Texts

POOL = 8
"""So many times k candidates are looked at before k are kept. This and the next three by benchmarks/search_quality."""
GROUP_COST = 3.0
"""Nats by which a candidate falls back for each e-fold of its place among those equally far from acceptance."""
ESTIMATE_WEIGHT, ESTIMATE_WEIGHT_ALONE = 0.8, 0.2
"""How far the estimated cost of what is still to come is believed; and how much further where only one row is kept."""
NATS_A_TOKEN = 6.0
"""What a token on the way to acceptance is taken to cost where nothing better is known."""


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """One request's constants. S automaton states, T = max_tokens, D the largest distance that can matter.

    beam_count  k, the rows kept ("banked": the live ones alone)
    alpha       float64 [T+1, D+1]  push-up by budget_before and distance; None where nothing is pushed
    cost        float64 [S]         nats to acceptance, as far as they are believed; None for "abs"
    fall        float64 [POOL * k]  what the place within its group costs a candidate
    texts       with them "banked" keeps only the best of the rows that say the same
    """

    beam_count: int
    alpha: Tensor | None
    cost: Tensor | None
    fall: Tensor
    texts: Texts | None

    @classmethod
    def prepare(
        cls, tables: Tables, texts: Texts | None, estimate: Tensor | None, options: SearchOptions
    ) -> Plan:
        """From a request's options.

        estimate  float [S]: nats that acceptance will cost from each state, 0 where it is reached; None takes
                  NATS_A_TOKEN for each token of the distance
        """

        def real(values: object) -> Tensor:
            return torch.tensor(values, dtype=torch.float64, device=tables.distance.device)

        alpha = cost = None
        if options.algorithm == "abs":
            distance_max = min(tables.distance_max, options.max_tokens)
            alpha = real(push_up_table(options.max_tokens, distance_max, options.alpha_min, options.gamma))
        else:
            to_go = tables.distance.masked_fill(tables.distance == UNREACHABLE, 0).double() * NATS_A_TOKEN
            weight = ESTIMATE_WEIGHT + ESTIMATE_WEIGHT_ALONE / sqrt(options.beams)
            cost = weight * (to_go if estimate is None else estimate.double())
        return cls(
            options.beams,
            alpha,
            cost,
            real([GROUP_COST * log(place) for place in range(1, POOL * options.beams + 1)]),
            texts,
        )

    def push_up(self, distance: Tensor, budget_before: int) -> Tensor:
        """alpha of rows with these distances, int [R]: float64 [R]."""
        if self.alpha is None:
            return torch.zeros_like(distance, dtype=torch.float64)
        return self.alpha[budget_before][distance.clamp(max=self.alpha.shape[1] - 1).long()]

    def alpha_of(self, distance: int, budget_before: int) -> float:
        """The push-up of one row, as a step with that budget gives it."""
        return float(self.push_up(torch.tensor(distance, device=self.fall.device), budget_before))
