"""The options of a search. Also the internal options of the default search, and the push-up of Algorithm 1."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from math import isfinite
from typing import Any, Literal

from compiler.lifting import BUDGET_MAX
from decoding.errors import OptionsInvalid

Algorithm = Literal["abs", "banked"]
BIAS_MAX = 100.0  # as OpenAI's


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """A search with beams. Raises OptionsInvalid where a value is out of its range.

    max_tokens      T, the budget in tokens, EOS among them
    beams           k, the rows that "abs" retains; "banked" retains a multiple (`Heuristics.rows_per_beam`)
    algorithm       "abs", the paper's Algorithm 1, or "banked", the default search
    alpha_min       the least push-up of "abs", 0 to 1 (paper, Eq. 2)
    gamma           sharpness of the ramp of "abs", above 0
    n               how many distinct answers, at most `beams`
    rank_by         the last choice of "abs": by the model's own "log_prob", or by the pushed "score" as in the paper
    length_penalty  p: the last choice of "banked" divides the log-prob by len(tokens) ** p, so that above 0 longer
                    answers gain; 0.5 comes closest to texts that people write (benchmarks/quality)
    frequency_penalty, presence_penalty, repetition_penalty, logit_bias
                    see `penalties.PenalizedSearch`

    >>> SearchOptions(max_tokens=24, beams=8).algorithm
    'banked'
    >>> SearchOptions(max_tokens=24, beams=0)
    Traceback (most recent call last):
    decoding.errors.OptionsInvalid: beams must be at least 1
    """

    max_tokens: int
    _: KW_ONLY
    beams: int = 16
    algorithm: Algorithm = "banked"
    alpha_min: float = 0.5
    gamma: float = 1.0
    n: int = 1
    rank_by: Literal["score", "log_prob"] = "log_prob"
    length_penalty: float = 0.5
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        require_budget(self.max_tokens)
        require(self.beams >= 1, "beams", "at least 1")
        require(self.algorithm in ("abs", "banked"), "algorithm", '"abs" or "banked"')
        require(0.0 <= self.alpha_min <= 1.0, "alpha_min", "between 0 and 1")
        require(isfinite(self.gamma) and self.gamma > 0.0, "gamma", "a finite number above 0")
        require(1 <= self.n <= self.beams, "n", f"between 1 and the number of beams, {self.beams}")
        require(self.rank_by in ("score", "log_prob"), "rank_by", '"score" or "log_prob"')
        require(0.0 <= self.length_penalty <= 2.0, "length_penalty", "between 0 and 2")
        require_penalties(self)

    @property
    def length_power(self) -> float:
        """The exponent of an answer's length in the last choice."""
        # The paper's algorithm compares sums, whatever the length.
        return 0.0 if self.algorithm == "abs" else self.length_penalty


@dataclass(frozen=True, slots=True, kw_only=True)
class Heuristics:
    """The parts of `algorithm: "banked"` beside pruning by budget. An internal option, not a field of any request.

    docs/decoding.md states the search that these belong to, and what each of them contributes.

    cost_to_go     "unigram": nats to acceptance under the model's unigram prior; "distance": NATS_PER_TOKEN for each
                   token of the distance; "none": 0
    cost_weight    factor on the cost to go
    group_cost     nats by which a candidate falls back for each e-fold of its place among those of equal distance
    rows_per_beam  rows retained after each step, for each beam
    pool           candidates that compete for each row retained
    endings        whether the tokens by which the model ends its texts shorten the cost to go (`endings.Endings`)
    floor          whether candidates that cannot beat the answers found are dropped
    forced         whether forced stretches take the tokenizer's spelling, in one forward pass
    """

    cost_to_go: Literal["unigram", "distance", "none"] = "unigram"
    cost_weight: float = 0.8
    group_cost: float = 3.0
    rows_per_beam: float = 3.0
    pool: int = 8
    endings: bool = True
    floor: bool = True
    forced: bool = True

    def rows(self, beams: int) -> int:
        """The rows retained after each step."""
        return max(1, round(self.rows_per_beam * beams))


DEFAULT = Heuristics()
NATS_PER_TOKEN = 6.0
"""The cost of each token on the way to acceptance where there is no prior."""


def require(holds: bool, field: str, expected: str) -> None:
    """Raise OptionsInvalid for an option that does not hold."""
    if not holds:
        raise OptionsInvalid(field, expected)


def require_budget(max_tokens: int) -> None:
    """Raise OptionsInvalid for a budget that no distance can reach."""
    require(max_tokens >= 1, "max_tokens", "at least 1")
    require(max_tokens <= BUDGET_MAX, "max_tokens", f"at most {BUDGET_MAX}")


def require_penalties(options: Any) -> None:
    """Raise OptionsInvalid for biases or penalties out of their range."""
    for name in ("frequency_penalty", "presence_penalty"):
        require(abs(getattr(options, name)) <= 2.0, name, "between -2 and 2")
    require(0.0 < options.repetition_penalty <= 10.0, "repetition_penalty", "above 0 and at most 10")
    biases = options.logit_bias.values()
    require(all(abs(bias) <= BIAS_MAX for bias in biases), "logit_bias", f"between {-BIAS_MAX:g} and {BIAS_MAX:g}")


def push_up(distance: int, budget_before: int, alpha_min: float, gamma: float) -> float:
    """alpha, the strength of the push towards acceptance, in [alpha_min, 1]. It is Eq. 2 of the paper.

    distance       fewest tokens from the row's state to acceptance, EOS among them
    budget_before  T - t + 1, the tokens left at step t

    >>> push_up(distance=2, budget_before=8, alpha_min=0.5, gamma=1.0)
    0.625
    """
    # Equation 2 prints T - t; the alphas of the paper's figure 3 are those of T - t + 1, which also is never zero. In
    # Python floats: the search, the trace and the tests' slow twin agree to the last bit.
    urgency: float = min(1.0, distance / budget_before) ** gamma
    return alpha_min + (1.0 - alpha_min) * urgency


def pushed(log_prob: float, peak: float, alpha: float) -> float:
    """The score of a progress token. It lies alpha of the way from its log-prob up to the row's best one, `peak`."""
    return alpha * peak + (1.0 - alpha) * log_prob
