"""The ramping push-up of Algorithm 1 in plain floats (paper, Eq. 2 and line 15).

The search, the trace and the tests' slow twin compute in IEEE doubles and in this order of operations, so they agree
to the last bit.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray


def push_up(distance: int, budget_before: int, alpha_min: float, gamma: float) -> float:
    """alpha, the strength of the push towards acceptance, in [alpha_min, 1] (paper, Eq. 2).

    distance       fewest tokens from the row's state to acceptance, EOS among them
    budget_before  T - t + 1, the tokens left at step t. Equation 2 prints T - t; the alphas of the paper's figure 3
                   are those of T - t + 1, which also is never zero.
    """
    urgency: float = min(1.0, distance / budget_before) ** gamma
    return alpha_min + (1.0 - alpha_min) * urgency


def pushed(log_prob: float, peak: float, alpha: float) -> float:
    """The score of a progress token: alpha of the way from its log-prob up to the row's best one, `peak`."""
    return alpha * peak + (1.0 - alpha) * log_prob


@lru_cache(maxsize=64)
def push_up_table(max_tokens: int, distance_max: int, alpha_min: float, gamma: float) -> NDArray[np.float64]:
    """alpha: float64 [max_tokens + 1, distance_max + 1], by budget_before and distance. Row 0 is never read.

    In Python floats, since the vectorised powers of tensor libraries may differ in the last bit. A row within the
    budget has distance <= budget_before: beyond that alpha is 1.
    """
    distances, urgent = range(distance_max + 1), push_up(1, 1, alpha_min, gamma)
    rows = [[push_up(d, b, alpha_min, gamma) if d < b else urgent for d in distances] for b in range(max_tokens + 1)]
    return np.array(rows)
