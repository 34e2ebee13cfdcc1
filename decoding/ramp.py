"""The ramping push-up in plain floats (paper, Eq. 2 and Algorithm 1, line 15). Knows no tensors and no automaton.

The search, the trace and the tests' slow twin all compute in IEEE doubles, in this order of operations, so that they
agree to the last bit.
"""

from __future__ import annotations

from functools import lru_cache

LEAST_LOG_PROB = -1e4
"""Floor under every log-prob. A token to which the model gives probability 0 may still be the only way to acceptance,
and -inf would make all scores after it alike (and NaN at full push, 0 * -inf)."""


def push_up(distance: int, budget_before: int, alpha_min: float, gamma: float) -> float:
    """alpha, the strength of the push towards acceptance, in [alpha_min, 1] (paper, Eq. 2).

    distance       fewest tokens from the row's state to acceptance, EOS among them
    budget_before  T - t + 1, the tokens still to be written when step t begins. Equation 2 prints T - t; the alphas of
                   the paper's figure 3 are those of T - t + 1, which also is never zero.
    """
    urgency: float = min(1.0, distance / budget_before) ** gamma
    return alpha_min + (1.0 - alpha_min) * urgency


def pushed(log_prob: float, peak: float, alpha: float) -> float:
    """The score of a token that comes closer to acceptance: alpha of the way up to the row's best log-prob `peak`."""
    return alpha * peak + (1.0 - alpha) * log_prob


@lru_cache(maxsize=64)
def push_up_table(max_tokens: int, distance_max: int, alpha_min: float, gamma: float) -> tuple[tuple[float, ...], ...]:
    """alpha by [budget_before, distance], 0 to `max_tokens` and 0 to `distance_max`; row 0 is never read.

    In Python floats, for the vectorised powers of tensor libraries may differ from these in the last bit. A row within
    the budget has distance <= budget_before: beyond that alpha is 1.
    """
    urgent = push_up(1, 1, alpha_min, gamma)
    return tuple(
        tuple(
            push_up(distance, budget, alpha_min, gamma) if distance < budget else urgent
            for distance in range(distance_max + 1)
        )
        for budget in range(max_tokens + 1)
    )
