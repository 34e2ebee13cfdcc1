"""The states of an explicit automaton, in tables on the device."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from compiler.lifting import DEAD_EDGE, UNREACHABLE, TokenAutomaton
from decoding.tensors.backend import Array, arange, library, take
from decoding.tensors.token_tables import TokenTables, in_numpy


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ExplicitStates:
    """A TokenAutomaton on the device; obeys `TokenStates`. C classes, S states; the rest as in `TokenAutomaton`.

    edge_boundary  int   [D, C0]
    dense_row      int   [B]
    sparse_first   int64 [B+1]
    sparse_class   int64 [N+1]      padded with class 0
    sparse_edge    int   [N+1]      padded with the dead edge
    sparse_offset  int64 [W]        0 .. W - 1: a state has at most W entries
    edge_midchar   int   [L-B+1, C1]
    edge_target    int64 [P]        transducer state an edge leads to, times Q
    edge_function  int64 [P]        row of `function` an edge applies, times Q
    function       int64 [F * Q]    letter state after it
    distance       int32 [S]        fewest tokens to acceptance, UNREACHABLE when dead
    cost           float64 [S]      weighted cost to go; None: no search asks for it
    letter_states  Q
    """

    tokens: TokenTables
    edge_boundary: Array
    dense_row: Array
    sparse_first: Array
    sparse_class: Array
    sparse_edge: Array
    sparse_offset: Array
    edge_midchar: Array
    edge_target: Array
    edge_function: Array
    function: Array
    distance: Array
    letter_states: int
    start: int
    distance_max: int
    cost: Array = None

    @property
    def complete(self) -> bool:
        return True

    @classmethod
    def from_automaton(cls, automaton: TokenAutomaton, device: torch.device) -> ExplicitStates:
        """Copy an automaton's arrays to the device."""
        letter_states = automaton.letter_states
        finite = automaton.distance[automaton.distance != UNREACHABLE]

        def to_device(array: np.ndarray, dtype: torch.dtype = torch.int64) -> Tensor:
            return torch.tensor(array, dtype=dtype, device=device)

        return cls(
            tokens=TokenTables.of(
                automaton.token_class, automaton.classes, automaton.eos_ids, device,
                midchar_class=automaton.edge_boundary.shape[1],
            ),
            edge_boundary=to_device(automaton.edge_boundary, torch.int32),
            dense_row=to_device(automaton.dense_row, torch.int32),
            sparse_first=to_device(automaton.sparse_first),
            sparse_class=to_device(np.append(automaton.sparse_class, 0)),
            sparse_edge=to_device(np.append(automaton.sparse_edge, DEAD_EDGE), torch.int32),
            sparse_offset=to_device(np.arange(np.diff(automaton.sparse_first).max())),
            edge_midchar=to_device(automaton.edge_midchar, torch.int32),
            edge_target=to_device(automaton.edge_target.astype(np.int64) * letter_states),
            edge_function=to_device(automaton.edge_function.astype(np.int64) * letter_states),
            function=to_device(automaton.function.reshape(-1)),
            distance=to_device(automaton.distance, torch.int32),
            letter_states=letter_states,
            start=automaton.start,
            distance_max=int(finite.max(initial=0)),
        )

    def for_search(self) -> ExplicitStates:
        """The same states for `search`. On the CPU they are in numpy's arrays, in the same memory."""
        if self.tokens.device.type != "cpu":
            return self
        states: ExplicitStates = replace(in_numpy(self), tokens=self.tokens.for_search())
        return states

    def distances(self, state: Array) -> Array:
        return take(self.distance, state)

    def costs(self, state: Array) -> Array:
        return take(self.cost, state)

    def successors(self, state: Array) -> ExplicitSuccessors:
        return ExplicitSuccessors(self, self._successor(state))

    def _successor(self, state: Array) -> Array:
        """The state after one token of each class: int64 [R, C]. `state` is int64 [R]."""
        # A state is transducer state * Q + letter state. A transducer state lies between characters or inside one; of
        # the other table it reads row 0, whose edges all lead to the dead state.
        xp = library(state)
        transducer_state, letter = state // self.letter_states, state % self.letter_states
        boundary_states = len(self.dense_row)
        boundary = xp.where(transducer_state < boundary_states, transducer_state, 0)
        midchar = xp.where(transducer_state >= boundary_states, transducer_state - boundary_states + 1, 0)
        edge = xp.concatenate([self.edge_boundary[self.dense_row[boundary]], self.edge_midchar[midchar]], axis=1)
        if len(self.sparse_offset):
            # Rows are padded to one width, so that no shape depends on the states. Class 0 is dead in each of them.
            entry = self.sparse_first[boundary][:, None] + self.sparse_offset
            entry = xp.where(entry < self.sparse_first[boundary + 1][:, None], entry, len(self.sparse_class) - 1)
            edge[arange(state, len(state))[:, None], self.sparse_class[entry]] = self.sparse_edge[entry]
        # An edge moves the transducer to its target and maps the letter state by its function.
        read = take(self.edge_function, edge) + letter[:, None]  # [R, C]
        return take(self.function, read) + take(self.edge_target, edge)

    def after(self, state: Array, token: Array) -> Array:
        successor = self._successor(state)
        return take(successor, arange(state, len(state)) * successor.shape[1] + take(self.tokens.token_class, token))

    def bytes_max(self, rows: int, max_tokens: int) -> int:
        return 0  # the tables are there before the first token


class ExplicitSuccessors:
    """Obeys `Successors`. `successor` is int64 [R, C]."""

    __slots__ = ("_states", "_successor", "distance")

    def __init__(self, states: ExplicitStates, successor: Array) -> None:
        self._states, self._successor = states, successor
        self.distance = take(states.distance, successor)

    def undecided(self, budget: int) -> Array | None:
        return None

    def costs(self) -> Array:
        return take(self._states.cost, self._successor)

    def states(self, row: Array, token_class: Array) -> Array:
        return take(self._successor, row * self._successor.shape[1] + token_class)
