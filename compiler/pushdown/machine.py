"""Pushdown machines over bytes, and their runs byte by byte.

A machine is a recursive transition network made flat. A rule of the grammar is a component, a call of a rule pushes
the symbol of the state to go on in, and leaving a component pops that symbol. Knows no grammar and no vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from typing import Any, TypeAlias

import numpy as np

from compiler.limits import Limits, ResourceGuard

END = 256  # what EOS spells, in place of a byte
MARK_BYTE = 0xFF  # stands before and behind the name of a token that the constraint names; no text holds it
SPENT_BYTE = 0xFE  # stands where the last token of a budget ends; no text holds it
NOWHERE = -1  # in `resume`: the symbol does not take the code
NO_ACTION = 0  # in `action`: the byte cannot be read
BOTTOM = 0  # the node of the empty stack
ACCEPTED = -1  # the state behind END
_SPACE = 0x20
_BLOCK = 1 << 16  # states that are looked at together
_UNBOUNDED = Limits(check_steps_max=1 << 62)
_NUMBERS = ("choices", "start", "rules", "budgets", "marks")  # fields of a machine that are no arrays
_DIGEST_BASE, _DIGEST_PRIME = 0x9E3779B97F4A7C15, 2**61 - 1

Action: TypeAlias = tuple[tuple[int, ...], int]  # symbols to push, the first one first, and the next state
Configuration: TypeAlias = tuple[int, int]  # a state and a node of a stack


class StackNodes:
    """Stacks that share their lower parts. A node is a symbol and the node below it; equal stacks are one node.

    symbol, below  by node; those of the empty stack mean nothing
    digest         by node, a hash of the stack: it is the same in whatever order nodes are made
    """

    def __init__(self) -> None:
        self.symbol, self.below, self.digest = [NOWHERE], [NOWHERE], [0]
        self._nodes: dict[Configuration, int] = {}

    def __len__(self) -> int:
        return len(self.symbol)

    def push(self, symbol: int, node: int) -> int:
        """The node with `symbol` above `node`."""
        number = self._nodes.setdefault((symbol, node), len(self.symbol))
        if number == len(self.symbol):
            self.symbol.append(symbol)
            self.below.append(node)
            self.digest.append(digest_above(symbol, self.digest[node]))
        return number

    def symbols(self, node: int) -> tuple[int, ...]:
        """The symbols of a stack, the top first."""
        found = []
        while node != BOTTOM:
            found.append(self.symbol[node])
            node = self.below[node]
        return tuple(found)


def digest_above(symbol: int, digest: int) -> int:
    """The digest of a stack with one more symbol."""
    return (digest * _DIGEST_BASE + symbol + 1) % _DIGEST_PRIME


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PushdownMachine:
    """A pushdown machine. Q states, S stack symbols, R codes, K columns.

    byte_class  int32 [257]   the column of each byte, and of END
    action      int32 [Q, K]  NO_ACTION; 1 + q reads the byte and goes to q; 1 + Q + i does one of `choices[i]`
    choices     actions that push, or of which several are possible
    pop         bool  [Q, K]  whether the component may be left before a byte, which is not read
    code        int32 [Q]     the code with which a state's component is left
    eager       bool  [Q]     the component is left at once: it ends here and reads nothing
    resume      int32 [S, R]  the state in which a symbol goes on when its callee was left with a code, or NOWHERE
    start       int           the state before the first byte
    rules       the name of each code
    budgets     by code, how many tokens may write a text of the component; 0 for any number. Empty for no budget
    marks       the names of tokens that stand between two MARK_BYTE

    A component ends in a state where it may be popped or is eager. A text is accepted when END leads from the start
    to an eager state with the code of the start, on the empty stack. Raises ValueError where an index or a shape is
    off.
    """

    byte_class: np.ndarray
    action: np.ndarray
    choices: tuple[tuple[Action, ...], ...]
    pop: np.ndarray
    code: np.ndarray
    eager: np.ndarray
    resume: np.ndarray
    start: int
    rules: tuple[str, ...]
    budgets: tuple[int, ...] = ()
    marks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        states, columns = self.action.shape
        symbols, codes = self.resume.shape
        if self.byte_class.shape != (END + 1,) or self.pop.shape != (states, columns):
            raise ValueError("byte_class is [257], action and pop are [Q, K]")
        if self.code.shape != (states,) or self.eager.shape != (states,) or codes != len(self.rules):
            raise ValueError("code and eager are [Q], resume is [S, R], one rule for each code")
        if self.pop.dtype != np.bool_ or self.eager.dtype != np.bool_:
            raise ValueError("pop and eager are bool")
        check_range("byte_class", self.byte_class, 0, columns)
        check_range("action", self.action, 0, 1 + states + len(self.choices))
        check_range("code", self.code, 0, codes)
        check_range("resume", self.resume, NOWHERE, states)
        choices = [action for actions in self.choices for action in actions]
        check_range("choices", np.array([target for _, target in choices]), 0, states)
        check_range("choices", np.array([symbol for symbols, _ in choices for symbol in symbols]), 0, symbols)
        if not 0 <= self.start < states or self.eager[self.start]:
            raise ValueError("start names a state that reads something")
        if len(self.budgets) not in (0, codes):
            raise ValueError("budgets has one entry for each code")

    @property
    def silent_bytes(self) -> tuple[int, ...]:
        """The bytes that are read and stand in no text."""
        return (*((SPENT_BYTE,) if self.budgets else ()), *((MARK_BYTE,) if self.marks else ()))

    @property
    def states(self) -> int:
        return len(self.code)

    @property
    def start_code(self) -> int:
        """The code with which the text ends."""
        return int(self.code[self.start])

    def actions(self, state: int, column: int) -> tuple[Action, ...]:
        """What may be done to read a byte of a column. Leaving the component first is not among them."""
        number = int(self.action[state, column])
        if number > self.states:
            return self.choices[number - self.states - 1]
        return () if number == NO_ACTION else (((), number - 1),)

    def inner(self) -> np.ndarray:
        """Where reading leads to one state on the same stack.

        The result is bool [Q, K].
        """
        choices = np.zeros(len(self.choices), dtype=bool)
        stays = np.concatenate([[False], ~self.eager, choices])  # by action
        inner = ~self.pop
        for begin in range(0, self.states, _BLOCK):  # numpy makes a copy of its indices, which are wider
            inner[begin : begin + _BLOCK] &= stays[self.action[begin : begin + _BLOCK]]
        return inner

    def conflicts(self) -> list[tuple[int, int]]:
        """The states and bytes at which several things are possible. Without any the machine is deterministic."""
        several = np.array([len(actions) > 1 for actions in self.choices] + [False])
        number = np.maximum(self.action - self.states - 1, -1)  # -1 is the entry behind the last choice
        ambiguous = several[number] | (self.pop & (self.action != NO_ACTION) & ~self.eager[:, None])
        state, byte = ambiguous[:, self.byte_class].nonzero()
        return list(zip(state.tolist(), byte.tolist(), strict=True))

    def after(self, configurations: Iterable[Configuration], byte: int, stacks: StackNodes) -> set[Configuration]:
        """The configurations after one byte, or END. New nodes are added to `stacks`."""
        column, reached = int(self.byte_class[byte]), set[Configuration]()
        waiting = [(state, node) for state, node in configurations if state != ACCEPTED]
        while waiting:
            state, node = waiting.pop()
            for symbols, target in self.actions(state, column):
                above = node
                for symbol in symbols:
                    above = stacks.push(symbol, above)
                reached |= self._settled(target, above, stacks)
            if self.pop[state, column] and node != BOTTOM:
                resumed = int(self.resume[stacks.symbol[node], self.code[state]])
                waiting += [(resumed, stacks.below[node])] if resumed != NOWHERE else []
        return reached

    def silently(self, configurations: Iterable[Configuration], stacks: StackNodes) -> set[Configuration]:
        """The configurations, and those after bytes that stand in no text."""
        met = frontier = set(configurations)
        while frontier and self.silent_bytes:
            reached = (self.after(frontier, byte, stacks) for byte in self.silent_bytes)
            frontier = set[Configuration]().union(*reached) - met
            met = met | frontier
        return met

    def _settled(self, state: int, node: int, stacks: StackNodes) -> set[Configuration]:
        """The configuration after the components that are over were left."""
        while self.eager[state]:
            if node == BOTTOM:
                return {(ACCEPTED, BOTTOM)} if self.code[state] == self.start_code else set()
            state, node = int(self.resume[stacks.symbol[node], self.code[state]]), stacks.below[node]
            if state == NOWHERE:
                return set()
        return {(state, node)}

    def accepts(self, text: bytes) -> bool:
        """Whether the text is in the machine's language."""
        recognizer = Recognizer(self, self.start)
        for byte in (*text, END):
            recognizer.read(byte)
        return recognizer.accepted

    def arrays(self) -> dict[str, np.ndarray]:
        """All arrays, by the names of their fields. A store keeps them beside `numbers`."""
        names = [field.name for field in fields(self) if field.name not in _NUMBERS]
        return {name: np.ascontiguousarray(getattr(self, name)) for name in names}

    def numbers(self) -> dict[str, Any]:
        """The other fields, as JSON holds them."""
        return {name: getattr(self, name) for name in _NUMBERS}


def machine_from_arrays(arrays: dict[str, np.ndarray], numbers: dict[str, Any]) -> PushdownMachine:
    """The machine that gave these arrays and numbers. Raises ValueError, KeyError or TypeError if none did."""
    choices = tuple(tuple((tuple(symbols), target) for symbols, target in actions) for actions in numbers["choices"])
    rules, budgets, marks = (tuple(numbers[name]) for name in ("rules", "budgets", "marks"))
    values: dict[str, Any] = {**arrays, "choices": choices, "rules": rules, "budgets": budgets, "marks": marks}
    return PushdownMachine(start=numbers["start"], **values)


def with_leading_space(machine: PushdownMachine) -> PushdownMachine:
    """The machine that may read one space before each text. The start of the other machine is a state of it, too.

    A machine whose texts may begin with a space themselves is returned as it is: two readings of each of them would
    be followed.
    """
    if machine.action[machine.start, machine.byte_class[_SPACE]] != NO_ACTION:
        return machine
    return _reading_space(machine, optional=True)


def after_space(machine: PushdownMachine) -> PushdownMachine:
    """The machine that reads one space before each text."""
    return _reading_space(machine, optional=False)


def _reading_space(machine: PushdownMachine, optional: bool) -> PushdownMachine:
    """The machine with a new start. A space leads from it to its own."""
    states, column = machine.states, int(machine.byte_class[_SPACE])
    # The space gets a column of its own: other bytes of its column do not lead to the former start.
    byte_class = machine.byte_class.copy()
    byte_class[_SPACE] = machine.action.shape[1]
    action = np.hstack([machine.action, machine.action[:, [column]]])
    action[action > states] += 1  # choices stand behind the states
    first, pop = action[machine.start].copy(), np.hstack([machine.pop, machine.pop[:, [column]]])
    if not optional:
        first[:] = NO_ACTION
    first[-1] = 1 + machine.start
    return replace(
        machine, byte_class=byte_class, action=np.vstack([action, first]),
        pop=np.vstack([pop, np.zeros_like(pop[:1])]), code=np.append(machine.code, machine.code[machine.start]),
        eager=np.append(machine.eager, False), start=states,
    )  # fmt: skip


class Recognizer:
    """Reads a text byte by byte. A text of n bytes takes O(n^3) steps, however ambiguous the grammar is.

    Stacks are merged (Tomita 1985): a node is its symbol above any of the nodes below it.

    configurations  those after the bytes read so far, each a state and a node
    symbol, below   by node; those of the empty stack mean nothing
    steps           visited so far, each a configuration that some other one leads to

    Raises LimitExceeded over `check_steps_max` of the guard, if there is one.
    """

    def __init__(self, machine: PushdownMachine, start: int, guard: ResourceGuard | None = None) -> None:
        self._machine, self._guard = machine, guard or ResourceGuard(_UNBOUNDED)
        self._steps_max, self._silent = self._guard.limits.check_steps_max, machine.silent_bytes
        self.configurations: set[Configuration] = {(start, BOTTOM)}
        self.symbol, self.below = [NOWHERE], [frozenset[int]()]
        self.steps = 0

    @property
    def accepted(self) -> bool:
        """Whether END was read where the text may end."""
        return (ACCEPTED, BOTTOM) in self.configurations

    def read(self, byte: int) -> None:
        """Read one byte, or END. Bytes that stand in no text may be read before it."""
        met = frontier = self.configurations
        while self._silent and frontier:
            frontier = set[Configuration]().union(*(self._after(frontier, silent) for silent in self._silent)) - met
            met = met | frontier
        self.configurations = self._after(met, byte)

    def read_exactly(self, byte: int) -> None:
        """Read one byte, or END, and no other one before it."""
        self.configurations = self._after(self.configurations, byte)

    def _after(self, configurations: set[Configuration], byte: int) -> set[Configuration]:
        machine, column = self._machine, int(self._machine.byte_class[byte])
        actions = dict[Action, set[int]]()  # each with the nodes above which it takes place

        def left_before_reading(state: int, node: int) -> set[Configuration]:
            for action in machine.actions(state, column):
                actions.setdefault(action, set()).add(node)
            return self._left(state, node) if machine.pop[state, column] and node != BOTTOM else set()

        def left_at_once(state: int, node: int) -> set[Configuration]:
            return self._left(state, node) if state != ACCEPTED and machine.eager[state] else set()

        self._closed({each for each in configurations if each[0] != ACCEPTED}, left_before_reading)
        # What an action pushes stands above all its nodes. They are known now, so that leaving finds each of them.
        reached = {
            (target, node)
            for (symbols, target), nodes in actions.items()
            for node in (self._pushed(symbols, nodes) if symbols else nodes)
        }
        settled = self._closed(reached, left_at_once)
        return {each for each in settled if each[0] == ACCEPTED or not machine.eager[each[0]]}

    def _left(self, state: int, node: int) -> set[Configuration]:
        """The configurations after the component was left."""
        machine = self._machine
        if node == BOTTOM:
            return {(ACCEPTED, BOTTOM)} if machine.code[state] == machine.start_code else set()
        resumed = int(machine.resume[self.symbol[node], machine.code[state]])
        return set() if resumed == NOWHERE else {(resumed, below) for below in self.below[node]}

    def _pushed(self, symbols: tuple[int, ...], nodes: set[int]) -> set[int]:
        """The new node with the symbols above all of the nodes."""
        for symbol in symbols:
            self.symbol.append(symbol)
            self.below.append(frozenset(nodes))
            self._count(len(nodes))
            nodes = {len(self.symbol) - 1}
        return nodes

    def _closed(
        self, configurations: set[Configuration], further: Callable[[int, int], set[Configuration]]
    ) -> set[Configuration]:
        """The configurations and those that they lead to."""
        met, waiting = set(configurations), list(configurations)
        while waiting:
            found = further(*waiting.pop())
            self._count(1 + len(found))
            new = found - met
            met |= new
            waiting += new
        return met

    def _count(self, steps: int) -> None:
        self.steps += steps
        if self.steps > self._steps_max:
            self._guard.check("check_steps_max", self.steps)


def check_range(name: str, values: np.ndarray, first: int, end: int) -> None:
    """Raise ValueError unless all values are in first .. end - 1."""
    if values.size and not (values.min() >= first and values.max() < end):
        raise ValueError(f"{name} holds an index outside {first}..{end - 1}")
