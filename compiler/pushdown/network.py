"""Grammars to pushdown machines.

Each rule becomes a minimal DFA over characters and calls, and then over the bytes of UTF-8. Calls are expanded where
they stand: reading the first byte of a callee pushes the state to go on in. So a machine always reads a byte, and
deterministic grammars become deterministic machines in most cases.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from compiler.automata import (
    CODE_POINTS,
    CharDfa,
    CharSet,
    Dfa,
    Minterms,
    coarsened,
    expand,
    live_states,
    minterms,
    unique_rows,
    words_dfa,
)
from compiler.limits import ResourceGuard
from compiler.pushdown.grammar import END_SYMBOL, MARK_SYMBOL, SPENT_SYMBOL, Grammar, rule_of, symbol_of
from compiler.pushdown.machine import END, MARK_BYTE, NO_ACTION, NOWHERE, SPENT_BYTE, Action, PushdownMachine
from compiler.pushdown.preparation import prepared_rules
from compiler.regex import Node, determinize, node_nfa

INLINE_GROWTH_MAX = 2_000  # positions that are added where rules replace their calls
TEXT_END, MARKED, SPENT = -1, -2, -3  # in `RuleDfa.letters`: END, MARK_BYTE and SPENT_BYTE
_BYTE_OF_LETTER = {TEXT_END: END, MARKED: MARK_BYTE, SPENT: SPENT_BYTE}
_LETTER_OF_SYMBOL = {END_SYMBOL: TEXT_END, MARK_SYMBOL: MARKED, SPENT_SYMBOL: SPENT}
_NONE = -1  # in place of a state
_CHARACTERS = {  # by the first byte of their UTF-8, the code points; surrogates are none
    **{byte: (byte, byte + 1) for byte in range(0x80)},
    **{0xC0 + lead: (lead << 6, lead + 1 << 6) for lead in range(2, 32)},
    **{0xE0 + lead: (max(lead << 12, 0x800), 0xD800 if lead == 13 else lead + 1 << 12) for lead in range(16)},
    **{0xF0 + lead: (max(lead << 18, 0x10000), min(lead + 1 << 18, CODE_POINTS)) for lead in range(5)},
}


@dataclass(frozen=True, slots=True, eq=False)
class RuleDfa:
    """A rule as a DFA over characters and letters. Raises ValueError where the symbols are not these.

    dfa       its symbols are the minterms, then one for each letter
    letters   the rule that each letter calls, given by its number, or a byte that no text holds
    listed    whether its texts are listed one by one: their length then bounds its states
    """

    dfa: Dfa
    minterms: Minterms
    letters: tuple[int, ...] = ()
    listed: bool = False

    def __post_init__(self) -> None:
        if self.dfa.symbols != self.minterms.count + len(self.letters):
            raise ValueError("one symbol for each minterm and each letter")

    def with_end(self) -> RuleDfa:
        """The rule with the end of the text behind its texts. It is a root."""
        dfa = self.dfa
        states, columns = dfa.next_state.shape
        dead, end = states, states + 1
        table = np.full((states + 2, columns + 1), dead, dtype=np.int32)
        table[:states, :columns] = dfa.next_state
        table[:states, columns][dfa.accepting] = end
        symbols = np.append(dfa.symbol_class, columns).astype(np.int32)
        ended = Dfa(symbols, table, np.arange(states + 2) == end, dfa.start)
        return replace(self, dfa=ended, letters=(*self.letters, TEXT_END))

    def without_end(self) -> RuleDfa:
        """The rule of a root, without the end of the text."""
        dfa, column = self.dfa, self.minterms.count + self.letters.index(TEXT_END)
        accepting = dfa.accepting[dfa.next_state[:, dfa.symbol_class[column]]]
        others = Dfa(np.delete(dfa.symbol_class, column), dfa.next_state, accepting, dfa.start)
        return replace(self, dfa=others, letters=tuple(each for each in self.letters if each != TEXT_END))


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _Component:
    """The automaton of one rule over bytes. N states, of which the first lie between characters.

    byte_class  int [257]   the column of each byte, and of END
    target      int [N, K]  the state behind a byte, or _NONE
    extends     bool [N, 257]  whether a byte makes a text of a terminal a longer one; [0, 257] for other rules
    calls       for some states, the called rules, each with the state behind it
    final       bool [N]    the states in which a text of the rule may end
    start       int
    """

    byte_class: np.ndarray
    target: np.ndarray
    extends: np.ndarray
    calls: dict[int, list[tuple[int, int]]]
    final: np.ndarray
    start: int


def build_machine(
    grammar: Grammar, guard: ResourceGuard, *, inline_growth_max: int = INLINE_GROWTH_MAX
) -> PushdownMachine:
    """The pushdown machine of a grammar's texts.

    inline_growth_max  as in `prepared_rules`, 0 for no inlining; it changes the machine's size, never its language
    Raises what `prepared_rules` raises, and LimitExceeded over `nfa_positions_max`, `dfa_states_max` (of all rules
    together but those that are listed), `table_bytes_max` or `compile_s_max`.

    >>> from compiler.limits import DEFAULT_LIMITS
    >>> from compiler.pushdown.grammar import call
    >>> from compiler.regex import Concat, Repeat, literal_node
    >>> nested = Concat((literal_node("(", False), Repeat(call(0), 0, 1), literal_node(")", False)))
    >>> machine = build_machine(Grammar(("brackets",), (nested,)), ResourceGuard(DEFAULT_LIMITS))
    >>> machine.accepts(b"((()))"), machine.accepts(b"(()"), machine.conflicts()
    (True, False, [])
    """
    prepared = prepared_rules(grammar, inline_growth_max, guard)
    return network_machine(
        prepared.names, (rule_dfa(rule, guard) for rule in prepared.rules), guard, prepared.terminals,
        budgets=dict.fromkeys(prepared.single_tokens, 1), marks=prepared.marks,
    )  # fmt: skip


def network_machine(
    names: Sequence[str],
    rules: Iterable[RuleDfa],
    guard: ResourceGuard,
    terminals: Collection[int] = (),
    *,
    budgets: Mapping[int, int] | None = None,
    marks: tuple[str, ...] = (),
) -> PushdownMachine:
    """The pushdown machine of rules. The first one is the root, which alone reads TEXT_END, as the last letter.

    terminals  as in a grammar
    budgets    by rule, how many tokens may write its texts. It calls no rule, and reads SPENT to be left at once
    marks      as in a machine
    Rules derive no empty text, and none begins with itself. Raises LimitExceeded as `build_machine`.
    """
    components, states = [], 0
    for number, rule in enumerate(rules):
        components.append(_component(rule, number in terminals, guard))
        states += 0 if rule.listed else len(components[-1].final)
        guard.check("dfa_states_max", states)
    with guard.recursion():
        machine = _Network(components, guard).machine(tuple(names))
    of_rule = tuple((budgets or {}).get(rule, 0) for rule in range(len(components)))
    return replace(machine, budgets=of_rule if any(of_rule) else (), marks=marks)


def rule_dfa(rule: Node, guard: ResourceGuard) -> RuleDfa:
    nfa = node_nfa(rule, guard)
    parts = minterms(nfa.sets)
    # Each letter that is no character gets a symbol of its own, behind the minterms.
    letters = [charset for charset in nfa.sets if symbol_of(charset) is not None]
    symbol = {charset: parts.count + position for position, charset in enumerate(letters)}
    members = tuple(
        (symbol[charset],) if charset in symbol else chosen
        for charset, chosen in zip(nfa.sets, parts.members, strict=True)
    )
    dfa, _ = determinize(nfa, guard, replace(parts, count=parts.count + len(letters), members=members))
    return RuleDfa(dfa, parts, tuple(map(_letter_of, letters)))


def words_rule(words: Sequence[Sequence[CharSet]], guard: ResourceGuard) -> RuleDfa:
    """The rule of these words. Each symbol of a word is one character, or what no text holds, as calls."""
    symbols = dict.fromkeys(charset for word in words for charset in word)
    parts = minterms([charset for charset in symbols if symbol_of(charset) is None])
    letters = [charset for charset in symbols if symbol_of(charset) is not None]
    number = {charset: parts.count + place for place, charset in enumerate(letters)}
    number |= {charset: int(parts.of(np.array(charset[0][0]))) for charset in symbols if charset not in number}
    dfa = words_dfa((map(number.__getitem__, word) for word in words), parts.count + len(letters), guard)
    return RuleDfa(dfa, parts, tuple(map(_letter_of, letters)))


def _letter_of(charset: CharSet) -> int:
    """The letter of a symbol that is no character."""
    rule = rule_of(charset)
    return _LETTER_OF_SYMBOL[charset[0][0]] if rule is None else rule


def _component(rule: RuleDfa, terminal: bool, guard: ResourceGuard) -> _Component:
    """The automaton of a rule over bytes."""
    dfa, symbols = rule.dfa, rule.minterms.count
    # Characters that the rule does not tell apart are one minterm: tables then have the columns of the DFA.
    parts = coarsened(CharDfa(replace(dfa, symbol_class=dfa.symbol_class[:symbols]), rule.minterms)).minterms
    # Dead states go: what is left is numbered, and `count` stands for dead.
    live = live_states(dfa)
    count = int(live.sum())
    number = np.where(live, np.cumsum(live) - 1, count).astype(np.int32)
    table = number[dfa.next_state[live]]
    expanded = expand(table, parts, count, guard)
    entry = expanded.table
    # An entry below 0 leads inside a character: inner state i follows the `count` states between characters.
    target = np.where(entry < 0, count - 1 - entry, np.where(entry == count, _NONE, entry))
    byte_class = np.append(expanded.byte_class, target.shape[1])
    calls = dict[int, list[tuple[int, int]]]()
    target = np.hstack([target, np.full((len(target), 1), _NONE, dtype=np.int32)])
    for column, called in zip(dfa.symbol_class[symbols:], rule.letters, strict=True):
        byte, reads = _BYTE_OF_LETTER.get(called), np.flatnonzero(table[:, column] != count)
        if byte is not None:
            byte_class[byte] = target.shape[1]
            target = np.hstack([target, np.full((len(target), 1), _NONE, dtype=np.int32)])
            target[reads, -1] = table[reads, column]
        else:
            for state in reads.tolist():
                calls.setdefault(state, []).append((called, int(table[state, column])))
    final = np.zeros(len(target), dtype=bool)
    final[:count] = dfa.accepting[live]
    extends = np.zeros((len(target) if terminal else 0, END + 1), dtype=bool)
    for state in np.flatnonzero(final).tolist() if terminal else ():
        longer = np.append(final[:count], False)[table[state]]  # `count` is dead
        extends[state] = _first_bytes(parts.charset(np.flatnonzero(longer).tolist()))
    return _Component(
        byte_class=byte_class, target=target, extends=extends, calls=calls, final=final, start=int(number[dfa.start]),
    )  # fmt: skip


def _first_bytes(characters: CharSet) -> np.ndarray:
    """The bytes with which only characters of the set begin: bool [257]."""
    begins = np.zeros(END + 1, dtype=bool)
    for byte, (first, end) in _CHARACTERS.items():
        begins[byte] = any(low <= first and end <= high for low, high in characters)
    return begins


class _Network:
    """Expands the calls between components with joint states and columns.

    `target` is int [Q, K], as in `_Component`, and `extends` bool [Q, K]. A call is a rule and the state behind it.
    """

    def __init__(self, components: list[_Component], guard: ResourceGuard) -> None:
        self._guard = guard
        sizes = [len(component.final) for component in components]
        first = (np.cumsum(sizes) - sizes).tolist()
        # Two bytes share a column where they do in every component.
        columns = [
            np.column_stack([component.byte_class, component.extends[component.extends.any(axis=1)].T])
            for component in components
        ]
        example, self._byte_class = unique_rows(np.column_stack(columns))
        guard.check("table_bytes_max", 4 * sum(sizes) * len(example))
        self._target = np.concatenate([
            np.where(component.target < 0, _NONE, component.target + np.int32(offset))[
                :, component.byte_class[example]
            ]
            for component, offset in zip(components, first, strict=True)
        ])  # fmt: skip
        self._extends = np.zeros(self._target.shape, dtype=bool)
        for component, offset in zip(components, first, strict=True):
            self._extends[offset : offset + len(component.extends)] = component.extends[:, example]
        self._final = np.concatenate([component.final for component in components])
        self._code = np.repeat(np.arange(len(components)), sizes)
        self._starts = [component.start + offset for component, offset in zip(components, first, strict=True)]
        self._calls = {
            state + offset: [(rule, behind + offset) for rule, behind in calls]
            for component, offset in zip(components, first, strict=True)
            for state, calls in component.calls.items()
        }
        reads = (self._target != _NONE).any(axis=1)
        reads[list(self._calls)] = True
        self._eager = self._final & ~reads
        # A call whose caller is over behind it pushes nothing. Else right recursion would make stacks grow.
        behind = {each for calls in self._calls.values() for _, each in calls if not self._eager[each]}
        self._symbol = {state: symbol for symbol, state in enumerate(sorted(behind))}
        self._readings_by_state: dict[int, dict[int, dict[Action, None]]] = {}

    def machine(self, names: tuple[str, ...]) -> PushdownMachine:
        action, choices = self._actions()
        resume = self._resume(len(names))
        return PushdownMachine(
            byte_class=self._byte_class.astype(np.int32), action=action, choices=choices,
            pop=self._pop(action, resume), code=self._code.astype(np.int32), eager=self._eager, resume=resume,
            start=self._starts[0], rules=names,
        )  # fmt: skip

    def _actions(self) -> tuple[np.ndarray, tuple[tuple[Action, ...], ...]]:
        """The tables `action` and `choices` of the machine."""
        states = len(self._code)
        action = self._target - np.int32(_NONE) + np.int32(NO_ACTION)
        numbers = dict[tuple[Action, ...], int]()
        for state in self._calls:
            for column, actions in self._readings(state).items():
                choice = tuple(actions)
                if len(choice) > 1 or choice[0][0]:
                    action[state, column] = 1 + states + numbers.setdefault(choice, len(numbers))
                else:
                    action[state, column] = 1 + choice[0][1]
        return action, tuple(numbers)

    def _readings(self, state: int) -> dict[int, dict[Action, None]]:
        """What reading a byte may do in a state, by column. A call does what its rule's start does."""
        if state not in self._readings_by_state:
            self._guard.check_time()
            readings = dict[int, dict[Action, None]]()
            for column in np.flatnonzero(self._target[state] != _NONE).tolist():
                readings.setdefault(column, {})[(), int(self._target[state, column])] = None
            for rule, behind in self._calls.get(state, ()):
                pushed = () if self._eager[behind] else (self._symbol[behind],)
                # Without left recursion the way from start to start ends.
                for column, actions in self._readings(self._starts[rule]).items():
                    also = {((*pushed, *symbols), target): None for symbols, target in actions}
                    readings.setdefault(column, {}).update(also)
            self._readings_by_state[state] = readings
        return self._readings_by_state[state]

    def _resume(self, codes: int) -> np.ndarray:
        """The table `resume` of the machine: int32 [S, R].

        A symbol goes on after the code of its callee, or of a rule that stands for the callee by a call without push.
        """
        tails = [set[int]() for _ in range(codes)]
        for state, calls in self._calls.items():
            tails[self._code[state]].update(rule for rule, behind in calls if self._eager[behind])
        self._guard.check("table_bytes_max", 4 * len(self._symbol) * codes)
        resume = np.full((len(self._symbol), codes), NOWHERE, dtype=np.int32)
        for rule, behind in {call for calls in self._calls.values() for call in calls}:
            if not self._eager[behind]:
                left, waiting = {rule}, [rule]
                while waiting:
                    further = tails[waiting.pop()] - left
                    left |= further
                    waiting += further
                resume[self._symbol[behind], list(left)] = behind
        return resume

    def _pop(self, action: np.ndarray, resume: np.ndarray) -> np.ndarray:
        """The table `pop` of the machine: bool [Q, K]. A component is left before the bytes that may follow it."""
        symbol, code = (resume != NOWHERE).nonzero()
        behind = resume[symbol, code]
        begins, caller = action[behind] != NO_ACTION, self._code[behind]
        follow = np.zeros((resume.shape[1], action.shape[1]), dtype=bool)  # FOLLOW, by code
        while True:
            self._guard.check_time()
            # Behind a state that may end its own component comes what follows that component.
            reached = begins | (follow[caller] & self._final[behind][:, None])
            larger = follow.copy()
            np.logical_or.at(larger, code, reached)
            if (larger == follow).all():
                return np.asarray(follow[self._code] & (self._final & ~self._eager)[:, None] & ~self._extends)
            follow = larger
