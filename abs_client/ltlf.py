"""LTLf formulas built in Python: F("dog") & G(~Word("cat")).

A string is a word or phrase of the text, even if it looks like an operator: F("last") means that the word "last"
occurs, F(".") that a full stop does. `&`, `|`, `~` and `>>` of formulas are one formula. An empty text has no step, so
it satisfies neither F("dog") nor ~F("dog"); Not(F("dog")) accepts it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias, overload

from abs_client.constraints import Constraint, ConstraintLike, json_value

NAME_CHARS_MAX = 40
_BARE = re.compile(r"[^\W\d]\w*")
_OPERATOR_WORD = re.compile(r"(?:WX|[XFGURWMYOHS])+")
_CONSTANTS = ("true", "false", "last")
_OTHER_CONSTANTS = ("tt", "ff", "end", "start", "first")  # of other tools; the service refuses them without quotes
_GLUED = re.compile(r"(?:WX|[XFGURWMYOHS])+[^\W\d_A-Z]\w*")  # may be an operator and a name
_SPECIAL = ("eos", "nomatch")  # constants of the grammar even in quotes
_RESERVED = (*_CONSTANTS, *_SPECIAL)  # no proposition can be declared under these names
_MARKS = ("dot", "comma", "question", "exclamation", "colon", "semicolon")  # undeclared names of punctuation
_INFIX = ("&", "|", "->", "<->", "U", "R", "W", "M", "S")
_NEXT = ("X", "WX")
_PYTHON = {"&": " & ", "|": " | ", "->": " >> "}
_CONSTANT_NAMES = {"true": "TRUE", "false": "FALSE", "last": "LAST", "eos": "EOS", "nomatch": "NOMATCH"}


class Formula(Constraint):
    """An LTLf formula over the words of the text.

    The functions of this module build it, and `&`, `|`, `~` and `>>` (implies).

    op     the operator as the grammar writes it; "name" for a proposition
    parts  the operands

    >>> (F("dog") & G(~Word("cat"))).as_dict()
    {'ltlf': 'F(dog) & G(!cat)'}
    """

    FORM = "ltlf"
    op: str
    parts: tuple[Formula, ...]

    def __init__(self, op: str, *parts: Operand) -> None:
        flat: list[Formula] = []  # a & (b & c) is a & b & c
        for part in map(_operand, parts):
            flat.extend(part.parts if part.op == op and op in ("&", "|") else (part,))
        super().__init__()
        self.__dict__.update(op=op, parts=tuple(flat))

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


class NamedProposition(Formula):
    """A formula that holds at certain steps of the text."""

    name: str | None

    def __init__(self, name: str | None) -> None:
        if name is not None and not name.strip():
            raise ValueError("the name of a proposition needs a character other than white space")
        super().__init__("name")
        self.__dict__.update(name=name)

    @property
    def preferred_name(self) -> str:
        """The name in the formula, unless another proposition has it."""
        return self.name if self.name is not None else _clipped(self._description())

    @property
    def literal(self) -> bool:
        """Whether the name means the proposition without a declaration."""
        return False

    def proposition(self) -> list[str] | dict[str, Any]:
        """Its meaning in the API's table of propositions."""
        raise NotImplementedError

    def _description(self) -> str:
        raise NotImplementedError


class Word(NamedProposition):
    """One of these words or phrases is here. A phrase holds at its last word.

    forms           the words and phrases
    case_sensitive  False: upper and lower case are equal
    name            its name in word traces
    Raises ValueError for a word of white space alone.

    >>> G(Word("dog", "puppy", name="pet") >> X("runs")).as_dict()
    {'ltlf': 'G(pet -> X(runs))', 'propositions': {'pet': ['dog', 'puppy']}}
    """

    forms: tuple[str, ...]
    case_sensitive: bool

    def __init__(self, *forms: str, case_sensitive: bool = False, name: str | None = None) -> None:
        if not forms or not all(form.strip() for form in forms):
            raise ValueError("a word needs a character other than white space")
        super().__init__(name)
        self.__dict__.update(forms=forms, case_sensitive=case_sensitive)

    @property
    def literal(self) -> bool:
        special = self.forms[0] in (*_SPECIAL, *_MARKS)
        return self.has_only_forms and len(self.forms) == 1 and not special

    @property
    def has_only_forms(self) -> bool:
        """Whether its forms define it, without options."""
        return not self.case_sensitive and self.name is None

    def proposition(self) -> list[str] | dict[str, Any]:
        if self.case_sensitive:
            return {"words": list(self.forms), "case_sensitive": True}
        return list(self.forms)

    def _description(self) -> str:
        return "|".join(self.forms)

    def __repr__(self) -> str:
        options = {"case_sensitive": self.case_sensitive or None, "name": self.name}
        named = [f"{name}={value!r}" for name, value in options.items() if value is not None]
        return f"Word({', '.join([*map(repr, self.forms), *named])})"


class Match(NamedProposition):
    """The word or punctuation mark here matches the whole pattern. `name`: its name in word traces.

    >>> F(Match("[0-9]+", name="number")).as_dict()["propositions"]
    {'number': {'regex': '[0-9]+'}}
    """

    pattern: str

    def __init__(self, pattern: str, *, name: str | None = None) -> None:
        super().__init__(name)
        self.__dict__.update(pattern=pattern)

    def proposition(self) -> dict[str, Any]:
        return {"regex": self.pattern}

    def _description(self) -> str:
        return f"/{self.pattern}/"

    def __repr__(self) -> str:
        name = "" if self.name is None else f", name={self.name!r}"
        return f"Match({self.pattern!r}{name})"


class Ltlf(Constraint):
    """An LTLf formula in the API's grammar.

    propositions  what their names mean: words, a Word, a Match, or the API's JSON

    >>> Ltlf("F(pet)", {"pet": ["dog", "cat"]}).as_dict()
    {'ltlf': 'F(pet)', 'propositions': {'pet': ['dog', 'cat']}}
    """

    FORM = "ltlf"

    def __init__(self, formula: str, propositions: Mapping[str, Any] | None = None) -> None:
        super().__init__(formula, propositions=propositions_json(propositions))


def propositions_json(propositions: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """A table of propositions as JSON; None for an empty one."""
    if not propositions:
        return None
    return {name: _meaning(value) for name, value in propositions.items()}


def _meaning(value: Any) -> Any:
    if isinstance(value, NamedProposition):
        return value.proposition()
    return [value] if isinstance(value, str) else json_value(value)


def F(operand: Operand) -> Formula:
    """Eventually: `operand` holds now or later."""
    return Formula("F", operand)


def G(operand: Operand) -> Formula:
    """Always: `operand` holds at every step from here on."""
    return Formula("G", operand)


def X(operand: Operand) -> Formula:
    """Next: there is a next step, and `operand` holds there."""
    return Formula("X", operand)


def WX(operand: Operand) -> Formula:
    """Weak next: if there is a next step, `operand` holds there."""
    return Formula("WX", operand)


def U(left: Operand, right: Operand) -> Formula:
    """Until: `right` holds at some step, and `left` at every step before it."""
    return Formula("U", left, right)


def R(left: Operand, right: Operand) -> Formula:
    """Release: `right` holds to the first step where `left` does, included, or to the end."""
    return Formula("R", left, right)


def W(left: Operand, right: Operand) -> Formula:
    """Weak until: as `U`, or `left` holds to the end."""
    return Formula("W", left, right)


def M(left: Operand, right: Operand) -> Formula:
    """Strong release: as `R`, and `left` holds at some step."""
    return Formula("M", left, right)


def Y(operand: Operand) -> Formula:
    """Yesterday: there is a step before, and `operand` holds there. No operator of the future stands in the past."""
    return Formula("Y", operand)


def O(operand: Operand) -> Formula:  # noqa: E743 (the operator's name)
    """Once: `operand` holds now or earlier."""
    return Formula("O", operand)


def H(operand: Operand) -> Formula:
    """Historically: `operand` holds now and at every earlier step."""
    return Formula("H", operand)


def S(left: Operand, right: Operand) -> Formula:
    """Since: `right` holds now or earlier, and `left` at every step after that."""
    return Formula("S", left, right)


def Implies(left: Operand, right: Operand) -> Formula:
    """If `left` holds, `right` holds. Also `left >> right`, which binds tighter than & and |."""
    return Formula("->", left, right)


def Iff(left: Operand, right: Operand) -> Formula:
    """`left` and `right` both hold, or neither."""
    return Formula("<->", left, right)


def _operand(value: Any) -> Formula:
    if isinstance(value, Formula):
        return value
    if isinstance(value, str):
        return Word(value)
    kind = type(value).__name__
    raise TypeError(f"an operator of LTLf applies to formulas and words, not to {kind}; combine others with &, | and ~")


TRUE, FALSE = Formula("true"), Formula("false")
LAST = Formula("last")  # holds at the last step
EOS = Formula("eos")  # holds at an additional step after the text, where nothing else holds
NOMATCH = Formula("nomatch")  # holds where no other proposition of the formula does


def _propositions(formula: Formula) -> Iterator[NamedProposition]:
    if isinstance(formula, NamedProposition):
        yield formula
    for part in formula.parts:
        yield from _propositions(part)


def _names(formula: Formula) -> tuple[dict[str, str], dict[str, Any]]:
    """The name of each proposition, by its repr, and the declarations."""
    names: dict[str, str] = {}
    meanings: dict[str, Any] = {}
    declared: dict[str, Any] = {}
    for item in _propositions(formula):
        name, number, meaning = item.preferred_name, 1, item.proposition()
        # Two propositions may prefer one name: the second is "name 2".
        while meanings.get(name, meaning) != meaning or (name.lower() in _RESERVED and not item.literal):
            number += 1
            name = f"{item.preferred_name} {number}"
        names[repr(item)], meanings[name] = name, meaning
        if not item.literal or name != item.preferred_name:
            declared[name] = meaning
    return names, declared


def _text(formula: Formula, names: Mapping[str, str]) -> str:
    """The formula in the API's grammar. It has redundant brackets where they help a reader."""
    op = formula.op
    if isinstance(formula, NamedProposition):
        return _quoted(names[repr(formula)])
    if not formula.parts:
        return op
    if op in _INFIX:
        *heads, last = formula.parts
        # These operators are right associative: a U (b U c) needs no brackets, so a long chain is not nested deeply.
        chain = op in "URWM" and last.op == op
        return f" {op} ".join([*(_bracketed(part, names) for part in heads),
                               _text(last, names) if chain else _bracketed(last, names)])
    part = formula.parts[0]
    if op == "!":
        return f"!{_bracketed(part, names)}"
    return f"{op} {_text(part, names)}" if op in _NEXT and part.op in _NEXT else f"{op}({_text(part, names)})"


def _bracketed(formula: Formula, names: Mapping[str, str]) -> str:
    return f"({_text(formula, names)})" if formula.op in _INFIX else _text(formula, names)


def _quoted(name: str) -> str:
    reserved = name.lower() in _CONSTANTS or name.lower() in _OTHER_CONSTANTS or _OPERATOR_WORD.fullmatch(name)
    if _BARE.fullmatch(name) and not reserved and not _GLUED.fullmatch(name):
        return name
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _clipped(text: str) -> str:
    return text if len(text) <= NAME_CHARS_MAX else text[: NAME_CHARS_MAX - 1] + "…"


def _bracketed_repr(formula: Formula) -> str:
    return f"({formula!r})" if formula.op in _PYTHON else repr(formula)


def _argument_repr(formula: Formula) -> str:
    """The repr of an operand. A Word of one form is its string."""
    if isinstance(formula, Word) and formula.has_only_forms and len(formula.forms) == 1:
        return repr(formula.forms[0])
    return repr(formula)
