"""What the live rows of a beam may do next, and what that is worth: decided by token class, not by token.

Knows Algorithm 1's push and the other search's costs; not which candidates are kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from decoding.arrays import Array, count_up, library, real, take, take_columns
from decoding.beams import DEAD_SCORE, Beams, Tables
from decoding.forced import FREE
from decoding.plan import Plan
from decoding.ramp import LEAST_LOG_PROB

NO_FLOOR = -inf


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

    number: Array
    rows: Beams
    log_probs: Array
    successor: Array
    push: Array
    keep: Array | None
    only: Array | None
    best_eos: Array
    floor: float

    def keys(self, own: Array, line: Array | slice, push: Array, keep: Array | None) -> list[Array]:
        """What candidates are ranked by: score, log-prob of the whole row, and of the token (Algorithm 1, lines 15-16).

        own         float64 [N, W]  log-probs of N times W tokens; the N are of one row each
        line        the place of each of the N among these rows
        push, keep  [N, W] or [N, 1]  as in the fields of these names
        """
        log_prob = self.rows.log_prob[line, None] + own
        score = log_prob + push if keep is None else self.rows.score[line, None] + (push + keep * own)
        if self.floor != NO_FLOOR:
            score = library(score).where(log_prob <= self.floor, DEAD_SCORE, score)
        return [score, log_prob, own]

    def finishing(self, tables: Tables) -> Beams:
        """Each row with EOS at its end, DEAD_SCORE where it may not end: R rows."""
        rows, token = self.rows, self.best_eos
        state = self.successor[:, tables.eos_class]
        log_prob = rows.log_prob + floored(self.log_probs_of(token))
        barred = take(tables.distance, state) != 0
        if self.only is not None:
            barred = barred | ((self.only != FREE) & (self.only != token))
        score = library(state).where(barred, DEAD_SCORE, log_prob)
        return Beams(token, rows.token, self.number, state, score, log_prob, rows.text_hash)

    def log_probs_of(self, token: Array, line: Array | None = None) -> Array:
        """The log-probs float32 of tokens int64, each in the row that `line` names, or in the row of its own place."""
        if line is None:
            line = count_up(token, len(token))
        return take(self.log_probs, line * self.log_probs.shape[1] + token)


def moves_of(
    rows: Beams, number: Array, log_probs: Array, peak: Array, tables: Tables, plan: Plan, budget_before: int,
    allowed: Array | None, floor: float,
) -> Moves:
    """What may be done with `rows`, which are live and have these numbers in the beam; the rest as in `step.step`.

    peak  float32 [R]  best log-prob of all V tokens, barred ones too (paper: max Z[i, :])
    """
    xp = library(log_probs)
    before = take(tables.distance, rows.state)  # [R]
    successor = tables.successors(rows.state)  # [R, C]
    to_go = take(tables.distance, successor)  # [R, C]
    best_eos = take(tables.eos_ids, take_columns(log_probs, tables.eos_ids).argmax(1))  # [R]
    if allowed is not None:
        ends = (allowed != FREE) & take(tables.eos, allowed.clip(min=0))
        best_eos = xp.where(ends, allowed, best_eos)
    if plan.pushes:
        alpha = plan.push_up(before, budget_before)  # [R]
        pushed = xp.where(to_go < before[:, None], alpha[:, None], 0.0)  # [R, C]; 0 where nothing is gained
        push = xp.where(to_go >= budget_before, DEAD_SCORE, pushed * floored(peak)[:, None])
        return Moves(number, rows, log_probs, successor, push, 1.0 - pushed, allowed, best_eos, NO_FLOOR)
    push = xp.where((to_go >= budget_before) | (to_go == 0), DEAD_SCORE, -plan.cost_of(successor))  # [R, C]
    return Moves(number, rows, log_probs, successor, push, None, allowed, best_eos, floor)


def floored(log_probs: Array) -> Array:
    """As float64, not below LEAST_LOG_PROB; where the model gave no number, some number."""
    sound = (log_probs >= LEAST_LOG_PROB) & (log_probs < inf)
    return real(library(log_probs).where(sound, log_probs, LEAST_LOG_PROB))
