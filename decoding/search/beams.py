"""The rows of a beam: on the device, on the host, and as links back to the first step."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from math import nan
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from decoding.tensors import Array, Tables, count_up, library, like, take

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


@dataclass(frozen=True, slots=True, eq=False)
class HostBeams:
    """A beam on the host, best row first. R rows.

    token     int64   [R]  the last token; a finished row's last token is EOS
    parent    int64   [R]  the row this one extends, in the beam before
    state     int64   [R]
    distance  int     [R]  fewest tokens to acceptance, 0 when finished
    score     float64 [R]
    log_prob  float64 [R]
    live      int64   [L]  the rows that are not finished
    """

    token: NDArray[np.int64]
    parent: NDArray[np.int64]
    state: NDArray[np.int64]
    distance: NDArray[np.integer[Any]]
    score: NDArray[np.float64]
    log_prob: NDArray[np.float64]
    live: NDArray[np.int64]

    @classmethod
    def of(cls, beams: Beams, tables: Tables) -> HostBeams:
        """In one transfer, without rows that only fill places. Whole numbers below 2**53 survive as float64."""
        distance = take(tables.distance, beams.state)
        if isinstance(distance, np.ndarray):
            token, parent, state, score, log_prob = beams.token, beams.parent, beams.state, beams.score, beams.log_prob
        else:
            whole = [column.double() for column in (beams.token, beams.parent, beams.state, distance)]
            table = torch.stack([*whole, beams.score, beams.log_prob]).cpu().numpy()
            token, parent, state, distance = table[:4].astype(np.int64)
            score, log_prob = table[4:]
        rows = int(np.count_nonzero(score != DEAD_SCORE))  # those that fill places are last
        live = np.flatnonzero(distance[:rows])
        return cls(token[:rows], parent[:rows], state[:rows], distance[:rows], score[:rows], log_prob[:rows], live)

    @property
    def rows(self) -> int:
        return len(self.token)

    @property
    def finished(self) -> NDArray[np.int64]:
        return np.flatnonzero(self.distance == 0)


class BackPointers:
    """The links from each beam to the one before; grows by a beam a step, and what it holds never changes."""

    def __init__(self) -> None:
        self._parents: list[NDArray[np.int64]] = []
        self._tokens: list[NDArray[np.int64]] = []

    def __len__(self) -> int:
        return len(self._tokens)

    def add(self, columns: HostBeams) -> None:
        self._parents.append(columns.parent)
        self._tokens.append(columns.token)

    def tokens(self, rows: NDArray[np.int64], steps: int, eos_ids: tuple[int, ...]) -> list[tuple[int, ...]]:
        """All ids of some rows of the beam after `steps` steps, up to and with their first EOS."""
        if not len(rows):
            return []
        written = np.empty((steps, len(rows)), dtype=np.int64)
        for place in range(steps - 1, -1, -1):
            written[place] = self._tokens[place][rows]
            rows = self._parents[place][rows]
        ended = written == eos_ids[0]
        for eos in eos_ids[1:]:
            ended |= written == eos
        ended[-1] = True
        lengths = ended.argmax(axis=0) + 1
        return [tuple(ids[:length]) for ids, length in zip(written.T.tolist(), lengths.tolist(), strict=True)]
