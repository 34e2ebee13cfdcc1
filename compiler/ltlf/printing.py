"""Writes a formula as canonical text."""

from __future__ import annotations

from compiler.ltlf.dialects import must_be_quoted
from compiler.ltlf.syntax import LEAVES, PREFIX, UNTILS, LtlfFormula, Op


def _printed_name(name: str) -> str:
    if not must_be_quoted(name):
        return name
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def print_formula(formula: LtlfFormula) -> str:
    """The formula in canonical text, which parses to an equal formula. Bracketed in full, except that a run of U, of
    R, of W or of M to the right has no brackets, so that a long one is not deep."""
    nodes = formula.nodes
    texts: list[str] = []

    def bracketed(index: int) -> str:
        return texts[index] if nodes[index].op in LEAVES | PREFIX else f"({texts[index]})"

    for node in nodes:
        if node.op is Op.NAME:
            texts.append(_printed_name(node.name))
        elif node.op in LEAVES:
            texts.append(node.op.value)
        elif node.op in PREFIX:
            space = "" if node.op is Op.NOT else " "
            texts.append(node.op.value + space + bracketed(node.args[0]))
        else:
            *firsts, final = node.args
            # These operators read to the right, so the last argument needs no brackets.
            same_run = node.op is nodes[final].op and node.op in UNTILS and node.op is not Op.SINCE
            parts = [*map(bracketed, firsts), texts[final] if same_run else bracketed(final)]
            texts.append(f" {node.op.value} ".join(parts))
    return texts[-1]
