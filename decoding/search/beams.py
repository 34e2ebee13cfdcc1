"""The rows of a beam."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from math import nan

import numpy as np

from decoding.tensors import Array, count_up, library, like, take

DEAD_SCORE = float("-inf")  # the score of padding rows and of continuations that are not allowed
NO_TOKEN = -1  # in place of the last token of the first row, which has none


@dataclass(frozen=True, slots=True)
class Beams:
    """The rows of a beam, best first. R rows.

    token     int64   [R]  the last token; a finished row's last token is EOS
    parent    int64   [R]  the row this one extends, in the beam before
    state     int64   [R]  automaton state after the token
    score     float64 [R]  what rows are ranked by; DEAD_SCORE where the row is padding
    log_prob  float64 [R]  the model's own sum, in nats
    """

    token: Array
    parent: Array
    state: Array
    score: Array
    log_prob: Array

    @classmethod
    def start(cls, state: int, model: Array) -> Beams:
        """One row, the prompt's, beside `model`: k equal rows would find every candidate k times."""
        whole, zero = count_up(model, 1), like(model, np.zeros(1))
        return cls(whole + NO_TOKEN, whole, whole + state, zero, zero)

    def select(self, rows: Array) -> Beams:
        """The rows with these numbers, int64 [N], in that order."""
        return Beams(*(take(getattr(self, name), rows) for name in _COLUMNS))

    def followed_by(self, others: Beams) -> Beams:
        """These rows and then the others."""
        join = library(self.token).concatenate
        return Beams(*(join([getattr(self, name), getattr(others, name)]) for name in _COLUMNS))

    def nan_unless_finite(self, peak: Array) -> Beams:
        """The rows, with NaN for scores where some row's best log-prob, float32 [R], is no finite number."""
        return replace(self, score=library(peak).where(library(peak).isfinite(peak).all(), self.score, nan))


_COLUMNS = tuple(field.name for field in fields(Beams))
