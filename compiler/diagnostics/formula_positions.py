"""Reads any LTLf formula back, operator by operator.

Each operator of time names the word that it speaks of by a letter, so that nested operators stay unambiguous. Formulas
that have a short reading get that of `formula_prose`.
"""

from __future__ import annotations

from compiler.ltlf import LtlfFormula, Op

_LETTERS = "pqrstuvwxyz"  # of nested words; deeper formulas are not read
_FIRST = "the first word"


def positions_clause(formula: LtlfFormula) -> str:
    """What a formula means at the first word. Empty where it nests too deep.

    >>> from compiler.limits import DEFAULT_LIMITS, ResourceGuard
    >>> from compiler.ltlf import parse_formula
    >>> positions_clause(parse_formula("G(F(dog))", ResourceGuard(DEFAULT_LIMITS)))
    'for every word p, (there is a word q at or after p such that q is dog)'
    """
    try:
        return _Positions(formula).say(formula.root, _FIRST, 0)
    except IndexError:
        return ""


class _Positions:
    """Reads the nodes of one formula. `depth` counts the words that are named so far."""

    def __init__(self, formula: LtlfFormula) -> None:
        self._nodes = formula.nodes

    def say(self, index: int, here: str, depth: int) -> str:
        """What a node says of the word `here`. Raises IndexError where there are not enough letters."""
        op, args, name = self._nodes[index]
        match op:
            case Op.NAME:
                return f"{here} is {name}"
            case Op.TRUE | Op.FALSE:
                return "anything holds" if op is Op.TRUE else "nothing holds"
            case Op.LAST:
                return f"{here} is the last one"
            case Op.NOT if self._is_name(args[0]):
                return f"{here} is not {self._nodes[args[0]].name}"
            case Op.NOT:
                return f"it is not so that {self._inner(args[0], here, depth)}"
            case Op.AND | Op.OR:
                joint = ", and " if op is Op.AND else ", or "
                return joint.join(self._inner(argument, here, depth) for argument in args)
            case Op.IMPLIES | Op.IFF:
                first, second = (self._inner(argument, here, depth) for argument in args)
                return f"if {first}, then {second}" if op is Op.IMPLIES else f"{first} exactly if {second}"
            case _ if len(args) == 1:
                return self._of_one_word(op, args[0], here, depth)
        return self._of_two_words(op, args, here, depth)

    def _of_one_word(self, op: Op, argument: int, here: str, depth: int) -> str:
        word = _LETTERS[depth]
        inner = self._inner(argument, word, depth + 1)
        match op:
            case Op.NEXT:
                return f"there is a word {word} right behind {here}, and {inner}"
            case Op.YESTERDAY:
                return f"there is a word {word} right before {here}, and {inner}"
            case Op.WEAK_NEXT:
                return f"if there is a word {word} right behind {here}, then {inner}"
            case Op.FINALLY | Op.ONCE:
                return f"there is a word {word}{_range(here, op is Op.ONCE)} such that {inner}"
            case _:
                return f"for every word {word}{_range(here, op is Op.HISTORICALLY)}, {inner}"

    def _of_two_words(self, op: Op, args: tuple[int, ...], here: str, depth: int) -> str:
        word, other = _LETTERS[depth], _LETTERS[depth + 1]
        span = _range(here, op is Op.SINCE)
        if op in (Op.UNTIL, Op.SINCE):
            event, before = self._inner(args[1], word, depth + 2), self._inner(args[0], other, depth + 2)
            between = f"after {word} up to {here}" if op is Op.SINCE else f"from {here} on and before {word}"
            return f"there is a word {word}{span} such that {event}, and for every word {other} {between}, {before}"
        is_weak = op is Op.WEAK_UNTIL
        body, stop = args if is_weak else reversed(args)
        holds, ends = self._inner(body, word, depth + 2), self._inner(stop, other, depth + 2)
        end = f"up to {word}" if is_weak else f"on and before {word}"
        unless = f"unless there is a word {other} from {here} {end} such that {ends}"
        clause = f"for every word {word}{span}, {holds}, {unless}"
        if op is Op.STRONG_RELEASE:
            clause += f", and there is a word {other}{span} such that {ends}"
        return clause

    def _inner(self, index: int, here: str, depth: int) -> str:
        """A clause inside another one: in brackets if it has parts."""
        op, args, _ = self._nodes[index]
        clause = self.say(index, here, depth)
        return clause if not args or (op is Op.NOT and self._is_name(args[0])) else f"({clause})"

    def _is_name(self, index: int) -> bool:
        return self._nodes[index].op is Op.NAME


def _range(here: str, is_past: bool) -> str:
    if is_past:
        return f" at or before {here}"
    return "" if here == _FIRST else f" at or after {here}"
