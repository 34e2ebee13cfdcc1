"""What `algorithm: "banked"` keeps: live rows shared out over progress.

Algorithm 1 makes forced tokens free, so that its rows put the obligations off. Here a candidate is worth its own
log-prob less what acceptance is still expected to cost, and among candidates equally far from acceptance each further
one counts for less, so that progress and probability both find places, however few there are.
"""

from __future__ import annotations

from dataclasses import replace

from decoding.arrays import Array, library, take
from decoding.beams import DEAD_SCORE, Beams, Tables
from decoding.plan import POOL, Plan
from decoding.ranking import place_in_group, repeats


def pool_size(plan: Plan) -> int:
    """How many of the best candidates `share_out` looks at."""
    return POOL * plan.beam_count


def ends_told(pool: Beams, tables: Tables, plan: Plan) -> Beams:
    """The pool, best first again, where rows that lack but EOS owe what it costs after their last token, if less.

    The estimate knows states, not tokens: after "." a text ends of itself, after "are" it does not, and both may be
    the same to the constraint.
    """
    if plan.end_cost is None:
        return pool
    xp = library(pool.score)
    owed, known = plan.cost_of(pool.state), plan.weight * take(plan.end_cost, pool.token)
    told = (take(tables.distance, pool.state) == 1) & (known < owed)
    score = xp.where(told, pool.log_prob - known, pool.score)
    score = xp.where(pool.score == DEAD_SCORE, DEAD_SCORE, score)
    return replace(pool, score=score).select(xp.argsort(-score, stable=True))


def share_out(pool: Beams, before: Array, gains: Array, tables: Tables, plan: Plan) -> Beams:
    """At most k of the pool, best first.

    pool    candidates, best first, at most `pool_size` and twice the reserve; DEAD_SCORE where one is none
    before  int64 [N]  the last token but two of each
    gains   bool  [N]  it is closer to acceptance than its parent

    Of candidates that are in the same state and say the same, or end in the same three tokens, only the best is kept
    (recombination, as in phrase-based translation: what differs lies too far back to matter). Candidates equally far
    from acceptance form a group; the r-th of a group falls back by GROUP_COST * ln(r). The best `plan.reserve` of those
    that come closer to acceptance are kept whatever their place: where what acceptance needs is rarer than was
    estimated, all others would put it off to the end.
    """
    xp = library(before)
    size = len(tables.token_class)
    repeated = repeats(pool.state, before, pool.before * size + pool.token)
    if plan.texts is not None:
        repeated = repeated | repeats(pool.state, pool.text_hash)
    dead = repeated | (pool.score == DEAD_SCORE)
    group = xp.where(dead, -1, take(tables.distance, pool.state))  # no distance is negative: a group by themselves
    key = xp.where(dead, DEAD_SCORE, pool.score - take(plan.fall, place_in_group(group)))
    first = gains & ~dead
    key = xp.where(first & (xp.cumsum(first, 0) <= plan.reserve), float("inf"), key)
    kept = xp.argsort(-key, stable=True)[: plan.beam_count]
    return replace(pool, score=xp.where(dead, DEAD_SCORE, pool.score)).select(kept)


def dead_last(beams: Beams) -> Beams:
    """The same rows, those that fill places at the end."""
    xp = library(beams.score)
    return beams.select(xp.argsort(xp.where(beams.score == DEAD_SCORE, 1, 0), stable=True))
