"""The best continuations of a beam's rows, found by token class instead of token by token.

Within one row and one token class, a higher log-prob never gives a lower score. So a chunk of tokens of one class
(`ChunkLayout`) is led by its most probable token, and the best N continuations lie in the N chunks with the best
leaders. A step scores R x M leaders and opens N chunks; the scores of all R x V continuations are never written out.

Candidates are ranked by score, then by the log-prob of the whole row, then by that of the token, higher first; then
the lower token id and the lower row win. Ties are routine: at full push of "abs" every progress token of a row scores
exactly the peak.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from decoding.forced_tokens import NO_FORCED_TOKEN
from decoding.search.beams import DEAD_SCORE, Beams
from decoding.tensors import Array, Tables, count_up, floored, library, take, take_columns, top, top_in_order

NO_FLOOR = -inf


@dataclass(frozen=True, slots=True)
class Continuations:
    """All continuations of R live rows by one token. C token classes, M chunks, V ids.

    A token of class c after row r scores base[r] + (push[r, c] + keep[r, c] * its log-prob).

    number     int64   [R]     place of each row in its beam
    rows       the rows
    log_probs  float32 [R, V]  of the next token
    leader     float32 [R, M]  the best of each chunk (`Tables.best_of_chunks`)
    successor  int64   [R, C]  state after a token of the class
    base       float64 [R]
    push       float64 [R, C]  DEAD_SCORE where the class is not allowed
    keep       float64 [R, C]  from 0 to 1; None: 1 for all
    forced     int64   [R]     the one token that a row may take, NO_FORCED_TOKEN: any; None: all rows may take any
    floor      continuations whose log-prob is not above it are dropped
    """

    number: Array
    rows: Beams
    log_probs: Array
    leader: Array
    successor: Array
    base: Array
    push: Array
    keep: Array | None = None
    forced: Array | None = None
    floor: float = NO_FLOOR

    def keys(self, own: Array, line: Array | slice, push: Array, keep: Array | None) -> list[Array]:
        """Score, log-prob of the whole row and log-prob of the token: float64 [N, W] each.

        own         float64 [N, W]  log-probs of W tokens after each of the N rows named by `line`
        push, keep  [N, W] or [N, 1], as in the fields
        """
        log_prob = self.rows.log_prob[line, None] + own
        score = self.base[line, None] + (push + own if keep is None else push + keep * own)
        if self.floor != NO_FLOOR:
            score = library(score).where(log_prob <= self.floor, DEAD_SCORE, score)
        return [score, log_prob, own]

    def own(self, line: Array, ids: Array) -> Array:
        """The log-probs, floored, of ids after rows, int64 of one shape or shapes that broadcast: float64."""
        return floored(take(self.log_probs, line * self.log_probs.shape[1] + ids))

    def best_eos(self, tables: Tables) -> Array:
        """The EOS id that competes for each row, int64 [R]: the most probable one, or the one that is forced."""
        best = take(tables.eos_ids, take_columns(self.log_probs, tables.eos_ids).argmax(1))
        if self.forced is None:
            return best
        ends = (self.forced != NO_FORCED_TOKEN) & take(tables.eos, self.forced.clip(min=0))
        return library(best).where(ends, self.forced, best)


class Candidates(NamedTuple):
    """The best continuations, best first, and a bound on the others.

    beams    the rows they make, N of them; DEAD_SCORE where fewer than N are allowed
    own      float64 [N]  log-prob of the last token
    dropped  float64 [1]  the highest log-prob of an allowed row that is not among them, -inf where there is none
    """

    beams: Beams
    own: Array
    dropped: Array


def best_candidates(moves: Continuations, tables: Tables, count: int) -> Candidates:
    """The best `count` continuations, or all."""
    best_eos = moves.best_eos(tables)
    row, chunk, closed = _best_chunks(moves, best_eos, tables, count)
    xp, ids = library(row), tables.chunk_id[chunk]  # [N, W]
    column = take(tables.chunk_class, chunk)  # [N]
    barred = tables.spare[chunk]
    if len(tables.eos_ids) > 1:
        barred = barred | (take(tables.eos, ids) & (ids != best_eos[row, None]))
    if moves.forced is not None:
        forced = moves.forced[row, None]
        barred = barred | ((forced != NO_FORCED_TOKEN) & (ids != forced))
    keep = None if moves.keep is None else moves.keep[row, column, None]
    keys = moves.keys(moves.own(row[:, None], ids), row, moves.push[row, column, None], keep)
    keys = [key.reshape(-1) for key in (xp.where(barred, DEAD_SCORE, keys[0]), *keys[1:])]

    def by_id_and_row(place: Array) -> Array:
        return take(ids, place) * len(moves.number) + row[place // ids.shape[1]]

    best = top_in_order(keys, by_id_and_row, min(count, len(keys[0])))
    line, token = row[best // ids.shape[1]], take(ids, best)
    state = take(moves.successor, line * moves.successor.shape[1] + take(tables.token_class, token))
    score, log_prob, own = (take(key, best) for key in keys)
    beams = Beams(token, take(moves.number, line), state, score, log_prob)
    return Candidates(beams, own, xp.maximum(closed, _highest_left(keys, best)))


def _best_chunks(moves: Continuations, best_eos: Array, tables: Tables, count: int) -> tuple[Array, Array, Array]:
    """The rows and chunks with the best leaders, int64 [N] each, and the highest log-prob in any other: float64 [1]."""
    xp, width = library(moves.leader), moves.leader.shape[1]
    own = floored(moves.leader)  # [R, M]
    push = take_columns(moves.push, tables.chunk_class)  # [R, M]
    keep = None if moves.keep is None else take_columns(moves.keep, tables.chunk_class)
    chunk = count_up(tables.chunk_class, width)
    if len(tables.eos_ids) > 1:
        elsewhere = chunk != take(tables.token_chunk, best_eos)[:, None]
        push = xp.where((tables.chunk_class == tables.eos_class) & elsewhere, DEAD_SCORE, push)
    if moves.forced is not None:
        token, is_forced = moves.forced.clip(min=0), (moves.forced != NO_FORCED_TOKEN)[:, None]
        push = xp.where(is_forced & (chunk != take(tables.token_chunk, token)[:, None]), DEAD_SCORE, push)
        own = xp.where(is_forced, moves.own(count_up(token, len(token)), token)[:, None], own)

    def by_id_and_row(place: Array) -> Array:
        line, ids = place // width, tables.chunk_id[place % width]  # [n], [n, W]
        first = moves.own(line[:, None], ids).argmax(1)  # of equal ones the lowest id
        leading = take(ids, count_up(ids, len(ids)) * ids.shape[1] + first)
        if moves.forced is not None:
            leading = xp.where(moves.forced[line] == NO_FORCED_TOKEN, leading, moves.forced[line])
        return leading * len(moves.number) + line

    keys = [key.reshape(-1) for key in moves.keys(own, slice(None), push, keep)]
    best = top(keys, by_id_and_row, min(count, len(keys[0])))
    return best // width, best % width, _highest_left(keys, best)


def _highest_left(keys: list[Array], chosen: Array) -> Array:
    """The highest log-prob of the elements that are allowed and not chosen: float64 [1]."""
    xp = library(keys[0])
    left = xp.where(keys[0] == DEAD_SCORE, DEAD_SCORE, keys[1])
    left[chosen] = DEAD_SCORE
    return xp.amax(left[None], 1)
