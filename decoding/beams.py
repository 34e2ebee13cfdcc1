"""The tensors of a search: the rows of a beam, and an automaton's tables laid out for the device.

Owns shapes and layouts. Knows nothing of scores, of models or of the loop.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from compiler.token_automaton import TokenAutomaton

DEAD_SCORE = float("-inf")  # the score of a row that only fills a place: no candidate was left for it

_WIDTHS = (1, 2, 4, 8, 16, 32, 64, 128)
_CHUNK_COST = 8  # what one chunk costs in the step, in units of one laid-out token


@dataclass(frozen=True, slots=True)
class Beams:
    """The rows of a beam, best first. R rows.

    token     int64   [R]  the last token; a finished row's last token is EOS
    parent    int64   [R]  the row this one extends, in the beam before
    state     int64   [R]  automaton state after the token
    score     float64 [R]  pushed score, DEAD_SCORE where the row only fills a place
    log_prob  float64 [R]  the model's own sum
    """

    token: Tensor
    parent: Tensor
    state: Tensor
    score: Tensor
    log_prob: Tensor

    @classmethod
    def start(cls, state: int, device: torch.device) -> Beams:
        """ONE row: k equal rows would only find every candidate k times. Its token is the prompt's, not named here."""
        whole = torch.zeros(1, dtype=torch.int64, device=device)
        real = torch.zeros(1, dtype=torch.float64, device=device)
        return cls(whole, whole, whole + state, real, real)

    def select(self, rows: Tensor) -> Beams:
        """The rows with these numbers, int64 [N], in that order."""
        return Beams(*(getattr(self, field.name).index_select(0, rows) for field in fields(self)))

    def to_host(self) -> list[HostRow]:
        """The rows as Python numbers, in one transfer; whole numbers below 2**53 survive the float64 of the others."""
        columns = [getattr(self, field.name).double() for field in fields(self)]
        return [
            HostRow(int(token), int(parent), int(state), score, log_prob)
            for token, parent, state, score, log_prob in torch.stack(columns, dim=1).tolist()
        ]


class HostRow(NamedTuple):
    """One row of `Beams` as Python numbers."""

    token: int
    parent: int
    state: int
    score: float
    log_prob: float


@dataclass(frozen=True, slots=True, eq=False)
class Tables:
    """A TokenAutomaton on the device. V ids, C classes, M chunks of W slots; the rest as in `TokenAutomaton`.

    edge_outer     int   [B, C0]
    edge_inner     int   [L-B+1, C1]
    edge_target    int64 [P]        labeller state an edge leads to, times Q
    edge_function  int64 [P]        row of `function` an edge applies, times Q
    function       int64 [F * Q]    letter state after it
    distance       int32 [S]        fewest tokens to acceptance, UNREACHABLE when dead
    letter_states  Q

    The ids are laid out by class, ascending within it, each class cut into chunks of W slots. All tokens of a chunk
    take a row to the same state, so that what may be taken, and how it is pushed, is decided once a chunk.

    slot_id        int64 [M * W]    the id in each slot; spare slots repeat the last id of their chunk
    spare          bool  [M, W]     the repeats, which are no candidates of their own
    chunk_class    int64 [M]        the class of each chunk
    eos_chunk      the one chunk that holds all EOS ids
    """

    edge_outer: Tensor
    edge_inner: Tensor
    edge_target: Tensor
    edge_function: Tensor
    function: Tensor
    distance: Tensor
    letter_states: int
    slot_id: Tensor
    spare: Tensor
    chunk_class: Tensor
    eos_chunk: int

    @classmethod
    def from_automaton(cls, automaton: TokenAutomaton, device: torch.device) -> Tables:
        """Copies an automaton's arrays to the device; a few milliseconds for 50,000 ids."""
        letter_states = automaton.letter_states
        slot_id, spare, chunk_class = _lay_out(automaton.token_class, automaton.classes, len(automaton.eos_ids))
        eos_class = automaton.token_class[automaton.eos_ids[0]]

        def put(array: np.ndarray, dtype: torch.dtype) -> Tensor:
            return torch.tensor(array, dtype=dtype, device=device)

        return cls(
            put(automaton.edge_outer, torch.int32),
            put(automaton.edge_inner, torch.int32),
            put(automaton.edge_target.astype(np.int64) * letter_states, torch.int64),
            put(automaton.edge_function.astype(np.int64) * letter_states, torch.int64),
            put(automaton.function.reshape(-1), torch.int64),
            put(automaton.distance, torch.int32),
            letter_states,
            put(slot_id, torch.int64),
            put(spare, torch.bool),
            put(chunk_class, torch.int64),
            int(np.flatnonzero(chunk_class == eos_class)[0]),
        )

    def successors(self, state: Tensor) -> Tensor:
        """The state after one token of each class, from each of the states int64 [R]: int64 [R, C]."""
        labeller, letter = state // self.letter_states, state % self.letter_states
        between = self.edge_outer.shape[0]
        outer = torch.where(labeller < between, labeller, 0)
        inner = torch.where(labeller >= between, labeller - between + 1, 0)
        edge = torch.cat([self.edge_outer[outer], self.edge_inner[inner]], dim=1).long()  # [R, C]
        after = self.function[self.edge_function[edge] + letter[:, None]]  # [R, C]
        return self.edge_target[edge] + after


def _lay_out(token_class: np.ndarray, classes: int, least_width: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """slot_id [M * W], spare [M, W] and chunk_class [M] of `Tables`, with the cheapest W from `least_width` on."""
    narrow = token_class.astype(np.uint16) if classes <= 2**16 else token_class  # numpy sorts 16 bits by radix
    order = np.argsort(narrow, kind="stable")
    size = np.bincount(token_class, minlength=classes)
    widths = [width for width in _WIDTHS if width >= least_width] or [least_width]
    width = min(widths, key=lambda w: (w + _CHUNK_COST) * int((-(-size // w)).sum()))
    chunks = -(-size // width)
    chunk_class = np.repeat(np.arange(classes), chunks)
    first_chunk, first_token = np.cumsum(chunks) - chunks, np.cumsum(size) - size
    offset = (np.arange(len(chunk_class)) - first_chunk[chunk_class])[:, None] * width + np.arange(width)  # [M, W]
    within = np.minimum(offset, size[chunk_class, None] - 1)  # place within the class
    return order[first_token[chunk_class, None] + within].reshape(-1), offset > within, chunk_class
