"""Which heuristics the default search uses: an internal option, for measurements of what each one contributes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Heuristics:
    """The heuristics of `algorithm: "banked"`, each of which can be switched off. Not a field of any request.

    cost_to_go      "unigram": nats to acceptance under the model's unigram prior; "distance": NATS_A_TOKEN for each
                    token of the distance; "none": pruning by budget alone
    weight          factor on the cost to go; None: the documented formula
    corrections     the cost to go is re-estimated from the rows that were read (`lessons`)
    end_costs       rows that lack only EOS owe what it costs after their last token
    endings         ways to EOS of several tokens are followed (`endings`)
    row_factor      the rows kept are this times k; None: the schedule of `widths`
    tight_budgets   the schedule keeps more rows where the budget is tight
    sharing         how places are shared out over distances: "penalty" by place in the group, hard "banks" of equal
                    size (dynamic beam allocation, Post and Vilar 2018), or "none"
    reserve         places for candidates that come closer to acceptance
    floor           candidates that cannot beat the answers found are dropped
    merge_texts     of rows with the same state and text only the best is kept
    merge_endings   of rows with the same state and last three tokens only the best is kept (recombination)
    forced          a dictated text is written in the tokenizer's own spelling, and read in one pass
    pool            candidates looked at for each row that is kept
    """

    cost_to_go: Literal["unigram", "distance", "none"] = "unigram"
    weight: float | None = None
    corrections: bool = True
    end_costs: bool = True
    endings: bool = True
    row_factor: float | None = None
    tight_budgets: bool = True
    sharing: Literal["penalty", "banks", "none"] = "penalty"
    reserve: bool = True
    floor: bool = True
    merge_texts: bool = True
    merge_endings: bool = True
    forced: bool = True
    pool: int = 8
    group_cost: float = 3.0


ALL = Heuristics()
