"""The searches that `benchmarks.ablation` compares: the default without one heuristic each, and built up from none."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from decoding.heuristics import ALL, Heuristics


@dataclass(frozen=True, slots=True)
class Variant:
    """A search. `beams_factor` multiplies k, for comparisons at equal cost."""

    heuristics: Heuristics = ALL
    beams_factor: int = 1
    algorithm: Literal["abs", "banked"] = "banked"


PLAIN = Heuristics(
    cost_to_go="none", corrections=False, end_costs=False, endings=False, row_factor=1.0, sharing="none",
    reserve=False, floor=False, merge_texts=False, merge_endings=False, forced=False,
)
_PRIOR = replace(PLAIN, cost_to_go="unigram")
_SHARED = replace(_PRIOR, sharing="penalty")
_SIMPLE = replace(_SHARED, floor=True, forced=True)


def _without(**changes: object) -> Variant:
    return Variant(replace(ALL, **changes))  # type: ignore[arg-type]


WITHOUT = {
    "without prior (6 nats a token)": _without(cost_to_go="distance"),
    "without cost to go": _without(cost_to_go="none"),
    "without corrections": _without(corrections=False),
    "without end costs": _without(end_costs=False),
    "without endings": _without(endings=False),
    "without row schedule (k rows)": _without(row_factor=1.0),
    "without tight budgets": _without(tight_budgets=False),
    "without group penalty": _without(sharing="none"),
    "hard banks for the penalty": _without(sharing="banks"),
    "without reserve": _without(reserve=False),
    "without floor": _without(floor=False),
    "without merging equal texts": _without(merge_texts=False),
    "without recombination": _without(merge_endings=False),
    "without forced stretches": _without(forced=False),
    "pool 4": _without(pool=4),
}
BUILT_UP = {
    "plain": Variant(PLAIN),
    "plain, 3k rows": Variant(replace(PLAIN, row_factor=3.0)),
    "banks (dynamic beam allocation)": Variant(replace(PLAIN, sharing="banks")),
    "prior": Variant(_PRIOR),
    "prior, banks": Variant(replace(_PRIOR, sharing="banks")),
    "prior, penalty": Variant(_SHARED),
    "simple": Variant(_SIMPLE),
    "simple, 2k rows": Variant(replace(_SIMPLE, row_factor=2.0)),
    "simple, 3k rows": Variant(replace(_SIMPLE, row_factor=3.0)),
    "simple, 2k rows, corrections": Variant(replace(_SIMPLE, row_factor=2.0, corrections=True)),
    "simple, 2k rows, recombination": Variant(replace(_SIMPLE, row_factor=2.0, merge_endings=True)),
    "simple, 2k rows, end costs": Variant(replace(_SIMPLE, row_factor=2.0, end_costs=True)),
    "simple, 2k rows, endings": Variant(replace(_SIMPLE, row_factor=2.0, end_costs=True, endings=True)),
    "simple, 2k rows, merging": Variant(replace(_SIMPLE, row_factor=2.0, merge_texts=True)),
    "simple, 2k rows, pool 4": Variant(replace(_SIMPLE, row_factor=2.0, pool=4)),
    "simple, 2k rows, pool 2": Variant(replace(_SIMPLE, row_factor=2.0, pool=2)),
    "simple, 2k rows, weight 0.8": Variant(replace(_SIMPLE, row_factor=2.0, weight=0.8)),
    "simple, 2k rows, weight 1": Variant(replace(_SIMPLE, row_factor=2.0, weight=1.0)),
    "simple, 2k rows, penalty 2": Variant(replace(_SIMPLE, row_factor=2.0, group_cost=2.0)),
    "abs, 3k beams": Variant(beams_factor=3, algorithm="abs"),
}
BASELINE = "default"
VARIANTS: dict[str, Variant] = {BASELINE: Variant(), **WITHOUT, **BUILT_UP}
