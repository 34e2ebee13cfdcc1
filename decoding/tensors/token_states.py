"""The states of both kinds of automata over tokens, behind one interface."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from compiler.lifting import TokenAutomaton
from compiler.pushdown import Configurations, PushdownAutomaton
from decoding.tensors.automaton_tables import Tables


class TokenStates(Protocol):
    """The states of rows in one generation. R rows, C token classes; state 0 is dead.

    start  the state before the first token
    """

    start: int

    def distances(self, state: Tensor) -> Tensor:
        """Fewest tokens to acceptance, EOS included: int [R]."""

    def class_distances(self, state: Tensor) -> Tensor:
        """The distance after one token of each class: int [R, C]."""

    def after(self, state: Tensor, token: Tensor) -> Tensor:
        """The state after one token: int64 [R]."""


def begin_states(automaton: TokenAutomaton | PushdownAutomaton, device: torch.device) -> TokenStates:
    """The states of an automaton for one generation on a device."""
    if isinstance(automaton, PushdownAutomaton):
        return _PushdownStates(automaton, device)
    return _ExplicitStates(automaton, device)


class _ExplicitStates:
    """All states are in tables on the device."""

    def __init__(self, automaton: TokenAutomaton, device: torch.device) -> None:
        self._tables = Tables.from_automaton(automaton, device)
        self.start = automaton.start

    def distances(self, state: Tensor) -> Tensor:
        return torch.as_tensor(self._tables.distance[state])

    def class_distances(self, state: Tensor) -> Tensor:
        return torch.as_tensor(self._tables.distance[self._tables.successors(state)])

    def after(self, state: Tensor, token: Tensor) -> Tensor:
        return torch.as_tensor(self._tables.after(state, token))


class _PushdownStates:
    """States are numbered on the host when they are met. Distances are copied to the device."""

    def __init__(self, automaton: PushdownAutomaton, device: torch.device) -> None:
        self._configurations = Configurations(automaton)
        self._token_class = automaton.token_class
        self._device = device
        self.start = self._configurations.start

    def distances(self, state: Tensor) -> Tensor:
        values = [self._configurations.distance(number) for number in state.tolist()]
        return torch.tensor(values, dtype=torch.int64, device=self._device)

    def class_distances(self, state: Tensor) -> Tensor:
        return torch.from_numpy(self._configurations.class_distances(state.tolist())).to(self._device)

    def after(self, state: Tensor, token: Tensor) -> Tensor:
        pairs = zip(state.tolist(), self._token_class[token.cpu().numpy()].tolist(), strict=True)
        numbers = [self._configurations.successor(number, token_class) for number, token_class in pairs]
        return torch.tensor(numbers, dtype=torch.int64, device=self._device)
