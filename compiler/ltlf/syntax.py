"""LTLf formulas as tables of shared nodes. Knows nothing of their text, of traces or of automata.

Y, O, H and S speak of the past, as in PPLTL (De Giacomo et al., "Pure-past linear temporal and dynamic logic on finite
traces", 2020). No operator of the future stands inside them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class Op(StrEnum):
    """The operator of a formula's node. The value is its printed form."""

    TRUE = "true"
    FALSE = "false"
    LAST = "last"
    NAME = "name"
    NOT = "!"
    NEXT = "X"
    WEAK_NEXT = "WX"
    FINALLY = "F"
    GLOBALLY = "G"
    AND = "&"
    OR = "|"
    IMPLIES = "->"
    IFF = "<->"
    UNTIL = "U"
    RELEASE = "R"
    WEAK_UNTIL = "W"
    STRONG_RELEASE = "M"
    YESTERDAY = "Y"
    ONCE = "O"
    HISTORICALLY = "H"
    SINCE = "S"


class Node(NamedTuple):
    """One node of a formula. It has an operator, the indices of its arguments, and for a proposition its name."""

    op: Op
    args: tuple[int, ...] = ()
    name: str = ""


LEAVES = frozenset({Op.TRUE, Op.FALSE, Op.LAST, Op.NAME})
PAST = frozenset({Op.YESTERDAY, Op.ONCE, Op.HISTORICALLY, Op.SINCE})
PREFIX = frozenset({Op.NOT, Op.NEXT, Op.WEAK_NEXT, Op.FINALLY, Op.GLOBALLY, Op.YESTERDAY, Op.ONCE, Op.HISTORICALLY})
BOOLEAN = frozenset({Op.TRUE, Op.FALSE, Op.NAME, Op.NOT, Op.AND, Op.OR, Op.IMPLIES, Op.IFF})
TEMPORAL = frozenset(Op) - BOOLEAN - {Op.LAST}
UNTILS = (Op.UNTIL, Op.RELEASE, Op.WEAK_UNTIL, Op.STRONG_RELEASE, Op.SINCE)
CONSTANTS = {"true": Op.TRUE, "false": Op.FALSE, "last": Op.LAST}


@dataclass(frozen=True, slots=True)
class LtlfFormula:
    """A formula as a table of shared nodes. Arguments come before the nodes that use them, and the root is last.

    Two formulas are equal exactly when their trees are, up to brackets within & and |, which take any number of
    arguments. A table and not a tree, so that no walk over it recurses. Raises ValueError on a malformed table.
    """

    nodes: tuple[Node, ...]

    def __post_init__(self) -> None:
        if not self.nodes:
            raise ValueError("a formula has at least one node")
        for index, node in enumerate(self.nodes):
            arity = 0 if node.op in LEAVES else 1 if node.op in PREFIX else 2
            more_allowed = node.op in (Op.AND, Op.OR)
            if len(node.args) != arity and not (more_allowed and len(node.args) > arity):
                raise ValueError(f"{node.op} takes {arity} arguments")
            if not all(0 <= argument < index for argument in node.args):
                raise ValueError("an argument comes before the node that uses it")

    @property
    def root(self) -> int:
        return len(self.nodes) - 1


def post_order(args: Sequence[tuple[int, ...]], root: int) -> list[int]:
    """The nodes below `root` and itself, arguments first, each once. `args[i]` are the arguments of i."""
    # An explicit stack: formulas may be deeper than Python's recursion limit.
    order: list[int] = []
    done: set[int] = set()
    pending = [root]
    while pending:
        index = pending[-1]
        # A node is put back until its arguments are done; each is done once, however often it is used.
        waiting = [argument for argument in args[index] if argument not in done]
        if waiting:
            pending.extend(reversed(waiting))
            continue
        pending.pop()
        if index not in done:
            done.add(index)
            order.append(index)
    return order


def subformula(nodes: Sequence[Node], root: int) -> LtlfFormula:
    """The formula at `root` of a table. Nodes that it does not use are dropped."""
    order = post_order([node.args for node in nodes], root)
    # Arguments come before their users, so the renumbering keeps that order.
    rank = {index: position for position, index in enumerate(order)}
    used = (nodes[index] for index in order)
    return LtlfFormula(tuple(node._replace(args=tuple(rank[argument] for argument in node.args)) for node in used))


class Builder:
    """Makes formulas bottom up; equal nodes are made once."""

    def __init__(self) -> None:
        self._nodes: list[Node] = []
        self._index: dict[Node, int] = {}

    def add(self, op: Op, args: Sequence[int] = (), name: str = "") -> int:
        """The index of the node `op(args)`. Nested & (or nested |) are flattened."""
        flat: list[int] = []
        for argument in args:
            inner = self._nodes[argument]
            # & and | take any number of arguments, so that equal formulas with other brackets have equal tables.
            flat.extend(inner.args if inner.op is op and op in (Op.AND, Op.OR) else (argument,))
        node = Node(op, tuple(flat), name)
        if node not in self._index:
            self._index[node] = len(self._nodes)
            self._nodes.append(node)
        return self._index[node]

    def formula(self, root: int) -> LtlfFormula:
        """The formula at `root`, without the nodes it does not use."""
        return subformula(self._nodes, root)


def propositions_of(formula: LtlfFormula) -> tuple[str, ...]:
    """The names in the formula, in order of first occurrence."""
    return tuple(node.name for node in formula.nodes if node.op is Op.NAME)
