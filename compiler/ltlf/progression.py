"""From an LTLf formula to the minimal DFA over a given list of letters. Knows nothing of text or tokens.

The formula, in negation normal form, is split into conjuncts. Each becomes a small automaton by progression: a state
is a Boolean function of what the rest of the trace must satisfy (De Giacomo and Vardi, "Linear temporal logic and
linear dynamic logic on finite traces", 2013, read as functions). One product joins them, one minimisation ends it.
Everything walks tables: no recursion, so no formula is too deep.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from compiler.automata import Dfa, complement, minimize, unique_rows
from compiler.errors import LimitExceeded
from compiler.limits import ResourceGuard
from compiler.ltlf.bdd import FALSE, TRUE, MonotoneBdd
from compiler.ltlf.syntax import Formula, Node, Op, post_order, propositions_of

_CELLS = 2_000_000  # gathered at once in the product: some 50 MB, whatever the formula
_SINK = np.int64(1) << 62  # the code of the product's rejecting sink, and the flag of any part that has entered its own
_WORD_BITS = 62  # bits of one code word that hold states, below the flag
_NEGATED = {
    Op.TRUE: Op.FALSE, Op.FALSE: Op.TRUE, Op.NEXT: Op.WEAK_NEXT, Op.WEAK_NEXT: Op.NEXT, Op.AND: Op.OR, Op.OR: Op.AND,
    Op.UNTIL: Op.RELEASE, Op.RELEASE: Op.UNTIL,
}  # fmt: skip


def formula_to_dfa(formula: Formula, letters: Sequence[frozenset[str]], guard: ResourceGuard) -> Dfa:
    """The minimal DFA, in canonical form, of the traces over `letters` that satisfy the formula.

    Symbol i is letters[i], the set of the propositions that hold at a step. The empty trace is rejected. Names of the
    formula that no letter holds are false throughout. Raises ValueError when there are no letters, LimitExceeded over
    bdd_nodes_max, dfa_states_max (states of any stage, not only of the result) or compile_s_max.
    """
    if not letters:
        raise ValueError("an automaton needs at least one letter")
    names = propositions_of(formula)
    holds = np.array([[name in letter for letter in letters] for name in names], dtype=bool)
    holds = holds.reshape(len(names), len(letters))
    normal = _Normal()
    root = normal.of(formula, negated=False)
    negated = normal.nodes[root].op is Op.OR  # a disjunction is the complement of a conjunction
    conjuncts = normal.conjuncts(normal.of(formula, negated=True) if negated else root)
    try:
        dfa = _product(_parts(normal, conjuncts, holds, guard), guard)
    except LimitExceeded as error:
        if error.limit != "dfa_states_max" or conjuncts == [root]:
            raise
        whole = _parts(normal, [root], holds, guard)  # as one: parts may absorb one another
        return minimize(_product(whole, guard), guard)
    return minimize(_reject_start(complement(dfa)) if negated else dfa, guard)


def _reject_start(dfa: Dfa) -> Dfa:
    """The same automaton without the empty word: a new start that no transition enters."""
    table = np.vstack([dfa.next_state, dfa.next_state[dfa.start]])
    return Dfa(dfa.symbol_class, table, np.append(dfa.accepting, False), dfa.states)


# --- negation normal form -------------------------------------------------------------------------------------------


class _Normal:
    """Shared nodes in negation normal form: constants, literals (a NAME, a NOT of one), X, WX, &, |, U and R.

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

    def of(self, formula: Formula, negated: bool) -> int:
        """The normal form of the formula, or of its negation."""
        wanted = _polarities(formula, negated)
        number = {name: index for index, name in enumerate(propositions_of(formula))}
        made: dict[tuple[int, bool], int] = {}
        for index, node in enumerate(formula.nodes):
            for flip in wanted[index]:
                if node.op is Op.NAME:
                    made[index, flip] = self.add(Op.NOT if flip else Op.NAME, (number[node.name],))
                elif node.op is Op.NOT:
                    made[index, flip] = made[node.args[0], not flip]
                elif node.op is Op.IFF:
                    made[index, flip] = self._iff(node.args, flip, made)
                else:
                    flips = (not flip, flip) if node.op is Op.IMPLIES else (flip,) * len(node.args)
                    parts = [made[argument, side] for argument, side in zip(node.args, flips, strict=True)]
                    made[index, flip] = self._temporal(node.op, parts, flip)
        return made[formula.root, negated]

    def _iff(self, args: tuple[int, ...], flip: bool, made: dict[tuple[int, bool], int]) -> int:
        """Both true or both false; negated, one of each."""
        left, right = args
        first = self.add(Op.AND, (made[left, False], made[right, flip]))
        second = self.add(Op.AND, (made[left, True], made[right, not flip]))
        return self.add(Op.OR, (first, second))

    def _temporal(self, op: Op, parts: list[int], flip: bool) -> int:
        """`op` over parts that are normal (and already negated where `flip`)."""

        def signed(positive: Op, args: tuple[int, ...]) -> int:
            return self.add(_NEGATED[positive] if flip else positive, args)

        if op is Op.LAST:
            return signed(Op.WEAK_NEXT, (signed(Op.FALSE, ()),))
        if op is Op.FINALLY:
            return signed(Op.UNTIL, (signed(Op.TRUE, ()), parts[0]))
        if op is Op.GLOBALLY:
            return signed(Op.RELEASE, (signed(Op.FALSE, ()), parts[0]))
        if op is Op.WEAK_UNTIL:  # a W b = b R (a | b)
            return signed(Op.RELEASE, (parts[1], signed(Op.OR, (parts[0], parts[1]))))
        if op is Op.STRONG_RELEASE:  # a M b = b U (a & b)
            return signed(Op.UNTIL, (parts[1], signed(Op.AND, (parts[0], parts[1]))))
        return signed(Op.OR if op is Op.IMPLIES else op, tuple(parts))

    def conjuncts(self, root: int) -> list[int]:
        """Nodes whose conjunction is `root`: & is taken apart, also below X and WX and to the right of R."""
        split: dict[int, list[int]] = {}
        for index in post_order([() if node.op in (Op.NAME, Op.NOT) else node.args for node in self.nodes], root):
            node = self.nodes[index]
            if node.op is Op.AND:
                found = dict.fromkeys(part for argument in node.args for part in split[argument])
                split[index] = list(found)
            elif node.op in (Op.NEXT, Op.WEAK_NEXT, Op.RELEASE):
                *before, last = node.args
                split[index] = [self.add(node.op, (*before, part)) for part in split[last]]
            else:
                split[index] = [index]
        return split[root]


def _polarities(formula: Formula, negated: bool) -> list[set[bool]]:
    """Which of a node and its negation the normal form needs, per node: False for itself, True for the negation."""
    wanted: list[set[bool]] = [set() for _ in formula.nodes]
    wanted[formula.root].add(negated)
    for index in range(formula.root, -1, -1):
        node = formula.nodes[index]
        for place, argument in enumerate(node.args):
            if node.op is Op.IFF:
                wanted[argument] |= {False, True}
            elif node.op is Op.NOT or (node.op is Op.IMPLIES and place == 0):
                wanted[argument] |= {not flip for flip in wanted[index]}
            else:
                wanted[argument] |= wanted[index]
    return wanted


# --- one conjunct: progression --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class _Table:
    """The automaton of one conjunct over its own letters; state 0 is the start.

    next_state  int64 [S, K]
    accepting   bool  [S]
    sink        the rejecting state that is never left, or None
    """

    next_state: np.ndarray
    accepting: np.ndarray
    sink: int | None


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """A conjunct's automaton and, for each letter of the formula, the column that it reads: int64 [A]."""

    table: _Table
    column: np.ndarray


def _parts(normal: _Normal, conjuncts: list[int], holds: np.ndarray, guard: ResourceGuard) -> list[_Part]:
    """The automata of the conjuncts. Those that differ in the names of propositions only are translated once.

    holds  bool [P, A]: whether proposition p holds in letter a
    """
    tables: dict[tuple[tuple[Node, ...], tuple[int, ...]], _Table] = {}
    parts = []
    args = [() if node.op in (Op.NAME, Op.NOT) else node.args for node in normal.nodes]
    for root in conjuncts:
        guard.check_time()
        shape, propositions = _shape(normal.nodes, post_order(args, root))
        wide = np.int64 if len(propositions) < 63 else object
        weights = np.array([1 << bit for bit in range(len(propositions))], dtype=wide)
        masks, column = np.unique(weights @ holds[propositions], return_inverse=True)
        key = (shape, tuple(masks.tolist()))
        if key not in tables:
            tables[key] = _progress(*key, guard)
        parts.append(_Part(tables[key], column))
    return parts


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


def _progress(shape: tuple[Node, ...], masks: tuple[int, ...], guard: ResourceGuard) -> _Table:
    """The automaton of one conjunct over letters given as bit masks of its propositions.

    A state is a function of atoms: 2i, "there is a next step and node i holds from it", and 2i + 1, "if there is a
    next step, node i holds from it". A step replaces each atom by what node i asks of the letter read. The start is
    the atom "strong root", which no trace satisfies by ending: the empty trace is rejected.
    """
    bdd = MonotoneBdd(guard)
    steps = [np.repeat(_one_step(shape, mask, bdd), 2).tolist() for mask in masks]  # by atom
    became: list[dict[int, int]] = [{} for _ in masks]
    ends: dict[int, bool] = {}
    weak = [False, True] * len(shape)  # at the end of a trace the weak atoms hold
    functions = [bdd.atom(2 * (len(shape) - 1))]
    number = {functions[0]: 0}
    rows: list[list[int]] = []
    for function in functions:  # grows as states are found
        row = []
        for step, results in zip(steps, became, strict=True):
            following = bdd.substitute(function, step, results)
            if following not in number:
                number[following] = len(functions)
                functions.append(following)
            row.append(number[following])
        rows.append(row)
        guard.check("dfa_states_max", len(functions))
        guard.check_time()
    accepting = [bdd.holds(function, weak, ends) for function in functions]
    return _Table(np.array(rows, dtype=np.int64), np.array(accepting), number.get(FALSE))


def _one_step(shape: tuple[Node, ...], mask: int, bdd: MonotoneBdd) -> list[int]:
    """What each node, read at a letter, leaves to be satisfied from the next step on: one function per node."""
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
        elif op is Op.UNTIL:
            left.append(bdd.disjoin(left[args[1]], bdd.conjoin(left[args[0]], bdd.atom(2 * index))))
        else:
            left.append(bdd.conjoin(left[args[1]], bdd.disjoin(left[args[0]], bdd.atom(2 * index + 1))))
    return left


# --- all conjuncts: one product -------------------------------------------------------------------------------------


class _Packing:
    """The states of all parts packed into code words: int64 [W] per product state, one bit field per part.

    C parts, K letters that act differently. A part in its rejecting sink makes the whole state THE sink, so that sinks
    need no room in the code.
    """

    def __init__(self, parts: list[_Part]) -> None:
        first, self.symbol_class = unique_rows(np.column_stack([part.column for part in parts]))
        self.letters = len(first)
        word, used = 0, 0
        words, shifts, widths, fields = [], [], [], []
        for part in parts:
            width = max(1, (len(part.table.accepting) - 1).bit_length())
            if used + width > _WORD_BITS:
                word, used = word + 1, 0
            target = part.table.next_state[:, part.column[first]]
            fields.append(np.where(target == part.table.sink, _SINK, target << used))
            words.append(word)
            shifts.append(used)
            widths.append(width)
            used += width
        self.word, self.shift = np.array(words), np.array(shifts, dtype=np.int64)
        self.mask = (np.int64(1) << np.array(widths, dtype=np.int64)) - 1
        self.word_start = np.unique(self.word, return_index=True)[1]
        self.field = np.concatenate(fields)  # [sum of S, K]: what each (state, letter) of a part adds to the code
        self.accepting = np.concatenate([part.table.accepting for part in parts])  # [sum of S]
        sizes = [len(part.table.accepting) for part in parts]
        self.offset = np.cumsum([0, *sizes[:-1]])  # [C]: a part's first state among all

    def expand(self, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Acceptance bool [N] of the product states `codes` [N, W], and the codes of their successors [N * K, W]."""
        states = self.offset + ((codes[:, self.word] >> self.shift) & self.mask)  # [N, C]
        words = np.bitwise_or.reduceat(self.field[states], self.word_start, axis=1)  # [N, W, K], from [N, C, K]
        successors = np.ascontiguousarray(words.transpose(0, 2, 1))  # [N, K, W]
        sunk = codes[:, 0] == _SINK  # [N]
        successors[(successors & _SINK).any(axis=2) | sunk[:, None]] = _SINK
        return self.accepting[states].all(axis=1) & ~sunk, successors.reshape(-1, codes.shape[1])


def _product(parts: list[_Part], guard: ResourceGuard) -> Dfa:
    """The intersection of the parts, over the states reachable from all starts."""
    if len(parts) == 1:
        table, column = parts[0].table, parts[0].column
        return Dfa(column.astype(np.int32), table.next_state.astype(np.int32), table.accepting)
    packing = _Packing(parts)
    width = len(packing.word_start)
    codes = np.zeros((1, width), dtype=np.int64)
    index: dict[bytes, int] = {codes[0].tobytes(): 0}
    block = max(1, _CELLS // (packing.letters * len(parts)))
    accepting, rows, done = [], [], 0
    while done < len(codes):
        accepts, successors = packing.expand(codes[done : done + block])
        done += len(accepts)
        first, inverse = unique_rows(successors)
        found = successors[first]
        numbers = np.array([index.setdefault(code.tobytes(), len(index)) for code in found])
        codes = np.concatenate([codes, found[numbers >= len(codes)]])
        accepting.append(accepts)
        rows.append(numbers[inverse].reshape(-1, packing.letters).astype(np.int32))
        guard.check("dfa_states_max", len(codes))
        guard.check_time()
    return Dfa(packing.symbol_class.astype(np.int32), np.concatenate(rows), np.concatenate(accepting))
