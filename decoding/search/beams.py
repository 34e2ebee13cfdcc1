"""The rows of a beam. They are arrays on the device, arrays on the host, and links back to the first step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import nan
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from decoding.tensors import Array, TokenStates, arange, library, like, take

DEAD_SCORE = float("-inf")  # the score of padding rows and of continuations that are not allowed
NO_TOKEN = -1  # in place of the last token of the first row, which has none


@dataclass(frozen=True, slots=True, kw_only=True)
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
    def start(cls, state: int, device_of: Array) -> Beams:
        """One row, the prompt's, on the device of `device_of`."""
        # The paper starts with k equal rows, which would find every candidate k times.
        zero, zero_score = arange(device_of, 1), like(device_of, np.zeros(1))
        return cls(token=zero + NO_TOKEN, parent=zero, state=zero + state, score=zero_score, log_prob=zero_score)

    @classmethod
    def of(cls, columns: Sequence[Array]) -> Beams:
        """The rows with these `columns`."""
        token, parent, state, score, log_prob = columns
        return cls(token=token, parent=parent, state=state, score=score, log_prob=log_prob)

    @property
    def columns(self) -> tuple[Array, ...]:
        """The arrays, in the order of the fields."""
        return self.token, self.parent, self.state, self.score, self.log_prob

    def select(self, rows: Array) -> Beams:
        """The rows with these numbers, int64 [N], in that order."""
        return Beams.of([take(column, rows) for column in self.columns])

    def followed_by(self, others: Beams) -> Beams:
        """These rows and then the others."""
        join = library(self.token).concatenate
        return Beams.of([join(pair) for pair in zip(self.columns, others.columns, strict=True)])

    def nan_unless_finite(self, max_log_prob: Array) -> Beams:
        """The rows, with NaN scores where a best log-prob is not finite. `max_log_prob` is float32 [R]."""
        # A branch would have to wait for the device; the NaN is found on the host, after the transfer of the beam.
        xp = library(max_log_prob)
        return replace(self, score=xp.where(xp.isfinite(max_log_prob).all(), self.score, nan))


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
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
    def of(cls, beams: Beams, states: TokenStates) -> HostBeams:
        """Copies a beam to the host in one transfer, without its padding."""
        distance = states.distances(beams.state)
        if isinstance(distance, np.ndarray):
            token, parent, state, score, log_prob = beams.token, beams.parent, beams.state, beams.score, beams.log_prob
        else:
            # One float64 table [6, R] is one transfer; ids and states are below 2**53, so they survive as float64.
            integers = [column.double() for column in (beams.token, beams.parent, beams.state, distance)]
            table = torch.stack([*integers, beams.score, beams.log_prob]).cpu().numpy()
            token, parent, state, distance = table[:4].astype(np.int64)
            score, log_prob = table[4:]
        rows = int(np.count_nonzero(score != DEAD_SCORE))  # padding is last
        live = np.flatnonzero(distance[:rows])
        return cls(
            token=token[:rows], parent=parent[:rows], state=state[:rows], distance=distance[:rows], score=score[:rows],
            log_prob=log_prob[:rows], live=live,
        )  # fmt: skip

    @property
    def finished(self) -> NDArray[np.int64]:
        """The rows that are not live: int64."""
        return np.flatnonzero(self.distance == 0)


class BackPointers:
    """The links from each beam to the one before. A beam is added at each step, and none ever changes."""

    def __init__(self) -> None:
        self._parents: list[NDArray[np.int64]] = []  # by step, [R] each
        self._tokens: list[NDArray[np.int64]] = []

    def __len__(self) -> int:
        return len(self._tokens)

    def add(self, beams: HostBeams) -> None:
        """Appends a step."""
        self._parents.append(beams.parent)
        self._tokens.append(beams.token)

    def tokens(self, rows: NDArray[np.int64], steps: int, eos_ids: tuple[int, ...]) -> list[tuple[int, ...]]:
        """All ids of some rows of the beam after `steps` steps. Each row ends at its first EOS."""
        if not len(rows):
            return []
        written = np.empty((steps, len(rows)), dtype=np.int64)  # [steps, rows]
        for step in range(steps - 1, -1, -1):
            written[step] = self._tokens[step][rows]
            rows = self._parents[step][rows]
        # A finished row of "abs" stays in the beam and repeats its EOS, so the first EOS is its end. A live row has
        # none: all its ids count.
        is_eos = written == eos_ids[0]
        for eos in eos_ids[1:]:
            is_eos |= written == eos
        is_eos[-1] = True
        lengths = is_eos.argmax(axis=0) + 1
        return [tuple(ids[:length]) for ids, length in zip(written.T.tolist(), lengths.tolist(), strict=True)]
