"""Sequences of parts as leaves of the tree.

The parts become the rules of a pushdown machine: the sequence itself is the root, which calls a rule for each part that
is no literal text. Where all parts are regular, and no token is named or counted, a small automaton over characters
takes the machine's place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from itertools import takewhile
from typing import TypeAlias

import numpy as np

from compiler.automata import CharDfa, CharSet, Dfa, char_complement, everything, is_empty, minterms, single
from compiler.errors import LimitExceeded, SpecUnsupported
from compiler.forms.concatenation import inlined
from compiler.limits import SIZE_LIMITS, ResourceGuard
from compiler.pushdown import (
    END_SYMBOL,
    SPENT,
    PushdownMachine,
    RuleDfa,
    call,
    derives_empty,
    distinct_rules,
    named_token,
    network_machine,
    regular_machine,
    rule_dfa,
    symbol_of,
    words_rule,
)
from compiler.regex import Alternation, Chars, Concat, Node, Repeat, concat, leaves_of, literal_node, positions_of
from compiler.spec import (
    AnyPart,
    CapturePart,
    FreePart,
    OptionalPart,
    Part,
    RepeatPart,
    SequencePart,
    SequenceSpec,
    Spec,
    TextPart,
    TokenPart,
    all_parts,
    field_prefix,
    inner_parts,
)
from compiler.text import CharLeaf, PushdownLeaf

EXPLICIT_STATES_MAX = 5_000  # up to where an automaton takes the place of rules, as for schemas
_TEXT = "the text"  # the name of the root
_FREE, _OPTIONS, _REST = "free text", "options", "an option"
_LIST_ENTRY_BYTES = 8
_OPTION_POSITIONS_MAX = 1_000  # of options that are part of the rule around them, and stand in it as often as it is


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PartRules:
    """The rules of a part with a constraint of its own. The first one is the part; letters count from it.

    terminals, single_tokens, marks  as in a grammar
    """

    names: tuple[str, ...]
    rules: tuple[RuleDfa, ...]
    terminals: frozenset[int] = frozenset()
    single_tokens: frozenset[int] = frozenset()
    marks: tuple[str, ...] = ()


PartTexts: TypeAlias = CharDfa | PartRules
Compile: TypeAlias = Callable[[Spec], PartTexts]


def sequence_leaf(
    spec: SequenceSpec,
    compiled: Compile,
    guard: ResourceGuard,
    path: tuple[str, ...],
    *,
    regular: bool,
    left_out: list[LimitExceeded],
    approximated: list[tuple[str, ...]],
) -> PushdownLeaf | CharLeaf:
    """The texts of a sequence that stands at a path.

    compiled  makes the texts of a part's constraint; the lists receive what these leave out and approximate
    regular   whether only an automaton over characters serves
    Raises what `compiled` raises, SpecUnsupported where no such automaton exists, LimitExceeded where it outgrows a
    limit.
    """
    rules = _Rules(compiled, guard)
    root = rules.root(spec)
    strips_space = spec.leading_space == "strip"
    counts_or_names = any(isinstance(part, TokenPart) for part in all_parts(spec.root)) or bool(rules.budgets)
    if regular and (counts_or_names or rules.recursive):
        raise SpecUnsupported(
            "inside labels, schemas and combinations in a sequence, a sequence has no tokens, no max_tokens and no "
            "grammars", construct="sequence of tokens or grammars", field="sequence",
        )  # fmt: skip

    def explicit(states_max: int | None = None) -> CharLeaf:
        limited = guard if states_max is None else guard.with_limits(dfa_states_max=states_max)
        # Where nothing is counted or named, the parts read their texts already.
        of_text = _Rules(compiled, guard, reads_text=True) if counts_or_names else replace(rules, reads_text=True)
        texts = inlined(of_text.root(spec), of_text.texts, limited)
        return CharLeaf(texts, strips_space, tuple(left_out), tuple(approximated))

    if regular:
        return explicit()
    if not counts_or_names and not rules.recursive:
        try:
            return explicit(min(EXPLICIT_STATES_MAX, guard.limits.dfa_states_max))
        except LimitExceeded as error:
            if error.limit not in (*SIZE_LIMITS, "nfa_positions_max"):
                raise
    if not root.dfa.accepting.any():
        return CharLeaf(char_complement(everything()), strips_space, tuple(left_out))
    machine = rules.machine(root)
    exact = None if rules.recursive or left_out else explicit
    return PushdownLeaf(
        machine=machine, source=spec, leading_space=strips_space, field=".".join((*path, "sequence")),
        left_out=tuple(left_out), approximated=tuple(approximated), bounded=None if counts_or_names else exact,
        rejected=exact if counts_or_names else None,
    )  # fmt: skip


def part_machine(texts: PartTexts, guard: ResourceGuard) -> PushdownMachine | None:
    """The machine of a part's texts. None without a text."""
    if isinstance(texts, CharDfa):
        return None if is_empty(texts.dfa) else regular_machine(texts, guard)
    root = texts.rules[0].with_end()
    return network_machine(
        texts.names, (root, *texts.rules[1:]), guard, texts.terminals,
        budgets=dict.fromkeys(texts.single_tokens, 1), marks=texts.marks,
    )  # fmt: skip


@dataclass
class _Rules:
    """Collects the rules of a sequence. Their numbers begin with 1, as the root is rule 0.

    reads_text  whether tokens are read as their names, and budgets may end anywhere
    texts       the automata of rules that call no other one
    """

    compiled: Compile
    guard: ResourceGuard
    _: KW_ONLY
    reads_text: bool = False
    names: list[str] = field(default_factory=list)
    rules: list[RuleDfa] = field(default_factory=list)
    terminals: set[int] = field(default_factory=set)
    budgets: dict[int, int] = field(default_factory=dict)
    marks: dict[str, None] = field(default_factory=dict)
    texts: dict[int, CharDfa] = field(default_factory=dict)
    recursive: bool = False
    _nodes: dict[Spec | FreePart, Node] = field(default_factory=dict)

    def root(self, spec: SequenceSpec) -> RuleDfa:
        """The rule of the whole sequence, which calls the others."""
        with self.guard.recursion():
            return rule_dfa(concat([self._node(spec.root), Chars(single(END_SYMBOL))]), self.guard)

    def machine(self, root: RuleDfa) -> PushdownMachine:
        """The machine of a root and these rules.

        Equal rules are one: the values of any JSON are in many parts.
        """
        kinds = {rule: (rule in self.terminals, self.budgets.get(rule)) for rule in range(1 + len(self.rules))}
        kept, shared = distinct_rules((root, *self.rules), kinds)
        names, number = (_TEXT, *self.names), {rule: place for place, rule in enumerate(kept)}
        return network_machine(
            [names[rule] for rule in kept], shared, self.guard, {number[rule] for rule in self.terminals & set(kept)},
            budgets={number[rule]: budget for rule, budget in self.budgets.items() if rule in number},
            marks=tuple(self.marks),
        )  # fmt: skip

    def _node(self, part: Part) -> Node:
        """The pattern of a part, with calls of the rules."""
        inside = []
        for path, each in inner_parts(part):
            with field_prefix(path):
                inside.append(self._node(each))
        match part:
            case str():
                return literal_node(part, ignore_case=False)
            case TokenPart():
                return self._token(part.name)
            case FreePart() | TextPart():
                key = part.spec if isinstance(part, TextPart) else part
                if key not in self._nodes:
                    self._nodes[key] = self._texts(part)
                return self._nodes[key]
            case OptionalPart():
                return Repeat(inside[0], 0, 1)
            case RepeatPart():
                return _repeated(part, inside)
            case AnyPart():
                return self._any(inside)
            case CapturePart() | SequencePart():
                return concat(inside)

    def _any(self, options: Sequence[Node]) -> Node:
        """The pattern of any one of the options.

        Many of them share their beginnings and ends, as words of a rule.
        """
        node = Alternation(tuple(options))
        if self.reads_text or positions_of(node) <= _OPTION_POSITIONS_MAX:
            return node
        words = [word for option in options for word in self._words(option)]
        return self._add(words_rule(words, self.guard), _OPTIONS)

    def _words(self, option: Node) -> Iterator[list[CharSet]]:
        """The words of an option. What does not begin with a symbol is a rule of its own."""
        items = option.items if isinstance(option, Concat) else (option,)
        word = [each.charset for each in takewhile(_is_symbol, items) if isinstance(each, Chars)]
        rest = concat(items[len(word) :])
        if len(word) < len(items):
            rest = self._add(rule_dfa(rest, self.guard), _REST)
        if derives_empty(rest, set()):
            yield word
        yield from ([*word, leaf.charset] for leaf in leaves_of(rest) if isinstance(leaf, Chars))

    def _token(self, name: str) -> Node:
        if self.reads_text:
            return literal_node(name, ignore_case=False)
        self.marks[name] = None
        return named_token(name)

    def _texts(self, part: FreePart | TextPart) -> Node:
        """The call of a rule with these texts."""
        if isinstance(part, TextPart):
            texts = self.compiled(part.spec)
            return self._add_texts(texts, part.spec.form) if isinstance(texts, CharDfa) else self._add_rules(texts)
        budget = None if self.reads_text else part.max_tokens
        rule = free_rule(part, self.guard, counted=budget is not None)
        if budget is None:
            return self._add_texts(CharDfa(rule.dfa, rule.minterms), _FREE)
        self.budgets[1 + len(self.rules)] = budget
        return self._add(rule, _FREE)

    def _add_texts(self, texts: CharDfa, name: str) -> Node:
        self.texts[1 + len(self.rules)] = texts
        return self._add(RuleDfa(texts.dfa, texts.minterms), name)

    def _add_rules(self, part: PartRules) -> Node:
        self.recursive = True
        first = 1 + len(self.rules)
        self.terminals |= {first + each for each in part.terminals}
        self.budgets |= {first + each: 1 for each in part.single_tokens}
        self.marks |= dict.fromkeys(part.marks)
        moved = [
            replace(rule, letters=tuple(each + first if each >= 0 else each for each in rule.letters))
            for rule in part.rules
        ]
        node = self._add(moved[0], part.names[0])
        self.rules += moved[1:]
        self.names += part.names[1:]
        return node

    def _add(self, rule: RuleDfa, name: str) -> Node:
        self.rules.append(rule)
        self.names.append(name)
        if is_empty(rule.dfa):
            return Alternation(())
        # What is called reads at least one byte.
        called = call(len(self.rules))
        return Repeat(called, 0, 1) if rule.dfa.accepting[rule.dfa.start] else called


def _is_symbol(node: Node) -> bool:
    """Whether a pattern is one character, or what no text holds."""
    if not isinstance(node, Chars) or not node.charset:
        return False
    return symbol_of(node.charset) is not None or node.charset == single(node.charset[0][0])


def _repeated(part: RepeatPart, inside: Sequence[Node]) -> Node:
    """The pattern of a repeated part, from those inside it."""
    if len(inside) == 1:
        return Repeat(inside[0], part.minimum, part.maximum)
    item, separator = inside
    if part.maximum == 0:
        return concat([])
    further = Repeat(
        concat([separator, item]), max(part.minimum - 1, 0), None if part.maximum is None else part.maximum - 1
    )
    several = concat([item, further])
    return Repeat(several, 0, 1) if part.minimum == 0 else several


def free_rule(part: FreePart, guard: ResourceGuard, *, counted: bool) -> RuleDfa:
    """The automaton of free text (Aho and Corasick 1975).

    counted  whether SPENT ends it where a budget does; else a budget may end it anywhere behind its first character
    """
    strings = (*part.until, *part.without)
    parts = minterms([single(ord(character)) for character in sorted(set("".join(strings)))])
    copies = 1 if part.max_chars is None else part.max_chars + 1
    guard.check_table((sum(map(len, strings)) + 1) * copies, parts.count, _LIST_ENTRY_BYTES)
    trie = _Trie(part, parts.count, [parts.word(text) for text in strings])
    # With a bound on characters, a copy of the nodes for each count of them.
    nodes = len(trie.table)
    # Behind the nodes: the start, which is the root before any character, and states without and with an end.
    start, dead, done, spent = (nodes * copies + each for each in range(4))
    behind = np.arange(copies) if part.max_chars is None else np.arange(copies) + 1
    target = np.where(trie.forbidden, dead, np.where(trie.ending, done, behind[:, None] * nodes + np.arange(nodes)))
    if part.max_chars is not None:
        target[-1] = dead
    rows = target[:, np.array(trie.table)].reshape(nodes * copies, parts.count)
    table = np.vstack([rows, rows[:1], np.full((3, parts.count), dead)])
    accepting = np.full(len(table), not part.until)
    accepting[[dead, done, spent]] = False, True, counted
    ends_anywhere = part.max_tokens is not None and not counted
    accepting[: nodes * copies] |= ends_anywhere
    letters: tuple[int, ...] = ()
    if counted:
        end = np.full((len(table), 1), dead)
        end[: nodes * copies] = end[spent] = spent
        table, letters = np.hstack([table, end]), (SPENT,)
    symbols = np.arange(table.shape[1], dtype=np.int32)
    return RuleDfa(Dfa(symbols, table.astype(np.int32), accepting, start), parts, letters)


class _Trie:
    """The trie of strings with the links of Aho and Corasick followed. Node 0 is its root.

    table      the node after each symbol
    ending     bool [N]  a string of `until` ends in the node
    forbidden  bool [N]  a string of `without` ends in it
    """

    def __init__(self, part: FreePart, symbols: int, words: Sequence[Sequence[int]]) -> None:
        below, ends = [dict[int, int]()], [set[int]()]
        for number, word in enumerate(words):
            at = 0
            for symbol in word:
                if symbol not in below[at]:
                    below[at][symbol] = len(below)
                    below.append({})
                    ends.append(set())
                at = below[at][symbol]
            ends[at].add(int(number >= len(part.until)))
        self.table = [[0] * symbols for _ in below]
        link, waiting = [0] * len(below), [0]
        for node in waiting:  # grows while it is walked, level by level
            ends[node] |= ends[link[node]]
            row = self.table[link[node]]
            self.table[node] = [below[node].get(symbol, row[symbol] if node else 0) for symbol in range(symbols)]
            for symbol, child in below[node].items():
                link[child] = row[symbol] if node else 0
                waiting.append(child)
        self.ending = np.array([0 in each for each in ends])
        self.forbidden = np.array([1 in each for each in ends])
