"""The forms of constraints that are no formulas, as Python takes them. Their meaning is in docs/constraints.md."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from abs_client.constraints import Constraint
from abs_client.formulas import meant

LeadingSpace: TypeAlias = Literal["strip", "forbid"]
Bounds: TypeAlias = int | tuple[int | None, int | None]
WORD_GAP, NGRAM_GAP, SENTENCE_GAP = "<|infill_word|>", "<|infill_ngram|>", "<|infill_sentence|>"


def gap(pattern: str) -> str:
    """A gap of an infill that a pattern says, without anchors."""
    return f"<|infill:{pattern}|>"


class Regex(Constraint):
    """The whole text matches, exactly as re.fullmatch says. `leading_space`: one is stripped, or forbidden."""

    FORM = "regex"

    def __init__(self, pattern: str, *, leading_space: LeadingSpace | None = None) -> None:
        super().__init__(pattern, leading_space=leading_space)


@dataclass(frozen=True)
class Concept:
    """A concept of keywords: it occurs at least `min` and at most `max` times, in any of its forms."""

    forms: tuple[str, ...]
    min: int = 1
    max: int | None = None

    def __init__(self, *forms: str, min: int = 1, max: int | None = None) -> None:
        for name, value in (("forms", forms), ("min", min), ("max", max)):
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        least = [f"min={self.min}"] if self.min != 1 else []
        most = [f"max={self.max}"] if self.max is not None else []
        return f"Concept({', '.join([*map(repr, self.forms), *least, *most])})"


class Keywords(Constraint):
    """Each concept occurs as a word or phrase, in any of its forms: a string, a list of forms, or a Concept.

    ordered         in the order given
    inflect         each form stands for all its inflections too
    case_sensitive  else either case will do
    """

    FORM = "keywords"

    def __init__(
        self, *concepts: str | Sequence[str] | Concept,
        ordered: bool = False, inflect: bool = False, case_sensitive: bool = False,
    ) -> None:
        super().__init__(*concepts, ordered=ordered, inflect=inflect, case_sensitive=case_sensitive)

    def _body(self) -> Any:
        return [dataclasses.asdict(one) if isinstance(one, Concept) else one for one in self._arguments]


class Infill(Constraint):
    """Literal text with gaps: f"My day on {WORD_GAP} went well. I paid {gap('[0-9]+')} euros." """

    FORM = "infill"

    def __init__(self, template: str, *, leading_space: LeadingSpace | None = None) -> None:
        super().__init__(template, leading_space=leading_space)


class Choice(Constraint):
    """One of the strings."""

    FORM = "choice"

    def __init__(self, *choices: str, leading_space: LeadingSpace | None = None) -> None:
        super().__init__(*choices, leading_space=leading_space)

    def _body(self) -> Any:
        return list(self._arguments)


class JsonSchema(Constraint):
    """A JSON text that satisfies a schema.

    The schema is a dict, a boolean, a pydantic model or a pydantic TypeAdapter.

    The objects of a pydantic model are closed (`additionalProperties` false) unless the model sets it. A pydantic
    model ignores unknown properties, so generating them is useless. A dict is used unchanged.
    """

    FORM = "json_schema"

    def __init__(
        self, schema: Any, *, whitespace: Literal["compact", "pretty"] | None = None, max_depth: int | None = None,
        leading_space: LeadingSpace | None = None,
    ) -> None:
        super().__init__(_schema(schema), whitespace=whitespace, max_depth=max_depth, leading_space=leading_space)


class Length(Constraint):
    """Bounds on the text's words, characters and sentences.

    The bounds can be combined. `sentences` is an exact number, or a pair of a minimum and a maximum.
    """

    def __init__(
        self, *, min_words: int | None = None, max_words: int | None = None, max_chars: int | None = None,
        sentences: Bounds | None = None,
    ) -> None:
        super().__init__(min_words=min_words, max_words=max_words, max_chars=max_chars, sentences=sentences)
        if not self._options:
            raise ValueError("say at least one of min_words, max_words, max_chars and sentences")

    def as_dict(self) -> dict[str, Any]:
        given, sentences = dict(self._options), self._options.get("sentences")
        if isinstance(sentences, tuple | list):
            least, most = sentences
            bounds = {"min": least, "max": most}
            given["sentences"] = {name: value for name, value in bounds.items() if value is not None}
        return given


class Dfa(Constraint):
    """An automaton of your own, over propositions ("when") or over bytes of the text ("bytes", "text").

    transitions  {"from": "s", "to": "t", "when": "dog & !cat"} and the like
    """

    FORM = "dfa"

    def __init__(
        self, *, start: str, accepting: Iterable[str], transitions: Iterable[Mapping[str, Any]],
        propositions: Mapping[str, Any] | None = None, leading_space: LeadingSpace | None = None,
    ) -> None:
        super().__init__(
            start=start, accepting=list(accepting), transitions=[dict(one) for one in transitions],
            propositions=meant(propositions), leading_space=leading_space,
        )

    def as_dict(self) -> dict[str, Any]:
        given = copy.deepcopy(self._options)
        return {"dfa": {name: given.pop(name) for name in ("start", "accepting", "transitions")}, **given}


def _schema(given: Any) -> Any:
    """The schema itself. Raises TypeError for what is none, and makes none."""
    if isinstance(given, bool):
        return given
    if isinstance(given, Mapping):
        return copy.deepcopy(dict(given))
    for name in ("model_json_schema", "json_schema"):  # a pydantic model, a TypeAdapter
        if callable(make := getattr(given, name, None)):
            return _closed(make())
    raise TypeError(f"a schema is a dict, a boolean, a pydantic model or a TypeAdapter, not {type(given).__name__}")


_SCHEMAS = ("items", "additionalProperties", "not")
_LISTS, _MAPS = ("anyOf", "oneOf", "prefixItems"), ("properties", "$defs")  # not allOf: its parts share an object


def _closed(schema: Any) -> Any:
    """The schema, its objects that list their properties closed where they do not say."""
    if not isinstance(schema, dict):
        return schema
    found = dict(schema)
    for name in _SCHEMAS:
        if name in found:
            found[name] = _closed(found[name])
    for name in _LISTS:
        if name in found:
            found[name] = [_closed(one) for one in found[name]]
    for name in _MAPS:
        if name in found:
            found[name] = {key: _closed(one) for key, one in found[name].items()}
    if "properties" in found:
        found.setdefault("additionalProperties", False)
    return found
