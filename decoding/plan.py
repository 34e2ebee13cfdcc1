"""What is the same in all steps of a request: the options and the tables they need, as the arrays of the step."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import log, sqrt

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from decoding.arrays import Array, like, real, take
from decoding.beams import Tables
from decoding.endings import Endings
from decoding.heuristics import ALL, Heuristics
from decoding.options import SearchOptions
from decoding.ramp import push_up_table
from decoding.texts import Texts
from decoding.widths import rows_after

ESTIMATE_WEIGHT, ESTIMATE_WEIGHT_ALONE = 0.8, 0.2
"""How far the estimated cost of what is still to come is believed; and how much further where only one row is kept."""
RESERVE_SHARE = 8
"""One place in so many is for candidates that come closer to acceptance, where there are two places or more."""
NATS_A_TOKEN = 6.0
"""What a token on the way to acceptance is taken to cost where nothing better is known."""


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """One request's constants. S automaton states, T = max_tokens, D the largest distance that can matter.

    beam_count  the rows kept after a step ("banked": the live ones alone), k unless `keeping` says otherwise
    reserve     so many of them are the best that come closer to acceptance
    alpha       float64 [T+1, D+1]  push-up by budget_before and distance; None where nothing is pushed
    estimate    float64 [S]         nats to acceptance; None takes NATS_A_TOKEN for each token of the distance
    weight      how far they are believed
    end_cost    float64 [V]         nats that EOS costs after each token, inf where it is not known; None: nowhere
    endings     the ways to EOS that take more than one token, as far as any are known
    distance    int [S]             as in `Tables`
    fall        float64 [F]         what the place within its group costs a candidate, for the widest of pools
    texts       with them "banked" keeps only the best of the rows that say the same
    """

    beam_count: int
    reserve: int
    alpha: Array | None
    estimate: Array | None
    weight: float
    end_cost: Array | None
    distance: Array
    fall: Array
    texts: Texts | None
    endings: Endings | None = None
    heuristics: Heuristics = ALL

    @classmethod
    def prepare(
        cls, tables: Tables, texts: Texts | None, estimate: Tensor | None, options: SearchOptions,
        end_cost: Tensor | None = None, tight: int = 0, endings: Endings | None = None,
        heuristics: Heuristics = ALL, widest: int | None = None,
    ) -> Plan:
        """From a request's options.

        estimate  float [S]: nats that acceptance will cost from each state, 0 where it is reached; None takes
                  NATS_A_TOKEN for each token of the distance
        end_cost  float [V]: as in `estimate.Prior`, and `endings`, too
        tight     as in `widths`
        """
        distance, alpha = tables.distance, None
        if options.algorithm == "abs":
            distance_max = min(tables.distance_max, options.max_tokens)
            table = push_up_table(options.max_tokens, distance_max, options.alpha_min, options.gamma)
            alpha = like(distance, np.array(table))
        weight = ESTIMATE_WEIGHT + ESTIMATE_WEIGHT_ALONE / sqrt(options.beams)
        if heuristics.weight is not None:
            weight = heuristics.weight
        if widest is None:
            widest = options.beams if alpha is not None else rows_after(1, options.beams, options.max_tokens, tight)
        places = (heuristics.pool + 1) * widest + 2 * _reserve(widest)
        fall = np.array([heuristics.group_cost * log(place) for place in range(1, places + 1)])
        if texts is not None:
            texts = replace(texts, addend=like(distance, texts.addend), factor=like(distance, texts.factor))
        by_prior = estimate is not None and heuristics.cost_to_go == "unigram"
        nats = like(distance, estimate.double()) if by_prior and estimate is not None else None
        ends = like(distance, end_cost.double()) if end_cost is not None and heuristics.end_costs else None
        reserve, places = _reserve(options.beams), like(distance, fall)
        ways = endings.beside(distance) if endings is not None and heuristics.endings else None
        if heuristics.cost_to_go == "none":
            weight = 0.0
        texts = texts if heuristics.merge_texts else None
        reserve = reserve if heuristics.reserve else 0
        return cls(options.beams, reserve, alpha, nats, weight, ends, distance, places, texts, ways, heuristics)

    def estimates(self) -> NDArray[np.float64]:
        """The estimate of all states, on the host: float64 [S]. Only where there is one."""
        assert self.estimate is not None
        return self.estimate if isinstance(self.estimate, np.ndarray) else self.estimate.cpu().numpy()

    def with_learned(self, estimate: NDArray[np.float64]) -> Plan:
        """The same by another estimate, float64 [S]."""
        return replace(self, estimate=like(self.distance, torch.from_numpy(estimate)))

    def keeping(self, rows: int) -> Plan:
        """The same for a step after which so many rows are kept, at most as many as `widths` names."""
        return replace(self, beam_count=rows, reserve=_reserve(rows) if self.heuristics.reserve else 0)

    @property
    def pushes(self) -> bool:
        """True for "abs", the paper's Algorithm 1."""
        return self.alpha is not None

    def cost_of(self, states: Array) -> Array:
        """Nats from each of these states, int64 of any shape, to acceptance, as far as they are believed: float64."""
        if self.estimate is None:
            return self.weight * (NATS_A_TOKEN * real(take(self.distance, states)))
        return self.weight * take(self.estimate, states)

    def push_up(self, distance: Array, budget_before: int) -> Array:
        """alpha of rows with these distances, int [R]: float64 [R]."""
        if self.alpha is None:
            return real(distance * 0)
        return take(self.alpha[budget_before], distance.clip(max=self.alpha.shape[1] - 1))

    def alpha_of(self, distance: int, budget_before: int) -> float:
        """The push-up of one row, as a step with that budget gives it."""
        return float(self.push_up(like(self.fall, np.array([distance])), budget_before)[0])


def _reserve(rows: int) -> int:
    """The places for candidates that come closer to acceptance, among so many."""
    return max(1, rows // RESERVE_SHARE) if rows > 1 else 0
