"""What a search keeps on the host: the numbers of the present beam, and from which row with which token each came."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from decoding.search.beams import DEAD_SCORE, Beams
from decoding.tensors import Tables, take


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
