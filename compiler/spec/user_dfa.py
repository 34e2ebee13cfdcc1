"""A caller's own automaton as it was written: its type and its JSON. Knows nothing of how it is compiled.

Over propositions, a transition has a guard: {"from": "s0", "to": "s1", "when": "dog & !cat"}, where a `when` that is
left out is "true". Over the bytes of a text it lists bytes and ranges of bytes, {"bytes": [[97, 122], 32]}, or the
characters that it reads one of, {"text": "abc"}. What no transition reads is rejected.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from compiler.errors import SpecSyntaxError, SpecUnsupported
from compiler.limits import ResourceGuard
from compiler.ltlf import LtlfFormula, Op, parse_formula, propositions_of
from compiler.regex import blame_field

STATE_CHARS_MAX = 64
BYTE_MAX = 0xFF
_FIELD = "dfa"
_BYTES = "a list of bytes and of ranges of bytes, [[97, 122], 32]"
_PROPOSITIONAL = frozenset({Op.TRUE, Op.FALSE, Op.NAME, Op.NOT, Op.AND, Op.OR, Op.IMPLIES, Op.IFF})
T = TypeVar("T")
ByteRanges = tuple[tuple[int, int], ...]  # sorted, apart, both ends included


@dataclass(frozen=True, slots=True)
class UserTransition:
    """One way out of a state. Exactly one of `when`, `byte_ranges` and `text` says what it reads; the others are None.

    when         a propositional formula over the propositions of a step
    byte_ranges  one byte in any of these ranges
    text         one of these characters
    """

    source: str
    target: str
    when: str | None = None
    byte_ranges: ByteRanges | None = None
    text: str | None = None

    def __post_init__(self) -> None:
        if (self.when, self.byte_ranges, self.text).count(None) != 2:
            raise SpecSyntaxError("a transition has one of `when`, `bytes` and `text`", field=f"{_FIELD}.transitions")
        if self.byte_ranges is not None:
            object.__setattr__(self, "byte_ranges", _merged(self.byte_ranges))
        if self.text is not None:
            _check_encodes(self.text, f"{_FIELD}.transitions")
            object.__setattr__(self, "text", "".join(sorted(set(self.text))))


@dataclass(frozen=True, slots=True)
class UserDfa:
    """An automaton over propositions, or over bytes. Its states are those that start or a transition names.

    Raises SpecSyntaxError where a state's name is empty or too long, an accepting state is none of the automaton's, or
    some transitions read bytes and others propositions. Whether it is deterministic is asked when it is compiled.
    """

    start: str
    accepting: tuple[str, ...]
    transitions: tuple[UserTransition, ...]

    def __post_init__(self) -> None:
        _check_state(self.start, f"{_FIELD}.start")
        for number, transition in enumerate(self.transitions):
            _check_state(transition.source, f"{_FIELD}.transitions.{number}.from")
            _check_state(transition.target, f"{_FIELD}.transitions.{number}.to")
            if (transition.when is None) != self.over_bytes:
                wanted = "`bytes` or `text`, as in the first" if self.over_bytes else "no `bytes` or `text`"
                raise SpecSyntaxError(
                    f"an automaton reads bytes or propositions, not both: this transition needs {wanted}",
                    field=f"{_FIELD}.transitions.{number}",
                    expected=wanted,
                )
        known = set(self.states)
        for number, name in enumerate(self.accepting):
            if name not in known:
                raise SpecSyntaxError(
                    "the accepting state is neither the start nor in any transition",
                    field=f"{_FIELD}.accepting.{number}",
                    expected="the name of a state",
                )
        object.__setattr__(self, "accepting", tuple(sorted(set(self.accepting))))

    @property
    def over_bytes(self) -> bool:
        """True when it reads the bytes of a text, False when it reads the steps of a word trace."""
        return bool(self.transitions) and self.transitions[0].when is None

    @property
    def states(self) -> tuple[str, ...]:
        """The names of the states in order of first mention, the start first."""
        mentioned = [name for transition in self.transitions for name in (transition.source, transition.target)]
        return tuple(dict.fromkeys([self.start, *mentioned]))


def _check_encodes(text: str, field: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        message = "the text holds half of a surrogate pair, which no UTF-8 text can"
        raise SpecSyntaxError(message, field=field, position=error.start) from None


def _check_state(name: str, field: str) -> None:
    if not 0 < len(name) <= STATE_CHARS_MAX:
        wanted = f"a name of 1 to {STATE_CHARS_MAX} characters"
        raise SpecSyntaxError(f"a state has {wanted}", field=field, expected=wanted)
    _check_encodes(name, field)


def _merged(ranges: Sequence[tuple[int, int]]) -> ByteRanges:
    """The same bytes as sorted ranges that neither overlap nor touch. Raises ValueError for what is no byte."""
    merged: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if not 0 <= low <= high <= BYTE_MAX:
            raise ValueError("a range of bytes is 0 <= low <= high <= 255")
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], high))
        else:
            merged.append((low, high))
    return tuple(merged)


# --- JSON -----------------------------------------------------------------------------------------------------------


def given_from_json(value: object, field: str) -> UserDfa:
    """The automaton in the field `field` of a request. Raises SpecSyntaxError, whose `field` leads to the fault."""
    fields = _fields(value, ("start", "accepting", "transitions"), field)
    for name in ("accepting", "transitions"):
        if name not in fields:
            raise SpecSyntaxError(f"{field} lacks `{name}`", field=field, expected=f"the field {name}")
    items = _typed(fields["transitions"], list, f"{field}.transitions", "a list of transitions")
    return UserDfa(
        _named(fields, "start", field),
        _names(fields["accepting"], f"{field}.accepting"),
        tuple(_transition(item, f"{field}.transitions.{number}") for number, item in enumerate(items)),
    )


def _transition(value: object, field: str) -> UserTransition:
    fields = _fields(value, ("from", "to", "when", "bytes", "text"), field)
    source, target = (_named(fields, name, field) for name in ("from", "to"))
    labels = [name for name in ("when", "bytes", "text") if name in fields]
    if len(labels) > 1:
        raise SpecSyntaxError("a transition has only one of `when`, `bytes` and `text`", field=field)
    if labels == ["bytes"]:
        return UserTransition(source, target, byte_ranges=_byte_ranges(fields["bytes"], f"{field}.bytes"))
    if labels == ["text"]:
        text = _typed(fields["text"], str, f"{field}.text", "a string, one character of which is read")
        _check_encodes(text, f"{field}.text")
        return UserTransition(source, target, text=text)
    return UserTransition(source, target, when=_typed(fields.get("when", "true"), str, f"{field}.when", "a formula"))


def _named(fields: Mapping[str, object], name: str, field: str) -> str:
    if name not in fields:
        raise SpecSyntaxError(f"{field} lacks `{name}`", field=field, expected=f"the field {name}")
    return _typed(fields[name], str, f"{field}.{name}", "the name of a state")


def _byte_ranges(value: object, field: str) -> ByteRanges:
    ranges = []
    for number, item in enumerate(_typed(value, list, field, _BYTES)):
        pair = item if isinstance(item, list) else [item, item]
        whole = len(pair) == 2 and all(isinstance(byte, int) and not isinstance(byte, bool) for byte in pair)
        if not (whole and 0 <= pair[0] <= pair[1] <= BYTE_MAX):
            wanted = f"a byte 0 to {BYTE_MAX}, or [first, last] of such"
            raise SpecSyntaxError(
                f"{field} lists bytes and ranges: {wanted}", field=f"{field}.{number}", expected=wanted
            )
        ranges.append((pair[0], pair[1]))
    return _merged(ranges)


def _names(value: object, field: str) -> tuple[str, ...]:
    items = _typed(value, list, field, "a list of names of states")
    return tuple(_typed(item, str, f"{field}.{number}", "the name of a state") for number, item in enumerate(items))


def _typed(value: object, kind: type[T], field: str, wanted: str) -> T:
    if not isinstance(value, kind):
        raise SpecSyntaxError(f"{field} must be {wanted}", field=field, expected=wanted)
    return value


def _fields(value: object, allowed: tuple[str, ...], field: str) -> Mapping[str, object]:
    """The fields of an object, all of them known."""
    fields = _typed(value, dict, field, f"an object with {', '.join(allowed)}")
    if not set(fields) <= set(allowed):
        raise SpecSyntaxError(
            f"{field} has an unknown field; it takes {', '.join(allowed)}", field=field, expected=", ".join(allowed)
        )
    return fields


def given_to_json(given: UserDfa) -> dict[str, object]:
    """The automaton in full: given_from_json undoes it."""
    transitions = [{"from": one.source, "to": one.target, **_label_to_json(one)} for one in given.transitions]
    return {"start": given.start, "accepting": list(given.accepting), "transitions": transitions}


def _label_to_json(transition: UserTransition) -> dict[str, object]:
    if transition.when is not None:
        return {"when": transition.when}
    if transition.text is not None:
        return {"text": transition.text}
    return {"bytes": [[low, high] for low, high in transition.byte_ranges or ()]}


def propositions_named(given: UserDfa, guard: ResourceGuard) -> tuple[str, ...]:
    """The names in the guards, in order of first mention; `eos` and `nomatch` among them where they are named.

    Raises as `user_letter_dfa` does for a guard that cannot be read. Empty for an automaton over bytes.
    """
    formulas = guards_of(given, guard).values()
    return tuple(dict.fromkeys(name for formula in formulas for name in propositions_of(formula)))


def guards_of(given: UserDfa, guard: ResourceGuard) -> dict[str, LtlfFormula]:
    """The formula of each guard, by its text."""
    written = [transition.when for transition in given.transitions if transition.when is not None]
    guard.check("formula_chars_max", sum(map(len, written)))
    guards: dict[str, LtlfFormula] = {}
    for number, transition in enumerate(given.transitions):
        if transition.when is not None and transition.when not in guards:
            guard.check_time()
            guards[transition.when] = _parse_guard(transition.when, f"dfa.transitions.{number}.when", guard)
    return guards


def _parse_guard(source: str, field: str, guard: ResourceGuard) -> LtlfFormula:
    with blame_field(field):
        formula = parse_formula(source, guard)
        for node in formula.nodes:
            if node.op not in _PROPOSITIONAL:
                raise SpecUnsupported(
                    f"{node.op} speaks of other steps: a guard speaks of one, with ! & | -> <-> true false",
                    construct=f"{node.op} in a guard",
                )
    return formula
