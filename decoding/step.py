"""One step of the search in tensors: every row extended by every token, and the best kept.

`algorithm: "abs"` is the paper's Algorithm 1, lines 5-22; `"banked"` is told in `banked`. No Python branch reads a
tensor. `tests/reference.py` is the slow twin in plain Python.

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

import torch
from torch import Tensor

from decoding.banked import dead_last, pool_size, share_out
from decoding.beams import DEAD_SCORE, Beams, Tables
from decoding.forced import FREE
from decoding.moves import NO_FLOOR, Moves, floored, moves_of
from decoding.plan import Plan
from decoding.ranking import top, top_in_order


def step(
    beams: Beams, log_probs: Tensor, tables: Tables, plan: Plan, budget_before: int, allowed: Tensor | None = None,
    floor: float = NO_FLOOR,
) -> Beams:
    """The next beam, best first; rows of DEAD_SCORE, at its end, only fill places.

    beams          without rows of DEAD_SCORE. "abs": its finished rows, distance 0, stay as they are at cost 0
    log_probs      float32 [R, V]  the model's, one row for each live row of `beams`, in their order
    budget_before  T - t + 1, tokens left, this step's among them
    allowed        int64 [R]       the one token that each live row may take, FREE where it may take any
    floor          "banked": candidates with no higher log-prob are dropped, if they are live
    "abs": at most k rows. "banked", whose `beams` are all live: at most k live rows, then those that finish in this
    step, in the order of their parents.
    All scores are NaN where a row of log_probs holds NaN or has no finite best.
    """
    live, done = _split(beams, tables, len(log_probs))
    leader = tables.best_of_chunks(log_probs)  # [R, M]
    peak = leader.amax(dim=1)  # [R]
    moves = moves_of(beams.select(live), live, log_probs, peak, tables, plan, budget_before, allowed, floor)
    if plan.cost is None:
        row, chunk = _best_chunks(moves, leader, tables, plan.beam_count)
        after = _best_tokens(moves, row, chunk, tables, plan.beam_count, replace(beams.select(done), parent=done))
    else:
        row, chunk = _best_chunks(moves, leader, tables, pool_size(plan))
        pool = _best_tokens(moves, row, chunk, tables, pool_size(plan), None)
        after = _shared_out(pool, moves.endings(tables), beams, tables, plan)
    return _told_of(peak, after)


def forced_step(
    beams: Beams, tokens: Tensor, own: Tensor, peak: Tensor, tables: Tables, plan: Plan, budget_before: int,
    floor: float = NO_FLOOR,
) -> Beams:
    """The step in which every live row takes the one token that is dictated to it: `step` where `allowed` says so.

    tokens     int64   [R]  for each live row of `beams`, in their order
    own, peak  float32 [R]  its log-prob, and the best log-prob in its place
    """
    live, done = _split(beams, tables, len(tokens))
    rows = beams.select(live)
    before = tables.distance[rows.state]  # [R]
    state = tables.successors(rows.state).gather(1, tables.token_class[tokens][:, None])[:, 0]  # [R]
    to_go = tables.distance[state]  # [R]
    exact = floored(own)
    log_prob = rows.log_prob + exact
    if plan.cost is None:
        alpha = (to_go < before).double() * plan.push_up(before, budget_before)
        score = rows.score + (alpha * floored(peak) + (1.0 - alpha) * exact)
    else:
        score = log_prob - plan.cost[state]
    score = score.masked_fill(to_go >= budget_before, DEAD_SCORE)
    taken = Beams(tokens, live, state, score, log_prob, rows.text_hash)
    if plan.cost is None:
        pool = replace(beams.select(done), parent=done).followed_by(taken)
        first, size = torch.zeros(len(done), dtype=torch.float64, device=own.device), len(beams.token)
        rank = torch.cat([done - size, tokens * size + live])  # finished rows first, then by id, then by row
        keys = [pool.score, pool.log_prob, torch.cat([first, exact])]
        return _told_of(peak, pool.select(top_in_order(keys, rank.__getitem__, min(plan.beam_count, len(rank)))))
    ended = replace(taken, score=score.masked_fill(to_go != 0, DEAD_SCORE))
    taken = replace(taken, score=score.masked_fill((to_go == 0) | (log_prob <= floor), DEAD_SCORE))
    rank = tokens * len(live) + live
    best = top_in_order([taken.score, log_prob, exact], rank.__getitem__, min(pool_size(plan), len(live)))
    return _told_of(peak, _shared_out(taken.select(best), ended, beams, tables, plan))


def _told_of(peak: Tensor, after: Beams) -> Beams:
    """The rows, with NaN for scores where some row's best log-prob, float32 [R], is no finite number."""
    return replace(after, score=after.score.masked_fill(~peak.isfinite().all(), float("nan")))


def _split(beams: Beams, tables: Tables, live: int) -> tuple[Tensor, Tensor]:
    """The numbers of the live rows, and of the others, each ascending; how many there are of each is known."""
    if live == len(beams.state):
        every = torch.arange(live, device=beams.state.device)
        return every, every[:0]
    finished = tables.distance[beams.state] == 0
    order = finished.to(torch.uint8).argsort(stable=True)
    return order[:live], order[live:]


def _best_chunks(moves: Moves, leader: Tensor, tables: Tables, count: int) -> tuple[Tensor, Tensor]:
    """Position among the live rows, and chunk, of the chunks with the best leaders: int64 [N], int64 [N]."""
    chunks, beam_rows = leader.shape[1], len(moves.number)
    column = tables.chunk_class
    own = floored(leader)  # [R, M]
    push = moves.push.index_select(1, column)  # [R, M]
    keep = None if moves.keep is None else moves.keep.index_select(1, column)
    if len(tables.eos_ids) > 1:
        elsewhere = torch.arange(chunks, device=own.device) != tables.token_chunk[moves.best_eos][:, None]
        push = push.masked_fill((column == tables.eos_class) & elsewhere, DEAD_SCORE)
    if moves.only is not None:
        token = moves.only.clamp(min=0)[:, None]  # [R, 1]
        forced = (moves.only != FREE)[:, None]
        here = torch.arange(chunks, device=own.device) == tables.token_chunk[token]  # [R, M]
        push = push.masked_fill(forced & ~here, DEAD_SCORE)
        own = torch.where(forced, floored(moves.log_probs.gather(1, token)), own)

    def by_id_and_row(place: Tensor) -> Tensor:
        line, ids = place // chunks, tables.chunk_id[place % chunks]  # [n], [n, W]
        z = floored(moves.log_probs[line[:, None], ids])
        leading = ids.gather(1, z.argmax(dim=1)[:, None])[:, 0]  # the first of equals, hence the lowest id
        if moves.only is not None:
            leading = torch.where(moves.only[line] == FREE, leading, moves.only[line])
        return leading * beam_rows + line

    keys = [key.reshape(-1) for key in moves.keys(own, slice(None), push, keep)]
    best = top(keys, by_id_and_row, min(count, own.numel()))
    return best // chunks, best % chunks


def _best_tokens(
    moves: Moves, row: Tensor, chunk: Tensor, tables: Tables, count: int, finished: Beams | None
) -> Beams:
    """The best of the finished rows, where they compete, and of all tokens in the chunks named."""
    ids = tables.chunk_id[chunk]  # [N, W]
    own = floored(moves.log_probs[row[:, None], ids])  # [N, W]
    column = tables.chunk_class[chunk]  # [N]
    barred = tables.spare[chunk]
    if len(tables.eos_ids) > 1:
        barred = barred | (tables.eos[ids] & (ids != moves.best_eos[row, None]))
    if moves.only is not None:
        only = moves.only[row, None]
        barred = barred | ((only != FREE) & (ids != only))
    keep = None if moves.keep is None else moves.keep[row, column, None]
    score, log_prob, own = moves.keys(own, row, moves.push[row, column, None], keep)
    keys = [key.reshape(-1) for key in (score.masked_fill(barred, DEAD_SCORE), log_prob, own)]
    ended = 0 if finished is None else len(finished.token)
    if finished is not None:
        first = (finished.score, finished.log_prob, torch.zeros_like(finished.score))
        keys = [torch.cat(pair) for pair in zip(first, keys, strict=True)]

    def by_id_and_row(place: Tensor) -> Tensor:  # the finished rows first
        opened = (place - ended).clamp(min=0)
        rank = ids.reshape(-1)[opened] * len(moves.number) + row[opened // ids.shape[1]]
        return torch.where(place < ended, place - ended, rank)

    place = top_in_order(keys, by_id_and_row, min(count, len(keys[0])))
    opened = (place - ended).clamp(min=0)  # among the opened tokens
    line, token = row[opened // ids.shape[1]], ids.reshape(-1)[opened]
    state = moves.successor[line, tables.token_class[token]]
    score, log_prob = keys[0][place], keys[1][place]
    found = Beams(token, moves.number[line], state, score, log_prob, moves.rows.text_hash[line])
    if finished is None or not ended:
        return found
    return found.where(place >= ended, finished.select(place.clamp(max=ended - 1)))


def _shared_out(pool: Beams, endings: Beams, beams: Beams, tables: Tables, plan: Plan) -> Beams:
    """The live rows of the next beam, and then those that finish.

    pool     live candidates, best first, as `banked.share_out` takes them; text hashes still those of the parents
    endings  rows that finish, DEAD_SCORE where one does not
    beams    the beam before
    """
    if plan.texts is not None:
        pool = replace(pool, text_hash=plan.texts.extend(pool.text_hash, pool.token))
    live = share_out(pool, beams.token[pool.parent], tables, plan)
    return dead_last(live.followed_by(endings))
