"""The rules of a schema as automata that call each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from compiler.automata import UNREACHABLE, Dfa, canonical, minimize, steps_to
from compiler.json_schema.fragments import START, Fragment
from compiler.json_schema.rules.compiler import RuleCompiler
from compiler.json_schema.rules.letters import read_letters, rule_dfa, spelled
from compiler.limits import ResourceGuard
from compiler.pushdown import RuleDfa, equal_rules

_INLINED_STATES_MAX = 64  # of all copies of a scalar whose texts take the place of its letter
_Rules = dict[int, RuleDfa]


@dataclass(frozen=True, slots=True, eq=False)
class SchemaRules:
    """The rules of a schema.

    names   of the rules, for people: the fields that they stand for
    rules   the first one is the root, which reads the end of the text
    """

    names: tuple[str, ...]
    rules: tuple[RuleDfa, ...]


def schema_rules(compiler: RuleCompiler, texts: Sequence[Fragment | None], guard: ResourceGuard) -> SchemaRules | None:
    """The rules of a compiler's texts, of which equal ones are one. None where the first has no text."""
    read = {rule: read_letters(text) for rule, text in enumerate(texts) if text is not None}
    letters = {rule: sorted(each.rules & read.keys()) for rule, each in read.items()}
    needed = _reached(letters, 0)
    uses = Counter(rule for each in needed for edges in read[each].letters.values() for rule, _ in edges)
    inlined = {
        rule: read[rule].characters for rule in needed
        if read[rule].characters.states * uses[rule] <= _INLINED_STATES_MAX and compiler.is_scalar(rule)
    }
    rules, waiting = _Rules(), [0] if 0 in read else []
    while waiting:
        rule = waiting.pop()
        if rule not in rules and rule in read:
            text, minterms = read[rule].characters, compiler.alphabet.minterms
            if text in compiler.listed:
                dfa = canonical(Dfa(text.columns, text.table, text.label != 0, START))
                rules[rule] = RuleDfa(dfa, minterms, listed=True)
            else:
                rules[rule] = rule_dfa(spelled(read[rule], inlined, guard), minterms, guard)
            waiting += reversed(rules[rule].letters)
    rules = _distinct(_productive(rules, guard))
    if 0 not in rules:
        return None
    order = _reached({rule: each.letters for rule, each in rules.items()}, 0)
    # The root has the first number, and the first rule another one where it is called.
    letters_of_any = {called for rule in order for called in rules[rule].letters}
    called = [rule for rule in order if rule in letters_of_any]
    number = {rule: place for place, rule in enumerate(called, 1)}
    numbered = [_with_letters(rules[rule], [number[each] for each in rules[rule].letters]) for rule in called]
    root = _with_letters(rules[0], [number[each] for each in rules[0].letters]).with_end()
    fields = [compiler.field_of(rule) for rule in called]
    return SchemaRules(("the text", *fields), (root, *numbered))


def _reached(letters: Mapping[int, Sequence[int]], first: int) -> list[int]:
    """The rules that one needs, with itself, as they are met."""
    met, waiting = dict[int, None](), [first] if first in letters else []
    while waiting:
        rule = waiting.pop()
        if rule not in met:
            met[rule] = None
            waiting += reversed(letters[rule])
    return list(met)


def _productive(rules: _Rules, guard: ResourceGuard) -> _Rules:
    """The rules that have texts, without letters of others."""
    callers = dict[int, set[int]]()
    for rule, each in rules.items():
        for called in each.letters:
            callers.setdefault(called, set()).add(rule)
    productive, waiting = set[int](), list(reversed(rules))
    while waiting:
        guard.check_time()
        rule = waiting.pop()
        if rule not in productive and _has_text(rules[rule], productive):
            productive.add(rule)
            waiting += callers.get(rule, ())
    return {rule: _without_letters(each, productive) for rule, each in rules.items() if rule in productive}


def _symbols_of(rule: RuleDfa, productive: set[int]) -> list[int]:
    """The symbols that may be read: characters, and letters of productive rules."""
    count = rule.minterms.count
    return [*range(count), *(symbol for symbol, called in enumerate(rule.letters, count) if called in productive)]


def _has_text(rule: RuleDfa, productive: set[int]) -> bool:
    columns = np.unique(rule.dfa.symbol_class[_symbols_of(rule, productive)])
    return bool(steps_to(rule.dfa.next_state[:, columns], rule.dfa.accepting)[rule.dfa.start] != UNREACHABLE)


def _without_letters(rule: RuleDfa, productive: set[int]) -> RuleDfa:
    letters = tuple(called for called in rule.letters if called in productive)
    if len(letters) == len(rule.letters):
        return rule
    dfa = replace(rule.dfa, symbol_class=rule.dfa.symbol_class[_symbols_of(rule, productive)])
    return RuleDfa(minimize(dfa), rule.minterms, letters)


def _distinct(rules: _Rules) -> _Rules:
    """The rules, of which equal ones call each other under one number."""
    numbers = list(rules)
    place = {rule: position for position, rule in enumerate(numbers)}
    kinds = [
        tuple(array.tobytes() for array in (each.dfa.symbol_class, each.dfa.next_state, each.dfa.accepting))
        for each in rules.values()
    ]
    first = equal_rules(kinds, [[place[called] for called in each.letters] for each in rules.values()])
    return {
        numbers[each]: _with_letters(rules[numbers[each]], [numbers[first[place[called]]] for called in letters])
        for each in sorted(set(first))
        for letters in (rules[numbers[each]].letters,)
    }


def _with_letters(rule: RuleDfa, letters: Sequence[int]) -> RuleDfa:
    return replace(rule, letters=tuple(letters))
