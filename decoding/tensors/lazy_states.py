"""The states of a pushdown automaton or of a lazy product.

They are numbered on the host when met.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from compiler.lifting import UNREACHABLE
from compiler.products import ProductStates
from compiler.pushdown import DEAD_STATE, Configurations
from decoding.tensors.backend import Array, like
from decoding.tensors.token_tables import TokenTables


class LazyStates:
    """The states of one generation; obeys `TokenStates`. Distances and costs are copied to the device.

    cost_weight     factor on the cost to go
    nats_per_token  what each token of the distance costs; None: costs are those of the states
    """

    distance_max = UNREACHABLE - 1

    def __init__(
        self, states: Configurations | ProductStates, tokens: TokenTables, *, cost_weight: float = 0.0,
        nats_per_token: float | None = 0.0,
    ) -> None:
        self.states, self.tokens, self.start = states, tokens, states.start
        self._cost_weight, self._nats_per_token = cost_weight, nats_per_token

    @property
    def complete(self) -> bool:
        return not self.states.dropped_readings

    def distances(self, state: Array) -> Array:
        return self._array(self.states.distances(_on_host(state)))

    def costs(self, state: Array) -> Array:
        numbers = _on_host(state)
        if self._nats_per_token is None:
            return self._array(self._cost_weight * self.states.costs(numbers))
        return self._array(self._of_distances(self.states.distances(numbers)))

    def successors(self, state: Array) -> LazySuccessors:
        return LazySuccessors(self, _on_host(state))

    def after(self, state: Array, token: Array) -> Array:
        classes = self.states.token_class[_on_host(token)].astype(np.int64)
        return self._array(self.states.successors(_on_host(state), classes))

    def bytes_max(self, rows: int, max_tokens: int) -> int:
        return 2 * self.states.bytes_max(rows, max_tokens)  # a listener to steps follows all rows again

    def class_costs(self, state: NDArray[np.int64], distance: NDArray[np.int32]) -> NDArray[np.float64]:
        """The weighted costs after each class, float64 [R, C].

        distance  int32 [R, C]
        """
        if self._nats_per_token is None:
            return self._cost_weight * self.states.class_costs(state)
        return self._of_distances(distance)

    def _of_distances(self, distance: NDArray[np.int32]) -> NDArray[np.float64]:
        assert self._nats_per_token is not None
        return self._cost_weight * (self._nats_per_token * distance.astype(np.float64))

    def _array(self, array: NDArray[Any]) -> Array:
        return like(self.tokens.token_class, array)


class LazySuccessors:
    """Obeys `Successors`. A state gets its number only when `states` asks for it. `state` is int64 [R]."""

    def __init__(self, states: LazyStates, state: NDArray[np.int64]) -> None:
        self._states, self._state = states, state
        self._distance = states.states.class_distances(state)
        self.distance = like(states.tokens.token_class, self._distance)

    def undecided(self, budget: int) -> Array | None:
        states = self._states.states
        if isinstance(states, Configurations):
            return None
        found = (states.class_bounds(self._state) <= budget) & (self._distance > budget)
        return like(self._states.tokens.token_class, found)

    def costs(self) -> Array:
        return like(self._states.tokens.token_class, self._states.class_costs(self._state, self._distance))

    def states(self, row: Array, token_class: Array) -> Array:
        rows, classes = _on_host(row), np.broadcast_to(_on_host(token_class), row.shape)
        found = np.full(len(rows), DEAD_STATE, dtype=np.int64)
        alive = self._distance[rows, classes] != UNREACHABLE
        found[alive] = self._states.states.successors(self._state[rows[alive]], classes[alive])
        return like(self._states.tokens.token_class, found)


def _on_host(array: Array) -> NDArray[np.int64]:
    return np.asarray(array if isinstance(array, np.ndarray | int) else array.cpu().numpy())
