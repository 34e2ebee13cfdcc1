"""A caller's own automaton: its type, and its JSON written out. Knows nothing of how it is compiled.

Over propositions, a transition has a guard: {"from": "s0", "to": "s1", "when": "dog & !cat"}. A missing `when` is
"true". Over the bytes of a text, a transition has a list of bytes and ranges of bytes, {"bytes": [[97, 122], 32]}, or a
string of which it reads one character, {"text": "abc"}. A word for which some state has no transition is rejected.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass

from compiler.automata import charset
from compiler.errors import SpecSyntaxError, SpecUnsupported, require
from compiler.limits import ResourceGuard
from compiler.ltlf import LtlfFormula, Op, parse_formula, propositions_of
from compiler.regex import blame_field

STATE_CHARS_MAX = 64
BYTE_MAX = 0xFF
_FIELD = "dfa"
# The operators of formulas that speak of one step alone.
_PROPOSITIONAL = frozenset({Op.TRUE, Op.FALSE, Op.NAME, Op.NOT, Op.AND, Op.OR, Op.IMPLIES, Op.IFF})
ByteRanges = tuple[tuple[int, int], ...]  # sorted, apart, both ends included


@dataclass(frozen=True, slots=True)
class UserTransition:
    """A transition of a caller's automaton. Exactly one of `when`, `byte_ranges` and `text` is set.

    when         a propositional formula over the propositions of a step
    byte_ranges  one byte in any of these ranges
    text         one of these characters
    """

    source: str
    target: str
    _: KW_ONLY
    when: str | None = None
    byte_ranges: ByteRanges | None = None
    # Characters of any length in UTF-8; the compiler expands them to bytes.
    text: str | None = None

    def __post_init__(self) -> None:
        # A frozen value is put into normal form here: equal automata are equal values.
        if (self.when, self.byte_ranges, self.text).count(None) != 2:
            raise SpecSyntaxError("a transition has one of `when`, `bytes` and `text`", field=f"{_FIELD}.transitions")
        if self.byte_ranges is not None:
            object.__setattr__(self, "byte_ranges", _merge(self.byte_ranges))
        if self.text is not None:
            check_encodes(self.text, f"{_FIELD}.transitions")
            object.__setattr__(self, "text", "".join(sorted(set(self.text))))


@dataclass(frozen=True, slots=True)
class UserDfa:
    """An automaton over propositions or over bytes. Its states are those that `start` and the transitions name.

    Raises SpecSyntaxError where a state's name is empty or too long, an accepting state is none of the automaton's, or
    some transitions read bytes and others propositions. Compiling it checks that it is deterministic.

    >>> once = UserDfa("a", ("b",), (UserTransition("a", "b", text="xyz"),))
    >>> once.over_bytes, once.states
    (True, ('a', 'b'))
    """

    start: str
    accepting: tuple[str, ...]
    transitions: tuple[UserTransition, ...]

    def __post_init__(self) -> None:
        _check_state(self.start, f"{_FIELD}.start")
        for number, transition in enumerate(self.transitions):
            _check_state(transition.source, f"{_FIELD}.transitions.{number}.from")
            _check_state(transition.target, f"{_FIELD}.transitions.{number}.to")
            # The first transition decides the alphabet of all.
            expected = "`bytes` or `text`, as in the first" if self.over_bytes else "no `bytes` or `text`"
            message = f"an automaton reads bytes or propositions, not both: this transition needs {expected}"
            same_kind = (transition.when is None) == self.over_bytes
            require(same_kind, message, f"{_FIELD}.transitions.{number}", expected)
        states = set(self.states)
        for number, name in enumerate(self.accepting):
            message = "the accepting state is neither the start nor in any transition"
            require(name in states, message, f"{_FIELD}.accepting.{number}", "the name of a state")
        # A set in canonical order.
        object.__setattr__(self, "accepting", tuple(sorted(set(self.accepting))))

    @property
    def over_bytes(self) -> bool:
        """True for an automaton over bytes, False for one over word traces."""
        return bool(self.transitions) and self.transitions[0].when is None

    @property
    def states(self) -> tuple[str, ...]:
        """The names of the states, in order of first mention. The start comes first."""
        # dict.fromkeys keeps the first mention of each.
        mentioned = [name for transition in self.transitions for name in (transition.source, transition.target)]
        return tuple(dict.fromkeys([self.start, *mentioned]))


def check_encodes(text: str, field: str) -> None:
    """Raise SpecSyntaxError for a text that holds half of a surrogate pair."""
    try:
        # Python strings may hold lone surrogates, which JSON can spell as escapes; no UTF-8 text contains them.
        text.encode()
    except UnicodeEncodeError as error:
        message = "the text holds half of a surrogate pair, which no UTF-8 text can"
        raise SpecSyntaxError(message, field=field, position=error.start) from None


def _check_state(name: str, field: str) -> None:
    expected = f"a name of 1 to {STATE_CHARS_MAX} characters"
    require(0 < len(name) <= STATE_CHARS_MAX, f"a state has {expected}", field, expected)
    check_encodes(name, field)


def _merge(ranges: Sequence[tuple[int, int]]) -> ByteRanges:
    """The same bytes as sorted ranges that neither overlap nor touch. Raises ValueError for what is no byte."""
    if not all(0 <= low <= high <= BYTE_MAX for low, high in ranges):
        raise ValueError("a range of bytes is 0 <= low <= high <= 255")
    # Sets of characters merge their intervals likewise, but leave out the upper ends.
    return tuple((low, end - 1) for low, end in charset((low, high + 1) for low, high in ranges))


# --- JSON -----------------------------------------------------------------------------------------------------------


def user_dfa_to_json(user_dfa: UserDfa) -> dict[str, object]:
    """The automaton in full: user_dfa_from_json undoes it."""
    transitions = [
        {"from": transition.source, "to": transition.target, **_label_to_json(transition)}
        for transition in user_dfa.transitions
    ]
    return {"start": user_dfa.start, "accepting": list(user_dfa.accepting), "transitions": transitions}


def _label_to_json(transition: UserTransition) -> dict[str, object]:
    if transition.when is not None:
        return {"when": transition.when}
    if transition.text is not None:
        return {"text": transition.text}
    # Ranges are merged and sorted by now, so equal sets of bytes have equal JSON.
    return {"bytes": [[low, high] for low, high in transition.byte_ranges or ()]}


def guard_propositions(user_dfa: UserDfa, guard: ResourceGuard) -> tuple[str, ...]:
    """The names in the guards, in order of first mention. `eos` and `nomatch` are included where they occur.

    Raises as `user_letter_dfa` does for a guard that cannot be read. Empty for an automaton over bytes.
    """
    formulas = guard_formulas(user_dfa, guard).values()
    return tuple(dict.fromkeys(name for formula in formulas for name in propositions_of(formula)))


def guard_formulas(user_dfa: UserDfa, guard: ResourceGuard) -> dict[str, LtlfFormula]:
    """The formula of each guard, by its text."""
    # One limit for all guards together, as for one formula.
    conditions = [transition.when for transition in user_dfa.transitions if transition.when is not None]
    guard.check("formula_chars_max", sum(map(len, conditions)))
    guards: dict[str, LtlfFormula] = {}
    for number, transition in enumerate(user_dfa.transitions):
        if transition.when is not None and transition.when not in guards:
            guard.check_time()
            guards[transition.when] = _parse_guard(transition.when, f"dfa.transitions.{number}.when", guard)
    return guards


def _parse_guard(source: str, field: str, guard: ResourceGuard) -> LtlfFormula:
    with blame_field(field):
        formula = parse_formula(source, guard)
        for node in formula.nodes:
            # A transition is taken at one step, so its guard cannot speak of others.
            if node.op not in _PROPOSITIONAL:
                raise SpecUnsupported(
                    f"{node.op} speaks of other steps: a guard speaks of one, with ! & | -> <-> true false",
                    construct=f"{node.op} in a guard",
                )
    return formula
