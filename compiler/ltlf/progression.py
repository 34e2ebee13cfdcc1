"""Translates an LTLf formula to a minimal DFA over given letters. This module knows neither texts nor tokens.

The formula, in negation normal form, is split into conjuncts. Each becomes a small automaton by progression: a state
is a Boolean function of what the rest of the trace must satisfy (De Giacomo and Vardi, "Linear temporal logic and
linear dynamic logic on finite traces", 2013, read as functions). One product joins them, and one minimization
follows. All functions walk tables without recursion, so no formula is too deep.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np

from compiler.automata import Dfa, complement, minimize, product
from compiler.errors import LimitExceeded
from compiler.limits import ResourceGuard
from compiler.ltlf.bdd import FALSE, TRUE, MonotoneBdd
from compiler.ltlf.syntax import LtlfFormula, Node, Op, post_order, propositions_of

_NEGATED = {
    Op.TRUE: Op.FALSE, Op.FALSE: Op.TRUE, Op.NEXT: Op.WEAK_NEXT, Op.WEAK_NEXT: Op.NEXT, Op.AND: Op.OR, Op.OR: Op.AND,
    Op.UNTIL: Op.RELEASE, Op.RELEASE: Op.UNTIL,
}  # fmt: skip


def future_to_dfa(formula: LtlfFormula, letters: Sequence[frozenset[str]], guard: ResourceGuard) -> Dfa:
    """The minimal DFA of a formula without operators of the past. It is in canonical form.

    As `formula_to_dfa`. Raises ValueError when there are no letters, LimitExceeded over bdd_nodes_max, dfa_states_max
    (states of any stage, not only of the result) or compile_s_max.
    """
    if not letters:
        raise ValueError("an automaton needs at least one letter")
    names = propositions_of(formula)
    # [P, A]: whether proposition p holds in letter a.
    holds = np.array([[name in letter for letter in letters] for name in names], dtype=bool)
    holds = holds.reshape(len(names), len(letters))
    normal_form = _NormalForm()
    root = normal_form.of(formula, negated=False)
    negated = normal_form.nodes[root].op is Op.OR  # a disjunction is the complement of a conjunction
    # Small automata and one product are far cheaper than the progression of the whole formula: its states are sets of
    # what the conjuncts' states are.
    conjuncts = normal_form.conjuncts(normal_form.of(formula, negated=True) if negated else root)
    try:
        dfa = product(*_conjunct_dfas(normal_form, conjuncts, holds, guard), guard)
    except LimitExceeded as error:
        if error.limit != "dfa_states_max" or conjuncts == [root]:
            raise
        # translated as one formula, whose states stay fewer where one conjunct absorbs another
        [formula_dfa], _ = _conjunct_dfas(normal_form, [root], holds, guard)
        return minimize(formula_dfa, guard)
    return minimize(_reject_start(complement(dfa)) if negated else dfa, guard)


def _reject_start(dfa: Dfa) -> Dfa:
    """The same automaton without the empty word. A new start state is added, which no transition enters."""
    # Complementing accepts the empty trace, which LTLf excludes; an old start that is entered again keeps its
    # acceptance.
    table = np.vstack([dfa.next_state, dfa.next_state[dfa.start]])
    return Dfa(dfa.symbol_class, table, np.append(dfa.accepting, False), dfa.states)


# --- negation normal form -------------------------------------------------------------------------------------------


class _NormalForm:
    """Shared nodes of formulas in negation normal form. The nodes are constants, literals (a NAME, a NOT of one), X,
    WX, &, |, U and R.

    A literal's argument is the number of its proposition; `args` of the others are nodes.
    """

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self._index: dict[Node, int] = {}

    def add(self, op: Op, args: tuple[int, ...] = ()) -> int:
        node = Node(op, args)
        if node not in self._index:
            self._index[node] = len(self.nodes)
            self.nodes.append(node)
        return self._index[node]

    def of(self, formula: LtlfFormula, negated: bool) -> int:
        """The normal form of the formula, or of its negation."""
        polarities = _polarities(formula, negated)
        number = {name: index for index, name in enumerate(propositions_of(formula))}
        number_of: dict[tuple[int, bool], int] = {}
        for index, node in enumerate(formula.nodes):
            for flip in polarities[index]:
                if node.op is Op.NAME:
                    number_of[index, flip] = self.add(Op.NOT if flip else Op.NAME, (number[node.name],))
                elif node.op is Op.NOT:
                    number_of[index, flip] = number_of[node.args[0], not flip]
                # The only operator that needs both polarities of its arguments.
                elif node.op is Op.IFF:
                    number_of[index, flip] = self._iff(node.args, flip, number_of)
                else:
                    flips = (not flip, flip) if node.op is Op.IMPLIES else (flip,) * len(node.args)
                    parts = [number_of[argument, side] for argument, side in zip(node.args, flips, strict=True)]
                    number_of[index, flip] = self._temporal(node.op, parts, flip)
        return number_of[formula.root, negated]

    def _iff(self, args: tuple[int, ...], flip: bool, number_of: dict[tuple[int, bool], int]) -> int:
        """Both true or both false; negated, one of each."""
        left, right = args
        first = self.add(Op.AND, (number_of[left, False], number_of[right, flip]))
        second = self.add(Op.AND, (number_of[left, True], number_of[right, not flip]))
        return self.add(Op.OR, (first, second))

    def _temporal(self, op: Op, parts: list[int], flip: bool) -> int:
        """`op` over parts that are normal (and already negated where `flip`)."""

        def add(positive: Op, args: tuple[int, ...]) -> int:
            return self.add(_NEGATED[positive] if flip else positive, args)

        if op is Op.LAST:
            return add(Op.WEAK_NEXT, (add(Op.FALSE, ()),))
        if op is Op.FINALLY:
            return add(Op.UNTIL, (add(Op.TRUE, ()), parts[0]))
        if op is Op.GLOBALLY:
            return add(Op.RELEASE, (add(Op.FALSE, ()), parts[0]))
        if op is Op.WEAK_UNTIL:  # a W b = b R (a | b)
            return add(Op.RELEASE, (parts[1], add(Op.OR, (parts[0], parts[1]))))
        if op is Op.STRONG_RELEASE:  # a M b = b U (a & b)
            return add(Op.UNTIL, (parts[1], add(Op.AND, (parts[0], parts[1]))))
        return add(Op.OR if op is Op.IMPLIES else op, tuple(parts))

    def conjuncts(self, root: int) -> list[int]:
        """Nodes whose conjunction is `root`. A & is taken apart, also below X and WX and to the right of R."""
        split: dict[int, list[int]] = {}
        for index in post_order([() if node.op in (Op.NAME, Op.NOT) else node.args for node in self.nodes], root):
            node = self.nodes[index]
            # X (a & b) = X a & X b, and the same for WX; a R (b & c) = (a R b) & (a R c).
            if node.op is Op.AND:
                pieces = dict.fromkeys(part for argument in node.args for part in split[argument])
                split[index] = list(pieces)
            elif node.op in (Op.NEXT, Op.WEAK_NEXT, Op.RELEASE):
                # The left argument of R stays whole.
                *before, last = node.args
                split[index] = [self.add(node.op, (*before, part)) for part in split[last]]
            else:
                split[index] = [index]
        return split[root]


def _polarities(formula: LtlfFormula, negated: bool) -> list[set[bool]]:
    """The polarities of each node that the normal form needs.

    False stands for the node itself, True for its negation.
    """
    polarities: list[set[bool]] = [set() for _ in formula.nodes]
    polarities[formula.root].add(negated)
    # From the root down: a node's users come after it in the table, so its polarities are complete when it is read.
    for index in range(formula.root, -1, -1):
        node = formula.nodes[index]
        for position, argument in enumerate(node.args):
            if node.op is Op.IFF:
                polarities[argument] |= {False, True}
            elif node.op is Op.NOT or (node.op is Op.IMPLIES and position == 0):
                polarities[argument] |= {not flip for flip in polarities[index]}
            else:
                polarities[argument] |= polarities[index]
    return polarities


# --- one conjunct: progression --------------------------------------------------------------------------------------


def _conjunct_dfas(
    normal_form: _NormalForm, conjuncts: list[int], holds: np.ndarray, guard: ResourceGuard
) -> tuple[list[Dfa], list[np.ndarray]]:
    """The automata of the conjuncts, and bool [S] for each: False for the state in which it can no longer hold.

    Conjuncts that differ in the names of propositions only are translated once.
    holds  bool [P, A]: whether proposition p holds in letter a
    """
    tables: dict[tuple[tuple[Node, ...], tuple[int, ...]], tuple[np.ndarray, ...]] = {}
    dfas, live = [], []
    args = [() if node.op in (Op.NAME, Op.NOT) else node.args for node in normal_form.nodes]
    for root in conjuncts:
        guard.check_time()
        shape, propositions = _shape(normal_form.nodes, post_order(args, root))
        # a letter is read as the bit mask of the conjunct's own propositions: letters with one mask share a column
        wide = np.int64 if len(propositions) < 63 else object
        weights = np.array([1 << bit for bit in range(len(propositions))], dtype=wide)
        masks, column = np.unique(weights @ holds[propositions], return_inverse=True)
        key = (shape, tuple(masks.tolist()))
        if key not in tables:
            tables[key] = _progress(*key, guard)
        table, accepting, satisfiable = tables[key]
        dfas.append(Dfa(column.astype(np.int32), table, accepting))
        live.append(satisfiable)
    return dfas, live


def _shape(nodes: Sequence[Node], order: list[int]) -> tuple[tuple[Node, ...], list[int]]:
    """The nodes in `order`, renumbered, and their propositions by first occurrence.

    Conjuncts that differ only in the names of their propositions get the same nodes, and can share a table.
    """
    rank: dict[int, int] = {}
    propositions: dict[int, int] = {}
    shape: list[Node] = []
    for index in order:
        op, args, _ = nodes[index]
        if op in (Op.NAME, Op.NOT):
            renamed: tuple[int, ...] = (propositions.setdefault(args[0], len(propositions)),)
        else:
            renamed = tuple(rank[argument] for argument in args)
        rank[index] = len(shape)
        shape.append(Node(op, renamed))
    return tuple(shape), list(propositions)


def _progress(shape: tuple[Node, ...], masks: tuple[int, ...], guard: ResourceGuard) -> tuple[np.ndarray, ...]:
    """Translate one conjunct over letters given as bit masks.

    Returns the next states [S, K], accepting [S] and satisfiable [S]; 0 is the start.

    A state is a function of atoms: 2i, "there is a next step and node i holds from it", and 2i + 1, "if there is a
    next step, node i holds from it". A step replaces each atom by what node i asks of the letter read. The start is
    the atom "strong root", which no trace satisfies by ending: the empty trace is rejected.
    """
    bdd = MonotoneBdd(guard)
    # Both atoms of a node become the same function: once a step is read, there was a next step.
    # steps[k][atom]: the function that replaces the atom when the letter of column k is read
    steps = [np.repeat(_one_step(shape, mask, bdd), 2).tolist() for mask in masks]  # by atom
    # One memory of substitutions a letter: states share most of their nodes.
    results_by_letter: list[dict[int, int]] = [{} for _ in masks]
    ends: dict[int, bool] = {}
    weak = [False, True] * len(shape)  # at the end of a trace the weak atoms hold
    functions = [bdd.atom(2 * (len(shape) - 1))]
    number = {functions[0]: 0}
    rows: list[list[int]] = []
    for function in functions:  # grows as states are found
        row = []
        for step, results in zip(steps, results_by_letter, strict=True):
            following = bdd.substitute(function, step, results)
            # Equal functions are one BDD node, so a number identifies a state.
            if following not in number:
                number[following] = len(functions)
                functions.append(following)
            row.append(number[following])
        rows.append(row)
        guard.check("dfa_states_max", len(functions))
        guard.check_time()
    accepting = [bdd.holds(function, weak, ends) for function in functions]
    satisfiable = np.array(functions) != FALSE
    return np.array(rows, dtype=np.int32), np.array(accepting), satisfiable


def _one_step(shape: tuple[Node, ...], mask: int, bdd: MonotoneBdd) -> list[int]:
    """What each node, after a letter, requires from the next step on. The result has one function per node."""
    left: list[int] = []
    for index, (op, args, _) in enumerate(shape):
        if op in (Op.NAME, Op.NOT):
            left.append(TRUE if bool(mask >> args[0] & 1) is (op is Op.NAME) else FALSE)
        elif op in (Op.TRUE, Op.FALSE):
            left.append(TRUE if op is Op.TRUE else FALSE)
        elif op in (Op.NEXT, Op.WEAK_NEXT):
            left.append(bdd.atom(2 * args[0] + (op is Op.WEAK_NEXT)))
        elif op in (Op.AND, Op.OR):
            join = bdd.conjoin if op is Op.AND else bdd.disjoin
            left.append(reduce(join, (left[argument] for argument in args)))
        # a U b = b | (a & X(a U b)), with the strong next.
        elif op is Op.UNTIL:
            left.append(bdd.disjoin(left[args[1]], bdd.conjoin(left[args[0]], bdd.atom(2 * index))))
        else:
            left.append(bdd.conjoin(left[args[1]], bdd.disjoin(left[args[0]], bdd.atom(2 * index + 1))))
    return left
