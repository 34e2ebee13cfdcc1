"""Boolean combinations of pushdown machines.

Pushdown languages are closed under union and under intersection with regular ones, and deterministic ones under
complement. A regular language is a machine that pushes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from compiler.automata import CharDfa, unique_rows
from compiler.limits import ResourceGuard
from compiler.pushdown.machine import END, NO_ACTION, NOWHERE, Action, PushdownMachine
from compiler.pushdown.network import RuleDfa, network_machine

_TEXT = "the text"  # the name of the root


def regular_machine(texts: CharDfa, guard: ResourceGuard, *, beside: PushdownMachine | None = None) -> PushdownMachine:
    """The machine of a DFA with at least one text. It reads valid UTF-8 alone, and pushes nothing.

    beside  a machine whose bytes that stand in no text are passed over
    """
    machine = network_machine((_TEXT,), (RuleDfa(texts.dfa, texts.minterms).with_end(),), guard)
    for byte in () if beside is None else beside.silent_bytes:
        byte_class = machine.byte_class.copy()
        byte_class[byte] = machine.action.shape[1]
        passed = np.where(_between_characters(machine), 1 + np.arange(machine.states), NO_ACTION)
        action = np.column_stack([machine.action, passed]).astype(np.int32)
        pop = np.column_stack([machine.pop, np.zeros(machine.states, dtype=np.bool_)])
        machine = replace(machine, byte_class=byte_class, action=action, pop=pop)
    return machine


def _between_characters(machine: PushdownMachine) -> np.ndarray:
    """The states between characters: bool [Q]."""
    inside = (machine.action[:, machine.byte_class[0x80:0xC0]] != NO_ACTION).any(axis=1)
    return np.asarray(~inside & ~machine.eager)


def intersect(machine: PushdownMachine, regular: PushdownMachine, guard: ResourceGuard) -> PushdownMachine:
    """The texts of both machines. The second one is deterministic and pushes nothing.

    A state is a pair, and a component that is left tells its caller the state of both: the codes are pairs, too.
    Symbols stay as they are. Only pairs that some stack may reach are made.
    Raises LimitExceeded over `dfa_states_max`, `table_bytes_max` or `compile_s_max`, and where more distances than
    `exit_distances_max` are to be expected.
    """
    if regular.choices or regular.pop.any():
        raise ValueError("the second machine pushes nothing and decides each step")
    return _RegularProduct(machine, regular, guard).machine()


class _RegularProduct:
    """Explores pairs breadth first. The pair (q, d) has the key q * D + d.

    A step has the key 1 + (q' * D + d') where q' is a state; from q' = Q on it is a choice. 0 reads nothing.
    """

    def __init__(self, machine: PushdownMachine, regular: PushdownMachine, guard: ResourceGuard) -> None:
        self._machine, self._guard = machine, guard
        self._size = regular.states
        example, byte_class = unique_rows(np.column_stack([machine.byte_class, regular.byte_class]))
        self._byte_class = byte_class.astype(np.int32)
        self._action = machine.action[:, machine.byte_class[example]]
        self._pop = machine.pop[:, machine.byte_class[example]]
        self._regular = regular.action[:, regular.byte_class[example]].astype(np.int64)
        self._start = machine.start * self._size + regular.start
        self._steps = list[np.ndarray]()
        self._pairs = self._explored()

    def _explored(self) -> np.ndarray:
        """The keys of all pairs, ascending. `_steps` receives their steps in the order of the walk."""
        known, order = {self._start}, list[np.ndarray]()
        frontier = np.array([self._start])
        left = np.zeros(0, dtype=np.int64)  # the keys of codes so far
        while len(frontier):
            self._guard.check_time()
            self._guard.check_table(len(known), self._action.shape[1], 8)
            steps = self._steps_from(frontier)
            self._steps.append(steps)
            order.append(frontier)
            codes = np.setdiff1d(self._codes_of(frontier), left)
            left = np.append(left, codes)
            reached = np.unique(np.concatenate([self._targets(np.unique(steps)), self._resumed(codes)]))
            fresh = [pair for pair in reached.tolist() if pair not in known]
            known.update(fresh)
            frontier = np.array(fresh, dtype=np.int64)
        pairs = np.concatenate(order)
        ascending = np.argsort(pairs)
        self._steps = [np.concatenate(self._steps)[ascending]]
        return np.asarray(pairs[ascending])

    def _steps_from(self, pairs: np.ndarray) -> np.ndarray:
        """The step for each column: int64 [N, K]."""
        state, beside = np.divmod(pairs, self._size)
        action, target = self._action[state].astype(np.int64), self._regular[beside]
        return np.where((action != NO_ACTION) & (target != NO_ACTION), (action - 1) * self._size + target, 0)

    def _popped(self, pairs: np.ndarray) -> np.ndarray:
        """Before which columns a component may be left: bool [N, K]."""
        state, beside = np.divmod(pairs, self._size)
        return np.asarray(self._pop[state] & (self._regular[beside] != NO_ACTION))

    def _is_final(self, pairs: np.ndarray) -> np.ndarray:
        return np.asarray(self._machine.eager[pairs // self._size] | self._popped(pairs).any(axis=1))

    def _codes_of(self, pairs: np.ndarray) -> np.ndarray:
        """The keys of the codes with which these pairs leave, ascending."""
        state, beside = np.divmod(pairs[self._is_final(pairs)], self._size)
        return np.unique(self._machine.code[state].astype(np.int64) * self._size + beside)

    def _targets(self, steps: np.ndarray) -> np.ndarray:
        """The pairs that steps lead to."""
        target, beside = np.divmod(steps[steps > 0] - 1, self._size)
        plain = target < self._machine.states
        choices = [self._machine.choices[choice] for choice in (target[~plain] - self._machine.states).tolist()]
        chosen = [
            state * self._size + at
            for actions, at in zip(choices, beside[~plain].tolist(), strict=True)
            for _, state in actions
        ]
        return np.concatenate([target[plain] * self._size + beside[plain], np.array(chosen, dtype=np.int64)])

    def _resumed(self, codes: np.ndarray) -> np.ndarray:
        """The pairs in which callers go on after these codes."""
        code, beside = np.divmod(codes, self._size)
        resumed = self._machine.resume[:, code].astype(np.int64)
        return np.asarray((resumed * self._size + beside)[resumed != NOWHERE])

    def machine(self) -> PushdownMachine:
        machine, pairs, steps = self._machine, self._pairs, self._steps[0]
        state, beside = np.divmod(pairs, self._size)
        final, states = self._is_final(pairs), len(pairs)
        chosen = np.unique(steps[steps > machine.states * self._size])
        action = np.zeros(steps.shape, dtype=np.int32)
        plain = (steps > 0) & (steps <= machine.states * self._size)
        action[plain] = 1 + np.searchsorted(pairs, steps[plain] - 1)
        choice = steps > machine.states * self._size
        action[choice] = 1 + states + np.searchsorted(chosen, steps[choice])
        # The codes of the machine come first: they are those of states that do not end their component, and the root's.
        codes, rules = self._codes_of(pairs), len(machine.rules)
        own, at_code = np.divmod(codes, self._size)
        number = np.where(own == machine.start_code, own, rules + np.arange(len(codes)))
        # From each state of a rule there may be a distance to each of its ends; with counts, to half of them.
        pairs_at_most = int(np.bincount(own, minlength=rules)[machine.code[state]].sum())
        self._guard.check("exit_distances_max", pairs_at_most // 2)
        self._guard.check("table_bytes_max", 4 * len(machine.resume) * (rules + len(codes)))
        resume = np.full((len(machine.resume), rules + len(codes)), NOWHERE, dtype=np.int32)
        symbol, column = (machine.resume[:, own] != NOWHERE).nonzero()
        behind = machine.resume[symbol, own[column]].astype(np.int64) * self._size + at_code[column]
        resume[symbol, number[column]] = np.searchsorted(pairs, behind)
        code = machine.code[state].copy()
        key = code[final].astype(np.int64) * self._size + beside[final]
        code[final] = number[np.searchsorted(codes, key)]
        return PushdownMachine(
            byte_class=self._byte_class, action=action, pop=self._popped(pairs),
            choices=tuple(self._choice(step) for step in (chosen - 1).tolist()), code=code, eager=machine.eager[state],
            resume=resume, start=int(np.searchsorted(pairs, self._start)),
            rules=(*machine.rules, *(machine.rules[rule] for rule in own.tolist())), marks=machine.marks,
            budgets=(*machine.budgets, *(machine.budgets[rule] for rule in own.tolist())) if machine.budgets else (),
        )  # fmt: skip

    def _choice(self, step: int) -> tuple[Action, ...]:
        choice, beside = divmod(step, self._size)
        actions = self._machine.choices[choice - self._machine.states]
        return tuple(
            (symbols, int(np.searchsorted(self._pairs, target * self._size + beside))) for symbols, target in actions
        )


def unite(machines: Sequence[PushdownMachine], guard: ResourceGuard) -> PushdownMachine:
    """The texts of any of the machines. Raises LimitExceeded over `dfa_states_max` or `table_bytes_max`.

    What they have in common has several readings. A new start does what the starts do.
    """
    if len(machines) == 1:
        return machines[0]
    example, byte_class = unique_rows(np.column_stack([machine.byte_class for machine in machines]))
    columns = [machine.byte_class[example] for machine in machines]
    offsets = np.cumsum([0, *(machine.states for machine in machines)]).tolist()
    symbols, rules = (sum(machine.resume.shape[axis] for machine in machines) for axis in (0, 1))
    guard.check_table(1 + offsets[-1], len(example))
    guard.check("table_bytes_max", 4 * symbols * (1 + rules))
    choices = _united_choices(machines)
    action = _united_actions(machines, columns, offsets)
    first = np.zeros((1, len(example)), dtype=np.int32)
    starts = [offset + machine.start for offset, machine in zip(offsets, machines, strict=False)]
    for column, numbers in enumerate(action[starts].T.tolist()):
        actions = [each for number in numbers for each in _actions_of(number, 1 + offsets[-1], choices)]
        if len(actions) == 1 and not actions[0][0]:
            first[0, column] = 1 + actions[0][1]
        elif actions:
            choices.append(tuple(actions))
            first[0, column] = 1 + offsets[-1] + len(choices)
    pops = [machine.pop[:, of] for machine, of in zip(machines, columns, strict=True)]
    code, resume = _united_codes(machines)
    return PushdownMachine(
        byte_class=byte_class.astype(np.int32), action=np.vstack([action, first]), choices=tuple(choices),
        pop=np.vstack([*pops, first < 0]), code=code, resume=resume, start=offsets[-1],
        eager=np.append(np.concatenate([machine.eager for machine in machines]), False),
        rules=(_TEXT, *(name for machine in machines for name in machine.rules)),
        budgets=_united_budgets(machines),
        marks=tuple(dict.fromkeys(name for machine in machines for name in machine.marks)),
    )  # fmt: skip


def _united_budgets(machines: Sequence[PushdownMachine]) -> tuple[int, ...]:
    if not any(machine.budgets for machine in machines):
        return ()
    return (0, *(budget for each in machines for budget in each.budgets or (0,) * len(each.rules)))


def _united_actions(
    machines: Sequence[PushdownMachine], columns: Sequence[np.ndarray], offsets: Sequence[int]
) -> np.ndarray:
    """The actions of all machines, beside a new start."""
    tables, choice = list[np.ndarray](), 1 + offsets[-1]
    for machine, of, first in zip(machines, columns, offsets, strict=False):
        read = machine.action[:, of]
        moved = np.where(read > machine.states, read - machine.states + choice, read + first)
        tables.append(np.where(read == NO_ACTION, NO_ACTION, moved).astype(np.int32))
        choice += len(machine.choices)
    return np.concatenate(tables)


def _actions_of(number: int, states: int, choices: Sequence[tuple[Action, ...]]) -> tuple[Action, ...]:
    if number > states:
        return choices[number - states - 1]
    return () if number == NO_ACTION else (((), number - 1),)


def _united_choices(machines: Sequence[PushdownMachine]) -> list[tuple[Action, ...]]:
    choices, state, symbol = list[tuple[Action, ...]](), 0, 0
    for machine in machines:
        choices += [
            tuple((tuple(each + symbol for each in pushed), target + state) for pushed, target in actions)
            for actions in machine.choices
        ]
        state, symbol = state + machine.states, symbol + len(machine.resume)
    return choices


def _united_codes(machines: Sequence[PushdownMachine]) -> tuple[np.ndarray, np.ndarray]:
    """The tables `code` and `resume`. Code 0 is that of all roots, and of the new start."""
    codes, tables, state, rule = list[np.ndarray](), list[np.ndarray](), 0, 1
    width = 1 + sum(len(machine.rules) for machine in machines)
    for machine in machines:
        codes.append(np.where(machine.code == machine.start_code, 0, machine.code + rule))
        table = np.full((len(machine.resume), width), NOWHERE, dtype=np.int32)
        after = np.where(machine.resume == NOWHERE, NOWHERE, machine.resume + state)
        table[:, rule : rule + len(machine.rules)], table[:, 0] = after, after[:, machine.start_code]
        tables.append(table)
        state, rule = state + machine.states, rule + len(machine.rules)
    return np.append(np.concatenate(codes), 0).astype(np.int32), np.concatenate(tables)


def complement(machine: PushdownMachine) -> PushdownMachine:
    """The sequences of bytes that a deterministic machine does not accept. They need not be UTF-8.

    Raises ValueError for an ambiguous machine, and for one that reads bytes which stand in no text.

    Where the machine reads nothing, the complement goes on in a state that reads all. At the end of the text a code of
    its own leaves all that is on the stack.
    """
    if machine.conflicts() or machine.silent_bytes:
        raise ValueError("the machine has several readings")
    states, rules = machine.states, len(machine.rules)
    everything, finished = states, states + 1
    # END has a column of its own.
    columns = machine.byte_class.copy()
    columns[END] = machine.action.shape[1]
    action, pop = (np.hstack([each, each[:, [machine.byte_class[END]]]]) for each in (machine.action, machine.pop))
    action[action > states] += 2  # choices stand behind the states
    dead = (action == NO_ACTION) & ~pop & ~machine.eager[:, None]
    failing = np.full(action.shape[1], 1 + everything)
    failing[-1] = 1 + finished
    action = np.where(dead, failing, action)
    root = (machine.code == machine.start_code) & ~machine.eager
    no_pop = np.zeros((2, action.shape[1]), dtype=np.bool_)
    return PushdownMachine(
        byte_class=columns, action=np.vstack([action, failing, np.zeros_like(failing)]).astype(np.int32),
        choices=machine.choices, pop=np.vstack([pop, no_pop]),
        code=np.append(np.where(root, rules, machine.code), [rules, rules]).astype(np.int32),
        eager=np.append(machine.eager, [False, True]),
        resume=np.hstack([machine.resume, np.full((len(machine.resume), 1), finished)]).astype(np.int32),
        start=machine.start, rules=(*machine.rules, _TEXT),
    )  # fmt: skip
