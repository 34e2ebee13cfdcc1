"""What the live rows of a beam may do next, and what that is worth: decided by token class, not by token.

Knows Algorithm 1's push and the other search's costs; not which candidates are kept.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from decoding.beams import DEAD_SCORE, Beams, Tables
from decoding.forced import FREE
from decoding.plan import Plan
from decoding.ramp import LEAST_LOG_PROB

NO_FLOOR = float("-inf")


@dataclass(frozen=True, slots=True)
class Moves:
    """What the R live rows may do next, by token class. C classes.

    number     int64   [R]     each row's number in the beam
    rows       Beams of R rows
    log_probs  float32 [R, V]
    successor  int64   [R, C]  state after a token of the class
    push       float64 [R, C]  added to the score; -inf where the class is barred
    keep       float64 [R, C]  the part of its own log-prob that a token adds to the score; None: all of it
    only       int64   [R]     the one token a row may take, FREE where it may take any; None: all may
    best_eos   int64   [R]     of the EOS ids only the best is a candidate
    floor      candidates whose row has no higher log-prob are none
    """

    number: Tensor
    rows: Beams
    log_probs: Tensor
    successor: Tensor
    push: Tensor
    keep: Tensor | None
    only: Tensor | None
    best_eos: Tensor
    floor: float

    def keys(self, own: Tensor, line: Tensor | slice, push: Tensor, keep: Tensor | None) -> list[Tensor]:
        """What candidates are ranked by: score, log-prob of the whole row, and of the token (Algorithm 1, lines 15-16).

        own         float64 [N, W]  log-probs of N times W tokens; the N are of one row each
        line        the place of each of the N among these rows
        push, keep  [N, W] or [N, 1]  as in the fields of these names
        """
        log_prob = self.rows.log_prob[line, None] + own
        score = log_prob + push if keep is None else self.rows.score[line, None] + (push + keep * own)
        if self.floor != NO_FLOOR:
            score = score.masked_fill(log_prob <= self.floor, DEAD_SCORE)
        return [score, log_prob, own]

    def endings(self, tables: Tables) -> Beams:
        """Each row with EOS at its end, DEAD_SCORE where it may not end: R rows."""
        rows, token = self.rows, self.best_eos
        state = self.successor[:, tables.eos_class]
        log_prob = rows.log_prob + floored(self.log_probs.gather(1, token[:, None]))[:, 0]
        barred = tables.distance[state] != 0
        if self.only is not None:
            barred = barred | ((self.only != FREE) & (self.only != token))
        score = log_prob.masked_fill(barred, DEAD_SCORE)
        return Beams(token, self.number, state, score, log_prob, rows.text_hash)


def moves_of(
    rows: Beams, number: Tensor, log_probs: Tensor, peak: Tensor, tables: Tables, plan: Plan, budget_before: int,
    allowed: Tensor | None, floor: float,
) -> Moves:
    """What may be done with `rows`, which are live and have these numbers in the beam; the rest as in `step.step`.

    peak  float32 [R]  best log-prob of all V tokens, barred ones too (paper: max Z[i, :])
    """
    before = tables.distance[rows.state]  # [R]
    successor = tables.successors(rows.state)  # [R, C]
    to_go = tables.distance_of(successor)  # [R, C]
    best_eos = tables.eos_ids[log_probs.index_select(1, tables.eos_ids).argmax(dim=1)]  # [R]
    if allowed is not None:
        best_eos = torch.where((allowed != FREE) & tables.eos[allowed.clamp(min=0)], allowed, best_eos)
    if plan.cost is None:
        alpha = plan.push_up(before, budget_before)  # [R]
        pushed = (to_go < before[:, None]).double() * alpha[:, None]  # [R, C]; 0 where nothing is gained
        push = (pushed * floored(peak)[:, None]).masked_fill(to_go >= budget_before, DEAD_SCORE)
        return Moves(number, rows, log_probs, successor, push, 1.0 - pushed, allowed, best_eos, NO_FLOOR)
    cost = plan.cost.index_select(0, successor.view(-1)).view(successor.shape)  # [R, C]
    push = (-cost).masked_fill((to_go >= budget_before) | (to_go == 0), DEAD_SCORE)
    return Moves(number, rows, log_probs, successor, push, None, allowed, best_eos, floor)


def floored(log_probs: Tensor) -> Tensor:
    """As float64, not below LEAST_LOG_PROB; where the model gave no number, some number."""
    return log_probs.nan_to_num(nan=LEAST_LOG_PROB, posinf=LEAST_LOG_PROB).clamp(min=LEAST_LOG_PROB).double()
