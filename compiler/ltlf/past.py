"""Adds the operators of the past to a translation of LTLf.

What a past operator says at a step depends on the letter and on one bit for each of them, what it said before
(De Giacomo et al., "Pure-past linear temporal and dynamic logic on finite traces", 2020). So each stands as one more
proposition in the formula, and one product follows these bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from compiler.automata import Dfa, minimize
from compiler.limits import ResourceGuard
from compiler.ltlf.progression import future_to_dfa
from compiler.ltlf.syntax import PAST, Builder, LtlfFormula, Node, Op, propositions_of

Translation: TypeAlias = Callable[[LtlfFormula, Sequence[frozenset[str]], ResourceGuard], Dfa]


def formula_to_dfa(
    formula: LtlfFormula,
    letters: Sequence[frozenset[str]],
    guard: ResourceGuard,
    translate: Translation = future_to_dfa,
) -> Dfa:
    """The minimal DFA of the traces that satisfy the formula. It reads `letters`, and it is in canonical form.

    Symbol i is letters[i], the set of the propositions that hold at a step. The empty trace is rejected. Names of the
    formula that no letter holds are false throughout. `translate` makes the automaton of a formula without the past.
    Raises ValueError when there are no letters, LimitExceeded over letters_max (of letters with what the past says),
    bdd_nodes_max, dfa_states_max (states of any stage, not only of the result) or compile_s_max.

    >>> from compiler.limits import DEFAULT_LIMITS
    >>> from compiler.ltlf import parse_formula
    >>> guard = ResourceGuard(DEFAULT_LIMITS)
    >>> letters = [frozenset({"dog"}), frozenset({"cat"}), frozenset()]
    >>> dfa = formula_to_dfa(parse_formula("G(cat -> O dog)", guard), letters, guard)
    >>> dfa.accepts([0, 2, 1]), dfa.accepts([1, 0])
    (True, False)
    """
    if not any(node.op in PAST for node in formula.nodes):
        return translate(formula, letters, guard)
    past = _split(formula)
    names = set(propositions_of(formula))
    # letters that agree on the formula's own propositions share a column
    own = list(dict.fromkeys(letter & names for letter in letters))
    column = {letter: number for number, letter in enumerate(own)}
    memories, next_memory, extended = past.explore(own, guard)
    symbols = {letter: number for number, letter in enumerate(dict.fromkeys(extended))}
    future = translate(past.future, list(symbols), guard)
    symbol = np.array([symbols[letter] for letter in extended], dtype=np.int64).reshape(memories, len(own))
    dfa = _joined(future, next_memory, symbol, guard)
    classes = np.array([column[letter & names] for letter in letters], dtype=np.int32)
    return minimize(Dfa(classes, dfa.next_state, dfa.accepting), guard)


def _joined(future: Dfa, next_memory: np.ndarray, symbol: np.ndarray, guard: ResourceGuard) -> Dfa:
    """The automaton over the letters themselves.

    next_memory, symbol  int [M, A]: what follows a letter, and the symbol of `future` that it is
    """
    states = [(future.start, 0)]
    number = {states[0]: 0}
    rows = []
    for state, memory in states:  # grows as states are found
        following = future.next_state[state, future.symbol_class[symbol[memory]]].tolist()
        pairs = list(zip(following, next_memory[memory].tolist(), strict=True))
        for pair in pairs:
            if pair not in number:
                number[pair] = len(states)
                states.append(pair)
        rows.append([number[pair] for pair in pairs])
        guard.check("dfa_states_max", len(states))
        guard.check_time()
    accepting = np.array([future.accepting[state] for state, _ in states])
    table = np.array(rows, dtype=np.int32)
    return Dfa(np.arange(table.shape[1], dtype=np.int32), table, accepting)


@dataclass(frozen=True, slots=True)
class _Past:
    """A formula in which new names stand for the past.

    nodes   what the past operators consist of, arguments first
    names   the name of each past operator that the future reads, by its index in `nodes`
    future  the formula, with these names in place of the operators
    """

    nodes: tuple[Node, ...]
    names: dict[int, str]
    future: LtlfFormula

    def explore(
        self, letters: Sequence[frozenset[str]], guard: ResourceGuard
    ) -> tuple[int, np.ndarray, list[frozenset[str]]]:
        """All memories that letters lead to.

        Returns their number M, the next ones int [M, A], and M * A letters with what the past says.
        """
        numbers = {self._first(): 0}
        following: list[int] = []
        extended: list[frozenset[str]] = []
        pending = list(numbers)
        for memory in pending:  # grows
            for letter in letters:
                values, after = self._step(memory, letter)
                if after not in numbers:
                    numbers[after] = len(numbers)
                    pending.append(after)
                following.append(numbers[after])
                extended.append(letter | {name for index, name in self.names.items() if values[index]})
            guard.check("dfa_states_max", len(numbers))
            guard.check("letters_max", len(set(extended[-len(letters) :])))
            guard.check_time()
        guard.check("letters_max", len(set(extended)))
        return len(numbers), np.array(following, dtype=np.int32).reshape(len(numbers), len(letters)), extended

    def _first(self) -> tuple[bool, ...]:
        """What holds before the first step, for each past operator.

        Nothing ever held there, so everything always did.
        """
        return tuple(node.op is Op.HISTORICALLY for node in self.nodes if node.op in PAST)

    def _step(self, memory: tuple[bool, ...], letter: frozenset[str]) -> tuple[list[bool], tuple[bool, ...]]:
        """What each node says at a step, and the memory after it."""
        values: list[bool] = []
        after: list[bool] = []
        for node in self.nodes:
            args = [values[argument] for argument in node.args]
            if node.op in PAST:
                before = memory[len(after)]
                value = _past_value(node.op, args, before)
                after.append(args[0] if node.op is Op.YESTERDAY else value)
            else:
                value = _boolean_value(node, args, letter)
            values.append(value)
        return values, tuple(after)


def _past_value(op: Op, args: list[bool], before: bool) -> bool:
    """What a past operator says. `before` is what it said at the step before, and for Y what its argument said."""
    if op is Op.YESTERDAY:
        return before
    if op is Op.ONCE:
        return args[0] or before
    if op is Op.HISTORICALLY:
        return args[0] and before
    return args[1] or (args[0] and before)  # a S b


def _boolean_value(node: Node, args: list[bool], letter: frozenset[str]) -> bool:
    match node.op:
        case Op.NAME:
            return node.name in letter
        case Op.NOT:
            return not args[0]
        case Op.AND:
            return all(args)
        case Op.OR:
            return any(args)
        case Op.IMPLIES:
            return not args[0] or args[1]
        case Op.IFF:
            return args[0] == args[1]
    return node.op is Op.TRUE


def _split(formula: LtlfFormula) -> _Past:
    """The past of a formula, and the rest with names instead."""
    prefix = "past "
    while any(name.startswith(prefix) for name in propositions_of(formula)):
        prefix += "'"
    inside = [node.op in PAST for node in formula.nodes]
    for index in range(formula.root, -1, -1):  # what a past operator consists of belongs to the past as well
        if inside[index]:
            for argument in formula.nodes[index].args:
                inside[argument] = True
    number: dict[int, int] = {}
    nodes: list[Node] = []
    names: dict[int, str] = {}
    builder, built = Builder(), []
    for index, node in enumerate(formula.nodes):
        if inside[index]:
            number[index] = len(nodes)
            nodes.append(node._replace(args=tuple(number[argument] for argument in node.args)))
        if node.op in PAST:
            names[number[index]] = name = f"{prefix}{len(names)}"
            built.append(builder.add(Op.NAME, (), name))
        else:
            built.append(builder.add(node.op, [built[argument] for argument in node.args], node.name))
    future = builder.formula(built[formula.root])
    read = set(propositions_of(future))
    return _Past(tuple(nodes), {index: name for index, name in names.items() if name in read}, future)
