"""What a caller may choose of a generation, checked where it is made. Knows nothing of how it is done."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Literal

from decoding.errors import OptionsInvalid

Algorithm = Literal["abs", "banked"]


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """A search with beams. Raises OptionsInvalid where a value is out of its range.

    max_tokens      T, the budget in tokens, EOS among them
    beams           k, the rows kept; "banked" keeps more at first, and where the budget is tight (`widths`)
    algorithm       "abs", the paper's Algorithm 1, or "banked": rows ranked by the model's own log-prob and shared out
                    over progress
    alpha_min       the least push-up of "abs", 0 to 1 (paper, Eq. 2)
    gamma           sharpness of the ramp of "abs", above 0
    n               how many distinct answers, at most `beams`
    rank_by         the last choice of "abs": by the model's own "log_prob", or by the pushed "score" as in the paper
    length_penalty  p: the last choice of "banked" divides the log-prob by len(tokens) ** p, so that above 0 longer
                    answers gain; 0.5 comes closest to what people write (benchmarks/search_quality)
    """

    max_tokens: int
    beams: int = 16
    algorithm: Algorithm = "banked"
    alpha_min: float = 0.5
    gamma: float = 1.0
    n: int = 1
    rank_by: Literal["score", "log_prob"] = "log_prob"
    length_penalty: float = 0.5

    def __post_init__(self) -> None:
        require(self.max_tokens >= 1, "max_tokens", "at least 1")
        require(self.beams >= 1, "beams", "at least 1")
        require(self.algorithm in ("abs", "banked"), "algorithm", '"abs" or "banked"')
        require(0.0 <= self.alpha_min <= 1.0, "alpha_min", "between 0 and 1")
        require(isfinite(self.gamma) and self.gamma > 0.0, "gamma", "a finite number above 0")
        require(1 <= self.n <= self.beams, "n", f"between 1 and the number of beams, {self.beams}")
        require(self.rank_by in ("score", "log_prob"), "rank_by", '"score" or "log_prob"')
        require(0.0 <= self.length_penalty <= 2.0, "length_penalty", "between 0 and 2")

    @property
    def length_power(self) -> float:
        """What the last choice raises an answer's length to: the paper's algorithm knows no such thing."""
        return 0.0 if self.algorithm == "abs" else self.length_penalty


def require(holds: bool, field: str, expected: str) -> None:
    """Raise OptionsInvalid for an option that does not hold."""
    if not holds:
        raise OptionsInvalid(field, expected)
