"""One step of the search in arrays: every row extended by every token, and the best kept.

`algorithm: "abs"` is the paper's Algorithm 1, lines 5-22; `"banked"` is told in `banked`. No Python branch reads an
array. `tests/reference.py` is the slow twin in plain Python. The log-probs are the model's tensor; all else is in the
library of the tables (`arrays`).

Candidates are ranked, and ties broken, by: the score, higher first; the model's own log-prob of the whole row, higher
first; the token's own log-prob, higher first; a finished row before a live one; the lower token id; the lower row.
Ties are routine: at full push every progress token of a row scores exactly the peak.

The scores of k x V candidates are never written out. Within one row and one token class a higher log-prob never means
a lower score, so a chunk of tokens of one class (`beams.Tables`) is led by its most probable token, and the best N
tokens of all lie in the N chunks with the best leaders: every chunk left out has N better leaders. So the step reads
the log-probs once, decides for k x M leaders, and opens N chunks.
"""

from __future__ import annotations

from dataclasses import replace
from math import nan

import numpy as np
from torch import Tensor

from decoding.arrays import Array, count_up, library, like, take, take_columns
from decoding.banked import dead_last, ends_told, pool_size, share_out, with_ends
from decoding.beams import DEAD_SCORE, Beams, Tables
from decoding.forced import FREE
from decoding.moves import NO_FLOOR, Moves, floored, moves_of
from decoding.plan import Plan
from decoding.ranking import top, top_in_order


def step(
    beams: Beams, log_probs: Tensor, tables: Tables, plan: Plan, budget_before: int, allowed: Array | None = None,
    floor: float = NO_FLOOR, leader: Array | None = None,
) -> Beams:
    """The next beam, best first; rows of DEAD_SCORE, at its end, only fill places.

    beams          without rows of DEAD_SCORE. "abs": its finished rows, distance 0, stay as they are at cost 0
    log_probs      float32 [R, V]  the model's, one row for each live row of `beams`, in their order
    budget_before  T - t + 1, tokens left, this step's among them
    allowed        int64 [R]       the one token that each live row may take, FREE where it may take any
    floor          "banked": candidates with no higher log-prob are dropped, if they are live
    leader         `tables.best_of_chunks(log_probs)` where it is known
    "abs": at most k rows. "banked", whose `beams` are all live: at most k live rows, then those that finish in this
    step, in the order of their parents.
    All scores are NaN where a row of log_probs holds NaN or has no finite best.
    """
    live, done = _split(beams, tables, len(log_probs))
    rows = beams.select(live) if len(done) else beams
    leader = tables.best_of_chunks(log_probs) if leader is None else leader  # [R, M]
    peak = library(leader).amax(leader, 1)  # [R]
    known = like(leader, log_probs.contiguous())
    moves = moves_of(rows, live, known, peak, tables, plan, budget_before, allowed, floor)
    if plan.pushes:
        row, chunk = _best_chunks(moves, leader, tables, plan.beam_count)
        after = _best_tokens(moves, row, chunk, tables, plan.beam_count, replace(beams.select(done), parent=done))
    else:
        row, chunk = _best_chunks(moves, leader, tables, pool_size(plan))
        pool = _best_tokens(moves, row, chunk, tables, pool_size(plan), None)
        if plan.reserve:
            pool = _with_reserve(pool, moves, leader, beams, tables, plan)
        pool = with_ends(pool, moves, tables, plan, budget_before - 1)
        after = _shared_out(pool, moves.finishing(tables), beams, tables, plan, budget_before - 1)
    return _told_of(peak, after)


def forced_step(
    beams: Beams, tokens: Array, own: Array, peak: Array, tables: Tables, plan: Plan, budget_before: int,
    floor: float = NO_FLOOR,
) -> Beams:
    """The step in which every live row takes the one token that is dictated to it: `step` where `allowed` says so.

    tokens     int64   [R]  for each live row of `beams`, in their order
    own, peak  float32 [R]  its log-prob, and the best log-prob in its place
    """
    live, done = _split(beams, tables, len(tokens))
    xp, rows = library(tokens), beams.select(live)
    before = take(tables.distance, rows.state)  # [R]
    successor = tables.successors(rows.state)  # [R, C]
    column = take(tables.token_class, tokens)  # [R]
    state = take(successor, count_up(column, len(column)) * successor.shape[1] + column)  # [R]
    to_go = take(tables.distance, state)  # [R]
    exact = floored(own)
    log_prob = rows.log_prob + exact
    if plan.pushes:
        alpha = xp.where(to_go < before, plan.push_up(before, budget_before), 0.0)
        score = rows.score + (alpha * floored(peak) + (1.0 - alpha) * exact)
    else:
        score = log_prob - plan.cost_of(state)
    score = xp.where(to_go >= budget_before, DEAD_SCORE, score)
    taken = Beams(tokens, rows.token, live, state, score, log_prob, rows.text_hash)
    if plan.pushes:
        pool = replace(beams.select(done), parent=done).followed_by(taken)
        size = len(beams.token)
        rank = xp.concatenate([done - size, tokens * size + live])  # finished rows first, then by id, then by row
        keys = [pool.score, pool.log_prob, xp.concatenate([done * 0.0, exact])]
        return _told_of(peak, pool.select(top_in_order(keys, rank.__getitem__, min(plan.beam_count, len(rank)))))
    ended = replace(taken, score=xp.where(to_go != 0, DEAD_SCORE, score))
    taken = replace(taken, score=xp.where((to_go == 0) | (log_prob <= floor), DEAD_SCORE, score))
    rank = tokens * len(live) + live
    best = top_in_order([taken.score, log_prob, exact], rank.__getitem__, min(pool_size(plan), len(live)))
    return _told_of(peak, _shared_out(taken.select(best), ended, beams, tables, plan, budget_before - 1))


def _told_of(peak: Array, after: Beams) -> Beams:
    """The rows, with NaN for scores where some row's best log-prob, float32 [R], is no finite number."""
    xp = library(peak)
    return replace(after, score=xp.where(xp.isfinite(peak).all(), after.score, nan))


def _split(beams: Beams, tables: Tables, live: int) -> tuple[Array, Array]:
    """The numbers of the live rows, and of the others, each ascending; how many there are of each is known."""
    if live == len(beams.state):
        every = count_up(beams.state, live)
        return every, every[:0]
    xp = library(beams.state)
    order = xp.argsort(xp.where(take(tables.distance, beams.state) == 0, 1, 0), stable=True)
    return order[:live], order[live:]


def _best_chunks(
    moves: Moves, leader: Array, tables: Tables, count: int, chunks: Array | None = None
) -> tuple[Array, Array]:
    """Position among the live rows, and chunk, of the chunks with the best leaders: int64 [N], int64 [N].

    leader  float32 [R, M]  of all chunks, or of `chunks` alone, int64 [M], where only these are looked at
    """
    xp, width, beam_rows = library(leader), leader.shape[1], len(moves.number)
    chunk = count_up(tables.chunk_class, width) if chunks is None else chunks
    column = tables.chunk_class if chunks is None else take(tables.chunk_class, chunks)
    own = floored(leader)  # [R, M]
    push = take_columns(moves.push, column)  # [R, M]
    keep = None if moves.keep is None else take_columns(moves.keep, column)
    if len(tables.eos_ids) > 1:
        elsewhere = chunk != take(tables.token_chunk, moves.best_eos)[:, None]
        push = xp.where((column == tables.eos_class) & elsewhere, DEAD_SCORE, push)
    if moves.only is not None:
        token = moves.only.clip(min=0)  # [R]
        forced = (moves.only != FREE)[:, None]
        here = chunk == take(tables.token_chunk, token)[:, None]  # [R, M]
        push = xp.where(forced & ~here, DEAD_SCORE, push)
        own = xp.where(forced, floored(moves.log_probs_of(token))[:, None], own)

    def by_id_and_row(place: Array) -> Array:
        line, ids = place // width, tables.chunk_id[take(chunk, place % width)]  # [n], [n, W]
        first = floored(moves.log_probs_of(ids, line[:, None])).argmax(1)  # of equals, hence the lowest id
        leading = take(ids, count_up(ids, len(ids)) * ids.shape[1] + first)
        if moves.only is not None:
            leading = xp.where(moves.only[line] == FREE, leading, moves.only[line])
        return leading * beam_rows + line

    keys = [key.reshape(-1) for key in moves.keys(own, slice(None), push, keep)]
    best = top(keys, by_id_and_row, min(count, len(keys[0])))
    return best // width, take(chunk, best % width)


def _best_tokens(
    moves: Moves, row: Array, chunk: Array, tables: Tables, count: int, finished: Beams | None
) -> Beams:
    """The best of the finished rows, where they compete, and of all tokens in the chunks named."""
    xp = library(row)
    ids = tables.chunk_id[chunk]  # [N, W]
    own = floored(moves.log_probs_of(ids, row[:, None]))  # [N, W]
    column = take(tables.chunk_class, chunk)  # [N]
    barred = tables.spare[chunk]
    if len(tables.eos_ids) > 1:
        barred = barred | (take(tables.eos, ids) & (ids != moves.best_eos[row, None]))
    if moves.only is not None:
        only = moves.only[row, None]
        barred = barred | ((only != FREE) & (ids != only))
    keep = None if moves.keep is None else moves.keep[row, column, None]
    score, log_prob, own = moves.keys(own, row, moves.push[row, column, None], keep)
    keys = [key.reshape(-1) for key in (xp.where(barred, DEAD_SCORE, score), log_prob, own)]
    ended = 0 if finished is None else len(finished.token)
    if finished is not None and ended:
        first = (finished.score, finished.log_prob, xp.zeros_like(finished.score))
        keys = [xp.concatenate(pair) for pair in zip(first, keys, strict=True)]

    def by_id_and_row(place: Array) -> Array:  # the finished rows first
        opened = (place - ended).clip(min=0)
        rank = take(ids, opened) * len(moves.number) + row[opened // ids.shape[1]]
        return xp.where(place < ended, place - ended, rank)

    place = top_in_order(keys, by_id_and_row, min(count, len(keys[0])))
    opened = (place - ended).clip(min=0)  # among the opened tokens
    line, token = row[opened // ids.shape[1]], take(ids, opened)
    state = take(moves.successor, line * moves.successor.shape[1] + take(tables.token_class, token))
    score, log_prob = take(keys[0], place), take(keys[1], place)
    before, text_hash = take(moves.rows.token, line), take(moves.rows.text_hash, line)
    found = Beams(token, before, take(moves.number, line), state, score, log_prob, text_hash)
    if finished is None or not ended:
        return found
    return found.where(place >= ended, finished.select(place.clip(max=ended - 1)))


def _with_reserve(pool: Beams, moves: Moves, leader: Array, beams: Beams, tables: Tables, plan: Plan) -> Beams:
    """The pool, and after it the best candidates that come closer to acceptance, as far as they are not in it.

    The pool holds the best of all, so what is not in it ranks behind all that is; and where it holds as many of these
    as are wanted, which is nearly always so, there are none to look for (an accelerator looks all the same: to ask it
    would be to wait for it). DEAD_SCORE on those that are in the pool already.
    """
    xp, wanted = library(leader), 2 * plan.reserve
    gaining = _gains(pool, beams, tables) & (pool.score != DEAD_SCORE)
    if isinstance(gaining, np.ndarray) and np.count_nonzero(gaining) >= wanted:
        return pool
    before = take(tables.distance, moves.rows.state)
    closer = take(tables.distance, moves.successor) < before[:, None]
    moves = replace(moves, push=xp.where(closer, moves.push, DEAD_SCORE))
    some = None
    if isinstance(closer, np.ndarray):  # on an accelerator all chunks are looked at, in shapes that depend on no data
        some = np.flatnonzero(take(np.any(closer, axis=0), tables.chunk_class))
        if not len(some):
            return pool
        leader = leader[:, some]
    row, chunk = _best_chunks(moves, leader, tables, wanted, some)
    found = _best_tokens(moves, row, chunk, tables, wanted, None)
    size = len(tables.token_class)
    known = xp.isin(found.parent * size + found.token, pool.parent * size + pool.token)
    return pool.followed_by(replace(found, score=xp.where(known, DEAD_SCORE, found.score)))


def _gains(rows: Beams, beams: Beams, tables: Tables) -> Array:
    """Which rows are closer to acceptance than those of `beams` that they extend: bool [N]."""
    return take(tables.distance, rows.state) < take(tables.distance, take(beams.state, rows.parent))


def _shared_out(pool: Beams, finishing: Beams, beams: Beams, tables: Tables, plan: Plan, budget_after: int) -> Beams:
    """The live rows of the next beam, and then those that finish.

    pool       live candidates, best first, as `banked.share_out` takes them; text hashes still those of the parents
    finishing  rows with EOS at their end, DEAD_SCORE where one may not end
    beams      the beam before
    """
    if plan.texts is not None:
        pool = replace(pool, text_hash=plan.texts.extend(pool.text_hash, pool.token))
    pool = ends_told(pool, tables, plan, budget_after)
    live = share_out(pool, take(beams.before, pool.parent), _gains(pool, beams, tables), tables, plan)
    return dead_last(live.followed_by(finishing))
