"""`algorithm: "banked"`, the default search: ranked by log-prob minus cost to go, shared out over distances.

docs/decoding.md states it as pseudocode. Algorithm 1 makes progress tokens free, so its rows put obligations off. Here
a candidate is worth its log-prob minus the expected cost of the remaining text, and among candidates of equal distance
each further one counts less, a soft form of dynamic beam allocation (Post and Vilar 2018). No Python branch reads an
array of the device.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import inf, log

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from decoding.forced_tokens import NO_FORCED_TOKEN
from decoding.generation import Hypothesis, Snapshot, TextOf
from decoding.heuristic import Endings
from decoding.model import Scores
from decoding.options import DEFAULT, Heuristics, SearchOptions
from decoding.prepared_constraint import PreparedConstraint, Start
from decoding.search.beam_search import BeamSearch
from decoding.search.beams import DEAD_SCORE, Beams
from decoding.search.candidates import NO_FLOOR, BestCandidates, Candidates, best_candidates
from decoding.tensors import (
    Array,
    ExplicitStates,
    Successors,
    TokenStates,
    TokenTables,
    arange,
    library,
    like,
    rank_in_group,
    take,
    with_floor,
)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Ranking:
    """How the candidates of all steps of a request are ranked. C token classes. Costs to go are those of the states.

    rows           kept after a step; `pool` candidates compete for them
    group_penalty  float64 [F]  nats by rank among the pool's candidates of equal distance
    endings        token classes int64 [n], weighted nats [n+1, n] and index [V+1] of `Endings`; None: there are none
    """

    rows: int
    pool: int
    group_penalty: Array
    endings: tuple[Array, Array, Array] | None = None

    @classmethod
    def of(cls, tokens: TokenTables, beams: int, heuristics: Heuristics, *, endings: Endings | None = None) -> Ranking:
        """The ranking of a constraint and a beam width."""
        rows, model = heuristics.rows(beams), tokens.token_class
        pool = heuristics.pool * rows
        penalty = np.array([heuristics.group_cost * log(rank + 1) for rank in range(pool)])
        ending_arrays = None
        if endings is not None and heuristics.endings and heuristics.cost_weight > 0.0:  # without cost none is saved
            column = take(model, like(model, endings.ids))
            ending_cost = heuristics.cost_weight * like(model, endings.cost)
            # An id that begins within a character shares its class with others, for which the nats would not hold.
            ending_cost[:, column >= tokens.midchar_class] = inf
            ending_arrays = column, ending_cost, like(model, np.append(endings.index, 0))  # last: NO_TOKEN's
        return cls(rows=rows, pool=pool, group_penalty=like(model, penalty), endings=ending_arrays)

    def score_bonus(self, beams: Beams, successors: Successors, budget_before: Array | int) -> Array:
        """Minus the cost to go after each token class: float64 [R, C]. DEAD_SCORE where the class is not allowed."""
        distance = successors.distance
        xp = library(distance)
        # Finished rows (distance 0) are no candidates: `_finish_rows` adds them, each at its full log-prob.
        bonus = xp.where((distance >= budget_before) | (distance == 0), DEAD_SCORE, -successors.costs())
        if self.endings is not None:
            # Where only EOS is missing, an ending that the model writes anyway costs less than EOS by itself.
            column, cost, index = self.endings
            cheaper = xp.maximum(bonus[:, column], -cost[take(index, beams.token)])  # [R, n]
            applies = (distance[:, column] == 1) & (budget_before > 1)
            bonus[:, column] = xp.where(applies, cheaper, bonus[:, column])
        return bonus

    def diverse_order(self, pool: BestCandidates) -> Array:
        """The order in which a pool's candidates are retained: int64 [N].

        Dynamic beam allocation reserves an equal share of the beam for each number of constraints met. Here the r-th
        candidate of a distance loses group_cost * ln(r) nats instead, so a clearly better group takes more rows.
        """
        xp, dead = library(pool.score), pool.score == DEAD_SCORE
        group = xp.where(dead, -1, pool.distance)
        key = pool.score - take(self.group_penalty, rank_in_group(group))
        return xp.argsort(-xp.where(dead, DEAD_SCORE, key), stable=True)


def step(
    beams: Beams, log_probs: Tensor, states: TokenStates, ranking: Ranking, *, budget_before: Array | int,
    forced: Array | None = None, floor: Array | float = NO_FLOOR,
) -> tuple[Beams, Array]:
    """Expand every row by every token, and select the next beam.

    It has at most `rows` live rows, then those that finish, then padding.

    beams          live rows
    log_probs      float32 [R, V]  of the next token after each of them
    budget_before  T - t + 1, the tokens left with this step's
    forced         int64 [R]       the token forced after each row, NO_FORCED_TOKEN where there is none
    floor          live rows whose log-prob is not above it are dropped

    Budget and floor are numbers, or arrays of no axis: a graph of the step takes them as arguments.

    Also the highest log-prob of the live rows outside the pool, or in it and not retained, and of those that might fit
    the budget though no way is known: float64 [1], -inf where there is none. All scores are NaN where a row of
    log_probs holds NaN or has no finite best.
    """
    chunk_max = states.tokens.best_of_chunks(log_probs)  # [R, M]
    xp, z = library(chunk_max), like(chunk_max, log_probs.contiguous())
    successors = states.successors(beams.state)
    candidates = Candidates(
        parent=arange(beams.state, len(beams.state)), rows=beams, log_probs=z, chunk_max=chunk_max,
        successors=successors, base=beams.log_prob, bonus=ranking.score_bonus(beams, successors, budget_before),
        weight=None, forced=forced, floor=floor,
    )  # fmt: skip
    best = best_candidates(candidates, states.tokens, ranking.pool)
    order = ranking.diverse_order(best)
    others = order[ranking.rows :]
    dropped = xp.where(take(best.score, others) == DEAD_SCORE, DEAD_SCORE, take(best.log_prob, others))
    after = best.beams(order[: ranking.rows]).followed_by(_finish_rows(candidates, states.tokens))
    # Padding goes to the end by a stable sort: shapes must not depend on data where the device is an accelerator.
    after = after.select(xp.argsort(xp.where(after.score == DEAD_SCORE, 1, 0), stable=True))
    dropped = xp.amax(xp.concatenate([best.dropped, dropped])[None], 1)
    undecided = successors.undecided(budget_before - 1)
    if undecided is not None:
        dropped = xp.maximum(dropped, candidates.best_log_prob(undecided, states.tokens))
    return after.nan_unless_finite(xp.amax(chunk_max, 1)), dropped


def jump_forward(
    beams: Beams, tokens: Array, log_probs: Array, max_log_probs: Array, *, states: TokenStates,
    floor: float = NO_FLOOR,
) -> Beams:
    """`step` where every row takes a forced, non-final token. Only the floor drops rows.

    tokens         int64   [R]
    log_probs      float32 [R]  of these tokens
    max_log_probs  float32 [R]  the best of all ids after each row
    """
    # The model has read the whole stretch in one pass, and of its inner positions only these two numbers remain.
    xp, state = library(tokens), states.after(beams.state, tokens)
    log_prob = beams.log_prob + with_floor(log_probs)
    score = xp.where(log_prob <= floor, DEAD_SCORE, log_prob - states.costs(state))
    after = Beams(token=tokens, parent=arange(tokens, len(tokens)), state=state, score=score, log_prob=log_prob)
    return after.select(xp.argsort(-score, stable=True)).nan_unless_finite(max_log_probs)


def _finish_rows(candidates: Candidates, tables: TokenTables) -> Beams:
    """Each row with EOS at its end: R rows. The score is DEAD_SCORE where the row may not end."""
    token, row = candidates.best_eos(tables), candidates.parent
    state = candidates.successors.states(row, row * 0 + tables.eos_class)
    log_prob = candidates.rows.log_prob + candidates.token_log_prob(row, token)
    masked = candidates.successors.distance[:, tables.eos_class] != 0
    if candidates.forced is not None:
        masked = masked | ((candidates.forced != NO_FORCED_TOKEN) & (candidates.forced != token))
    return Beams(
        token=token, parent=row, state=state, score=library(state).where(masked, DEAD_SCORE, log_prob),
        log_prob=log_prob,
    )


def _step_of_tensors(states: TokenStates, ranking: Ranking, *tensors: Tensor) -> tuple[Tensor, ...]:
    """`step` as a function of tensors, for graphs.

    The tensors are the columns of the beam, the log-probs, float64 [2] with budget and floor, and perhaps the forced
    tokens; the results are those of the next beam, and the bound.
    """
    beams, log_probs, limits = Beams.of(tensors[:5]), tensors[5], tensors[6]
    forced = tensors[7] if len(tensors) > 7 else None
    after, dropped = step(
        beams, log_probs, states, ranking, budget_before=limits[0], forced=forced, floor=limits[1]
    )
    return *after.columns, dropped


class BankedSearch(BeamSearch):
    """The default search between two forward passes. Arguments as in `BeamSearch`; `heuristics` sets its parts.

    Finished rows leave the beam as they appear, and live rows that can no longer beat them are dropped: no step raises
    a log-prob, so this loses nothing. The search ends when no live row is left.
    """

    def __init__(
        self, constraint: PreparedConstraint, options: SearchOptions, *, start: Start | None = None,
        text_of: TextOf | None = None, heuristics: Heuristics = DEFAULT,
    ) -> None:
        states = constraint.begin_states(start, heuristics=heuristics)
        super().__init__(options, heuristics.rows(options.beams), states, text_of=text_of)
        self._ranking = Ranking.of(states.tokens, options.beams, heuristics, endings=constraint.endings)
        self._forced = constraint.forced_tokens(states) if heuristics.forced else None
        self._has_floor = heuristics.floor
        # Lazy states are on the host, which a graph cannot ask for them.
        is_captured = isinstance(states, ExplicitStates) and isinstance(states.distance, Tensor)
        self._graphs = constraint.graphs if is_captured else None
        self._graph_key = constraint, options.beams, heuristics
        self._stretch: list[NDArray[np.int64]] = []  # forced tokens fed in advance, each for all rows of the feed
        self._dropped: Array = np.full(1, DEAD_SCORE)  # the highest log-prob of all rows that lost to others

    def advance(self, scores: Scores) -> list[Snapshot]:
        """The steps of the fed forced tokens, then one unforced step."""
        snapshots, floor = [], self._n_best.floor if self._has_floor else NO_FLOOR
        for number, forced_tokens in enumerate(self._stretch):
            # Rows are reordered and dropped from step to step; `fed` names the row of the feed behind each live row.
            fed = self._fed[self._host.live]
            rows = self._array(fed)
            log_probs = self._array(scores.token_log_probs[:, number])[rows]
            max_log_probs = self._array(scores.max_log_probs[:, number])[rows]
            tokens = self._array(forced_tokens[fed])
            beams = jump_forward(
                self._beams, tokens, log_probs, max_log_probs, states=self._states, floor=floor
            )
            snapshots.append(self._take(beams, keep_finished=False))
            if self.done:  # all rows fell below the floor: no later token of the stretch can beat an answer
                return snapshots
        last, fed = scores.log_probs, self._fed[self._host.live]
        if not np.array_equal(fed, np.arange(len(last))):
            last = last[self._on_device(fed)]
        beams, dropped = self._step(last, self._next_forced_tokens(), floor)
        self._dropped = library(dropped).maximum(like(dropped, self._dropped), dropped)
        return [*snapshots, self._take(beams, keep_finished=False)]

    def _step(self, log_probs: Tensor, forced: Array | None, floor: float) -> tuple[Beams, Array]:
        """`step` from the present beam, by a graph where there are any."""
        budget = self._budget_before
        if self._graphs is None:
            return step(
                self._beams, log_probs, self._states, self._ranking, budget_before=budget, forced=forced, floor=floor
            )
        arguments = [*self._beams.columns, log_probs, self._on_device(np.array([budget, floor]))]
        if forced is not None:
            arguments.append(forced)
        # Not a method of this search, which a graph would keep in memory.
        *columns, dropped = self._graphs.run(
            self._graph_key, partial(_step_of_tensors, self._states, self._ranking), arguments
        )
        return Beams.of(columns), dropped

    def feed(self) -> tuple[Tensor, Tensor]:
        """The last token of each live row, and their common forced tokens.

        These are the forced tokens that follow in all rows (jump-forward).
        """
        self._stretch = self._common_forced_tokens()
        parents, tokens = super().feed()
        for forced_tokens in self._stretch:
            tokens = torch.cat([tokens, self._on_device(forced_tokens[:, None])], dim=1)
        return parents, tokens

    def answers(self) -> tuple[Hypothesis, ...]:
        """The best rows that finished at any step, with their proven gaps."""
        # What continues a dropped reading is not bounded.
        return self._n_best.answers(float(self._dropped[0]) if self._states.complete else None)

    def _next_forced_tokens(self) -> Array | None:
        """The token forced after each live row, None without forced rows.

        NO_FORCED_TOKEN stands where a single row has none.
        """
        if self._forced is None:
            return None
        tokens = self._forced.tokens(self._host.state[self._host.live], self._budget_before - 1)
        return self._array(tokens) if (tokens != NO_FORCED_TOKEN).any() else None

    def _common_forced_tokens(self) -> list[NDArray[np.int64]]:
        """The tokens forced in every live row, step by step. It stops where a row has none; EOS is never fed."""
        columns: list[NDArray[np.int64]] = []
        if self._forced is None:
            return columns
        states = self._host.state[self._host.live]
        # The last budgeted token must be chosen by a step, so the stretch ends one token before the budget.
        for budget_after in range(self._budget_before - 1, 0, -1):
            tokens = self._forced.tokens(states, budget_after)
            if (tokens == NO_FORCED_TOKEN).any() or self._forced.ends(tokens).any():
                break
            columns.append(tokens)
            states = self._forced.after(states)
        return columns
