"""What a caller may ask for: the constraint forms, their JSON, and their hash. Knows nothing of how one is compiled."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeVar, cast

from compiler.errors import SpecSyntaxError

RESERVED_NAMES = ("true", "false", "last", "eos", "nomatch")
LeadingSpace = Literal["strip", "forbid"]
T = TypeVar("T")
_NAME_CHARS_MAX = 40


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
        for name, _ in self.propositions:
            _check_text(name, "propositions")
            if not name.strip():
                raise SpecSyntaxError("a proposition needs a name", field="propositions")
            if name.lower() in RESERVED_NAMES:
                raise SpecSyntaxError(
                    f"the name {name!r} is reserved ({', '.join(RESERVED_NAMES)}): choose another for the proposition",
                    field=f"propositions.{name}",
                )
        names = [name for name, _ in self.propositions]
        if len(set(names)) != len(names):
            raise SpecSyntaxError("a proposition is declared twice", field="propositions")
        object.__setattr__(self, "propositions", tuple(sorted(self.propositions)))


@dataclass(frozen=True, slots=True)
class RegexSpec:
    """The whole text matches `pattern` as re.fullmatch says; `leading_space` allows one space before it, or not."""

    pattern: str
    leading_space: LeadingSpace = "strip"

    def __post_init__(self) -> None:
        _check_text(self.pattern, "regex")
        if self.leading_space not in ("strip", "forbid"):
            raise SpecSyntaxError("leading_space is 'strip' or 'forbid'", field="leading_space")


@dataclass(frozen=True, slots=True)
class KeywordsSpec:
    """Each concept occurs in the word trace, in any of its given forms.

    With `ordered`, concept j + 1 and those after it do not occur before concept j has, and each occurs at a
    later unit than the one before it (paper, Figure 1).
    """

    concepts: tuple[tuple[str, ...], ...]
    ordered: bool = False
    case_sensitive: bool = False

    def __post_init__(self) -> None:
        if not self.concepts:
            raise SpecSyntaxError("keywords names at least one concept", field="keywords")
        for number, forms in enumerate(self.concepts):
            if not forms:
                raise SpecSyntaxError("a concept has at least one form", field=f"keywords.{number}")
            for form in forms:
                _check_phrase(form, f"keywords.{number}")


Spec = LtlfSpec | RegexSpec | KeywordsSpec


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


def _typed(value: object, kind: type[T], field: str, wanted: str) -> T:
    if not isinstance(value, kind) or (kind is not bool and isinstance(value, bool)):
        raise SpecSyntaxError(f"{field} must be {wanted}", field=field, expected=wanted)
    return value


def _strings(value: object, field: str) -> tuple[str, ...]:
    items = _typed(value, list, field, "a list of strings")
    return tuple(_typed(item, str, f"{field}.{number}", "a string") for number, item in enumerate(items))


def _shown(name: str) -> str:
    """A caller's own name as errors repeat it: whole where it is short and plain, else not at all."""
    return name if len(name) <= _NAME_CHARS_MAX and name.isprintable() else "(a long name)"


def _only(fields: Mapping[str, object], allowed: tuple[str, ...], where: str) -> None:
    for name in fields:
        if name not in allowed:
            raise SpecSyntaxError(
                f"unknown field {_shown(name)!r} in {where}; it takes {', '.join(allowed)}",
                field=_shown(name),
                expected=", ".join(allowed),
            )


def _proposition(name: str, value: object) -> Proposition:
    field = f"propositions.{_shown(name)}"
    if isinstance(value, list):
        return Proposition(_strings(value, field))
    fields = _typed(value, dict, field, "a list of words and phrases, or an object with `words` or `regex`")
    _only(fields, ("words", "regex", "case_sensitive"), field)
    words = _strings(fields.get("words", []), f"{field}.words")
    regex = None if "regex" not in fields else _typed(fields["regex"], str, f"{field}.regex", "a string")
    if regex is not None and "case_sensitive" in fields:
        raise SpecSyntaxError("a regex says itself whether case matters: (?i)", field=f"{field}.case_sensitive")
    return Proposition(
        words, regex, _typed(fields.get("case_sensitive", False), bool, f"{field}.case_sensitive", "a boolean")
    )


def _ltlf(fields: Mapping[str, object]) -> Spec:
    _only(fields, ("ltlf", "propositions"), "an ltlf constraint")
    declared = _typed(fields.get("propositions", {}), dict, "propositions", "an object")
    named = tuple((str(name), _proposition(str(name), value)) for name, value in declared.items())
    return LtlfSpec(_typed(fields["ltlf"], str, "ltlf", "a string"), named)


def _regex(fields: Mapping[str, object]) -> Spec:
    _only(fields, ("regex", "leading_space"), "a regex constraint")
    leading = _typed(fields.get("leading_space", "strip"), str, "leading_space", "'strip' or 'forbid'")
    return RegexSpec(_typed(fields["regex"], str, "regex", "a string"), cast(LeadingSpace, leading))


def _keywords(fields: Mapping[str, object]) -> Spec:
    _only(fields, ("keywords", "ordered", "case_sensitive"), "a keywords constraint")
    concepts = _typed(fields["keywords"], list, "keywords", "a list of words, or of lists of forms")
    forms = tuple(
        (item,) if isinstance(item, str) else _strings(item, f"keywords.{number}")
        for number, item in enumerate(concepts)
    )
    ordered = _typed(fields.get("ordered", False), bool, "ordered", "a boolean")
    return KeywordsSpec(
        forms, ordered, _typed(fields.get("case_sensitive", False), bool, "case_sensitive", "a boolean")
    )


_FORMS: dict[str, Callable[[Mapping[str, object]], Spec]] = {"ltlf": _ltlf, "regex": _regex, "keywords": _keywords}


def spec_from_json(constraint: object) -> Spec:
    """The constraint object of a request, checked.

    Raises SpecSyntaxError, whose `field` says which part is at fault, for an unknown form or field or a wrong type.
    """
    wanted = f"an object with exactly one of {', '.join(_FORMS)}"
    fields = _typed(constraint, dict, "constraint", wanted)
    forms = [form for form in _FORMS if form in fields]
    if len(forms) != 1:
        raise SpecSyntaxError(f"a constraint is {wanted}", field="constraint", expected=wanted)
    return _FORMS[forms[0]](fields)


def spec_to_json(spec: Spec) -> dict[str, object]:
    """The canonical constraint object: spec_from_json undoes it, and every default is written out."""
    match spec:
        case LtlfSpec():
            declared = {name: _proposition_to_json(proposition) for name, proposition in spec.propositions}
            return {"ltlf": spec.formula, "propositions": declared}
        case RegexSpec():
            return {"regex": spec.pattern, "leading_space": spec.leading_space}
        case KeywordsSpec():
            concepts = [list(forms) for forms in spec.concepts]
            return {"keywords": concepts, "ordered": spec.ordered, "case_sensitive": spec.case_sensitive}


def _proposition_to_json(proposition: Proposition) -> dict[str, object]:
    if proposition.regex is not None:
        return {"regex": proposition.regex}
    return {"words": list(proposition.words), "case_sensitive": proposition.case_sensitive}


def spec_hash(spec: Spec) -> str:
    """SHA-256, in hex, of the canonical JSON: equal specs have equal hashes in every process."""
    canonical = json.dumps(spec_to_json(spec), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(canonical.encode()).hexdigest()
