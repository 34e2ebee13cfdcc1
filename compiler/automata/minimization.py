"""Minimization by partition refinement, and backward search, over transition tables. Knows no automaton type.

Two algorithms share the work. The states from which every path ends in a self-loop are minimized in one backward pass,
as Revuz minimizes acyclic automata (1992), but with hash tables in place of a bucket sort, and with self-loops allowed.
The other states are refined in rounds as Moore does (1956): a round splits the blocks whose states lead to different
blocks. From Hopcroft (1971) it takes that the largest part of a split block keeps its number, so that only the smaller
parts cause work in the next round.
"""

from __future__ import annotations

import numpy as np

from compiler.automata.interning import distinct, spread, stable_order, unique_rows
from compiler.limits import ResourceGuard

UNREACHABLE = int(np.iinfo(np.int32).max)  # the number of steps where no path leads: compared, never computed with
_NARROW = 8  # states that are looked at one by one
_UNSETTLED = -1  # in place of the block of a state that has none yet
_ENTRY = np.dtype("<i4")  # of a state's row, which is hashed as bytes
_UNSETTLED_BYTES = np.array(_UNSETTLED, dtype=_ENTRY).tobytes()


def _edges(table: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """The edges of a table [S, K] between two states. Each occurs once, without loops: sources, targets, and S."""
    states = len(table)
    # Sorting each row puts equal targets side by side, where repeats are seen.
    ordered = np.sort(table, axis=1)
    new = ordered != np.arange(states)[:, None]
    new[:, 1:] &= ordered[:, 1:] != ordered[:, :-1]
    source, column = new.nonzero()
    return source, ordered[source, column], states


class _Predecessors:
    """The edges of a graph over states 0..S-1, by where they lead."""

    def __init__(self, source: np.ndarray, target: np.ndarray, states: int) -> None:
        # Compressed sparse rows: the edges sorted by target, and where those into each state begin.
        order = stable_order(target)
        self._source = source[order]
        self._first = np.searchsorted(target[order], np.arange(states + 1))

    def of(self, states: np.ndarray) -> np.ndarray:
        """The states with an edge into any of `states`, each once, ascending."""
        near_states = self._source[spread(self._first[states], self._first[states + 1])[0]]
        return distinct(near_states, len(self._first))

    def into(self, state: int) -> list[int]:
        """The states with an edge into a state, perhaps more than once."""
        near_states: list[int] = self._source[self._first[state] : self._first[state + 1]].tolist()
        return near_states

    def lists(self) -> tuple[list[int], list[int]]:
        """The sources of all edges, and where those into each state begin: S + 1 of them."""
        return self._source.tolist(), self._first.tolist()


def steps_to(table: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """The fewest transitions from each state into `targets` (bool [S]): int64 [S].

    UNREACHABLE where no path leads there.
    """
    if targets.all():
        return np.zeros(len(table), dtype=np.int64)
    return _steps(_Predecessors(*_edges(table)), targets, None)


def steps_along(
    source: np.ndarray, target: np.ndarray, targets: np.ndarray, guard: ResourceGuard | None = None
) -> np.ndarray:
    """The same along the edges source[i] -> target[i], in any order. Raises LimitExceeded over `compile_s_max`."""
    return _steps(_Predecessors(source, target, len(targets)), targets, guard)


def _steps(predecessors: _Predecessors, targets: np.ndarray, guard: ResourceGuard | None) -> np.ndarray:
    # multi-source reverse breadth-first search: one round for each number of steps
    steps = np.where(targets, 0, UNREACHABLE)
    frontier, distance = np.flatnonzero(targets), 0
    while frontier.size:
        distance += 1
        if guard:
            guard.check_time()
        # On long chains a level has one state, and numpy's calls would cost more than the work.
        if len(frontier) <= _NARROW:
            near = {source for state in frontier.tolist() for source in predecessors.into(state)}
            near_states = np.array(sorted(near), dtype=np.int64)
        else:
            near_states = predecessors.of(frontier)
        frontier = near_states[steps[near_states] == UNREACHABLE]
        steps[frontier] = distance
    return steps


def refine(table: np.ndarray, block: np.ndarray, guard: ResourceGuard | None = None) -> np.ndarray:
    """The coarsest stable partition below `block`.

    `block` is int [S], numbers from 0; the result is int64 [S], equal for equal states.

    The states that lead to no cycle but self-loops are settled first, from the ends backwards, once each: most automata
    consist of them. The other states are refined together with one representative of each settled block.
    Raises LimitExceeded over `compile_s_max`.

    >>> refine(np.array([[1], [2], [2]]), np.array([0, 1, 1])).tolist()  # states 1 and 2 have equal continuations
    [1, 0, 0]
    """
    acyclic = _AcyclicMinimizer(table, block, guard)
    number = acyclic.blocks()
    unsettled = np.flatnonzero(number == _UNSETTLED)
    if not unsettled.size:
        return number
    # the quotient by the settled blocks: their representatives first, then each unsettled state by itself
    members = np.concatenate([np.array(acyclic.first, dtype=np.int64), unsettled])
    number[unsettled] = len(acyclic.first) + np.arange(len(unsettled))
    table, block = number[table[members]], block[members]
    # equal states are equally far from any one block: a long chain is cut at once
    smallest = np.argmin(np.bincount(block))
    by_distance = unique_rows(np.column_stack([block, steps_to(table, block == smallest)]))[1]
    return np.asarray(_refine_in_rounds(table, by_distance, guard)[number])


def _refine_in_rounds(table: np.ndarray, block: np.ndarray, guard: ResourceGuard | None) -> np.ndarray:
    """`refine` for any table.

    A round reads only the states that lead to one whose block number has changed in the round before. A long chain
    takes many rounds, but small ones.
    """
    states, columns = table.shape
    predecessors = _Predecessors(np.arange(states).repeat(columns), table.reshape(-1), states)
    partition = _Partition(table, block)
    touched = np.arange(len(table))
    while touched.size:
        if guard:
            guard.check_time()
        touched = predecessors.of(partition.split(touched))
    return np.unique(partition.block, return_inverse=True)[1].reshape(-1)


def _under_assumption(row: bytes, number: int) -> bytes:
    """The row of a state with self-loops under an assumption.

    The state itself is assumed to belong to the block `number`.
    """
    # Little-endian numbers >= 0 never end in ff, so a run of four such bytes is one entry: the replacement is aligned.
    return row.replace(_UNSETTLED_BYTES, number.to_bytes(4, "little"))


class _AcyclicMinimizer:
    """Numbers the blocks of states whose paths all end in self-loops. Successors are numbered before predecessors.

    A state's row is the list of its successors' blocks, and of the block it starts in. Two states are equal when their
    rows are. A self-loop reads as `_UNSETTLED` in the row, since the state has no block yet; a state with self-loops
    may also be equal to the block of one of its successors, which `_matching_successor_block` tests.
    """

    def __init__(self, table: np.ndarray, block: np.ndarray, guard: ResourceGuard | None) -> None:
        self._guard = guard
        states = np.arange(len(table))
        # the block of each state, and behind them the initial blocks as numbers that no block has: -2, -3, ...
        self._number = np.concatenate([np.full(len(table), _UNSETTLED), -2 - block]).astype(_ENTRY)
        # [S, K + 1]: the entries of `_number` that make up a state's row
        self._places = np.column_stack([table, len(table) + states])
        self._self_loops = (table == states[:, None]).sum(axis=1).tolist()
        self._predecessors = _Predecessors(*_edges(table))
        self._block_by_row: dict[bytes, int] = {}  # block by row, self-loops replaced by the block itself
        self._block_by_loop_row: dict[bytes, int] = {}  # block by row of a state with self-loops, as it is read
        self.first: list[int] = []  # of each block, its first state

    def blocks(self) -> np.ndarray:
        """int64 [S]: the block of each state, _UNSETTLED where there is none."""
        sources, first = self._predecessors.lists()
        # a state is ready when all its successors but itself have a block
        waits_for = np.bincount(np.array(sources, dtype=np.int64), minlength=len(self._places)).tolist()
        ready = [state for state, count in enumerate(waits_for) if not count]
        while ready:
            if self._guard:
                self._guard.check_time()
            following = []
            for state in ready:
                row = self._number.take(self._places[state]).tobytes()
                self._number[state] = self._block(state, row)
                for source in sources[first[state] : first[state + 1]]:
                    waits_for[source] -= 1
                    if not waits_for[source]:
                        following.append(source)
            ready = following
        return self._number[: len(self._places)].astype(np.int64)

    def _block(self, state: int, row: bytes) -> int:
        """The block of a state with this row. A new block where no block has the row."""
        loops = self._self_loops[state]
        if loops:
            number = self._block_by_loop_row.get(row)
            if number is None:
                number = self._matching_successor_block(row, loops)
        else:
            number = self._block_by_row.get(row)
        if number is None:
            number = len(self.first)
            self.first.append(state)
            if loops:
                # Kept under both rows: as it was read, for states with the same self-loops; and with the loops
                # replaced, for states that lead to this block where it loops.
                self._block_by_loop_row[row] = number
                row = _under_assumption(row, number)
            self._block_by_row[row] = number
        return number

    def _matching_successor_block(self, row: bytes, loops: int) -> int | None:
        """The successor block that a state with `loops` self-loops is equal to. None where there is none."""
        for number in set(np.frombuffer(row, dtype=_ENTRY).tolist()):
            # the block's own state loops where this one loops and where this one leads to it: more often
            loops_more = number >= 0 and self._self_loops[self.first[number]] > loops
            if loops_more and self._block_by_row.get(_under_assumption(row, number)) == number:
                return int(number)
        return None


class _Partition:
    """The blocks of a refinement, and each block's number of states. Block numbers are never used twice.

    A split keeps two invariants. `block[s]` is the block of state s, and `_size[b]` the number of states with
    block[s] == b. States whose `block` changes in a split are returned, and no others: only their predecessors can
    have come apart.
    """

    def __init__(self, table: np.ndarray, block: np.ndarray) -> None:
        self._table = table
        self.block = block.copy()
        self._count = int(block.max(initial=-1)) + 1
        self._size = np.bincount(block, minlength=self._count + len(table))

    def split(self, touched: np.ndarray) -> np.ndarray:
        """Split the blocks of the `touched` states by their successors' blocks.

        Returns the states whose number has changed.

        The states of a block that were not touched lead elsewhere than those that were: they are one part of it.
        """
        block = self.block
        # the parts: touched states of one block (the owner) that lead to the same blocks
        first, part = unique_rows(np.column_stack([block[touched], block[self._table[touched]]]))
        owner, weight = block[touched[first]], np.bincount(part)
        by_owner = np.lexsort((-weight, owner))  # the largest part of each owner comes first
        is_leader = np.ones(len(owner), dtype=bool)
        is_leader[1:] = owner[by_owner][1:] != owner[by_owner][:-1]
        leader = by_owner[is_leader]  # the largest touched part of each block, blocks ascending
        owners = owner[leader]
        untouched = self._size[owners] - np.add.reduceat(weight[by_owner], np.flatnonzero(is_leader))
        # the owner's number stays with the larger of its largest touched part and its untouched states
        keeps = weight[leader] >= untouched
        number = owner.copy()
        renamed = np.ones(len(owner), dtype=bool)
        renamed[leader[keeps]] = False
        number[renamed] = self._new_blocks(weight[renamed], owner[renamed])
        changed = [touched[renamed[part]]]
        moved = keeps & (untouched > 0)
        if moved.any():
            changed.append(self._rename_untouched(touched, owners[moved], untouched[moved]))
        block[touched] = number[part]
        return np.concatenate(changed)

    def _rename_untouched(self, touched: np.ndarray, owners: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        """Give the untouched states of `owners` blocks of their own.

        `sizes` counts them for each owner. Returns these states.
        """
        is_owner = np.zeros(self._count, dtype=bool)
        is_owner[owners] = True
        in_owner = is_owner[self.block]
        in_owner[touched] = False
        states = np.flatnonzero(in_owner)
        name = np.zeros(self._count, dtype=np.int64)
        name[owners] = self._new_blocks(sizes, owners)
        self.block[states] = name[self.block[states]]
        return states

    def _new_blocks(self, sizes: np.ndarray, owners: np.ndarray) -> np.ndarray:
        """Numbers for blocks of these sizes, split off from their owners."""
        numbers = self._count + np.arange(len(sizes))
        self._count += len(sizes)
        self._size[numbers] = sizes
        np.subtract.at(self._size, owners, sizes)
        return numbers
