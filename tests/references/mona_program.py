"""Translates formulas into MONA's language from the meaning of the operators.

It shares nothing with `compiler.ltlf.progression` and nothing with LTLf2DFA, so that each of the three can check the
others. It uses first-order logic over the positions of a string (M2L-Str); proposition i is `P<i>`.
"""

from __future__ import annotations

import re

from compiler.ltlf import LtlfFormula, Op, propositions_of
from compiler.ltlf.syntax import Node


def mona_program(formula: LtlfFormula) -> str:
    """The formula as a MONA program.

    The string's positions are the trace's steps; P<i> holds the positions of name i.
    """
    number = {name: index for index, name in enumerate(propositions_of(formula))}
    declarations = f"var2 {', '.join(f'P{index}' for index in number.values())};\n" if number else ""
    pieces: list[str] = []
    variables = 0
    stack: list[str | tuple[int, str]] = [(formula.root, "0")]  # text, or a node to be said of a position
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            pieces.append(item)
            continue
        index, position = item
        variable_pair = (f"x{variables}", f"x{variables + 1}")
        variables += 2
        stack.extend(reversed(_template(formula.nodes[index], position, variable_pair, number)))
    return f"m2l-str;\n{declarations}{''.join(pieces)};\n"


_INFIX = {Op.AND: "&", Op.OR: "|", Op.IMPLIES: "=>", Op.IFF: "<=>"}
# What an operator says of position {at}; [x] is the argument read at {x}, [y] the one read at {y}.
_TEMPORAL = {
    Op.NEXT: "(ex1 {x}: {x} = {at} + 1 & ([x]))",
    Op.WEAK_NEXT: "(all1 {x}: {x} = {at} + 1 => ([x]))",
    Op.FINALLY: "(ex1 {x}: {at} <= {x} & ([x]))",
    Op.GLOBALLY: "(all1 {x}: {at} <= {x} => ([x]))",
    Op.UNTIL: "(ex1 {x}: {at} <= {x} & ([x]) & (all1 {y}: {at} <= {y} & {y} < {x} => ([y])))",
    Op.RELEASE: "(all1 {x}: {at} <= {x} & ~([x]) => (ex1 {y}: {at} <= {y} & {y} < {x} & ([y])))",
    Op.WEAK_UNTIL: "(all1 {x}: {at} <= {x} & ~([x]) => (ex1 {y}: {at} <= {y} & {y} <= {x} & ([y])))",
    Op.STRONG_RELEASE: "(ex1 {x}: {at} <= {x} & ([x]) & (all1 {y}: {at} <= {y} & {y} <= {x} => ([y])))",
    Op.YESTERDAY: "(ex1 {x}: {at} = {x} + 1 & ([x]))",
    Op.ONCE: "(ex1 {x}: {x} <= {at} & ([x]))",
    Op.HISTORICALLY: "(all1 {x}: {x} <= {at} => ([x]))",
    Op.SINCE: "(ex1 {x}: {x} <= {at} & ([x]) & (all1 {y}: {x} < {y} & {y} <= {at} => ([y])))",
}
_ARGUMENT = re.compile(r"\[([xy])\]")


def _template(node: Node, at: str, names: tuple[str, str], number: dict[str, int]) -> list[str | tuple[int, str]]:
    """The MONA text of a node at position `at`. A pair (argument, its position) stands for the text of an argument.

    First-order variables range over the steps of the trace, so a step that does not exist satisfies no `ex1`.
    """
    x, y = names
    if node.op in (Op.TRUE, Op.FALSE):
        return [node.op.value]
    if node.op is Op.LAST:
        return [f"~(ex1 {x}: {at} < {x})"]
    if node.op is Op.NAME:
        return [f"{at} in P{number[node.name]}"]
    if node.op is Op.NOT:
        return ["~(", (node.args[0], at), ")"]
    pieces: list[str | tuple[int, str]] = []
    if node.op in _INFIX:
        for argument in node.args:
            pieces += [f")\n{_INFIX[node.op]} (" if pieces else "((", (argument, at)]
        return [*pieces, "))"]
    at_x, at_y = node.args[-1], node.args[0]
    if node.op in (Op.WEAK_UNTIL, Op.STRONG_RELEASE):
        at_x, at_y = at_y, at_x
    for piece in _ARGUMENT.split(_TEMPORAL[node.op]):
        pieces.append({"x": (at_x, x), "y": (at_y, y)}.get(piece) or piece.format(at=at, x=x, y=y))
    return pieces
