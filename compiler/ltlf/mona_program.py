"""Writes a formula as a program for MONA, through LTLf2DFA. The paper does the same.

This module writes the formula in LTLf2DFA's syntax and corrects the program that it returns. LTLf2DFA's own `to_dfa` is
never called: it writes one file for all processes and uses sympy. Names of callers never reach it: name i is p<i>, and
P<i> in MONA. The package is imported at its first use, because importing it with sympy and lark takes half a second.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from compiler.errors import EngineFailure
from compiler.ltlf.syntax import LEAVES, PREFIX, LtlfFormula, Op, propositions_of

OPERATORS_MAX = 20_000  # of the program, where <-> and nested G double what they hold; at most some 3 MB of text


class _Size(NamedTuple):
    """The number of operators that LTLf2DFA writes for a node.

    `negated` counts those of its negation in negation normal form.
    """

    positive: int
    negated: int


def ltlf2dfa_program(formula: LtlfFormula) -> str:
    """The MONA program that LTLf2DFA writes for a formula.

    The comment that repeats the formula is removed, because MONA reads no more than 8 kB of it.

    The string's positions are the trace's steps, P<i> those where name i (of `propositions_of`) holds. Raises
    EngineFailure when LTLf2DFA is not installed, or cannot read a formula so deep, or would write one so large.
    """
    # Counted first: the text can be exponentially longer than the formula.
    operators = program_operators(formula)
    if operators > OPERATORS_MAX:
        raise EngineFailure(f"LTLf2DFA would write a program of more than {OPERATORS_MAX} operators")
    parse, program = require_ltlf2dfa()
    try:
        text = str(program(parse(ltlf2dfa_text(formula))).mona_program())
    except RecursionError:
        raise EngineFailure("the formula is nested too deeply for LTLf2DFA") from None
    except Exception as error:  # its parser's and its own, none of which it documents
        raise EngineFailure(f"LTLf2DFA cannot translate the formula: {type(error).__name__}") from error
    # MONA reads no more than 8 kB of a comment line.
    comment, _, program_text = text.partition("\n")
    if not comment.startswith("#"):
        raise EngineFailure("LTLf2DFA's program does not begin with the formula: is it version 2.0?")
    return program_text


@functools.cache
def require_ltlf2dfa() -> tuple[Callable[[str], Any], Callable[[Any], Any]]:
    """LTLf2DFA's parser, made once, and its class of programs. Raises EngineFailure where it is not installed."""
    try:
        from ltlf2dfa.base import MonaProgram
        from ltlf2dfa.parser.ltlf import LTLfParser
    except ImportError as error:
        reason = f"the package {error.name or 'ltlf2dfa'} is missing"
        raise EngineFailure(f"{reason}: pip install 'abs-server[compile]', or choose the engine native") from error
    return LTLfParser(), MonaProgram


def ltlf2dfa_text(formula: LtlfFormula) -> str:
    """The formula in LTLf2DFA's concrete syntax. Every operation has brackets, except runs of one U or one R to the
    right.

    It has no W and no M, reads an operator only where no small letter follows, and says two things of `last`: the
    weak next of false stands for that.
    """
    number = {name: index for index, name in enumerate(propositions_of(formula))}
    texts: list[str] = []
    for node in formula.nodes:
        inner = [texts[argument] for argument in node.args]
        if node.op is Op.NAME:
            texts.append(f"p{number[node.name]}")
        elif node.op is Op.LAST:
            # LTLf2DFA reads `last` in two ways, depending on where it stands.
            texts.append("WX(false)")
        elif node.op in LEAVES:
            texts.append(node.op.value)
        elif node.op in PREFIX:
            texts.append(f"{node.op.value}({inner[0]})")
        # a W b = b R (a | b), and a M b = b U (a & b).
        elif node.op is Op.WEAK_UNTIL:
            texts.append(f"({inner[1]}) R (({inner[0]}) | ({inner[1]}))")
        elif node.op is Op.STRONG_RELEASE:
            texts.append(f"({inner[1]}) U (({inner[0]}) & ({inner[1]}))")
        else:
            # LTLf2DFA's parser recurses on brackets; a run to the right without them keeps it flat.
            run = node.op in (Op.UNTIL, Op.RELEASE) and formula.nodes[node.args[-1]].op is node.op
            parts = [f"({text})" for text in inner]
            texts.append(f" {node.op.value} ".join([*parts[:-1], inner[-1] if run else parts[-1]]))
    return texts[-1]


def program_operators(formula: LtlfFormula) -> int:
    """An upper bound on the operators in the program.

    It is computed before any text is made, since the program can be exponentially long.
    """
    sizes: list[_Size] = []
    for node in formula.nodes:
        sizes.append(_size(node.op, [sizes[argument] for argument in node.args]))
    return sizes[-1].positive


def _size(op: Op, args: list[_Size]) -> _Size:
    """The size of `op(args)`. R is written with its right side twice, and U becomes R when it is negated."""
    if not args:
        return _Size(1, 2)
    left, right = args[0], args[-1]
    if op is Op.NOT:
        return _Size(max(left) + 1, max(left) + 1)
    if op in (Op.NEXT, Op.WEAK_NEXT):
        return _Size(left.positive + 1, left.negated + 1)
    if op is Op.FINALLY:
        return _Size(left.positive + 2, 2 * left.negated + 3)
    if op is Op.GLOBALLY:
        return _Size(2 * max(left) + 3, max(left) + 2)
    if op is Op.IMPLIES:
        return _Size(left.negated + max(right) + 1, max(left) + right.negated + 1)
    if op is Op.IFF:
        both = sum(map(max, args)) + sum(size.negated for size in args) + 3
        return _Size(both, both)
    if op is Op.UNTIL:
        return _Size(left.positive + right.positive + 1, left.negated + 2 * right.negated + 2)
    if op is Op.RELEASE:
        return _Size(left.positive + 2 * right.positive + 2, left.negated + right.negated + 1)
    if op is Op.WEAK_UNTIL:
        return _Size(2 * left.positive + 3 * right.positive + 4, left.negated + 2 * right.negated + 3)
    if op is Op.STRONG_RELEASE:
        return _Size(left.positive + 2 * right.positive + 3, 2 * left.negated + 3 * right.negated + 4)
    return _Size(sum(size.positive for size in args) + len(args), sum(size.negated for size in args) + len(args))
