"""Where bytes lead from a labeller state: pairs of a labeller state and a function on the letter states, numbered.

The endless strings of letters that texts emit are few functions, and the pairs are few, so a byte is one look-up.
"""

from __future__ import annotations

import numpy as np

from compiler.dfa import Dfa, live_states
from compiler.labeller import DEAD, Labeller
from compiler.limits import Meter
from compiler.rows import grown

DEAD_ARRIVAL = 0
IDENTITY = 0  # the function that leaves the letter state as it is
_UNSEEN = -1
_BLOCK_CELLS = 1 << 16  # of a table under construction: what fits a core's cache


class Functions:
    """The functions that strings of letters apply to the letter states, interned. Function 0 is the identity.

    Raises LimitExceeded over `table_bytes_max` or `compile_s_max`.
    """

    def __init__(self, letters: Dfa, strings: tuple[tuple[int, ...], ...], meter: Meter) -> None:
        self._meter = meter
        meter.charge("table_bytes_max", len(strings) * letters.states * 4)
        self._moves = [self._move(letters, string) for string in strings]
        self._live = live_states(letters)
        self._ids: dict[int, list[int]] = {}  # by the hash of a row, which finds it; comparison confirms
        self._rows: list[np.ndarray] = []
        self._alive: list[bool] = []
        self._intern(np.arange(letters.states, dtype=np.int32))
        self._after = np.full((64, len(strings)), _UNSEEN, dtype=np.int32)

    @staticmethod
    def _move(letters: Dfa, string: tuple[int, ...]) -> np.ndarray:
        row = np.arange(letters.states, dtype=np.int32)
        for letter in string:
            row = letters.next_state[row, letters.symbol_class[letter]]
        return row

    def _intern(self, row: np.ndarray) -> int:
        alike = self._ids.setdefault(hash(row.tobytes()), [])
        for number in alike:
            if np.array_equal(self._rows[number], row):
                return number
        self._meter.tick()
        self._meter.charge("table_bytes_max", (len(self._rows) + 1) * row.nbytes)
        alike.append(len(self._rows))
        self._rows.append(row)
        self._alive.append(bool(self._live[row].any()))
        return alike[-1]

    def after(self, function: np.ndarray, string: np.ndarray) -> np.ndarray:
        """The functions that apply `function` [N] and then the letters of `string` [N]: int32 [N]."""
        result = self._after[function, string]
        unseen = result == _UNSEEN
        if unseen.any():
            for first, then in sorted(set(zip(function[unseen].tolist(), string[unseen].tolist(), strict=True))):
                self._after[first, then] = self._intern(self._moves[then][self._rows[first]])
            if len(self._rows) > len(self._after):
                known = len(self._after)
                self._after = grown(self._after, 2 * len(self._rows))
                self._after[known:] = _UNSEEN
            result = self._after[function, string]
        return np.asarray(result)

    def alive(self) -> np.ndarray:
        """bool [F]: the functions that leave some letter state from which acceptance can be reached."""
        return np.array(self._alive)

    def table(self, chosen: np.ndarray) -> np.ndarray:
        """int32 [F, Q]: what each of the chosen functions makes of each letter state."""
        return np.stack([self._rows[number] for number in chosen.tolist()])


class Arrivals:
    """The pairs (labeller state, function), numbered as they are found. Arrival 0 is the dead one, in state DEAD.

    States are the labeller's own and one more, the end of the text. Raises LimitExceeded over `table_bytes_max`.
    """

    def __init__(self, labeller: Labeller, functions: Functions, meter: Meter) -> None:
        self._labeller = labeller
        self._functions = functions
        self._meter = meter
        self._count = 1
        self._unfilled = 0  # arrivals whose rows of `_after` are still to be computed
        self.state = np.zeros(256, dtype=np.int32)
        self.function = np.zeros(256, dtype=np.int32)
        self._after = np.zeros((256, labeller.next_state.shape[1]), dtype=np.int32)  # row 0, the dead one, is right
        self._filled = np.arange(256) == DEAD_ARRIVAL
        self._numbers = np.full((8, labeller.states + 1), _UNSEEN, dtype=np.int32)  # by function and state

    def __len__(self) -> int:
        return self._count

    def intern(self, state: np.ndarray, function: np.ndarray) -> np.ndarray:
        """The numbers of pairs, in arrays of one shape: int32. What is dead, or leaves no letter state alive, is 0."""
        alive = self._functions.alive()
        if len(alive) > len(self._numbers):
            self._meter.charge("table_bytes_max", 2 * len(alive) * self._numbers[:1].nbytes)
            known = len(self._numbers)
            self._numbers = grown(self._numbers, 2 * len(alive))
            self._numbers[known:] = _UNSEEN
        numbers = self._numbers[function, state]
        numbers[(state == DEAD) | ~alive[function]] = DEAD_ARRIVAL
        unseen = numbers == _UNSEEN
        if unseen.any():
            width = self._numbers.shape[1]
            fresh = np.unique(function[unseen].astype(np.int64) * width + state[unseen])
            self._add(*np.divmod(fresh, width))
            numbers[unseen] = self._numbers[function[unseen], state[unseen]]
        return np.asarray(numbers)

    def _add(self, function: np.ndarray, state: np.ndarray) -> None:
        count = self._count + len(state)
        if count > len(self.state):
            capacity = max(count, len(self.state) * 3 // 2)
            self._meter.charge("table_bytes_max", capacity * self._after[:1].nbytes)
            self.state, self.function = grown(self.state, capacity), grown(self.function, capacity)
            self._after, self._filled = grown(self._after, capacity), grown(self._filled, capacity)
            self._filled[self._count :] = False
        self.state[self._count : count], self.function[self._count : count] = state, function
        self._numbers[function, state] = np.arange(self._count, count)
        self._count = count
        self._unfilled += len(state)

    def after(self, arrival: np.ndarray, column: np.ndarray) -> np.ndarray:
        """The arrivals one byte further: int32, the shape that `arrival` and the byte's `column` broadcast to."""
        if self._unfilled:
            wanted = np.zeros(self._count, dtype=bool)
            wanted[arrival] = True
            wanted &= ~self._filled[: self._count]
            self._fill(np.flatnonzero(wanted))
        place = arrival.astype(np.intp) * self._after.shape[1] + column  # one flat index is quicker than two
        return np.asarray(self._after.reshape(-1)[place])

    def _fill(self, arrivals: np.ndarray) -> None:
        """Where every byte leads from these arrivals: whole rows, for reading them is quicker than choosing."""
        block = max(1, _BLOCK_CELLS // self._after.shape[1])
        for at in range(0, len(arrivals), block):
            before = arrivals[at : at + block]
            state = self.state[before]
            emission = self._labeller.emission[state]
            function = np.repeat(self.function[before][:, None], emission.shape[1], axis=1)
            loud = emission != 0
            if loud.any():
                function[loud] = self._functions.after(function[loud], emission[loud])
            after = self.intern(self._labeller.next_state[state], function)
            self._after[before] = after
            self._filled[before] = True
            self._unfilled -= len(before)
