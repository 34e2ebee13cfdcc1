"""`algorithm: "banked"`, the default search: ranked by log-prob minus cost to go, shared out over distances.

docs/decoding.md states it as pseudocode. Algorithm 1 makes progress tokens free, so its rows put obligations off. Here
a candidate is worth its log-prob minus the expected cost of the rest, and among candidates of equal distance each
further one counts less, a soft form of dynamic beam allocation (Post and Vilar 2018). No Python branch reads an array
of the device.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, log

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from decoding.forced_tokens import NO_FORCED_TOKEN
from decoding.generation import Hypothesis, Snapshot, TextOf
from decoding.heuristic import Endings
from decoding.model import Scores
from decoding.options import DEFAULT, NATS_PER_TOKEN, Heuristics, SearchOptions
from decoding.prepared_constraint import PreparedConstraint
from decoding.search.beam_search import BeamSearch
from decoding.search.beams import DEAD_SCORE, Beams
from decoding.search.candidates import NO_FLOOR, Continuations, best_candidates
from decoding.tensors import Array, Tables, count_up, floored, library, like, place_in_group, real, take


@dataclass(frozen=True, slots=True, eq=False)
class Ranking:
    """How the candidates of all steps of a request are ranked. S automaton states.

    rows     kept after a step; `pool` candidates compete for them
    cost     float64 [S]  weighted cost to go, in nats
    penalty  float64 [F]  nats by place among the pool's candidates of equal distance
    endings  token classes int64 [n], weighted nats [n+1, n] and index [V+1] of `Endings`; None: there are none
    """

    rows: int
    pool: int
    cost: Array
    penalty: Array
    endings: tuple[Array, Array, Array] | None = None

    @classmethod
    def of(
        cls, tables: Tables, cost_to_go: Tensor | None, beams: int, heuristics: Heuristics,
        endings: Endings | None = None,
    ) -> Ranking:
        """From the constraint's cost to go, float64 [S], None where it is unknown, and the beam width."""
        rows = heuristics.rows(beams)
        pool = heuristics.pool * rows
        if heuristics.cost_to_go == "unigram" and cost_to_go is not None:
            cost = like(tables.distance, cost_to_go)
        else:
            cost = (0.0 if heuristics.cost_to_go == "none" else NATS_PER_TOKEN) * real(tables.distance)
        penalty = np.array([heuristics.group_cost * log(place + 1) for place in range(pool)])
        ends = None
        if endings is not None and heuristics.endings and heuristics.cost_weight > 0.0:  # without cost none is saved
            column = take(tables.token_class, like(tables.distance, endings.ids))
            nats = heuristics.cost_weight * like(tables.distance, endings.nats)
            nats[:, column >= tables.edge_outer.shape[1]] = inf  # ids that share their class
            ends = column, nats, like(tables.distance, np.append(endings.index, 0))  # the last is NO_TOKEN's
        return cls(rows, pool, heuristics.cost_weight * cost, like(tables.distance, penalty), ends)

    def push(self, beams: Beams, successor: Array, to_go: Array, budget_before: int) -> Array:
        """Minus the cost to go after each token class, DEAD_SCORE where it is not allowed: float64 [R, C].

        successor, to_go  int [R, C]  state after a token of the class, and its distance
        """
        xp = library(successor)
        push = xp.where((to_go >= budget_before) | (to_go == 0), DEAD_SCORE, -take(self.cost, successor))
        if self.endings is not None and budget_before > 1:
            column, nats, index = self.endings
            cheaper = xp.maximum(push[:, column], -nats[take(index, beams.token)])  # [R, n]
            push[:, column] = xp.where(to_go[:, column] == 1, cheaper, push[:, column])
        return push

    def share_out(self, pool: Beams, tables: Tables) -> Beams:
        """A pool, best first, in the order in which candidates are kept; padding at the end."""
        xp, dead = library(pool.score), pool.score == DEAD_SCORE
        group = xp.where(dead, -1, take(tables.distance, pool.state))
        key = pool.score - take(self.penalty, place_in_group(group))
        return pool.select(xp.argsort(-xp.where(dead, DEAD_SCORE, key), stable=True))


def step(
    beams: Beams, log_probs: Tensor, tables: Tables, ranking: Ranking, budget_before: int,
    forced: Array | None = None, floor: float = NO_FLOOR,
) -> tuple[Beams, Array]:
    """Extends every row by every token: at most `rows` live rows, then those that finish, then padding.

    beams          live rows
    log_probs      float32 [R, V]  of the next token after each of them
    budget_before  T - t + 1, the tokens left with this step's
    forced         int64 [R]       the token forced after each row, NO_FORCED_TOKEN where there is none
    floor          live rows whose log-prob is not above it are dropped

    Also the highest log-prob of the live rows outside the pool, or in it and not kept: float64 [1], -inf where there
    is none. All scores are NaN where a row of log_probs holds NaN or has no finite best.
    """
    leader = tables.best_of_chunks(log_probs)  # [R, M]
    xp, known = library(leader), like(leader, log_probs.contiguous())
    successor = tables.successors(beams.state)  # [R, C]
    to_go = take(tables.distance, successor)  # [R, C]
    push = ranking.push(beams, successor, to_go, budget_before)
    number = count_up(beams.state, len(beams.state))
    moves = Continuations(number, beams, known, leader, successor, beams.log_prob, push, None, forced, floor)
    found = best_candidates(moves, tables, ranking.pool)
    shared = ranking.share_out(found.beams, tables)
    place = count_up(shared.score, len(shared.score))
    lost = xp.where((shared.score == DEAD_SCORE) | (place < ranking.rows), DEAD_SCORE, shared.log_prob)
    after = shared.select(place[: ranking.rows]).followed_by(_finishing(moves, tables))
    after = after.select(xp.argsort(xp.where(after.score == DEAD_SCORE, 1, 0), stable=True))
    return after.nan_unless_finite(xp.amax(leader, 1)), xp.maximum(found.dropped, xp.amax(lost[None], 1))


def forced_step(
    beams: Beams, tokens: Array, own: Array, peak: Array, tables: Tables, ranking: Ranking, floor: float = NO_FLOOR
) -> Beams:
    """`step` where every row takes a forced token that does not end the text: nothing is chosen but by the floor.

    tokens     int64   [R]
    own, peak  float32 [R]  its log-prob, and the best log-prob in its place
    """
    xp, state = library(tokens), tables.after(beams.state, tokens)
    log_prob = beams.log_prob + floored(own)
    score = xp.where(log_prob <= floor, DEAD_SCORE, log_prob - take(ranking.cost, state))
    after = Beams(tokens, count_up(tokens, len(tokens)), state, score, log_prob)
    return after.select(xp.argsort(-score, stable=True)).nan_unless_finite(peak)


def _finishing(moves: Continuations, tables: Tables) -> Beams:
    """Each row with EOS at its end, DEAD_SCORE where it may not end: R rows."""
    token, state = moves.best_eos(tables), moves.successor[:, tables.eos_class]
    log_prob = moves.rows.log_prob + moves.own(moves.number, token)
    barred = take(tables.distance, state) != 0
    if moves.forced is not None:
        barred = barred | ((moves.forced != NO_FORCED_TOKEN) & (moves.forced != token))
    return Beams(token, moves.number, state, library(state).where(barred, DEAD_SCORE, log_prob), log_prob)


class BankedSearch(BeamSearch):
    """The default search between two forward passes; obeys `Generation`. Arguments as in `BeamSearch`.

    Finished rows are taken out as they come, and live rows that can no longer beat them are dropped: no step raises a
    log-prob, so this loses nothing. The search ends when no live row is left.
    """

    def __init__(
        self, constraint: PreparedConstraint, options: SearchOptions, *, start: int | None = None,
        text_of: TextOf | None = None, heuristics: Heuristics = DEFAULT,
    ) -> None:
        super().__init__(constraint, options, heuristics.rows(options.beams), start, text_of)
        self._ranking = Ranking.of(self._tables, constraint.cost_to_go, options.beams, heuristics, constraint.endings)
        self._forced = constraint.forced if heuristics.forced else None
        self._has_floor = heuristics.floor
        self._chain: list[NDArray[np.int64]] = []  # forced tokens fed in advance, each for all rows of the feed
        self._dropped: Array = np.full(1, DEAD_SCORE)  # the highest log-prob of all rows that lost to others

    def advance(self, scores: Scores) -> list[Snapshot]:
        snapshots, floor = [], self._finished.floor if self._has_floor else NO_FLOOR
        for place, chained in enumerate(self._chain):
            fed = self._fed[self._columns.live]
            own, peak = (self._array(column[:, place])[self._array(fed)] for column in (scores.own, scores.peak))
            beams = forced_step(self._beams, self._array(chained[fed]), own, peak, self._tables, self._ranking, floor)
            snapshots.append(self._take(beams, keep_finished=False))
            if self.done:  # the rest of the stretch can beat no answer
                return snapshots
        log_probs, fed = scores.log_probs, self._fed[self._columns.live]
        if not np.array_equal(fed, np.arange(len(log_probs))):
            log_probs = log_probs[self._on_device(fed)]
        forced, budget = self._forced_now(), self._budget_before
        beams, lost = step(self._beams, log_probs, self._tables, self._ranking, budget, forced, floor)
        self._dropped = library(lost).maximum(like(lost, self._dropped), lost)
        return [*snapshots, self._take(beams, keep_finished=False)]

    def feed(self) -> tuple[Tensor, Tensor]:
        """The last token of each live row, and the forced ones after it that all rows have."""
        self._chain = self._forced_ahead()
        parents, tokens = super().feed()
        ahead = [self._on_device(column[:, None]) for column in self._chain]
        return parents, torch.cat([tokens, *ahead], dim=1)

    def answers(self) -> tuple[Hypothesis, ...]:
        return self._finished.answers(float(self._dropped[0]))

    def _forced_now(self) -> Array | None:
        """The token forced after each live row, NO_FORCED_TOKEN where there is none; None where no row has one."""
        if self._forced is None:
            return None
        tokens = self._forced.tokens(self._columns.state[self._columns.live], self._budget_before - 1)
        return self._array(tokens) if (tokens != NO_FORCED_TOKEN).any() else None

    def _forced_ahead(self) -> list[NDArray[np.int64]]:
        """The tokens forced in every live row, step by step as far as all have one; EOS is never fed."""
        columns: list[NDArray[np.int64]] = []
        states = self._columns.state[self._columns.live]
        for budget_after in range(self._budget_before - 1, 0, -1) if self._forced else ():
            assert self._forced is not None
            tokens = self._forced.tokens(states, budget_after)
            if (tokens == NO_FORCED_TOKEN).any() or self._forced.ends(tokens).any():
                break
            columns.append(tokens)
            states = self._forced.after(states)
        return columns
