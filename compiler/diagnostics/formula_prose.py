"""LTLf formulas as English clauses. Knows nothing of automata.

A clause says what a formula means at one word of the trace, "the first word" for the whole formula. Formulas that have
no short reading are read operator by operator.
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler.diagnostics.formula_positions import positions_clause
from compiler.ltlf import LtlfFormula, Op

_NODES_MAX = 60
_DEPTH_MAX = 12  # of nested operators; a deeper formula is not read more easily in words
_FIRST, _THAT, _NEXT = "the first word", "that word", "the next word"
_FROM_HERE = (Op.FINALLY, Op.GLOBALLY, Op.UNTIL, Op.WEAK_UNTIL)  # speak of all words from one on


def formula_clause(formula: LtlfFormula) -> str:
    """The formula in words; empty where it is long.

    >>> from compiler.limits import DEFAULT_LIMITS, ResourceGuard
    >>> from compiler.ltlf import parse_formula
    >>> guard = ResourceGuard(DEFAULT_LIMITS)
    >>> formula_clause(parse_formula("F(dog & X(F(ball))) & G(!man)", guard))
    'dog occurs and later ball occurs, and man never occurs'
    """
    if len(formula.nodes) > _NODES_MAX or _depth(formula) > _DEPTH_MAX:
        return ""
    try:
        return _Reader(formula).say(formula.root, _FIRST)
    except _NoReading:
        return positions_clause(formula)


class _NoReading(Exception):
    """A part of the formula has no short reading."""


def _depth(formula: LtlfFormula) -> int:
    depths: list[int] = []
    for node in formula.nodes:
        depths.append(1 + max((depths[argument] for argument in node.args), default=0))
    return depths[-1]


def _listed(names: Sequence[str], last: str) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {last} {names[-1]}"


class _Reader:
    """Reads the nodes of one formula. `here` names the word at which a node holds."""

    def __init__(self, formula: LtlfFormula) -> None:
        self._nodes = formula.nodes

    def say(self, index: int, here: str) -> str:
        """The clause of a node."""
        op, args, _ = self._nodes[index]
        if (names := self._names(index)) is not None:
            return f"{here} is {_listed(names, 'or')}"
        if (names := self._excluded(index)) is not None:
            return f"{here} is not {_listed(names, 'or')}"
        if (here != _FIRST and op in _FROM_HERE) or (here == _NEXT and op is Op.NEXT):
            raise _NoReading  # a clause does not say from which word on it counts
        match op:
            case Op.AND:
                return self._together(args, here)
            case Op.OR:
                return ", or ".join(self._inner(argument, here) for argument in args)
            case Op.IMPLIES:
                return f"if {self._inner(args[0], here)}, then {self._inner(args[1], here)}"
            case Op.FINALLY:
                return self._sometime(args[0])
            case Op.GLOBALLY:
                return self._always(args[0])
            case Op.NEXT:
                return self._next(args[0])
            case Op.NOT:
                return self._denied(args[0], here)
            case Op.UNTIL | Op.WEAK_UNTIL:
                return self._until(op, args[0], args[1], "before it")
            case Op.LAST:
                return f"{here} is the last one"
        raise _NoReading

    def _inner(self, index: int, here: str) -> str:
        """A clause inside another one: in brackets if it joins clauses itself."""
        clause = self.say(index, here)
        joined = self._nodes[index].op in (Op.AND, Op.OR, Op.IMPLIES) and self._names(index) is None
        return f"({clause})" if joined and self._excluded(index) is None else clause

    def _together(self, args: Sequence[int], here: str) -> str:
        clauses = [self._inner(argument, here) for argument in args]
        for once in [clause for clause in clauses if clause.endswith(" occurs at most once")]:
            some = once.removesuffix(" at most once")
            # `F(a) & !F(a & X(F(a)))` is how formulas say exactly once.
            if some in clauses:
                clauses[clauses.index(some)] = f"{some} exactly once"
                clauses.remove(once)
        return ", and ".join(clauses)

    def _sometime(self, index: int) -> str:
        """What holds at some word from here on."""
        if (names := self._names(index)) is not None:
            return f"{_listed(names, 'or')} occurs"
        names, rest = self._split(index)
        times = self._times(index, names)
        if times:
            return f"{_listed(names, 'or')} occurs at least {times} times"
        if len(rest) != 1:
            return f"at some word, {self.say(index, _THAT)}"
        op, args, _ = self._nodes[rest[0]]
        subject = f"{_listed(names, 'or')} occurs"
        if op is Op.LAST or (op is Op.NOT and self._is(args[0], Op.NEXT, Op.TRUE)):
            return f"the last word is {_listed(names, 'or')}"
        if op is Op.NEXT and self._nodes[args[0]].op is Op.FINALLY:
            return f"{subject} and {self._next(args[0])}"
        if op is Op.NOT and self._is(args[0], Op.NEXT, Op.FINALLY):
            return f"{subject}, after which {self._never(self._nodes[self._nodes[args[0]].args[0]].args[0])}"
        return f"at some word, {self.say(index, _THAT)}"

    def _next(self, index: int) -> str:
        op, args, _ = self._nodes[index]
        if op is Op.FINALLY:
            return f"later {self._sometime(args[0])}"
        if op is Op.GLOBALLY:
            return f"after that, {self._always(args[0])}"
        if op is Op.AND:  # X(a & b) is X(a) & X(b)
            return ", and ".join(self._next(argument) for argument in args)
        return self.say(index, _NEXT)

    def _never(self, index: int) -> str:
        """What holds at no word from here on."""
        if (names := self._names(index)) is not None:
            return f"{names[0]} never occurs" if len(names) == 1 else f"none of {_listed(names, 'and')} occurs"
        names, _ = self._split(index)
        if times := self._times(index, names):
            most = "once" if times == 2 else f"{times - 1} times"
            return f"{_listed(names, 'or')} occurs at most {most}"
        return f"it is not so that {self._sometime(index)}"

    def _always(self, index: int) -> str:
        """What holds at every word from here on."""
        op, args, _ = self._nodes[index]
        if (names := self._names(index)) is not None:
            return f"every word is {_listed(names, 'or')}"
        if (names := self._excluded(index)) is not None:
            return f"{names[0]} never occurs" if len(names) == 1 else f"none of {_listed(names, 'and')} occurs"
        if op is Op.IMPLIES and (names := self._names(args[0])) is not None:
            subject = f"every {_listed(names, 'or')}"
            then, below, _ = self._nodes[args[1]]
            if then is Op.NEXT and self._nodes[below[0]].op is Op.FINALLY:
                return f"after {subject}, {self._sometime(self._nodes[below[0]].args[0])}"
            if then is Op.FINALLY:
                return f"at or after {subject}, {self._sometime(below[0])}"
            return f"at {subject}, {self._inner(args[1], _THAT)}"
        return f"at every word, {self.say(index, _THAT)}"

    def _denied(self, index: int, here: str) -> str:
        op, args, _ = self._nodes[index]
        if op is Op.FINALLY and here == _FIRST:
            return self._never(args[0])
        return f"it is not so that {self._inner(index, here)}"

    def _until(self, op: Op, before: int, event: int, gap: str) -> str:
        """`!a U b`: b occurs, and no a before it. The weak form lets b be missing."""
        excluded = self._excluded(before)
        if excluded is None:
            raise _NoReading
        without, names = _listed(excluded, "or"), self._names(event)
        if names is not None:
            kept = _listed(names, "or")
            return f"{kept} occurs, with no {without} {gap}" if op is Op.UNTIL else f"no {without} occurs before {kept}"
        names, rest = self._split(event)
        if op is not Op.UNTIL or not names or len(rest) != 1 or self._nodes[rest[0]].op is not Op.NEXT:
            raise _NoReading
        first, then = f"{_listed(names, 'or')} occurs, with no {without} {gap}", self._nodes[rest[0]].args[0]
        inner, below, _ = self._nodes[then]
        if inner is Op.UNTIL:
            return f"{first}, then {self._until(inner, below[0], below[1], 'in between')}"
        if inner is Op.FINALLY:
            return f"{first}, and {self._next(then)}"
        raise _NoReading

    def _times(self, index: int, names: Sequence[str]) -> int:
        """How often a conjunction asks for the same names.

        `n & X(F(n & X(F(n))))` asks three times. 0 if it asks for something else.
        """
        times = 1
        while self._names(index) is None:
            names_here, rest = self._split(index)
            if names_here != names or len(rest) != 1 or not self._is(rest[0], Op.NEXT, Op.FINALLY):
                return 0
            index = self._nodes[self._nodes[rest[0]].args[0]].args[0]
            times += 1
        return times if self._names(index) == names and times > 1 else 0

    def _split(self, index: int) -> tuple[Sequence[str], list[int]]:
        """The names that a conjunction asks for, and its other parts.

        Needs exactly one part of names.
        """
        op, args, _ = self._nodes[index]
        if op is not Op.AND:
            return (), []
        named = [argument for argument in args if self._names(argument) is not None]
        if len(named) != 1:
            return (), []
        return self._names(named[0]) or (), [argument for argument in args if argument != named[0]]

    def _names(self, index: int) -> Sequence[str] | None:
        """The names of `a` or `a | b`; None for another node."""
        op, args, name = self._nodes[index]
        if op is Op.NAME:
            return (name,)
        if op is Op.OR and all(self._nodes[argument].op is Op.NAME for argument in args):
            return tuple(self._nodes[argument].name for argument in args)
        return None

    def _excluded(self, index: int) -> Sequence[str] | None:
        """The names of `!a`, `!a & !b` or `!(a | b)`.

        None for another node.
        """
        op, args, _ = self._nodes[index]
        if op is Op.NOT:
            return self._names(args[0])
        if op is not Op.AND:
            return None
        parts = [self._excluded(argument) for argument in args]
        return None if None in parts else tuple(name for part in parts for name in part or ())

    def _is(self, index: int, *ops: Op) -> bool:
        """Whether operators with one argument follow one another from a node on."""
        for op in ops:
            if self._nodes[index].op is not op:
                return False
            index = next(iter(self._nodes[index].args), index)
        return True
