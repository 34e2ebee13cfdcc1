"""What a caller may ask for: the constraint forms as types. Knows neither their JSON nor how one is compiled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from compiler.errors import SpecSyntaxError
from compiler.spec.user_dfa import UserDfa

RESERVED_NAMES = ("true", "false", "last", "eos", "nomatch")
LeadingSpace = Literal["strip", "forbid"]
WhiteSpace = Literal["compact", "pretty"]
Count = tuple[int, int | None]  # at least, and at most where there is a bound
ONCE: Count = (1, None)
JSON_DEPTH = 3  # how deep objects and arrays may nest where a schema does not say


@dataclass(frozen=True, slots=True)
class Proposition:
    """When a proposition holds at a unit of the word trace: words and phrases, or a regex, never both.

    Letters of words match in either case unless `case_sensitive`; a regex says so itself with (?i).
    """

    words: tuple[str, ...] = ()
    regex: str | None = None
    case_sensitive: bool = False

    def __post_init__(self) -> None:
        if bool(self.words) == (self.regex is not None):
            raise SpecSyntaxError("a proposition is a list of words and phrases, or a regex", field="propositions")
        for word in self.words:
            _check_phrase(word, "propositions")


@dataclass(frozen=True, slots=True)
class LtlfSpec:
    """An LTLf formula over the word trace. Propositions that are not declared stand for their own names."""

    formula: str
    propositions: tuple[tuple[str, Proposition], ...] = ()

    def __post_init__(self) -> None:
        _check_text(self.formula, "ltlf")
        object.__setattr__(self, "propositions", _declared(self.propositions))


@dataclass(frozen=True, slots=True)
class RegexSpec:
    """The whole text matches `pattern` as re.fullmatch says; `leading_space` allows one space before it, or not."""

    pattern: str
    leading_space: LeadingSpace = "strip"

    def __post_init__(self) -> None:
        _check_text(self.pattern, "regex")
        _check_leading(self.leading_space)


@dataclass(frozen=True, slots=True)
class KeywordsSpec:
    """Each concept occurs in the word trace, in any of its given forms.

    With `ordered`, concept j + 1 and those after it do not occur before concept j has (paper, Figure 1), and each
    needed occurrence is at a later unit than the one before it.

    inflect  a form stands for all its inflections too
    counts   for each concept how often it occurs, at least and at most; empty where each occurs at least once
    """

    concepts: tuple[tuple[str, ...], ...]
    ordered: bool = False
    case_sensitive: bool = False
    inflect: bool = False
    counts: tuple[Count, ...] = ()

    def __post_init__(self) -> None:
        if not self.concepts:
            raise SpecSyntaxError("keywords names at least one concept", field="keywords")
        for number, forms in enumerate(self.concepts):
            if not forms:
                raise SpecSyntaxError("a concept has at least one form", field=f"keywords.{number}")
            for form in forms:
                _check_phrase(form, f"keywords.{number}")
        if self.counts and len(self.counts) != len(self.concepts):
            raise SpecSyntaxError("counts has one entry for each concept", field="keywords")
        for number, count in enumerate(self.counts):
            _check_count(count, f"keywords.{number}")
        if all(count == ONCE for count in self.counts):
            object.__setattr__(self, "counts", ())


@dataclass(frozen=True, slots=True)
class InfillSpec:
    """Literal text with gaps (`compiler.forms.infill` has their names) that the whole text fills in."""

    template: str
    leading_space: LeadingSpace = "strip"

    def __post_init__(self) -> None:
        _check_text(self.template, "infill")
        _check_leading(self.leading_space)


@dataclass(frozen=True, slots=True)
class ChoiceSpec:
    """The whole text is one of the strings."""

    choices: tuple[str, ...]
    leading_space: LeadingSpace = "strip"

    def __post_init__(self) -> None:
        if not self.choices:
            raise SpecSyntaxError("choice names at least one string", field="choice")
        for number, choice in enumerate(self.choices):
            _check_text(choice, f"choice.{number}")
        _check_leading(self.leading_space)


@dataclass(frozen=True, slots=True)
class JsonSchemaSpec:
    """The whole text is a JSON text that the schema validates.

    schema      the schema as JSON text; the order of its properties is that of the answer
    whitespace  none at all, or that of json.dumps(indent=2)
    max_depth   how deep arrays and objects may nest where the schema sets no bound itself
    """

    schema: str
    whitespace: WhiteSpace = "compact"
    max_depth: int = JSON_DEPTH
    leading_space: LeadingSpace = "strip"

    def __post_init__(self) -> None:
        if self.whitespace not in get_args(WhiteSpace):
            raise SpecSyntaxError("whitespace is 'compact' or 'pretty'", field="whitespace")
        if self.max_depth < 0:
            raise SpecSyntaxError("max_depth is not negative", field="max_depth")
        _check_leading(self.leading_space)


@dataclass(frozen=True, slots=True)
class LengthSpec:
    """How long the text is: words are the units made of word characters, sentences end in . ! or ?"""

    min_words: int | None = None
    max_words: int | None = None
    max_chars: int | None = None
    sentences: Count | None = None

    def __post_init__(self) -> None:
        given = {"min_words": self.min_words, "max_words": self.max_words, "max_chars": self.max_chars}
        for field, value in given.items():
            if value is not None and value < 0:
                raise SpecSyntaxError(f"{field} is not negative", field=field)
        if all(value is None for value in given.values()) and self.sentences is None:
            raise SpecSyntaxError("a length constraint sets at least one bound", field="max_words")
        if self.min_words is not None and self.max_words is not None and self.min_words > self.max_words:
            raise SpecSyntaxError("min_words is not more than max_words", field="min_words")
        if self.sentences is not None:
            _check_count(self.sentences, "sentences")


@dataclass(frozen=True, slots=True)
class DfaSpec:
    """A caller's own automaton, over propositions of the word trace or over the bytes of the text."""

    given: UserDfa
    propositions: tuple[tuple[str, Proposition], ...] = ()
    leading_space: LeadingSpace = "strip"

    def __post_init__(self) -> None:
        object.__setattr__(self, "propositions", _declared(self.propositions))
        _check_leading(self.leading_space)


@dataclass(frozen=True, slots=True)
class AllSpec:
    """Every part holds of the same text."""

    parts: tuple[Spec, ...]

    def __post_init__(self) -> None:
        _check_parts(self.parts, "all")


@dataclass(frozen=True, slots=True)
class AnySpec:
    """At least one part holds."""

    parts: tuple[Spec, ...]

    def __post_init__(self) -> None:
        _check_parts(self.parts, "any")


@dataclass(frozen=True, slots=True)
class NotSpec:
    """The part does not hold: exactly the texts, in valid UTF-8, that it rejects."""

    part: Spec

    def __post_init__(self) -> None:
        _check_parts((self.part,), "not")


@dataclass(frozen=True, slots=True)
class LabelsSpec:
    """A constraint over an alphabet of ids: each output is one of `labels`, which is one step of the trace.

    For whole-text forms the text is the labels joined by single spaces.
    """

    labels: tuple[str, ...]
    part: Spec

    def __post_init__(self) -> None:
        if not self.labels or len(set(self.labels)) != len(self.labels):
            raise SpecSyntaxError("labels names each id's label, no two alike", field="labels")
        for number, label in enumerate(self.labels):
            _check_phrase(label, f"labels.{number}")
        _check_parts((self.part,), "labels")


Spec = (
    LtlfSpec | RegexSpec | KeywordsSpec | InfillSpec | ChoiceSpec | JsonSchemaSpec | LengthSpec | DfaSpec
    | AllSpec | AnySpec | NotSpec | LabelsSpec
)  # fmt: skip
WholeTextSpec = RegexSpec | InfillSpec | ChoiceSpec | JsonSchemaSpec


def leaves(spec: Spec) -> tuple[Spec, ...]:
    """The constraints that a combination is made of, left to right; the constraint itself where it is none."""
    if isinstance(spec, AllSpec | AnySpec):
        return tuple(leaf for part in spec.parts for leaf in leaves(part))
    return leaves(spec.part) if isinstance(spec, NotSpec | LabelsSpec) else (spec,)


def _declared(propositions: tuple[tuple[str, Proposition], ...]) -> tuple[tuple[str, Proposition], ...]:
    """The declarations in canonical order, checked."""
    for name, _ in propositions:
        _check_text(name, "propositions")
        if not name.strip():
            raise SpecSyntaxError("a proposition needs a name", field="propositions")
        if name.lower() in RESERVED_NAMES:
            raise SpecSyntaxError(
                f"the name {name!r} is reserved ({', '.join(RESERVED_NAMES)}): choose another for the proposition",
                field=f"propositions.{name}",
            )
    if len({name for name, _ in propositions}) != len(propositions):
        raise SpecSyntaxError("a proposition is declared twice", field="propositions")
    return tuple(sorted(propositions))


def _check_text(text: str, field: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise SpecSyntaxError(
            "the text holds half of a surrogate pair, which no UTF-8 text can", field=field, position=error.start
        ) from None


def _check_phrase(phrase: str, field: str) -> None:
    _check_text(phrase, field)
    if not phrase.strip():
        raise SpecSyntaxError("a word or phrase holds at least one character that is not white space", field=field)


def _check_leading(leading_space: LeadingSpace) -> None:
    if leading_space not in get_args(LeadingSpace):
        raise SpecSyntaxError("leading_space is 'strip' or 'forbid'", field="leading_space")


def _check_count(count: Count, field: str) -> None:
    minimum, maximum = count
    if minimum < 0 or (maximum is not None and maximum < minimum):
        raise SpecSyntaxError("a count is not negative, and its max not less than its min", field=field)


def _check_parts(parts: tuple[Spec, ...], field: str) -> None:
    if not parts:
        raise SpecSyntaxError(f"{field} combines at least one constraint", field=field)
    if any(isinstance(part, LabelsSpec) for part in parts):
        raise SpecSyntaxError("labels stands at the outermost constraint alone", field=field)
