"""Evaluates LTLf on one finite trace, straight from the definition.

It shares no code with the translator: no normal form, no automaton. One pass goes from the last step to the first; what
the operators of the past say is looked up step by step.
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler.ltlf import LtlfFormula, Op


def satisfies(formula: LtlfFormula, trace: Sequence[frozenset[str]]) -> bool:
    """True if the trace, a proposition set per step, satisfies the formula. An empty trace satisfies nothing."""
    following: list[bool] | None = None  # the truth of every node one step later; None beyond the end
    for at in reversed(range(len(trace))):
        following = _truths(formula, trace, at, following)
    return following is not None and following[formula.root]


def _past(formula: LtlfFormula, trace: Sequence[frozenset[str]], index: int, at: int) -> bool:
    """The truth at a step of a node without the future. It asks each earlier step itself."""
    node = formula.nodes[index]

    def argument(number: int, step: int) -> bool:
        return _past(formula, trace, node.args[number], step)

    if node.op is Op.YESTERDAY:
        return at > 0 and argument(0, at - 1)
    if node.op is Op.ONCE:
        return any(argument(0, step) for step in range(at + 1))
    if node.op is Op.HISTORICALLY:
        return all(argument(0, step) for step in range(at + 1))
    if node.op is Op.SINCE:
        return any(
            argument(1, begin) and all(argument(0, step) for step in range(begin + 1, at + 1))
            for begin in range(at + 1)
        )
    if not node.args:
        return node.op is Op.TRUE or (node.op is Op.NAME and node.name in trace[at])
    return _boolean(node.op, [argument(number, at) for number in range(len(node.args))])


def _truths(formula: LtlfFormula, trace: Sequence[frozenset[str]], at: int, following: list[bool] | None) -> list[bool]:
    """The truth of every node at a step."""
    step = trace[at]
    values_now: list[bool] = []
    for index, node in enumerate(formula.nodes):
        values = [values_now[argument] for argument in node.args]
        if node.op in (Op.YESTERDAY, Op.ONCE, Op.HISTORICALLY, Op.SINCE):
            values_now.append(_past(formula, trace, index, at))
            continue
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
