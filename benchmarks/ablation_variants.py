"""The searches that `benchmarks.ablation` compares: the default without each heuristic, and built up from none."""

from __future__ import annotations

from dataclasses import dataclass

from decoding.options import DEFAULT, Algorithm, Heuristics


@dataclass(frozen=True, slots=True)
class Variant:
    """A search. `beams_factor` multiplies k, for comparisons at equal cost."""

    heuristics: Heuristics = DEFAULT
    beams_factor: int = 1
    algorithm: Algorithm = "banked"


_PLAIN = Heuristics(cost_to_go="none", group_cost=0.0, rows_per_beam=1.0, floor=False, forced=False)
BASELINE = "kept"
VARIANTS: dict[str, Variant] = {
    BASELINE: Variant(),
}
