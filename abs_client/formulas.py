"""LTLf formulas built in Python: F("dog") & G(~Word("cat")). Knows how the server's grammar writes them.

A string is a word or phrase of the text, whatever it looks like: F("last") says that the word "last" occurs, F(".")
that a full stop does. What is made of formulas by `&`, `|`, `~` and `>>` is one formula, so an empty text, which has no
step to begin at, satisfies neither F("dog") nor ~F("dog"); Not(F("dog")) holds of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, TypeAlias, cast, overload

from abs_client.constraints import Constraint, ConstraintLike, plain

NAME_CHARS_MAX = 40
_BARE = re.compile(r"[^\W\d]\w*")
_OPERATOR_WORD = re.compile(r"(?:WX|[XFGURWM])+")
_CONSTANTS = ("true", "false", "last")
_KEPT = ("eos", "nomatch")  # these keep their meaning in quotes
_RESERVED = (*_CONSTANTS, *_KEPT)  # nothing can be declared under these
_MARKS = ("dot", "comma", "question", "exclamation", "colon", "semicolon")  # undeclared names of punctuation
_INFIX = ("&", "|", "->", "<->", "U", "R", "W", "M")
_NEXT = ("X", "WX")
_PYTHON = {"&": " & ", "|": " | ", "->": " >> "}
_CONSTANT_NAMES = {"true": "TRUE", "false": "FALSE", "last": "LAST", "eos": "EOS", "nomatch": "NOMATCH"}


class Formula(Constraint):
    """An LTLf formula over the words of the text. Made by the functions of this module and by `&`, `|`, `~`, `>>`."""

    FORM = "ltlf"

    def __init__(self, op: str, *parts: Operand) -> None:
        flat: list[Formula] = []
        for part in map(_operand, parts):
            flat.extend(part.parts if part.op == op and op in ("&", "|") else (part,))
        super().__init__()
        self.__dict__.update(op=op, parts=tuple(flat))

    @property
    def op(self) -> str:
        """The operator as the grammar writes it; "name" for a proposition."""
        return str(self.__dict__["op"])

    @property
    def parts(self) -> tuple[Formula, ...]:
        """What the operator is applied to."""
        return cast("tuple[Formula, ...]", self.__dict__["parts"])

    def as_dict(self) -> dict[str, Any]:
        names, declared = _names(self)
        text = _text(self, names)
        return {"ltlf": text, "propositions": declared} if declared else {"ltlf": text}

    def __str__(self) -> str:
        return str(self.as_dict()["ltlf"])

    def __repr__(self) -> str:
        if self.op in _CONSTANT_NAMES:
            return _CONSTANT_NAMES[self.op]
        if self.op == "!":
            return f"~{_bracketed_repr(self.parts[0])}"
        if self.op in _PYTHON:
            return _PYTHON[self.op].join(map(_bracketed_repr, self.parts))
        name = "Iff" if self.op == "<->" else self.op
        return f"{name}({', '.join(map(_argument_repr, self.parts))})"

    @overload  # type: ignore[override]
    def __and__(self, other: Operand) -> Formula: ...
    @overload
    def __and__(self, other: ConstraintLike) -> Constraint: ...
    def __and__(self, other: ConstraintLike | str) -> Constraint:
        return Formula("&", self, other) if isinstance(other, Formula | str) else super().__and__(other)

    def __rand__(self, other: ConstraintLike | str) -> Constraint:
        return Formula("&", other, self) if isinstance(other, str) else super().__rand__(other)

    @overload  # type: ignore[override]
    def __or__(self, other: Operand) -> Formula: ...
    @overload
    def __or__(self, other: ConstraintLike) -> Constraint: ...
    def __or__(self, other: ConstraintLike | str) -> Constraint:
        return Formula("|", self, other) if isinstance(other, Formula | str) else super().__or__(other)

    def __ror__(self, other: ConstraintLike | str) -> Constraint:
        return Formula("|", other, self) if isinstance(other, str) else super().__ror__(other)

    def __invert__(self) -> Formula:
        return self.parts[0] if self.op == "!" else Formula("!", self)

    def __rshift__(self, other: Operand) -> Formula:
        return Formula("->", self, other) if isinstance(other, Formula | str) else NotImplemented

    def __rrshift__(self, other: Operand) -> Formula:
        return Formula("->", other, self) if isinstance(other, str) else NotImplemented


Operand: TypeAlias = Formula | str


class Proposition(Formula):
    """Something that holds at some steps of the text."""

    DEFAULT: ClassVar[str] = ""

    def __init__(self, name: str | None) -> None:
        if name is not None and not name.strip():
            raise ValueError("the name of a proposition holds a character that is not white space")
        super().__init__("name")
        self.__dict__["name"] = name

    @property
    def wanted(self) -> str:
        """The name that it goes by where that is free."""
        given = self.__dict__["name"]
        return str(given) if given is not None else _clipped(self._described())

    @property
    def literal(self) -> bool:
        """Whether its name alone, undeclared, means it."""
        return False

    def proposition(self) -> list[str] | dict[str, Any]:
        """What it means, as the table of propositions says it."""
        raise NotImplementedError

    def _described(self) -> str:
        raise NotImplementedError


class Word(Proposition):
    """Any of these words or phrases stands here; a phrase holds at its last word.

    case_sensitive  else either case will do
    name            what word traces call it
    Raises ValueError for a word of white space alone.
    """

    def __init__(self, *forms: str, case_sensitive: bool = False, name: str | None = None) -> None:
        if not forms or not all(form.strip() for form in forms):
            raise ValueError("a word holds at least one character that is not white space")
        super().__init__(name)
        self.__dict__.update(forms=forms, case_sensitive=case_sensitive)

    @property
    def forms(self) -> tuple[str, ...]:
        """The words and phrases."""
        return cast("tuple[str, ...]", self.__dict__["forms"])

    @property
    def literal(self) -> bool:
        special = self.forms[0] in (*_KEPT, *_MARKS)
        return self.plain and len(self.forms) == 1 and not special

    @property
    def plain(self) -> bool:
        """Whether its words alone say it all."""
        return not self.__dict__["case_sensitive"] and self.__dict__["name"] is None

    def proposition(self) -> list[str] | dict[str, Any]:
        if self.__dict__["case_sensitive"]:
            return {"words": list(self.forms), "case_sensitive": True}
        return list(self.forms)

    def _described(self) -> str:
        return "|".join(self.forms)

    def __repr__(self) -> str:
        options = {"case_sensitive": self.__dict__["case_sensitive"] or None, "name": self.__dict__["name"]}
        given = [f"{name}={value!r}" for name, value in options.items() if value is not None]
        return f"Word({', '.join([*map(repr, self.forms), *given])})"


class Match(Proposition):
    """A unit of the text (a word or a punctuation mark) that matches the pattern whole stands here."""

    def __init__(self, pattern: str, *, name: str | None = None) -> None:
        super().__init__(name)
        self.__dict__["pattern"] = pattern

    def proposition(self) -> dict[str, Any]:
        return {"regex": self.__dict__["pattern"]}

    def _described(self) -> str:
        return f"/{self.__dict__['pattern']}/"

    def __repr__(self) -> str:
        name = "" if self.__dict__["name"] is None else f", name={self.__dict__['name']!r}"
        return f"Match({self.__dict__['pattern']!r}{name})"


class Ltlf(Constraint):
    """An LTLf formula as it is written, and what its propositions mean: words, a Word, a Match, or the API's JSON."""

    FORM = "ltlf"

    def __init__(self, formula: str, propositions: Mapping[str, Any] | None = None) -> None:
        super().__init__(formula, propositions=meant(propositions))


def meant(propositions: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """A table of propositions as the API takes it."""
    if not propositions:
        return None
    return {name: _meaning(value) for name, value in propositions.items()}


def _meaning(value: Any) -> Any:
    if isinstance(value, Proposition):
        return value.proposition()
    return [value] if isinstance(value, str) else plain(value)


def F(operand: Operand) -> Formula:
    """Now or later."""
    return Formula("F", operand)


def G(operand: Operand) -> Formula:
    """At every step from here on."""
    return Formula("G", operand)


def X(operand: Operand) -> Formula:
    """There is a next step, and there."""
    return Formula("X", operand)


def WX(operand: Operand) -> Formula:
    """If there is a next step, then there."""
    return Formula("WX", operand)


def U(left: Operand, right: Operand) -> Formula:
    """`right` comes to hold, and until then `left` does."""
    return Formula("U", left, right)


def R(left: Operand, right: Operand) -> Formula:
    """`right` holds until and at the step where `left` does, or for ever."""
    return Formula("R", left, right)


def W(left: Operand, right: Operand) -> Formula:
    """`left` holds until `right` does, or for ever."""
    return Formula("W", left, right)


def M(left: Operand, right: Operand) -> Formula:
    """`right` holds until and at a step where `left` does, which comes."""
    return Formula("M", left, right)


def Implies(left: Operand, right: Operand) -> Formula:
    """If `left` then `right`; also `left >> right`, which binds tighter than & and |."""
    return Formula("->", left, right)


def Iff(left: Operand, right: Operand) -> Formula:
    """Both or neither."""
    return Formula("<->", left, right)


def _operand(given: Any) -> Formula:
    if isinstance(given, Formula):
        return given
    if isinstance(given, str):
        return Word(given)
    kind = type(given).__name__
    raise TypeError(f"an operator of LTLf applies to formulas and words, not to {kind}; combine others with &, | and ~")


TRUE, FALSE = Formula("true"), Formula("false")
LAST = Formula("last")  # holds at the last step
EOS = Formula("eos")  # one last step behind the text, at which nothing else holds
NOMATCH = Formula("nomatch")  # no other proposition of the formula holds


def _propositions(formula: Formula) -> Iterator[Proposition]:
    if isinstance(formula, Proposition):
        yield formula
    for part in formula.parts:
        yield from _propositions(part)


def _names(formula: Formula) -> tuple[dict[str, str], dict[str, Any]]:
    """The name of each proposition, by its repr, and what the names mean that do not speak for themselves."""
    names: dict[str, str] = {}
    meanings: dict[str, Any] = {}
    declared: dict[str, Any] = {}
    for one in _propositions(formula):
        name, number, meaning = one.wanted, 1, one.proposition()
        while meanings.get(name, meaning) != meaning or (name.lower() in _RESERVED and not one.literal):
            number += 1
            name = f"{one.wanted} {number}"
        names[repr(one)], meanings[name] = name, meaning
        if not one.literal or name != one.wanted:
            declared[name] = meaning
    return names, declared


def _text(formula: Formula, names: Mapping[str, str]) -> str:
    """The formula as the grammar takes it, with brackets wherever a reader might want them."""
    op = formula.op
    if isinstance(formula, Proposition):
        return _quoted(names[repr(formula)])
    if not formula.parts:
        return op
    if op in _INFIX:
        *firsts, final = formula.parts
        run = op in "URWM" and final.op == op  # one to the right needs no brackets, and a long one is then not deep
        return f" {op} ".join([*(_bracketed(part, names) for part in firsts),
                               _text(final, names) if run else _bracketed(final, names)])
    part = formula.parts[0]
    if op == "!":
        return f"!{_bracketed(part, names)}"
    return f"{op} {_text(part, names)}" if op in _NEXT and part.op in _NEXT else f"{op}({_text(part, names)})"


def _bracketed(formula: Formula, names: Mapping[str, str]) -> str:
    return f"({_text(formula, names)})" if formula.op in _INFIX else _text(formula, names)


def _quoted(name: str) -> str:
    if _BARE.fullmatch(name) and name.lower() not in _CONSTANTS and not _OPERATOR_WORD.fullmatch(name):
        return name
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _clipped(text: str) -> str:
    return text if len(text) <= NAME_CHARS_MAX else text[: NAME_CHARS_MAX - 1] + "…"


def _bracketed_repr(formula: Formula) -> str:
    return f"({formula!r})" if formula.op in _PYTHON else repr(formula)


def _argument_repr(formula: Formula) -> str:
    """A word needs no more than itself where an operator takes it."""
    one_word = isinstance(formula, Word) and formula.plain and len(formula.forms) == 1
    return repr(formula.forms[0]) if one_word and isinstance(formula, Word) else repr(formula)
