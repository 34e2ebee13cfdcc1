"""What `algorithm: "banked"` keeps: live rows shared out over progress.

Algorithm 1 makes forced tokens free, so that its rows put the obligations off. Here a candidate is worth its own
log-prob less what acceptance is still expected to cost, and among candidates equally far from acceptance each further
one counts for less, so that progress and probability both find places, however few there are.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from decoding.arrays import Array, count_up, library, take
from decoding.beams import DEAD_SCORE, Beams, Tables
from decoding.forced import FREE
from decoding.moves import Moves, floored
from decoding.plan import Plan
from decoding.ranking import place_in_group, repeats, top_in_order


def pool_size(plan: Plan) -> int:
    """How many of the best candidates `share_out` looks at."""
    return plan.heuristics.pool * plan.beam_count


def with_ends(pool: Beams, moves: Moves, tables: Tables, plan: Plan, budget_after: int) -> Beams:
    """The pool, and after it the best candidates by which a text nears its end sooner than the estimate knows.

    A full stop may be many nats behind what else could follow, and yet lead to EOS at less than it costs anywhere else;
    and what goes on with such a way is behind the rest by what its state owes. So after every row `Endings.first` are
    looked for, and the token that the row's own way goes on with. One that is in the pool already is in it twice then.
    `budget_after` as in `Endings.nats`.
    """
    ways, rows = plan.endings, len(moves.number)
    if ways is None:
        return pool
    xp, width = library(pool.score), len(ways.first) + 1
    along = ways.next(moves.rows.before, moves.rows.token, budget_after + 1)
    sought = xp.concatenate([xp.broadcast_to(ways.first, (rows, width - 1)), along[:, None]], 1)  # [R, F+1]
    missing = (along < 0) | (along[:, None] == ways.first).any(1)
    place = count_up(along, rows * width)
    line, token = place // width, sought.reshape(-1).clip(min=0)
    move = line * moves.successor.shape[1] + take(tables.token_class, token)
    state, push = take(moves.successor, move), take(moves.push, move)
    if moves.only is not None:
        only = take(moves.only, line)
        push = xp.where((only != FREE) & (only != token), DEAD_SCORE, push)
    own = floored(moves.log_probs_of(token, line))
    keys = [key.reshape(-1) for key in moves.keys(own[:, None], line, push[:, None], None)]
    known = plan.weight * ways.nats(take(moves.rows.token, line), token, state, tables, budget_after)
    sooner = (take(tables.distance, state) == 1) & (known < plan.cost_of(state)) & (keys[0] != DEAD_SCORE)
    sooner = sooner & ~((place % width == width - 1) & take(missing, line))
    if xp is np and not sooner.any():
        return pool
    rank = token * rows + line
    chosen = top_in_order(
        [xp.where(sooner, keys[1] - known, DEAD_SCORE), *keys[1:]], rank.__getitem__, min(plan.beam_count, len(rank))
    )
    line, token = line[chosen], token[chosen]
    score = xp.where(sooner[chosen], keys[0][chosen], DEAD_SCORE)
    before, text_hash = take(moves.rows.token, line), take(moves.rows.text_hash, line)
    return pool.followed_by(Beams(token, before, moves.number[line], state[chosen], score, keys[1][chosen], text_hash))


def ends_told(pool: Beams, tables: Tables, plan: Plan, budget_after: int) -> Beams:
    """The pool, best first again, where rows that lack but EOS owe what it costs after their last token, if less.

    The estimate knows states, not tokens: after "." a text ends of itself, after "are" it does not, and both may be
    the same to the constraint. `budget_after` as in `Endings.nats`.
    """
    if plan.end_cost is None:
        return pool
    xp = library(pool.score)
    owed, nats = plan.cost_of(pool.state), take(plan.end_cost, pool.token)
    if plan.endings is not None:
        way = plan.endings.nats(pool.before, pool.token, pool.state, tables, budget_after)
        nats = xp.where(way < nats, way, nats)
    known = plan.weight * nats
    told = (take(tables.distance, pool.state) == 1) & (known < owed)
    score = xp.where(told, pool.log_prob - known, pool.score)
    score = xp.where(pool.score == DEAD_SCORE, DEAD_SCORE, score)
    return replace(pool, score=score).select(xp.argsort(-score, stable=True))


def share_out(pool: Beams, before: Array, gains: Array, tables: Tables, plan: Plan) -> Beams:
    """At most k of the pool, best first.

    pool    candidates, best first, at most `pool_size`, twice the reserve and k; DEAD_SCORE where one is none
    before  int64 [N]  the last token but two of each
    gains   bool  [N]  it is closer to acceptance than its parent

    Of candidates that are in the same state and say the same, or end in the same three tokens, only the best is kept
    (recombination, as in phrase-based translation: what differs lies too far back to matter). Candidates equally far
    from acceptance form a group; the r-th of a group falls back by the group cost times ln(r). The best `plan.reserve` of those
    that come closer to acceptance are kept whatever their place: where what acceptance needs is rarer than was
    estimated, all others would put it off to the end.
    """
    xp = library(before)
    size = len(tables.token_class)
    repeated = pool.state < 0  # none
    if plan.heuristics.merge_endings:
        repeated = repeats(pool.state, before, pool.before * size + pool.token)
    if plan.texts is not None:
        repeated = repeated | repeats(pool.state, pool.text_hash)
    dead = repeated | (pool.score == DEAD_SCORE)
    group = xp.where(dead, -1, take(tables.distance, pool.state))  # no distance is negative: a group by themselves
    key = xp.where(dead, DEAD_SCORE, pool.score)
    if plan.heuristics.sharing == "penalty":
        key = xp.where(dead, DEAD_SCORE, pool.score - take(plan.fall, place_in_group(group)))
    elif plan.heuristics.sharing == "banks":  # the first of each bank, then the second of each, and so on
        places = xp.where(dead, len(dead), place_in_group(group))
        within = xp.argsort(xp.argsort(-pool.score, stable=True), stable=True)
        key = xp.where(dead, DEAD_SCORE, -1.0 * (places * len(dead) + within))
    first = gains & ~dead
    key = xp.where(first & (xp.cumsum(first, 0) <= plan.reserve), float("inf"), key)
    kept = xp.argsort(-key, stable=True)[: plan.beam_count]
    return replace(pool, score=xp.where(dead, DEAD_SCORE, pool.score)).select(kept)


def dead_last(beams: Beams) -> Beams:
    """The same rows, those that fill places at the end."""
    xp = library(beams.score)
    return beams.select(xp.argsort(xp.where(beams.score == DEAD_SCORE, 1, 0), stable=True))
