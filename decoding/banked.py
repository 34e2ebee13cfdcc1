"""What `algorithm: "banked"` keeps: live rows shared out over progress.

Algorithm 1 makes forced tokens free, so that its rows put the obligations off. Here a candidate is worth its own
log-prob less what acceptance is still expected to cost, and among candidates equally far from acceptance each further
one counts for less, so that progress and probability both find places, however few there are.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from decoding.beams import DEAD_SCORE, Beams, Tables
from decoding.plan import POOL, Plan
from decoding.ranking import place_in_group, repeats


def pool_size(plan: Plan) -> int:
    """How many of the best candidates `share_out` looks at."""
    return POOL * plan.beam_count


def share_out(pool: Beams, before: Tensor, tables: Tables, plan: Plan) -> Beams:
    """At most k of the pool, best first.

    pool    candidates, best first, at most `pool_size`; DEAD_SCORE where one is none
    before  int64 [N]  the last token but one of each

    Of candidates that are in the same state and say the same, or end in the same two tokens, only the best is kept
    (recombination, as in phrase-based translation: what differs lies too far back to matter). Candidates equally far
    from acceptance form a group; the r-th of a group falls back by GROUP_COST * ln(r).
    """
    repeated = repeats(pool.state, before, pool.token)
    if plan.texts is not None:
        repeated = repeated | repeats(pool.state, pool.text_hash)
    dead = repeated | (pool.score == DEAD_SCORE)
    group = tables.distance[pool.state].long().masked_fill(dead, -1)  # no distance is negative: a group by themselves
    key = (pool.score - plan.fall[place_in_group(group)]).masked_fill(dead, DEAD_SCORE)
    kept = key.argsort(descending=True, stable=True)[: plan.beam_count]
    return replace(pool, score=pool.score.masked_fill(dead, DEAD_SCORE)).select(kept)


def dead_last(beams: Beams) -> Beams:
    """The same rows, those that fill places at the end."""
    return beams.select((beams.score == DEAD_SCORE).to(torch.uint8).argsort(stable=True))
