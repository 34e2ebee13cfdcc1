"""The constraint forms as types. Knows neither their JSON nor how one is compiled."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar, Literal, get_args

from compiler.errors import require
from compiler.spec.parts import CapturePart, SequencePart, all_parts, part_specs
from compiler.spec.user_dfa import UserDfa, check_encodes

RESERVED_NAMES = ("true", "false", "last", "eos", "nomatch")
LeadingSpace = Literal["strip", "forbid"]
WhiteSpace = Literal["compact", "spaced", "pretty", "flexible", "any"]
PropertyOrder = Literal["schema", "any"]
GrammarSyntax = Literal["lark", "gbnf", "ebnf"]
# Counts are inclusive on both sides.
Count = tuple[int, int | None]  # at least, and at most where there is a bound
ONCE: Count = (1, None)
NEVER: Count = (0, 0)
LENGTHS = ("min_words", "max_words", "max_chars", "sentences")  # the fields of a `LengthSpec`
CAPTURES_MAX = 64  # names in one sequence
_CAPTURE_INSIDE = "a combination inside a sequence captures nothing: put the capture around it, or write a part"
JSON_WHITE_SPACE: WhiteSpace = "spaced"  # the default, by benchmarks/RESULTS.md ("How JSON is written")


@dataclass(frozen=True, slots=True)
class Proposition:
    """When a proposition holds at a step of the word trace. It has words and phrases, or a regex, never both.

    Letters of words match in either case unless `case_sensitive`; a regex says so itself with (?i).
    """

    words: tuple[str, ...] = ()
    regex: str | None = None
    case_sensitive: bool = False

    def __post_init__(self) -> None:
        # Exactly one of the two must be there.
        one_of_both = bool(self.words) != (self.regex is not None)
        require(one_of_both, "a proposition is a list of words and phrases, or a regex", "propositions")
        for word in self.words:
            _check_phrase(word, "propositions")


@dataclass(frozen=True, slots=True)
class LtlfSpec:
    """An LTLf formula over the word trace. Propositions that are not declared stand for their own names."""

    form: ClassVar = "ltlf"
    formula: str
    propositions: tuple[tuple[str, Proposition], ...] = ()

    def __post_init__(self) -> None:
        check_encodes(self.formula, "ltlf")
        object.__setattr__(self, "propositions", _checked_declarations(self.propositions))


@dataclass(frozen=True, slots=True)
class RegexSpec:
    """The whole text matches `pattern`, as with re.fullmatch. `leading_space` allows one space before it, or not."""

    form: ClassVar = "regex"
    pattern: str
    leading_space: LeadingSpace = "strip"

    def __post_init__(self) -> None:
        check_encodes(self.pattern, "regex")
        _check_leading(self.leading_space)


@dataclass(frozen=True, slots=True)
class KeywordsSpec:
    """Each concept occurs in the word trace, in any of its forms.

    With `ordered`, concept j + 1 and those after it do not occur before concept j has (paper, Figure 1), and each
    needed occurrence is at a later unit than the one before it.

    inflect  a form stands for all its inflections too
    counts   for each concept how often it occurs, at least and at most; empty where each occurs at least once
    """

    form: ClassVar = "keywords"
    concepts: tuple[tuple[str, ...], ...]
    _: KW_ONLY
    ordered: bool = False
    case_sensitive: bool = False
    inflect: bool = False
    counts: tuple[Count, ...] = ()

    def __post_init__(self) -> None:
        require(bool(self.concepts), "keywords names at least one concept", "keywords")
        for number, forms in enumerate(self.concepts):
            require(bool(forms), "a concept has at least one form", f"keywords.{number}")
            for form in forms:
                _check_phrase(form, f"keywords.{number}")
        require(len(self.counts) in (0, len(self.concepts)), "counts has one entry for each concept", "keywords")
        for number, count in enumerate(self.counts):
            _check_count(count, f"keywords.{number}")
        # Counts that add nothing are dropped, so that equal constraints are equal values.
        if all(count == ONCE for count in self.counts):
            object.__setattr__(self, "counts", ())

    @property
    def excludes(self) -> bool:
        """Whether no concept may occur, as `none` says in JSON."""
        return bool(self.counts) and set(self.counts) == {NEVER}


@dataclass(frozen=True, slots=True)
class InfillSpec:
    """A template: literal text with gaps, which `compiler.forms.infill` names. The whole text fills it in."""

    form: ClassVar = "infill"
    template: str
    leading_space: LeadingSpace = "strip"

    def __post_init__(self) -> None:
        check_encodes(self.template, "infill")
        _check_leading(self.leading_space)


@dataclass(frozen=True, slots=True)
class ChoiceSpec:
    """The whole text is one of the strings."""

    form: ClassVar = "choice"
    choices: tuple[str, ...]
    leading_space: LeadingSpace = "strip"

    def __post_init__(self) -> None:
        require(bool(self.choices), "choice names at least one string", "choice")
        for number, choice in enumerate(self.choices):
            check_encodes(choice, f"choice.{number}")
        _check_leading(self.leading_space)


@dataclass(frozen=True, slots=True)
class JsonSchemaSpec:
    """The whole text is a JSON text that the schema validates.

    schema       the schema as JSON text
    whitespace   what is written between the parts of a value
    max_depth    how deep arrays and objects may nest where the schema sets no bound itself; None for no wish
    schemas      documents that references may lead to, as the JSON text of an object, by URI
    strict       unknown keywords and formats are refused instead of being ignored
    approximate  keywords that may be without effect where they would be refused
    property_order  the order of the declared properties: that of the schema, or any
    closed_objects  objects that declare properties are written without others, where the schema leaves that open
    """

    form: ClassVar = "json_schema"
    schema: str
    whitespace: WhiteSpace = JSON_WHITE_SPACE
    max_depth: int | None = None
    leading_space: LeadingSpace = "strip"
    _: KW_ONLY
    schemas: str = "{}"
    strict: bool = False
    approximate: tuple[str, ...] = ()
    property_order: PropertyOrder = "schema"
    closed_objects: bool = False

    def __post_init__(self) -> None:
        names, orders = get_args(WhiteSpace), get_args(PropertyOrder)
        require(set(self.approximate) <= {"uniqueItems"}, "only uniqueItems can be approximated", "approximate")
        require(self.whitespace in names, f"whitespace is one of {', '.join(names)}", "whitespace")
        require(self.property_order in orders, f"property_order is one of {', '.join(orders)}", "property_order")
        # Depth 0 allows scalars alone.
        require((self.max_depth or 0) >= 0, "max_depth is not negative", "max_depth")
        _check_leading(self.leading_space)


@dataclass(frozen=True, slots=True)
class GrammarSpec:
    """The whole text is one that a context-free grammar derives. `text` is the grammar, written in `syntax`."""

    form: ClassVar = "grammar"
    text: str
    syntax: GrammarSyntax
    leading_space: LeadingSpace = "strip"

    def __post_init__(self) -> None:
        check_encodes(self.text, "grammar")
        names = ", ".join(get_args(GrammarSyntax))
        require(self.syntax in get_args(GrammarSyntax), f"syntax is one of {names}", "syntax", names)
        _check_leading(self.leading_space)


@dataclass(frozen=True, slots=True)
class SequenceSpec:
    """The whole text is made of texts of the parts, in order."""

    form: ClassVar = "sequence"
    root: SequencePart
    leading_space: LeadingSpace = "strip"

    def __post_init__(self) -> None:
        _check_leading(self.leading_space)
        names = [part.name for part in all_parts(self.root) if isinstance(part, CapturePart)]
        require(len(set(names)) <= CAPTURES_MAX, f"at most {CAPTURES_MAX} names are captured", "sequence")
        for spec in part_specs(self.root):
            labelled = isinstance(spec, LabelsSpec)
            require(not labelled, "labels stands at the outermost constraint alone", "sequence")
            require(not captures_of(spec), _CAPTURE_INSIDE, "sequence")


@dataclass(frozen=True, slots=True)
class LengthSpec:
    """How long the text is.

    Words are the steps of the word trace that consist of word characters; sentences end in `.`, `!` or `?`.
    """

    form: ClassVar = "length"
    min_words: int | None = None
    max_words: int | None = None
    max_chars: int | None = None
    sentences: Count | None = None

    def __post_init__(self) -> None:
        bounds = {"min_words": self.min_words, "max_words": self.max_words, "max_chars": self.max_chars}
        for field, value in bounds.items():
            require(value is None or value >= 0, f"{field} is not negative", field)
        # Without a bound the form would say nothing.
        require(bool(self.bounds), "a length constraint sets at least one bound", "max_words")
        ascending = self.min_words is None or self.max_words is None or self.min_words <= self.max_words
        require(ascending, "min_words is not more than max_words", "min_words")
        if self.sentences is not None:
            _check_count(self.sentences, "sentences")

    @property
    def bounds(self) -> dict[str, int | Count]:
        """The bounds that are set, by their names."""
        bounds = {name: getattr(self, name) for name in LENGTHS}
        return {name: value for name, value in bounds.items() if value is not None}


@dataclass(frozen=True, slots=True)
class DfaSpec:
    """A caller's own automaton. It is over propositions of the word trace, or over the bytes of the text."""

    form: ClassVar = "dfa"
    user_dfa: UserDfa
    propositions: tuple[tuple[str, Proposition], ...] = ()
    leading_space: LeadingSpace = "strip"

    def __post_init__(self) -> None:
        object.__setattr__(self, "propositions", _checked_declarations(self.propositions))
        _check_leading(self.leading_space)


@dataclass(frozen=True, slots=True)
class AllSpec:
    """Every part holds of the same text."""

    form: ClassVar = "all"
    parts: tuple[Spec, ...]

    def __post_init__(self) -> None:
        _check_parts(self.parts, self.form)


@dataclass(frozen=True, slots=True)
class AnySpec:
    """At least one part holds."""

    form: ClassVar = "any"
    parts: tuple[Spec, ...]

    def __post_init__(self) -> None:
        _check_parts(self.parts, self.form)


@dataclass(frozen=True, slots=True)
class NotSpec:
    """The text does not satisfy the part. These are exactly the texts in valid UTF-8 that the part rejects."""

    form: ClassVar = "not"
    part: Spec

    def __post_init__(self) -> None:
        _check_parts((self.part,), "not")
        message = "what is negated has no text to capture: take the capture away"
        require(not captures_of(self.part), message, "constraint")


@dataclass(frozen=True, slots=True)
class LabelsSpec:
    """A constraint over an alphabet of ids. Each output is one of `labels` and one step of the trace.

    For whole-text forms the text is the labels joined by single spaces.
    """

    form: ClassVar = "labels"
    labels: tuple[str, ...]
    part: Spec

    def __post_init__(self) -> None:
        distinct = bool(self.labels) and len(set(self.labels)) == len(self.labels)
        require(distinct, "labels names each id's label, no two alike", "labels")
        for number, label in enumerate(self.labels):
            _check_phrase(label, f"labels.{number}")
        _check_parts((self.part,), "labels")
        require(not captures_of(self.part), "labels are answered one by one, and not captured", "labels")


# `form` of each is its name in JSON, and in the paths of faults.
Spec = (
    LtlfSpec | RegexSpec | KeywordsSpec | InfillSpec | ChoiceSpec | JsonSchemaSpec | GrammarSpec | SequenceSpec
    | LengthSpec | DfaSpec | AllSpec | AnySpec | NotSpec | LabelsSpec
)  # fmt: skip
# Forms whose language is a set of whole texts. The others speak of the word trace or of a length.
WholeTextSpec = RegexSpec | InfillSpec | ChoiceSpec | JsonSchemaSpec


def leaves(spec: Spec) -> tuple[Spec, ...]:
    """The constraints that a combination is made of, left to right.

    A constraint that is no combination is its only leaf.

    >>> leaves(AllSpec((RegexSpec("a+"), NotSpec(ChoiceSpec(("aa",))))))
    (RegexSpec(pattern='a+', leading_space='strip'), ChoiceSpec(choices=('aa',), leading_space='strip'))
    """
    # Negations and labels are looked through.
    if isinstance(spec, AllSpec | AnySpec):
        return tuple(leaf for part in spec.parts for leaf in leaves(part))
    return leaves(spec.part) if isinstance(spec, NotSpec | LabelsSpec) else (spec,)


def captures_of(spec: Spec) -> tuple[SequenceSpec, ...]:
    """The sequences with captures in a combination, left to right."""
    sequences = [leaf for leaf in leaves(spec) if isinstance(leaf, SequenceSpec)]
    return tuple(each for each in sequences if any(isinstance(part, CapturePart) for part in all_parts(each.root)))


def _checked_declarations(propositions: tuple[tuple[str, Proposition], ...]) -> tuple[tuple[str, Proposition], ...]:
    """The declarations in canonical order, checked."""
    for name, _ in propositions:
        check_encodes(name, "propositions")
        require(bool(name.strip()), "a proposition needs a name", "propositions")
        message = f"the name {name!r} is reserved ({', '.join(RESERVED_NAMES)}): choose another for the proposition"
        require(name.lower() not in RESERVED_NAMES, message, f"propositions.{name}")
    # JSON objects cannot repeat a name, but Python callers can.
    require(len(dict(propositions)) == len(propositions), "a proposition is declared twice", "propositions")
    # Sorted, so that the order of declaration makes no difference.
    return tuple(sorted(propositions))


def _check_phrase(phrase: str, field: str) -> None:
    check_encodes(phrase, field)
    require(bool(phrase.strip()), "a word or phrase holds at least one character that is not white space", field)


def _check_leading(leading_space: LeadingSpace) -> None:
    # Type annotations are not enforced at run time.
    require(leading_space in get_args(LeadingSpace), "leading_space is 'strip' or 'forbid'", "leading_space")


def _check_count(count: Count, field: str) -> None:
    # A count without an upper bound has the maximum None.
    minimum, maximum = count
    ascending = maximum is None or minimum <= maximum
    require(minimum >= 0 and ascending, "a count is not negative, and its max not less than its min", field)


def _check_parts(parts: tuple[Spec, ...], field: str) -> None:
    require(bool(parts), f"{field} combines at least one constraint", field)
    # Labels replace the alphabet of the whole constraint, so they cannot hold of one part.
    labelled = any(isinstance(part, LabelsSpec) for part in parts)
    require(not labelled, "labels stands at the outermost constraint alone", field)
