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
_NUMBER_BYTES = 4  # of an effect


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
    """The pairs (transducer state, function), as numbers. Effect 0 is the dead one: state DEAD and the identity.

    States are the transducer's own and one more, the end of the text. The low bits of a number are the state, the
    others the function.
    """

    def __init__(self, transducer: ByteTransducer, letter_maps: LetterMaps, guard: ResourceGuard) -> None:
        self.letter_maps, self.guard = letter_maps, guard
        self._columns = transducer.next_state.shape[1]
        # By state and column: the next state, negative where letters are written.
        writes, move = transducer.output != 0, transducer.next_state
        self._writes = bool(writes.any())
        if self._writes:
            move = np.where(writes, -move, move)
        self._move, self._output = move.reshape(-1), transducer.output.reshape(-1)
        self._bits = transducer.states.bit_length()
        self._state_mask = np.int32((1 << self._bits) - 1)

    def bound(self) -> int:
        """All numbers are less than this. Raises LimitExceeded over `table_bytes_max`, at four bytes for each."""
        bound = len(self.letter_maps.alive()) << self._bits
        self.guard.check("table_bytes_max", _NUMBER_BYTES * bound)
        assert bound <= 1 << 31, "more effects than an int32 can number"
        return bound

    def of(self, state: np.ndarray, function: np.ndarray) -> np.ndarray:
        """The numbers of pairs, in arrays of one shape: int32. What is dead, or leaves no letter state alive, is 0.

        Raises LimitExceeded over `table_bytes_max`.
        """
        self.bound()
        # A map that leaves no letter state alive is as dead as the transducer's dead state.
        dead = (state == DEAD) | ~self.letter_maps.alive()[function]
        return np.where(dead, DEAD_EFFECT, function << self._bits | state).astype(np.int32)

    def state(self, effects: np.ndarray) -> np.ndarray:
        """Their states, int of the same shape."""
        return np.asarray(effects & self._state_mask)

    def function(self, effects: np.ndarray) -> np.ndarray:
        """Their functions, int of the same shape."""
        return np.asarray(effects >> self._bits)

    def after(self, effect: np.ndarray, column: np.ndarray) -> np.ndarray:
        """The effects after one more byte.

        The result is int32, of the shape that `effect` and `column` (the byte's) broadcast to.
        """
        before = effect & self._state_mask if self._writes else effect
        position = before.astype(np.intp) * self._columns + column  # one flat index is quicker than two
        move = self._move.take(position)
        if not self._writes:  # an effect is a state
            return np.asarray(move)
        after = (effect ^ before) | move
        after[move == DEAD] = DEAD_EFFECT
        # An empty output leaves the map as it is: only the others are composed.
        writing = np.flatnonzero(move < 0)
        if writing.size:
            function = np.broadcast_to(effect, move.shape).reshape(-1)[writing] >> self._bits
            output = self._output.take(position.reshape(-1)[writing])
            function = self.letter_maps.after(function, output)
            after.reshape(-1)[writing] = self.of(-move.reshape(-1)[writing], function)
        return np.asarray(after)

    def rows(self, effects: np.ndarray) -> np.ndarray:
        """The effects after one more byte of each column: int32 [N, K]."""
        return self.after(effects[:, None], np.arange(self._columns))
