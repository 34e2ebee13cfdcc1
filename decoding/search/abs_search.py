"""`algorithm: "abs"`: Algorithm 1 of the paper (Collura et al. 2025), automata-guided beam search with a ramping push.

For t = 1 ... T, for each of the k rows and each token v, with z the row's log-probs, q its state, q' the state after v,
and d(q) the fewest tokens from q to acceptance:

    alpha = alpha_min + (1 - alpha_min) * min(1, (d(q) / (T - t + 1)) ** gamma)         Equation 2
    drop v where d(q') > T - t                                                          lines 10-11
    z'    = alpha * max(z) + (1 - alpha) * z   where d(q') < d(q), else z               lines 12-16
    keep the k rows with the best sums of z'; a finished row stays as it is             lines 17-22

It deviates from the paper in four points: it starts with one row, not k equal ones; Equation 2 has T - t + 1, as the
paper's figure 3; ties follow `candidates`; the final choice is by `rank_by`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from decoding.generation import Hypothesis, Snapshot, TextOf
from decoding.model import Scores
from decoding.options import SearchOptions, push_up
from decoding.prepared_constraint import PreparedConstraint
from decoding.search.beam_search import BeamSearch
from decoding.search.beams import DEAD_SCORE, Beams
from decoding.search.candidates import Continuations, best_candidates
from decoding.tensors import Array, Tables, count_up, floored, library, like, take, top_in_order


@lru_cache(maxsize=64)
def push_up_table(max_tokens: int, distance_max: int, alpha_min: float, gamma: float) -> NDArray[np.float64]:
    """alpha: float64 [max_tokens + 1, distance_max + 1], by budget_before and distance. Row 0 is never read.

    In Python floats, since the vectorised powers of tensor libraries may differ in the last bit. A row within the
    budget has distance <= budget_before: beyond that alpha is 1.
    """
    distances, urgent = range(distance_max + 1), push_up(1, 1, alpha_min, gamma)
    rows = [[push_up(d, b, alpha_min, gamma) if d < b else urgent for d in distances] for b in range(max_tokens + 1)]
    return np.array(rows)


def alpha_table(tables: Tables, options: SearchOptions) -> Array:
    """alpha by budget_before and distance: float64 [T+1, D+1], D the largest distance within the budget."""
    distance_max = min(tables.distance_max, options.max_tokens)
    return like(tables.distance, push_up_table(options.max_tokens, distance_max, options.alpha_min, options.gamma))


def step(beams: Beams, log_probs: Tensor, tables: Tables, alphas: Array, budget_before: int, count: int) -> Beams:
    """Algorithm 1, lines 5-22: the next beam, best first, of at most `count` rows; then padding.

    beams          the rows, finished ones (distance 0) among them
    log_probs      float32 [R, V]  z, one row for each live row of `beams`, in their order
    alphas         from `alpha_table`
    budget_before  T - t + 1, the tokens left with this step's

    All scores are NaN where a row of log_probs holds NaN or has no finite best.
    """
    xp = library(beams.state)
    order = xp.argsort(xp.where(take(tables.distance, beams.state) == 0, 1, 0), stable=True)
    live, done = order[: len(log_probs)], order[len(log_probs) :]
    rows, finished = beams.select(live), replace(beams.select(done), parent=done)
    leader = tables.best_of_chunks(log_probs)  # [R, M]
    peak = xp.amax(leader, 1)  # [R], max(z)
    before = take(tables.distance, rows.state)  # [R], d(q)
    successor = tables.successors(rows.state)  # [R, C], q'
    to_go = take(tables.distance, successor)  # [R, C], d(q')
    alpha = take(alphas[budget_before], before.clip(max=alphas.shape[1] - 1))  # [R]
    pushed = xp.where(to_go < before[:, None], alpha[:, None], 0.0)  # [R, C]
    push = xp.where(to_go >= budget_before, DEAD_SCORE, pushed * floored(peak)[:, None])
    known = like(leader, log_probs.contiguous())
    moves = Continuations(live, rows, known, leader, successor, rows.score, push, 1.0 - pushed)
    found = best_candidates(moves, tables, count)
    after, own = finished.followed_by(found.beams), xp.concatenate([done * 0.0, found.own])
    place = count_up(own, len(own))  # settles ties: both parts are in order, and finished rows go first
    best = top_in_order([after.score, after.log_prob, own], place.__getitem__, min(count, len(own)))
    return after.select(best).nan_unless_finite(peak)


class AbsSearch(BeamSearch):
    """Algorithm 1 between two forward passes; obeys `Generation`. Arguments as in `BeamSearch`."""

    def __init__(
        self, constraint: PreparedConstraint, options: SearchOptions, *, start: int | None = None,
        text_of: TextOf | None = None,
    ) -> None:
        super().__init__(constraint, options, options.beams, start, text_of)
        self._alphas = alpha_table(self._tables, options)

    def advance(self, scores: Scores) -> list[Snapshot]:
        budget, count = self._budget_before, self._options.beams
        beams = step(self._beams, scores.log_probs, self._tables, self._alphas, budget, count)
        return [self._take(beams, keep_finished=True)]

    def answers(self) -> tuple[Hypothesis, ...]:
        return self._finished.answers(None)

    def _alpha(self, distance: int, budget_before: int) -> float:
        return float(self._alphas[budget_before][min(distance, self._alphas.shape[1] - 1)])
