"""One step of Algorithm 1 (paper, lines 5-22) in tensors: every row extended by every token, and the best kept.

Pure functions of static shapes; no Python branch reads a tensor. `tests/reference.py` is the slow twin in plain Python.

Candidates are ranked, and ties broken, by: the score, higher first; the model's own log-prob of the whole row, higher
first; the token's own log-prob, higher first; a finished row before a live one; the lower token id; the lower row.
Ties are routine: at full push every progress token of a row scores exactly the peak.

The scores of k x V candidates are never written out. Within one row and one token class a higher log-prob never means
a lower score, so a chunk of tokens of one class (`beams.Tables`) is led by its most probable token, and the best k
tokens of all lie in the k chunks with the best leaders: every chunk left out has k better leaders. So the step reads
the log-probs once, decides for k x M leaders, and opens k chunks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from decoding.beams import DEAD_SCORE, Beams, Tables
from decoding.ramp import LEAST_LOG_PROB


@dataclass(frozen=True, slots=True)
class _Moves:
    """What the R live rows may do next. C classes, M chunks of W slots.

    number     int64   [R]        each row's number in the beam
    rows       Beams of R rows
    successor  int64   [R, C]     state after a token of the class
    gains      bool    [R, C]     the class comes closer to acceptance: it is pushed
    barred     bool    [R, C]     the class cannot finish in time, or never
    peak       float64 [R]        best log-prob of all V tokens, barred ones too (paper: max Z[i, :])
    alpha      float64 [R]        push-up
    laid       float32 [R, M, W]  log-probs in the layout of `Tables`
    """

    number: Tensor
    rows: Beams
    successor: Tensor
    gains: Tensor
    barred: Tensor
    peak: Tensor
    alpha: Tensor
    laid: Tensor


def step(
    beams: Beams, live: Tensor, done: Tensor, log_probs: Tensor, peak: Tensor, alpha: Tensor, tables: Tables,
    budget_after: int, beam_count: int,
) -> Beams:
    """The next beam: at most `beam_count` rows, best first, DEAD_SCORE on those that found no candidate.

    live, done    int64 [R], [N]  the rows of `beams` to extend, and those already finished, which stay at cost 0
    log_probs     float32 [R, V]  the model's, one row for each of `live`
    peak          float32 [R]     the best of each row of `log_probs`, finite
    alpha         float64 [R]     push-up for each of `live`
    budget_after  T - t, tokens left once this step's token is written
    """
    moves = _moves(beams, live, log_probs, peak, alpha, tables, budget_after)
    leader, slot = moves.laid.max(dim=2)  # [R, M]; the first of equals, hence the lowest id
    row, chunk = _best_chunks(moves, leader, slot, tables, len(beams.state), beam_count)
    best_eos = _slot_ids(tables)[tables.eos_chunk][slot[:, tables.eos_chunk]]  # [R]: of several EOS ids only the best
    return _open_chunks(beams, done, moves, row, chunk, best_eos, tables, beam_count)


def _moves(
    beams: Beams, live: Tensor, log_probs: Tensor, peak: Tensor, alpha: Tensor, tables: Tables, budget_after: int
) -> _Moves:
    rows = beams.select(live)
    successor = tables.successors(rows.state)  # [R, C]
    to_go = tables.distance[successor]  # [R, C]
    gains = to_go < tables.distance[rows.state][:, None]  # [R, C]
    laid = log_probs.index_select(1, tables.slot_id).clamp_(min=LEAST_LOG_PROB)  # [R, M * W]
    laid = laid.view(len(laid), *tables.spare.shape)  # [R, M, W]
    floor_peak = peak.double().clamp(min=LEAST_LOG_PROB)
    return _Moves(live, rows, successor, gains, to_go > budget_after, floor_peak, alpha, laid)


def _best_chunks(
    moves: _Moves, leader: Tensor, slot: Tensor, tables: Tables, beam_rows: int, beam_count: int
) -> tuple[Tensor, Tensor]:
    """Position among the live rows, and chunk, of the chunks with the best leaders: int64 [N], int64 [N]."""
    chunks = leader.shape[1]
    column = tables.chunk_class
    own = leader.double()  # [R, M]
    score = _scores(own, moves.rows.score[:, None], moves.peak[:, None], moves.alpha[:, None], moves.gains[:, column])
    score = score.masked_fill(moves.barred[:, column], DEAD_SCORE)  # mask last: blending -inf gives NaN
    leader_id = _slot_ids(tables).expand(len(slot), -1, -1).gather(2, slot[:, :, None])[:, :, 0]  # [R, M]
    order = leader_id * beam_rows + moves.number[:, None]  # [R, M]: by id, then by row
    keys = [score, moves.rows.log_prob[:, None] + own, own, -order.double()]
    best = top_in_order([key.reshape(-1) for key in keys], min(beam_count, score.numel()))
    return best // chunks, best % chunks


def _open_chunks(
    beams: Beams, done: Tensor, moves: _Moves, row: Tensor, chunk: Tensor, best_eos: Tensor, tables: Tables,
    beam_count: int,
) -> Beams:
    """The best of all tokens in the chunks named, and of the finished rows."""
    beam_rows = len(beams.state)
    token = _slot_ids(tables)[chunk]  # [N, W]
    own = moves.laid[row, chunk].double()  # [N, W]
    column = tables.chunk_class[chunk]  # [N]
    score = _scores(
        own, moves.rows.score[row, None], moves.peak[row, None], moves.alpha[row, None], moves.gains[row, column, None]
    )
    lesser_eos = (chunk == tables.eos_chunk)[:, None] & (token != best_eos[row, None])
    barred = moves.barred[row, column, None] | tables.spare[chunk] | lesser_eos
    number = moves.number[row, None].expand_as(token)
    finished = beams.select(done)
    pool = Beams(
        torch.cat([token.reshape(-1), finished.token]),
        torch.cat([number.reshape(-1), done]),
        torch.cat([moves.successor[row, column, None].expand_as(token).reshape(-1), finished.state]),
        torch.cat([score.masked_fill(barred, DEAD_SCORE).reshape(-1), finished.score]),
        torch.cat([(moves.rows.log_prob[row, None] + own).reshape(-1), finished.log_prob]),
    )
    own_cost = torch.cat([own.reshape(-1), torch.zeros_like(finished.score)])
    order = torch.cat([(token * beam_rows + number).reshape(-1), done - beam_rows])  # finished rows below every id
    keys = [pool.score, pool.log_prob, own_cost, -order.double()]
    return pool.select(top_in_order(keys, min(beam_count, len(order))))


def _scores(own: Tensor, before: Tensor, peak: Tensor, alpha: Tensor, gains: Tensor) -> Tensor:
    """Pushed scores (Algorithm 1, lines 15-16), float64; `ramp.pushed` in the same order of operations."""
    return before + torch.where(gains, alpha * peak + (1.0 - alpha) * own, own)


def _slot_ids(tables: Tables) -> Tensor:
    """int64 [M, W]"""
    return tables.slot_id.view(tables.spare.shape)


def top_in_order(keys: Sequence[Tensor], count: int) -> Tensor:
    """The first `count` elements by descending lexicographic order of the keys, in that order: int64 [count].

    keys  float64 [N] each, the most significant first, no NaN; count <= N. Exact whatever the ties: each key in turn
    settles the elements above its threshold, and passes on those that tie with it.
    """
    tied = torch.ones_like(keys[0], dtype=torch.bool)
    taken = torch.zeros_like(tied)
    places = torch.full((1,), count, dtype=torch.int64, device=tied.device)
    for key in keys:
        ranked = key.masked_fill(~tied, DEAD_SCORE).topk(count).values
        threshold = ranked.gather(0, places - 1)
        above = tied & (key > threshold)
        taken = taken | above
        places = places - above.sum()
        tied = tied & (key == threshold)
    chosen = (2 * taken.to(torch.uint8) + tied.to(torch.uint8)).topk(count).indices
    for key in reversed(keys):
        chosen = chosen[key[chosen].argsort(descending=True, stable=True)]
    return chosen
