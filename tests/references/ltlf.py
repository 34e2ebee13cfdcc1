"""Evaluates LTLf on one finite trace, straight from the definition.

It shares no code with the translator: no normal form, no automaton. One pass goes from the last step to the first.
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler.ltlf import LtlfFormula, Op


def satisfies(formula: LtlfFormula, trace: Sequence[frozenset[str]]) -> bool:
    """True if the trace, a proposition set per step, satisfies the formula. An empty trace satisfies nothing."""
    following: list[bool] | None = None  # the truth of every node one step later; None beyond the end
    for step in reversed(trace):
        following = _truths(formula, step, following)
    return following is not None and following[formula.root]


def _truths(formula: LtlfFormula, step: frozenset[str], following: list[bool] | None) -> list[bool]:
    """The truth of every node at a step."""
    values_now: list[bool] = []
    for index, node in enumerate(formula.nodes):
        values = [values_now[argument] for argument in node.args]
        if not node.args:
            leaves = {Op.TRUE: True, Op.FALSE: False, Op.LAST: following is None, Op.NAME: node.name in step}
            values_now.append(leaves[node.op])
        elif node.op in (Op.NEXT, Op.WEAK_NEXT):
            values_now.append(node.op is Op.WEAK_NEXT if following is None else following[node.args[0]])
        elif node.op in (Op.NOT, Op.AND, Op.OR, Op.IMPLIES, Op.IFF):
            values_now.append(_boolean(node.op, values))
        else:
            values_now.append(_temporal(node.op, values, None if following is None else following[index]))
    return values_now


def _boolean(op: Op, values: list[bool]) -> bool:
    if op is Op.NOT:
        return not values[0]
    if op is Op.IMPLIES:
        return values[1] if values[0] else True
    if op is Op.IFF:
        return values[0] == values[1]
    return all(values) if op is Op.AND else any(values)


def _temporal(op: Op, values: list[bool], next_value: bool | None) -> bool:
    """The value of a temporal operator at a step: F, G, U, R, W, M.

    It depends on the arguments there and on the value at the next step (None: no next).
    """
    if op is Op.FINALLY:
        return values[0] or bool(next_value)
    if op is Op.GLOBALLY:
        return values[0] and next_value is not False
    left, right = values
    if op is Op.UNTIL:
        return right or (left and next_value is True)
    if op is Op.WEAK_UNTIL:
        return right or (left and next_value is not False)
    if op is Op.RELEASE:
        return right and (left or next_value is not False)
    return right and (left or next_value is True)
