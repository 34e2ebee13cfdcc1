"""Lifts a pushdown machine from bytes to the tokens of a vocabulary."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from compiler.automata import distinct, ranks, stable_order, unique_rows
from compiler.lifting import SparseRows, SparseTable, SparseTokenClasses, plain_states, sparse_token_classes
from compiler.limits import ResourceGuard
from compiler.pushdown.arrivals import BASE, Arrivals, Exit, Item, Landing
from compiler.pushdown.edge_rows import EdgeRows, beside, edge_rows
from compiler.pushdown.machine import END, NO_ACTION, NOWHERE, PushdownMachine
from compiler.pushdown.near_states import UNLIKE_DEAD, near_states, without_likeness
from compiler.pushdown.tables import NO_LANDING, PushdownTables
from compiler.vocab import PLAIN_CHARACTERS, Trie, Vocabulary

_CONTINUATION = slice(0x80, 0xC0)
_NOTHING = 0  # the arrival without items, in place of UNLIKE_DEAD
_MEANINGLESS = 0  # the symbol of a landing that pushed none


def lift_machine(machine: PushdownMachine, vocabulary: Vocabulary, guard: ResourceGuard) -> PushdownTables:
    """What the tokens of a vocabulary do in each control state.

    Tokens that act alike in every state share a class. Pendings that act alike over every stack are one.
    Raises LimitExceeded over `table_bytes_max` or `compile_s_max`.
    """
    arrivals = Arrivals(machine, guard)
    classes, base = _edges(machine, arrivals, vocabulary, guard)
    effects = np.concatenate([table.effect for table in classes.tables])
    used = distinct(effects[effects != UNLIKE_DEAD], len(arrivals))
    pendings = _Pendings(arrivals, machine.start_code, guard)
    # Most of them are a state on the same stack, and need no items.
    plain, others = used[(used > _NOTHING) & (used <= machine.states)], used[used > machine.states]
    kept = [arrivals.items(number) for number in others.tolist()]
    pendings.add(item for items in kept for item in items)
    entries = pendings.entries()
    items = _Items(machine.states, plain - 1, pendings.merged(entries))
    count = 1 + max(items.pending.values())
    guard.check("table_bytes_max", 4 * len(machine.resume) * count)  # `PushdownAutomaton.entry_at`
    number = np.zeros(len(arrivals) + 1, dtype=np.int32)
    number[plain] = 1 + np.arange(len(plain))
    number[others] = [items.arrival(each) for each in kept]
    number[UNLIKE_DEAD] = UNLIKE_DEAD
    del arrivals, pendings  # they hold a table of all states
    classes.tables = [table._replace(effect=number[table.effect]) for table in classes.tables]
    # Arrivals that differed only in pendings may be equal now, and classes of tokens with them.
    if len(distinct(number[used])) < len(used):
        classes.merge(base, guard)
    edges = beside([_rows_of(table, machine.states, guard) for table in classes.tables], classes.columns)
    merged_entries = {
        (symbol, items.pending[exit_]): items.arrival(reached)
        for exit_, behind in entries.items()
        for symbol, reached in behind.items()
        if reached
    }
    entry = _int32([value for key in sorted(merged_entries) for value in (*key, merged_entries[key])]).reshape(-1, 3)
    return PushdownTables(
        token_class=classes.of_id.astype(np.int32), **edges.arrays(), base=base.astype(np.int32),
        entry_symbol=entry[:, 0], entry_pending=entry[:, 1], entry_arrival=entry[:, 2],
        symbols=len(machine.resume), pendings=count, start=machine.start,
        eos_ids=vocabulary.eos_ids, **items.arrays(),
    )  # fmt: skip


def _edges(
    machine: PushdownMachine, arrivals: Arrivals, vocabulary: Vocabulary, guard: ResourceGuard
) -> tuple[_SharedClasses, np.ndarray]:
    """The token classes with their arrivals by state, and all bases.

    Class 0 is dead. States with another base than themselves have entries as in `NearStates`.
    """
    begins = ((machine.action != NO_ACTION) | machine.pop) & _resting(machine)[:, None]

    def reads(columns: np.ndarray) -> np.ndarray:
        return np.asarray(begins[:, distinct(columns)].any(axis=1))

    inside, ends = reads(machine.byte_class[_CONTINUATION]), reads(machine.byte_class[END:])
    between = reads(np.delete(machine.byte_class[:END], _CONTINUATION))
    plain, counts = _plain(machine, between)
    # The plain characters of a token act alike there, so that tokens share classes by their outlines.
    outlines = vocabulary.counted_outlines if counts else vocabulary.outlines
    classes = _SharedClasses(len(outlines.trie.ids) + 1)

    def walk(alive: np.ndarray, trie: Trie) -> None:
        states = np.flatnonzero(alive).astype(np.int32)
        if len(states):
            found = sparse_token_classes(arrivals, 1 + states, machine.byte_class[:END], trie, guard=guard)
            classes.split(found._replace(effects=found.effects._replace(place=states[found.effects.place])))

    walk(plain, outlines.trie)
    classes.spread(outlines.of_id)
    # EOS spells END, and has a class of its own.
    states = np.flatnonzero(ends).astype(np.int32)
    table = SparseTable(np.array([0, 0, len(states)]), states, arrivals.after(1 + states, machine.byte_class[END:]))
    classes.split(SparseTokenClasses(table, np.array(vocabulary.eos_ids), np.ones(len(vocabulary.eos_ids), dtype=int)))
    # Tokens that begin a character are read between characters, the others inside one.
    others = between & ~plain
    # A near state has all edges of its base, so neither may end the text or stand inside a character.
    alike = ~ends & ~inside
    near = near_states(
        machine, arrivals, vocabulary.boundary_trie, plain=plain & alike, others=others & alike, guard=guard
    )
    has_base = near.base != np.arange(machine.states)
    if has_base.any():
        classes.near = len(classes.tables)
        classes.split(near.found)
    walk(others & ~has_base, vocabulary.boundary_trie)
    walk(inside, vocabulary.midchar_trie)
    classes.drop_unused()
    return classes, near.base


def _plain(machine: PushdownMachine, between: np.ndarray) -> tuple[np.ndarray, bool]:
    """The states in which all plain characters act alike. Then whether the number of these matters."""
    # The actions as a table of next states: 1 + q is q, and 0 is dead.
    inner = machine.inner()
    table = np.zeros((1 + machine.states, inner.shape[1]), dtype=np.int32)
    table[1:][inner] = machine.action[inner]
    # A state that leaves its component before a plain character, or calls a rule there, is no dead one.
    first_bytes = [byte for first, *_ in PLAIN_CHARACTERS for byte in range(first[0], first[1] + 1)]
    columns = distinct(machine.byte_class[first_bytes])
    other = (((machine.action != NO_ACTION) | machine.pop) & ~inner)[:, columns].any(axis=1)
    numbers = 1 + np.flatnonzero(other)
    table[numbers] = NO_ACTION
    table[numbers, machine.byte_class[ord(" ")]] = numbers  # unlike other plain characters
    candidates = np.append(False, between & inner[:, machine.byte_class[ord(" ")]])
    plain, counts = plain_states(table, np.broadcast_to(table[:1, :1], table.shape), machine.byte_class, candidates)
    return plain[1:], bool((plain & counts).any())


def _rows_of(table: SparseTable, states: int, guard: ResourceGuard) -> EdgeRows:
    """The edges of a group of states. Columns take the place of classes."""
    order = stable_order(table.place)
    column = np.repeat(np.arange(len(table.first) - 1, dtype=np.int32), np.diff(table.first))[order]
    return edge_rows(
        table.place[order], column, np.maximum(table.effect[order], _NOTHING), states=states, guard=guard
    )


class _SharedClasses:
    """The token classes over some groups of states. Two ids share one where they act alike in all these states.

    of_id    int64 [V]
    columns  for each group, the column of each class: int64 [C]
    tables   for each group, the arrivals of each column by state. Column 0 is dead
    near     the group of the states with a base, if there is one. The bases are in the first group

    Class 0 is dead. No id may have some of the others.
    """

    def __init__(self, vocabulary_size: int) -> None:
        self.of_id = np.zeros(vocabulary_size, dtype=np.int64)
        self.columns, self.tables = list[np.ndarray](), list[SparseTable]()
        self.near: int | None = None
        self._classes = 1

    def spread(self, number: np.ndarray) -> None:
        """Give the classes to other ids.

        number  int [V]  the id here that each acts like
        """
        self.of_id = self.of_id[number]

    def split(self, found: SparseTokenClasses) -> None:
        """Take further states into account."""
        live = found.column != 0
        ids, column = found.ids[live], found.column[live]
        # Ids that live in these states get further classes, by their pair of classes.
        count, width = self._classes, len(found.effects.first) - 1
        pairs, number = ranks(self.of_id[ids] * width + column, count * width)
        self.of_id[ids] = count + number
        self.columns = [np.append(each, each[pairs // width]) for each in self.columns]
        self.columns.append(np.append(np.zeros(count, dtype=np.int64), pairs % width))
        self.tables.append(found.effects)
        self._classes += len(pairs)

    def drop_unused(self) -> None:
        """Leave out the classes and columns that no id has."""
        used = np.zeros(self._classes, dtype=bool)
        used[self.of_id] = used[0] = True
        self._choose(np.flatnonzero(used), np.cumsum(used) - 1)
        for group, (column, table) in enumerate(zip(self.columns, self.tables, strict=True)):
            kept, self.columns[group] = ranks(column, len(table.first) - 1)
            self.tables[group] = table.chosen(kept)

    def merge(self, base: np.ndarray, guard: ResourceGuard) -> None:
        """Make one of classes that act alike."""
        near = self.near
        if near is not None:
            self.tables[near], self.columns[near] = without_likeness(
                self.tables[near], self.tables[0], near_column=self.columns[near], plain_column=self.columns[0],
                base=base,
            )
        for group, table in enumerate(self.tables):
            rows = SparseRows(len(base), guard)
            self.columns[group] = rows.add(table)[self.columns[group]].astype(np.int64)
            self.tables[group] = rows.table
        self._choose(*unique_rows(np.stack(self.columns, axis=1)))

    def _choose(self, classes: np.ndarray, number: np.ndarray) -> None:
        """Keep some classes. `number` is the new number of each former one."""
        self.of_id, self._classes = number[self.of_id], len(classes)
        self.columns = [column[classes] for column in self.columns]


def _resting(machine: PushdownMachine) -> np.ndarray:
    """The states in which a byte may end: bool [Q]. The start of a rule need not be one of them."""
    reached = np.zeros(machine.states, dtype=bool)
    reached[machine.start] = True
    reached[machine.resume[machine.resume != NOWHERE]] = True
    plain = (machine.action != NO_ACTION) & (machine.action <= machine.states)
    reached[machine.action[plain] - 1] = True
    reached[[target for actions in machine.choices for _, target in actions]] = True
    return np.asarray(reached & ~machine.eager)


class _Pendings:
    """The pendings at ends of tokens, and those they lead to. They stand in exits."""

    def __init__(self, arrivals: Arrivals, start_code: int, guard: ResourceGuard) -> None:
        self._arrivals, self._guard = arrivals, guard
        self._found = {Exit(start_code, BASE): None}  # the first is acceptance

    def add(self, items: Iterable[Item]) -> None:
        self._found.update((item, None) for item in items if isinstance(item, Exit))

    def entries(self) -> dict[Exit, dict[int, list[Item]]]:
        """What each pending does behind each symbol. Pendings that are met on the way are added."""
        entries = dict[Exit, dict[int, list[Item]]]()
        while len(entries) < len(self._found):
            self._guard.check_time()
            for exit_ in [exit_ for exit_ in self._found if exit_ not in entries]:
                entries[exit_] = self._arrivals.entries(exit_)
                self.add(item for items in entries[exit_].values() for item in items)
        return entries

    def merged(self, entries: dict[Exit, dict[int, list[Item]]]) -> dict[Exit, int]:
        """The number of each pending. Those that do the same behind every symbol share one; acceptance is 0.

        Pendings may lead to each other in circles, so they are refined from coarse to fine (Moore 1956).
        """
        block = {exit_: min(position, 1) for position, exit_ in enumerate(self._found)}
        count = 0
        while len(set(block.values())) > count:
            self._guard.check_time()
            count, numbers = len(set(block.values())), dict[object, int]()
            refined = {}
            for exit_, behind in entries.items():
                does = frozenset(
                    (symbol, frozenset(block[item] if isinstance(item, Exit) else item for item in items))
                    for symbol, items in behind.items()
                    if items
                )
                refined[exit_] = numbers.setdefault((block[exit_], does), len(numbers))
            block = refined
        return block


class _Items:
    """Numbers landings and arrivals. An item is a landing, or the complement of a pending.

    plain  states, each of which alone is an arrival: they have the first numbers, 1, 2, ..
    """

    def __init__(self, states: int, plain: np.ndarray, pending: dict[Exit, int]) -> None:
        self.pending, self._states, self._plain = pending, states, plain
        self._number_of_plain = np.zeros(states, dtype=np.int64)
        self._number_of_plain[plain] = 1 + np.arange(len(plain))
        self._landings: dict[tuple[tuple[int, ...], int], int] = {}  # of those that push
        self._below: list[int] = [NO_LANDING] * states
        self._arrivals: dict[tuple[int, ...], int] = {(): 0}  # but the plain ones

    def arrival(self, items: Iterable[Item]) -> int:
        numbers = {
            ~self.pending[item] if isinstance(item, Exit) else self._landing(item.pushed, item.state)
            for item in items
            if isinstance(item, Exit | Landing)
        }
        key = tuple(sorted(numbers))
        if len(key) == 1 and 0 <= key[0] < self._states and self._number_of_plain[key[0]]:
            return int(self._number_of_plain[key[0]])
        return self._arrivals.setdefault(key, len(self._plain) + len(self._arrivals))

    def _landing(self, pushed: tuple[int, ...], state: int) -> int:
        if not pushed:
            return state
        key = pushed, state
        if key not in self._landings:
            self._below.append(self._landing(pushed[:-1], state))
            self._landings[key] = len(self._below) - 1
        return self._landings[key]

    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays of the tables that hold items and landings."""
        _, *others = self._arrivals
        lengths = [0, *[1] * len(self._plain), *map(len, others)]
        items = _int32([item for items in others for item in items])
        return {
            "item_first": np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
            "item": np.concatenate([self._plain.astype(np.int32), items]),
            "landing_state": _int32([*range(self._states), *(state for _, state in self._landings)]),
            "landing_below": _int32(self._below),
            "landing_symbol": _int32([_MEANINGLESS] * self._states + [pushed[-1] for pushed, _ in self._landings]),
        }


def _int32(values: Sequence[int]) -> np.ndarray:
    return np.array(values, dtype=np.int32)
