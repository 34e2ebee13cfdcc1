"""Partition refinement and backward search over transition tables. Knows no automaton type."""

from __future__ import annotations

import numpy as np

from compiler.automata.interning import distinct, spread, stable_order, unique_rows
from compiler.limits import ResourceGuard

_FEW = 64  # states that are split one by one


_MARKED = 8  # states are marked in a table of all states where it has at most this many entries per listed state
_NARROW = 8  # states that are looked at one by one
_UNSETTLED = -1  # no block yet; of a state on the way to its block, itself


def _edges(table: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """The edges of a table [S, K] between two states, each once and loops left out: sources, targets, and S."""
    states = len(table)
    ordered = np.sort(table, axis=1)
    new = ordered != np.arange(states)[:, None]
    new[:, 1:] &= ordered[:, 1:] != ordered[:, :-1]
    source, column = new.nonzero()
    return source, ordered[source, column], states


class _Predecessors:
    """The edges of a graph over states 0..S-1, by where they lead."""

    def __init__(self, source: np.ndarray, target: np.ndarray, states: int) -> None:
        order = stable_order(target)
        self._source = source[order]
        self._first = np.searchsorted(target[order], np.arange(states + 1))

    def of(self, states: np.ndarray) -> np.ndarray:
        """The states with an edge into any of `states`, each once, ascending."""
        found = self._source[spread(self._first[states], self._first[states + 1])[0]]
        if len(found) * _MARKED < len(self._first):
            return distinct(found)
        marked = np.zeros(len(self._first), dtype=bool)
        marked[found] = True
        return marked.nonzero()[0]

    def into(self, state: int) -> list[int]:
        """The states with an edge into a state, perhaps more than once."""
        found: list[int] = self._source[self._first[state] : self._first[state + 1]].tolist()
        return found

    def lists(self) -> tuple[list[int], list[int]]:
        """The sources of all edges, and where those into each state begin: S + 1 of them."""
        return self._source.tolist(), self._first.tolist()


def steps_to(table: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """The fewest transitions from each state into `targets` (bool [S]): int64 [S], S where there is no way."""
    if targets.all():
        return np.zeros(len(table), dtype=np.int64)
    return _steps(_Predecessors(*_edges(table)), targets, None)


def steps_along(
    source: np.ndarray, target: np.ndarray, targets: np.ndarray, guard: ResourceGuard | None = None
) -> np.ndarray:
    """The same along the edges source[i] -> target[i], in any order. Raises LimitExceeded over `compile_s_max`."""
    return _steps(_Predecessors(source, target, len(targets)), targets, guard)


def _steps(predecessors: _Predecessors, targets: np.ndarray, guard: ResourceGuard | None) -> np.ndarray:
    nowhere = len(targets)
    steps = np.where(targets, 0, nowhere)
    frontier, distance = np.flatnonzero(targets), 0
    while frontier.size:
        distance += 1
        if guard:
            guard.check_time()
        if len(frontier) <= _NARROW:
            near = {source for state in frontier.tolist() for source in predecessors.into(state)}
            found = np.array(sorted(near), dtype=np.int64)
        else:
            found = predecessors.of(frontier)
        frontier = found[steps[found] == nowhere]
        steps[frontier] = distance
    return steps


def refine(table: np.ndarray, block: np.ndarray, guard: ResourceGuard | None = None) -> np.ndarray:
    """The coarsest stable partition below `block` (int [S], numbers from 0): int64 [S], equal for equal states.

    States that lead to no cycle but their own loops are settled first, from the ends backwards, once each: most
    automata are that and no more. What is left is refined together with one state for each block that is settled.
    Raises LimitExceeded over `compile_s_max`.
    """
    settled = _Settled(table, block, guard)
    number = settled.blocks()
    rest = np.flatnonzero(number == _UNSETTLED)
    if not rest.size:
        return number
    kept = np.concatenate([np.array(settled.first, dtype=np.int64), rest])
    number[rest] = len(settled.first) + np.arange(len(rest))
    table, block = number[table[kept]], block[kept]
    # equal states are equally far from any one block: a long chain is cut at once
    fewest = np.argmin(np.bincount(block))
    apart = unique_rows(np.column_stack([block, steps_to(table, block == fewest)]))[1]
    return np.asarray(_refined(table, apart, guard)[number])


def _refined(table: np.ndarray, block: np.ndarray, guard: ResourceGuard | None) -> np.ndarray:
    """`refine` for any table.

    A round reads again only the states that lead to one whose number has changed, and when a block splits, its largest
    part keeps the number: a long chain takes many rounds, but small ones.
    """
    states, columns = table.shape
    predecessors = _Predecessors(np.arange(states).repeat(columns), table.reshape(-1), states)
    partition = _Partition(table, block)
    touched = np.arange(len(table))
    while touched.size:
        if guard:
            guard.check_time()
        split = partition.split_few if len(touched) <= _FEW else partition.split
        touched = predecessors.of(split(touched))
    return np.unique(partition.block, return_inverse=True)[1].reshape(-1)


class _Settled:
    """The blocks of the states from which every way ends in a loop of one state; settled once their successors are.

    Two such states are equal when their successors' blocks are. A loop needs care: a state that loops reads as
    `_UNSETTLED` what leads to itself, and may yet be equal to a block that it leads to and that loops more.
    """

    def __init__(self, table: np.ndarray, block: np.ndarray, guard: ResourceGuard | None) -> None:
        self._guard = guard
        states = np.arange(len(table))
        # the number of a state's block, behind them the blocks to begin with: what a row of `_places` reads
        self._number = np.concatenate([np.full(len(table), _UNSETTLED), -2 - block]).astype(np.int32)
        self._places = np.column_stack([table, len(table) + states])
        self._loops = (table == states[:, None]).sum(axis=1).tolist()
        self._predecessors = _Predecessors(*_edges(table))
        self._by_row: dict[bytes, int] = {}  # by the blocks of the successors, written out
        self._by_loop: dict[bytes, int] = {}  # the same with loops as they are
        self.first: list[int] = []  # of each block, its first state

    def blocks(self) -> np.ndarray:
        """int64 [S]: the block of each state, _UNSETTLED where there is none."""
        sources, first = self._predecessors.lists()
        waits_for = np.bincount(np.array(sources, dtype=np.int64), minlength=len(self._places)).tolist()
        ready = [state for state, count in enumerate(waits_for) if not count]
        while ready:
            if self._guard:
                self._guard.check_time()
            if len(ready) > _NARROW:
                self._settle_many(ready)
            else:
                for state in ready:
                    self._number[state] = self._block(state, self._row(state))
            following = []
            for state in ready:
                for source in sources[first[state] : first[state + 1]]:
                    waits_for[source] -= 1
                    if not waits_for[source]:
                        following.append(source)
            ready = following
        return self._number[: len(self._places)].astype(np.int64)

    def _row(self, state: int) -> bytes:
        return bytes(self._number.take(self._places[state]).tobytes())

    def _settle_many(self, states: list[int]) -> None:
        rows = self._number.take(self._places[states])
        width, written = rows.shape[1] * rows.itemsize, rows.tobytes()
        ends = range(width, len(written) + 1, width)
        blocks = [self._block(state, written[end - width : end]) for state, end in zip(states, ends, strict=True)]
        self._number[states] = blocks

    def _block(self, state: int, row: bytes) -> int:
        loops = self._loops[state]
        number = self._by_loop.get(row) if loops else self._by_row.get(row)
        if number is None and loops:
            number = self._led_to(state, row, loops)
        if number is None:
            number = len(self.first)
            self.first.append(state)
            if loops:
                self._by_loop[row] = self._number[state] = number
                row = self._row(state)
            self._by_row[row] = number
        return number

    def _led_to(self, state: int, row: bytes, loops: int) -> int | None:
        """The block, among those that a looping state leads to, that it is equal to."""
        for number in set(np.frombuffer(row, dtype=np.int32).tolist()):
            if number >= 0 and self._loops[self.first[number]] > loops:
                self._number[state] = number
                if self._by_row.get(self._row(state)) == number:
                    return int(number)
        self._number[state] = _UNSETTLED
        return None


class _Partition:
    """The blocks of a refinement, and how many states each has; block numbers are never used twice."""

    def __init__(self, table: np.ndarray, block: np.ndarray) -> None:
        self._table = table
        self.block = block.copy()
        self._count = int(block.max(initial=-1)) + 1
        self._size = np.bincount(block, minlength=self._count + len(table))

    def split(self, touched: np.ndarray) -> np.ndarray:
        """Split the blocks of the `touched` states by where these lead; the states whose number has changed.

        The states of a block that were not touched lead elsewhere than those that were: they are one part of it.
        """
        block = self.block
        first, part = unique_rows(np.column_stack([block[touched], block[self._table[touched]]]))
        owner, weight = block[touched[first]], np.bincount(part)
        by_owner = np.lexsort((-weight, owner))
        leads = np.ones(len(owner), dtype=bool)
        leads[1:] = owner[by_owner][1:] != owner[by_owner][:-1]
        leader = by_owner[leads]  # the largest touched part of each block, blocks ascending
        owners, rest = (
            owner[leader],
            self._size[owner[leader]] - np.add.reduceat(weight[by_owner], np.flatnonzero(leads)),
        )
        keeps = weight[leader] >= rest
        number = owner.copy()
        renamed = np.ones(len(owner), dtype=bool)
        renamed[leader[keeps]] = False
        number[renamed] = self._new_blocks(weight[renamed], owner[renamed])
        changed = [touched[renamed[part]]]
        left = keeps & (rest > 0)
        if left.any():
            untouched = np.zeros(self._count, dtype=bool)
            untouched[owners[left]] = True
            states = untouched[block]
            states[touched] = False
            changed.append(np.flatnonzero(states))
            name = np.zeros(self._count, dtype=np.int64)
            name[owners[left]] = self._new_blocks(rest[left], owners[left])
            block[changed[1]] = name[block[changed[1]]]
        block[touched] = number[part]
        return np.concatenate(changed)

    def _new_blocks(self, sizes: np.ndarray, owners: np.ndarray) -> np.ndarray:
        """Numbers for blocks of these sizes, split off from their owners."""
        numbers = self._count + np.arange(len(sizes))
        self._count += len(sizes)
        self._size[numbers] = sizes
        np.subtract.at(self._size, owners, sizes)
        return numbers

    def split_few(self, touched: np.ndarray) -> np.ndarray:
        """`split` in plain Python, which is quicker for a few states than some twenty calls of numpy."""
        parts: dict[int, dict[tuple[int, ...], list[int]]] = {}
        leads_to = self.block[self._table[touched]].tolist()
        for state, owner, row in zip(touched.tolist(), self.block[touched].tolist(), leads_to, strict=True):
            parts.setdefault(owner, {}).setdefault(tuple(row), []).append(state)
        changed: list[int] = []
        for owner, by_row in parts.items():
            split = sorted(by_row.values(), key=len)
            read = sum(map(len, split))
            rest = int(self._size[owner]) - read
            if rest <= len(split[-1]):
                split.pop()
                if rest:
                    members = set(np.flatnonzero(self.block == owner).tolist())
                    split.append(sorted(members.difference(*by_row.values())))
            for states in split:
                self.block[states] = self._count
                self._size[self._count] = len(states)
                self._size[owner] -= len(states)
                self._count += 1
                changed += states
        return np.array(changed, dtype=np.int64)
