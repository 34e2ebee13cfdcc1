"""Effects of bytes on a transducer state, as numbers. An effect is a pair of a transducer state and a function on the
letter states.

The endless outputs of letters that texts emit are few functions, and the pairs are few, so a byte is one look-up.
"""

from __future__ import annotations

import numpy as np

from compiler.automata import DEAD, ByteTransducer, Dfa, distinct, grown, hash_rows, live_states
from compiler.limits import ResourceGuard

DEAD_EFFECT = 0
IDENTITY = 0  # the function that leaves the letter state as it is
UNSEEN = -1  # in a table that is filled at first use: not computed yet
_BLOCK_CELLS = 1 << 16  # of a table under construction: what fits a core's cache


class LetterMaps:
    """The functions that outputs of letters apply to the letter states, interned. Function 0 is the identity.

    Raises LimitExceeded over `table_bytes_max` or `compile_s_max`.
    """

    def __init__(self, letters: Dfa, outputs: tuple[tuple[int, ...], ...], guard: ResourceGuard) -> None:
        self._guard = guard
        guard.check("table_bytes_max", len(outputs) * letters.states * 4)
        self._moves = np.stack([letters.moves(string) for string in outputs])
        self._live = live_states(letters)
        self._ids: dict[int, list[int]] = {}  # by the hash of a row, which finds it; comparison confirms
        self._count = 0
        self._rows = np.empty((8, letters.states), dtype=np.int32)
        self._alive = np.empty(8, dtype=bool)
        self._intern(np.arange(letters.states, dtype=np.int32)[None, :])
        self._after = np.full((64, len(outputs)), UNSEEN, dtype=np.int32)

    def _intern(self, rows: np.ndarray) -> np.ndarray:
        """The numbers of functions in the rows of a matrix [N, Q]. New functions are added."""
        numbers = np.empty(len(rows), dtype=np.int32)
        # A map is alive where some letter state that it leads to can still accept.
        alive = np.any(self._live.take(rows), axis=1, keepdims=True)
        for position, key in enumerate(hash_rows(rows).tolist()):
            # Maps with one hash are compared; a list holds those that differ.
            alike = self._ids.setdefault(key, [])
            row = rows[position]
            number = next((filled for filled in alike if (self._rows[filled] == row).all()), self._count)
            if number == self._count:
                self._make_room(number + 1)
                alike.append(number)
                self._rows[number], self._alive[number] = row, alive[position, 0]
                self._count += 1
            numbers[position] = number
        return numbers

    def _make_room(self, count: int) -> None:
        self._guard.check("table_bytes_max", count * self._rows[:1].nbytes)
        if count > len(self._rows):
            self._guard.check_time()
            self._rows, self._alive = grown(self._rows, count * 3 // 2), grown(self._alive, count * 3 // 2)

    def after(self, function: np.ndarray, string: np.ndarray) -> np.ndarray:
        """The functions that apply `function`, then the letters of `string`. All are [N], the result int32."""
        result = self._after[function, string]
        unseen = result == UNSEEN
        if unseen.any():
            width = self._after.shape[1]
            fresh = distinct(function[unseen].astype(np.int64) * width + string[unseen])
            block = max(1, _BLOCK_CELLS // max(1, self._rows.shape[1]))
            for at in range(0, len(fresh), block):
                first, then = np.divmod(fresh[at : at + block], width)
                # [n, Q]: the string's map applied to the states that the first map leads to, by one flat index.
                rows = self._moves.reshape(-1).take(self._rows[first] + (then * self._moves.shape[1])[:, None])
                self._after[first, then] = self._intern(rows)
                self._guard.check_time()
            if self._count > len(self._after):
                self._after = grown(self._after, 2 * self._count, UNSEEN)
            result = self._after[function, string]
        return np.asarray(result)

    def alive(self) -> np.ndarray:
        """The functions that leave some letter state alive: bool [F]. Acceptance can be reached from a live state."""
        return self._alive[: self._count]

    def table(self, chosen: np.ndarray) -> np.ndarray:
        """The letter states after each of the chosen functions: int32 [F, Q]."""
        return np.asarray(self._rows[chosen])


class Effects:
    """The pairs (transducer state, function), numbered as they are found. Effect 0 is the dead one, in state DEAD.

    States are the transducer's own and one more, the end of the text. Raises LimitExceeded over `table_bytes_max`.
    """

    def __init__(self, transducer: ByteTransducer, letter_maps: LetterMaps, guard: ResourceGuard) -> None:
        self._transducer = transducer
        self.letter_maps = letter_maps
        self.guard = guard
        self._count = 1
        self.state = np.zeros(256, dtype=np.int32)
        self.function = np.zeros(256, dtype=np.int32)
        # A row is filled when one of its entries is first needed.
        self._after = np.full((256, transducer.next_state.shape[1]), UNSEEN, dtype=np.int32)
        self._after[DEAD_EFFECT] = DEAD_EFFECT
        self._numbers = np.full((8, transducer.states + 1), UNSEEN, dtype=np.int32)  # by function and state

    def __len__(self) -> int:
        return self._count

    def intern(self, state: np.ndarray, function: np.ndarray) -> np.ndarray:
        """The numbers of pairs, in arrays of one shape: int32. What is dead, or leaves no letter state alive, is 0."""
        alive = self.letter_maps.alive()
        if len(alive) > len(self._numbers):
            self.guard.check("table_bytes_max", 2 * len(alive) * self._numbers[:1].nbytes)
            self._numbers = grown(self._numbers, 2 * len(alive), UNSEEN)
        numbers = self._numbers[function, state]
        # A map that leaves no letter state alive is as dead as the transducer's dead state.
        numbers[(state == DEAD) | ~alive[function]] = DEAD_EFFECT
        unseen = numbers == UNSEEN
        if unseen.any():
            width = self._numbers.shape[1]
            # Pairs as integers, so that each new one is numbered once.
            fresh = np.unique(function[unseen].astype(np.int64) * width + state[unseen])
            self._add(*np.divmod(fresh, width))
            numbers[unseen] = self._numbers[function[unseen], state[unseen]]
        return np.asarray(numbers)

    def _add(self, function: np.ndarray, state: np.ndarray) -> None:
        count = self._count + len(state)
        if count > len(self.state):
            # Arrays grow by half, so that the copying costs a constant for each entry, but not beyond all pairs.
            pairs = len(self.letter_maps.alive()) * self._numbers.shape[1]
            capacity = max(count, min(len(self.state) * 3 // 2, pairs))
            self.guard.check("table_bytes_max", capacity * self._after[:1].nbytes)
            self.state, self.function = grown(self.state, capacity), grown(self.function, capacity)
            self._after = grown(self._after, capacity, UNSEEN)
        self.state[self._count : count], self.function[self._count : count] = state, function
        self._numbers[function, state] = np.arange(self._count, count)
        self._count = count

    def after(self, effect: np.ndarray, column: np.ndarray) -> np.ndarray:
        """The effects after one more byte.

        The result is int32, of the shape that `effect` and `column` (the byte's) broadcast to.
        """
        position = effect.astype(np.intp) * self._after.shape[1] + column  # one flat index is quicker than two
        next_effects = self._after.reshape(-1).take(position)
        if next_effects.size and next_effects.min() == UNSEEN:
            self._fill(distinct(np.broadcast_to(effect, next_effects.shape)[next_effects == UNSEEN]))
            next_effects = self._after.reshape(-1).take(position)
        return np.asarray(next_effects)

    def rows(self, effects: np.ndarray) -> np.ndarray:
        """The effects after one more byte of each column: int32 [N, K]."""
        unseen = effects[self._after[effects, 0] == UNSEEN]
        if unseen.size:
            self._fill(distinct(unseen))
        return np.asarray(self._after[effects])

    def _fill(self, effects: np.ndarray) -> None:
        """Compute where every byte leads from these effects.

        Whole rows are computed, because reading them is faster than choosing.
        """
        # Blocks keep the rows under work in a core's cache.
        block = max(1, _BLOCK_CELLS // self._after.shape[1])
        for at in range(0, len(effects), block):
            before = effects[at : at + block]
            state = self.state[before]
            output = self._transducer.output[state]
            function = np.repeat(self.function[before][:, None], output.shape[1], axis=1)
            # An empty output leaves the map as it is: only the others are composed.
            non_identity = output != 0
            if non_identity.any():
                function[non_identity] = self.letter_maps.after(function[non_identity], output[non_identity])
            after = self.intern(self._transducer.next_state[state], function)
            self._after[before] = after
