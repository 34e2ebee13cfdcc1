"""The best continuations of a beam's rows. They are found by token class instead of token by token.

Within one row and one token class, a higher log-prob never gives a lower score. So a chunk of tokens of one class
(`ChunkLayout`) is as good as its most probable token, and the best N continuations lie in the N chunks with the best
maxima. A step scores the maxima of R x M chunks and the tokens of N chunks; the scores of all R x V continuations are
never written out.

Candidates are ranked by score, then by the log-prob of the whole row, then by that of the token, higher first; then
the lower token id and the lower row win. Ties are routine: at full push of "abs" every progress token of a row scores
exactly the maximum.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from decoding.forced_tokens import NO_FORCED_TOKEN
from decoding.search.beams import DEAD_SCORE, Beams
from decoding.tensors import (
    Array,
    Successors,
    TokenTables,
    arange,
    fill_at,
    library,
    take,
    take_columns,
    top_k_stable,
    top_k_unordered,
    with_floor,
)

NO_FLOOR = -inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """All continuations of R live rows by one token. C token classes, M chunks, V ids.

    A token of class c after row r scores base[r] + (bonus[r, c] + weight[r, c] * its log-prob).

    parent     int64   [R]     number of each row in its beam
    rows       the rows
    log_probs  float32 [R, V]  of the next token
    chunk_max  float32 [R, M]  the best of each chunk (`TokenTables.best_of_chunks`)
    successors                 of the rows' states
    base       float64 [R]
    bonus      float64 [R, C]  DEAD_SCORE where the class is not allowed
    weight     float64 [R, C]  from 0 to 1; None: 1 for all
    forced     int64   [R]     the only token that a row may take, NO_FORCED_TOKEN: any; None: all rows may take any
    floor      continuations whose log-prob is not above it are dropped; a number, or an array of no axis
    """

    parent: Array
    rows: Beams
    log_probs: Array
    chunk_max: Array
    successors: Successors
    base: Array
    bonus: Array
    weight: Array | None = None
    forced: Array | None = None
    floor: Array | float = NO_FLOOR

    def masked_scores(
        self, log_prob: Array, row: Array | slice, bonus: Array, weight: Array | None, *, masked: Array | None
    ) -> list[Array]:
        """The keys of the ranking, float64 [N * W] each. They are the score, the log-prob of the row and that of the
        token.

        log_prob       float64 [N, W]  of W tokens after each of the N rows named by `row`
        bonus, weight  [N, W] or [N, 1], as in the fields
        masked         bool [N, W]     tokens that are not allowed: their score is DEAD_SCORE; None: all are allowed
        """
        total = self.rows.log_prob[row, None] + log_prob
        score = self.base[row, None] + (bonus + log_prob if weight is None else bonus + weight * log_prob)
        if not isinstance(self.floor, float) or self.floor != NO_FLOOR:
            pruned = total <= self.floor
            masked = pruned if masked is None else masked | pruned
        if masked is not None:
            score = library(score).where(masked, DEAD_SCORE, score)
        return [score.reshape(-1), total.reshape(-1), log_prob.reshape(-1)]

    def tie_break(self, ids: Array, row: Array) -> Array:
        """A number for ties in all keys, the lower first. It ranks by token id, then by row."""
        return ids * len(self.parent) + row

    def best_log_prob(self, allowed: Array, tables: TokenTables) -> Array:
        """The highest log-prob after an allowed class: float64 [1]. `allowed` is bool [R, C]."""
        total = self.rows.log_prob[:, None] + with_floor(self.chunk_max)  # [R, M]
        found = library(total).where(take_columns(allowed, tables.chunk_class), total, DEAD_SCORE)
        return library(total).amax(found.reshape(1, -1), 1)

    def token_log_prob(self, row: Array, ids: Array) -> Array:
        """The floored log-probs of ids after rows, float64.

        Both are int64, of one shape or of shapes that broadcast.
        """
        return with_floor(take(self.log_probs, row * self.log_probs.shape[1] + ids))

    def best_eos(self, tables: TokenTables) -> Array:
        """The EOS id that competes for each row: int64 [R]. It is the most probable one, or the forced one."""
        best = take(tables.eos_ids, take_columns(self.log_probs, tables.eos_ids).argmax(1))
        if self.forced is None:
            return best
        forced_eos = (self.forced != NO_FORCED_TOKEN) & take(tables.eos, self.forced.clip(min=0))
        return library(best).where(forced_eos, self.forced, best)


@dataclass(frozen=True, slots=True, kw_only=True)
class BestCandidates:
    """The best N continuations, best first, and a bound on the others. Their states are not numbered yet.

    row             int64   [N]  number of the row among the candidates' rows
    token           int64   [N]
    token_class     int64   [N]
    score           float64 [N]  DEAD_SCORE where fewer than N are allowed
    log_prob        float64 [N]  of the whole row
    token_log_prob  float64 [N]
    dropped         float64 [1]  the highest log-prob of an allowed row that is not among them, -inf where there is none
    """

    candidates: Candidates
    row: Array
    token: Array
    token_class: Array
    score: Array
    log_prob: Array
    token_log_prob: Array
    dropped: Array

    @property
    def distance(self) -> Array:
        """The distance after each: int [N]."""
        distance = self.candidates.successors.distance
        return take(distance, self.row * distance.shape[1] + self.token_class)

    def beams(self, chosen: Array) -> Beams:
        """The rows that some of them make. `chosen` is int64 [n]."""
        row = take(self.row, chosen)
        return Beams(
            token=take(self.token, chosen), parent=take(self.candidates.parent, row),
            state=self.candidates.successors.states(row, take(self.token_class, chosen)),
            score=take(self.score, chosen), log_prob=take(self.log_prob, chosen),
        )  # fmt: skip


def best_candidates(candidates: Candidates, tables: TokenTables, count: int) -> BestCandidates:
    """The best `count` continuations, or all."""
    best_eos = candidates.best_eos(tables)
    row, chunk, unopened = _best_chunks(candidates, best_eos, tables, count)
    # [N, W]: the tokens of the N chunks. A token belongs to a single chunk of a row, so no candidate comes twice.
    xp, ids = library(row), tables.chunk_id[chunk]
    masked = tables.spare[chunk]
    if len(tables.eos_ids) > 1:  # an answer is the same whichever EOS ends it, so a single one of a row competes
        masked = masked | (take(tables.eos, ids) & (ids != best_eos[row, None]))
    if candidates.forced is not None:
        forced = candidates.forced[row, None]
        masked = masked | ((forced != NO_FORCED_TOKEN) & (ids != forced))
    column = take(tables.chunk_class, chunk)  # [N]
    weight = None if candidates.weight is None else candidates.weight[row, column, None]
    log_probs = candidates.token_log_prob(row[:, None], ids)
    keys = candidates.masked_scores(log_probs, row, candidates.bonus[row, column, None], weight, masked=masked)

    def tie_break(position: Array) -> Array:
        return candidates.tie_break(take(ids, position), row[position // ids.shape[1]])

    best = top_k_stable(keys, tie_break, min(count, len(keys[0])))
    token = take(ids, best)
    return BestCandidates(
        candidates=candidates, row=row[best // ids.shape[1]], token=token, token_class=take(tables.token_class, token),
        score=take(keys[0], best), log_prob=take(keys[1], best), token_log_prob=take(keys[2], best),
        dropped=xp.maximum(unopened, _max_unchosen(keys, best)),
    )  # fmt: skip


def _best_chunks(
    candidates: Candidates, best_eos: Array, tables: TokenTables, count: int
) -> tuple[Array, Array, Array]:
    """The chunks with the best maxima, as rows and chunks int64 [N]. Also the highest log-prob in any other chunk:
    float64 [1].
    """
    xp, width = library(candidates.chunk_max), candidates.chunk_max.shape[1]
    log_probs, chunk, masked = with_floor(candidates.chunk_max), arange(tables.chunk_class, width), None  # [R, M], [M]
    if len(tables.eos_ids) > 1:
        other_eos = chunk != take(tables.token_chunk, best_eos)[:, None]
        masked = (tables.chunk_class == tables.eos_class) & other_eos  # [R, M]
    if candidates.forced is not None:
        # A row with a forced token has a single chunk, whose maximum is replaced by the forced token's log-prob.
        token, is_forced = candidates.forced.clip(min=0), (candidates.forced != NO_FORCED_TOKEN)[:, None]
        not_forced = is_forced & (chunk != take(tables.token_chunk, token)[:, None])
        masked = not_forced if masked is None else masked | not_forced
        log_probs = xp.where(is_forced, candidates.token_log_prob(arange(token, len(token)), token)[:, None], log_probs)
    bonus = take_columns(candidates.bonus, tables.chunk_class)  # [R, M]
    weight = None if candidates.weight is None else take_columns(candidates.weight, tables.chunk_class)
    keys = candidates.masked_scores(log_probs, slice(None), bonus, weight, masked=masked)

    def tie_break(position: Array) -> Array:
        # Of a chunk the token that leads it counts: the lowest id of the most probable ones.
        row, ids = position // width, tables.chunk_id[position % width]  # [n], [n, W]
        first = candidates.token_log_prob(row[:, None], ids).argmax(1)
        leader = take(ids, arange(ids, len(ids)) * ids.shape[1] + first)
        if candidates.forced is not None:
            leader = xp.where(candidates.forced[row] == NO_FORCED_TOKEN, leader, candidates.forced[row])
        return candidates.tie_break(leader, row)

    best = top_k_unordered(keys, tie_break, min(count, len(keys[0])))
    return best // width, best % width, _max_unchosen(keys, best)


def _max_unchosen(keys: list[Array], chosen: Array) -> Array:
    """The highest log-prob of the elements that are allowed and not chosen. The result is float64 [1]."""
    xp = library(keys[0])
    others = xp.where(keys[0] == DEAD_SCORE, DEAD_SCORE, keys[1])
    fill_at(others, chosen, DEAD_SCORE)
    return xp.amax(others[None], 1)
