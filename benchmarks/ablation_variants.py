"""The searches that `benchmarks.ablation` compares."""

from __future__ import annotations

from dataclasses import dataclass, replace

from decoding.options import DEFAULT, Algorithm, Heuristics


@dataclass(frozen=True, slots=True)
class Variant:
    """A search. `beams_factor` multiplies k, for comparisons at equal cost."""

    heuristics: Heuristics = DEFAULT
    beams_factor: int = 1
    algorithm: Algorithm = "banked"


def _with(**changes: object) -> Variant:
    return Variant(replace(DEFAULT, **changes))  # type: ignore[arg-type]


PLAIN = Heuristics(
    cost_to_go="none", group_cost=0.0, rows_per_beam=1.0, endings=False, floor=False, forced=False
)
BASELINE = "kept"
VARIANTS: dict[str, Variant] = {
    BASELINE: Variant(),
    "kept without cost to go": _with(cost_to_go="none"),
    "kept without prior": _with(cost_to_go="distance"),
    "kept without group penalty": _with(group_cost=0.0),
    "kept without endings": _with(endings=False),
    "kept without floor": _with(floor=False),
    "kept without forced tokens": _with(forced=False),
    "k rows": _with(rows_per_beam=1.0),
    "2k rows": _with(rows_per_beam=2.0),
    "4k rows": _with(rows_per_beam=4.0),
    "pool of 4": _with(pool=4),
    "pool of 16": _with(pool=16),
    "plain": Variant(PLAIN),
    "plain, cost to go": Variant(replace(PLAIN, cost_to_go="unigram")),
    "plain, cost to go, penalty": Variant(replace(PLAIN, cost_to_go="unigram", group_cost=DEFAULT.group_cost)),
    "abs, 3k rows": Variant(beams_factor=3, algorithm="abs"),
}
