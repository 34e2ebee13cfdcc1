"""Algorithm 1 of the paper (Collura et al. 2025), `algorithm: "abs"`. It is automata-guided beam search with a ramping
push.

For t = 1 ... T, for each of the k rows i and each token x, with Z the rows' log-probs, q a row's state, q' the state
after x, and d(q) the fewest tokens from q to acceptance:

    alpha = alpha_min + (1 - alpha_min) * min(1, (d(q) / (T - t + 1)) ** gamma)         line 9, Equation 2
    skip x where d(q') > T - t                                                          lines 12-14
    z     = alpha * max Z[i] + (1 - alpha) * Z[i, x]   where d(q') < d(q)               line 15
            Z[i, x]                                    otherwise
    s'    = s + z; the k rows with the best s' are the next beam                        lines 16-20

It deviates from the paper in four points: it starts with one row, not k equal ones; Equation 2 has T - t + 1, as the
paper's figure 3; ties follow `candidates`, and a finished row stays as it is; the final choice is by `rank_by`.
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
from decoding.prepared_constraint import PreparedConstraint, Start
from decoding.search.beam_search import BeamSearch
from decoding.search.beams import DEAD_SCORE, Beams
from decoding.search.candidates import Candidates, best_candidates
from decoding.tensors import TokenStates, arange, library, like, take, top_k_stable, with_floor


@lru_cache(maxsize=256)
def push_up_row(budget_before: int, distance_max: int, alpha_min: float, gamma: float) -> NDArray[np.float64]:
    """alpha by distance, float64 [D + 1], for a budget. Beyond the last distance it is the last value."""
    # In Python floats: the vectorised powers of tensor libraries may differ in the last bit. A row within the budget
    # has distance <= budget_before: from there on alpha is 1. One row at a time, as a table grows with T squared.
    urgent = push_up(1, 1, alpha_min, gamma)
    distances = range(min(distance_max, budget_before) + 1)
    return np.array([push_up(d, budget_before, alpha_min, gamma) if d < budget_before else urgent for d in distances])


def step(
    beams: Beams, log_probs: Tensor, states: TokenStates, options: SearchOptions, *, budget_before: int, count: int
) -> Beams:
    """The next beam, best first, by Algorithm 1, lines 6-20. It has at most `count` rows; then comes padding.

    beams          the rows, finished ones (distance 0) among them
    log_probs      float32 [R, V]  Z, one row for each live row of `beams`, in their order
    options        their `alpha_min` and `gamma` make alpha
    budget_before  T - t + 1, the tokens left with this step's

    All scores are NaN where a row of log_probs holds NaN or has no finite best.
    """
    xp = library(beams.state)
    # Live rows are extended; finished rows compete as they are, each its own parent.
    distance = states.distances(beams.state)
    order = xp.argsort(xp.where(distance == 0, 1, 0), stable=True)
    live, finished = order[: len(log_probs)], order[len(log_probs) :]
    rows, finished_rows = beams.select(live), replace(beams.select(finished), parent=finished)
    chunk_max = states.tokens.best_of_chunks(log_probs)  # [R, M]
    max_z = xp.amax(chunk_max, 1)  # [R]  max Z[i]
    d = take(distance, live)  # [R]  d(q)
    successors = states.successors(rows.state)  # q' (line 11), the same for all tokens of a class
    next_d = successors.distance  # [R, C]  d(q')
    alphas = push_up_row(budget_before, states.distance_max, options.alpha_min, options.gamma)
    alpha = take(like(d, alphas), d.clip(max=len(alphas) - 1))  # [R]  line 9
    push = xp.where(next_d < d[:, None], alpha[:, None], 0.0)  # [R, C]  alpha where the token makes progress
    # Lines 12-15: z = bonus + weight * Z[i, x] with bonus = push * max Z[i] and weight = 1 - push.
    bonus = xp.where(next_d >= budget_before, DEAD_SCORE, push * with_floor(max_z)[:, None])  # [R, C]
    z = like(chunk_max, log_probs.contiguous())
    best = best_candidates(
        Candidates(
            parent=live, rows=rows, log_probs=z, chunk_max=chunk_max, successors=successors, base=rows.score,
            bonus=bonus, weight=1.0 - push,
        ),
        states.tokens,
        count,
    )
    # Line 20. Both parts are in order, so the position settles ties, and finished rows go first.
    after = finished_rows.followed_by(best.beams(arange(best.row, len(best.row))))
    token_log_prob = xp.concatenate([finished * 0.0, best.token_log_prob])
    position = arange(token_log_prob, len(token_log_prob))
    keys = [after.score, after.log_prob, token_log_prob]
    top = top_k_stable(keys, position.__getitem__, min(count, len(position)))
    return after.select(top).nan_unless_finite(max_z)


class AbsSearch(BeamSearch):
    """Algorithm 1 between two forward passes. Arguments as in `BeamSearch`; reads `options.beams` rows."""

    def __init__(
        self, constraint: PreparedConstraint, options: SearchOptions, *, start: Start | None = None,
        text_of: TextOf | None = None,
    ) -> None:
        super().__init__(options, options.beams, constraint.begin_states(start), text_of=text_of)

    def advance(self, scores: Scores) -> list[Snapshot]:
        """One step."""
        budget, count = self._budget_before, self._options.beams
        beams = step(self._beams, scores.log_probs, self._states, self._options, budget_before=budget, count=count)
        return [self._take(beams, keep_finished=True)]

    def answers(self) -> tuple[Hypothesis, ...]:
        """The best finished rows of the last beam, without a bound."""
        return self._n_best.answers(None)

    def _alpha(self, distance: int, budget_before: int) -> float:
        alphas = push_up_row(
            budget_before, self._states.distance_max, self._options.alpha_min, self._options.gamma
        )
        return float(alphas[min(distance, len(alphas) - 1)])
