"""The interface of searches to the states of any automaton."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from decoding.tensors.backend import Array
from decoding.tensors.token_tables import TokenTables


class Successors(Protocol):
    """The states after one token of each class from R states. C token classes.

    distance  int [R, C]  fewest tokens from there to acceptance, EOS included
    """

    @property
    def distance(self) -> Array: ...

    def undecided(self, budget: int) -> Array | None:
        """The classes that may fit the budget though their distances do not.

        They are bool [R, C]; None where distances are exact.
        """

    def costs(self) -> Array:
        """The weighted cost to go in nats: float64 [R, C]. Those of dead states mean nothing."""

    def states(self, row: Array, token_class: Array) -> Array:
        """The state after a token of a class, for each pair.

        The states are int64 [N]; rows are numbered from 0.
        """


class TokenStates(Protocol):
    """The states that one generation meets. State 0 is dead.

    tokens        the ids of the vocabulary; its arrays are of the library of all others
    start         the state before the first token
    distance_max  no finite distance is larger
    complete      whether no satisfying text was lost so far: not all readings of an ambiguous grammar are followed
    """

    @property
    def tokens(self) -> TokenTables: ...

    @property
    def start(self) -> int: ...

    @property
    def distance_max(self) -> int: ...

    @property
    def complete(self) -> bool: ...

    def distances(self, state: Array) -> Array:
        """Fewest tokens to acceptance, EOS included: int [R]."""

    def costs(self, state: Array) -> Array:
        """The weighted cost to go in nats: float64 [R]."""

    def successors(self, state: Array) -> Successors:
        """What each token class leads to. `state` is int64 [R]."""

    def after(self, state: Array, token: Array) -> Array:
        """The state after one token from each of the states: int64 [N]. `state` and `token` are int64 [N]."""

    def bytes_max(self, rows: int, max_tokens: int) -> int:
        """The most bytes of the states of rows with this many tokens."""


class HostStates(Protocol):
    """States on the host, one at a time. `TokenAutomaton`, `Configurations` and
    `ProductStates` obey it.

    token_class  int32 [V]  the class of each id
    """

    @property
    def token_class(self) -> NDArray[np.int32]: ...

    @property
    def classes(self) -> int: ...

    @property
    def states(self) -> int:
        """How many states have numbers so far."""

    @property
    def eos_ids(self) -> tuple[int, ...]: ...

    def distance_of(self, state: int) -> int:
        """Fewest tokens to acceptance, EOS included."""

    def distances(self, states: NDArray[np.int64]) -> NDArray[np.int32]:
        """The same of several states: [R]."""

    def expand(self, state: int) -> tuple[NDArray[np.int32], Callable[[int], int]]:
        """What one token of each class leads to.

        Returns the distances there, [C], and a function from classes to states.
        """

    def live_classes(self, state: int) -> tuple[NDArray[np.bool_], Callable[[int], int]]:
        """The token classes that some text may continue with.

        They are bool [C], beside a function from them to states, whose distances need not be known.
        """

    def advance(self, state: int, token: int) -> int:
        """The state after one token id."""

    def control_of(self, state: int) -> int:
        """What is shown of a state. Of a pushdown automaton it is the least control state."""
