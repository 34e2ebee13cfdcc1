"""Constraints over an alphabet of ids, for models that write no text. Each output is one label and one step.

A proposition holds at a label that one of its words is, or that its pattern matches whole. For whole-text constraints
and counts of characters the text is the labels joined by single spaces. Needs no transducer: a label is read at once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from compiler.automata import NO_END, ByteTransducer, CharDfa, Dfa, live_states, minimize
from compiler.errors import require
from compiler.lifting import TokenAutomaton, from_table
from compiler.limits import ResourceGuard
from compiler.regex import node_to_dfa
from compiler.spec import EOS, NOMATCH, STEP, Proposition
from compiler.text.checks import TextCheck, WordStep
from compiler.text.text_automaton import LabelAutomaton, TextAutomaton
from compiler.text.tree import CharLeaf, ConstraintTree, LengthLeaf, RegularLeaf, WordLeaf, boolean_dfa, leaves_of_type
from compiler.text.word_trace import proposition_node

SEPARATOR = " "


def label_automata(
    tree: ConstraintTree, labels: Sequence[str], guard: ResourceGuard
) -> tuple[TextAutomaton, TokenAutomaton]:
    """The automaton over sequences of labels, for people, and over their ids. The id len(labels) ends a sequence.

    Raises LimitExceeded over `dfa_states_max`, `table_bytes_max`, `letters_max` or `compile_s_max`.
    """
    guard.check("letters_max", len(labels))
    builder = _LabelDfaBuilder(labels, guard)
    # Labels that the constraint does not tell apart share a column, which is their token class.
    dfa = minimize(builder.dfa(tree), guard)
    # What people look at. A text automaton has a byte transducer; this one reads only the empty text.
    table = np.zeros((2, 1), dtype=np.int32)  # every byte leads to the dead state
    final_output = np.array([NO_END, 0], dtype=np.int32)
    silent = ByteTransducer(
        byte_class=np.zeros(256, dtype=np.int32), next_state=table, output=np.zeros_like(table),
        final_output=final_output, boundary_states=2, outputs=((),), start=1,
    )
    display = LabelAutomaton(
        transducer=silent,
        letters=dfa,
        symbol_names=tuple(labels),
        letter_names=builder.letter_names(tree),
        text_start=1,
        limits=guard.limits,
    )
    # The column of the id that ends a sequence means nothing: `from_table` gives it one of its own.
    ids = np.append(dfa.symbol_class, 0)
    return display, from_table(ids, dfa.next_state, dfa.accepting, dfa.start, eos_ids=(len(labels),))


def check_labels(automaton: TextAutomaton, labels: Sequence[str]) -> TextCheck:
    """Decide whether a sequence of labels satisfies the constraint; `violated_at` counts labels.

    Raises SpecSyntaxError where one is not of the constraint's alphabet.
    """
    number = {name: index for index, name in enumerate(automaton.symbol_names)}
    dfa, steps, violated_at = automaton.letters, list[WordStep](), None
    live = live_states(dfa)
    state = dfa.start
    for position, label in enumerate(labels):
        require(label in number, "the label is none of the constraint's labels", f"labels.{position}")
        state = dfa.step(state, number[label])
        steps.append(WordStep(label, automaton.letter_names[number[label]] or (), state))
        # The first label after which no continuation is accepted.
        if violated_at is None and not live[state]:
            violated_at = position
    if dfa.accepting[state]:
        return TextCheck(True, tuple(steps), None)
    return TextCheck(False, tuple(steps), len(labels) if violated_at is None else violated_at)


class _LabelDfaBuilder:
    """Builds the DFA of a tree over labels. Each label is one symbol."""

    def __init__(self, labels: Sequence[str], guard: ResourceGuard) -> None:
        self._labels, self._guard = labels, guard
        # By proposition, whether it holds at each label; a step is any label.
        self._truth_by_label: dict[Proposition, list[bool]] = {STEP: [True] * len(labels)}

    def dfa(self, tree: ConstraintTree) -> Dfa:
        """The automaton over labels of a tree."""
        return boolean_dfa(tree, self._leaf_dfa, self._guard)

    def _leaf_dfa(self, leaf: RegularLeaf) -> Dfa:
        match leaf:
            case WordLeaf():
                return self._words(leaf)
            case LengthLeaf():
                return self._length(leaf.max_chars)
            case CharLeaf():
                return self._texts(leaf.texts)

    def letter_names(self, tree: ConstraintTree) -> tuple[tuple[str, ...], ...]:
        """The propositions of the tree that hold at each label."""
        by_label: list[set[str]] = [set() for _ in self._labels]
        for leaf in leaves_of_type(tree, WordLeaf):
            for name, proposition in leaf.propositions.items():
                if proposition != STEP:
                    for names, holds in zip(by_label, self._holds(proposition), strict=True):
                        names.update([name] if holds else [])
        return tuple(tuple(sorted(names)) for names in by_label)

    def _holds(self, proposition: Proposition) -> list[bool]:
        # Each proposition is matched against the labels once, however many leaves use it.
        if proposition not in self._truth_by_label:
            pattern = CharDfa(*node_to_dfa(proposition_node(proposition, self._guard), self._guard))
            self._truth_by_label[proposition] = [pattern.accepts(label) for label in self._labels]
        return self._truth_by_label[proposition]

    def _words(self, leaf: WordLeaf) -> Dfa:
        """The automaton of a word leaf over labels. It reads what holds at each label. Its last step, if it has one, is
        read at the end.
        """
        holding = {name: self._holds(proposition) for name, proposition in leaf.propositions.items()}
        # The letter of each label: the leaf's propositions that hold at it.
        steps = [
            frozenset(name for name, holds in holding.items() if holds[number]) or frozenset((NOMATCH,))
            for number in range(len(self._labels))
        ]
        letters = list(dict.fromkeys([*steps, *([frozenset((EOS,))] if leaf.with_eos else [])]))
        leaf_dfa = leaf.build(letters, self._guard)
        symbol_class = leaf_dfa.symbol_class[[letters.index(step) for step in steps]]
        accepting = leaf_dfa.accepting
        if leaf.with_eos:
            accepting = accepting[leaf_dfa.next_state[:, leaf_dfa.symbol_class[letters.index(frozenset((EOS,)))]]]
        return Dfa(symbol_class, leaf_dfa.next_state, accepting, leaf_dfa.start)

    def _texts(self, texts: CharDfa) -> Dfa:
        """The DFA of the listed label texts.

        State s is that of the texts' automaton; the last state lies before the first label.
        """
        dfa, start = texts.dfa, texts.dfa.states
        self._guard.check("table_bytes_max", (start + 1) * len(self._labels) * 4)
        table = np.empty((start + 1, len(self._labels)), dtype=np.int32)
        for number, label in enumerate(self._labels):
            # A label is read whole, behind the separator.
            table[:start, number] = dfa.moves(texts.minterms.word(SEPARATOR + label))
            table[start, number] = dfa.run(texts.minterms.word(label))
        # No label at all is the empty text.
        accepting = np.append(dfa.accepting, dfa.accepting[dfa.start])
        return minimize(Dfa(np.arange(len(self._labels), dtype=np.int32), table, accepting, start), self._guard)

    def _length(self, most: int) -> Dfa:
        """The DFA of a length limit.

        State c has read c characters; most + 1 is too many, most + 2 lies before the first label.
        """
        self._guard.check_table(most + 3, len(self._labels))
        lengths = np.array([len(label) for label in self._labels])
        # [most + 2, labels]: every label but the first has a separator before it.
        after = np.minimum(np.arange(most + 2)[:, None] + len(SEPARATOR) + lengths, most + 1)
        table = np.vstack([after, np.minimum(lengths, most + 1)]).astype(np.int32)
        accepting = np.arange(most + 3) != most + 1
        return minimize(Dfa(np.arange(len(lengths), dtype=np.int32), table, accepting, most + 2), self._guard)
