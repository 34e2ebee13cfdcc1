"""What answers are made of, and how JSON becomes typed. What a newer service says beside it is passed over."""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from functools import cache
from typing import Any, Literal, TypeVar

from abs_client.errors import AnswerInvalid

T = TypeVar("T")


@dataclass(frozen=True)
class Unit:
    """A word or punctuation mark of a text: the propositions that hold at it, and the automaton's state after it."""

    text: str
    propositions: tuple[str, ...]
    state: int


@dataclass(frozen=True)
class TokenStep:
    """A token of an answer. `distance`: fewest tokens to the end after it; `alpha`: the push before it."""

    token: int
    text: str
    state: int
    distance: int
    alpha: float
    log_prob: float
    score: float
    propositions: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True)
class Answer:
    """One text that satisfies the constraint. Log-probs are natural logarithms. `trace` where it was asked for.

    proven_gap  how much better the best satisfying text can be at most, in log_prob / tokens ** length_penalty; 0
                where this one is proven the best, None where the algorithm keeps no bound
    """

    text: str
    finish_reason: str
    log_prob: float
    score: float
    satisfied: bool
    words: tuple[Unit, ...] = ()
    trace: tuple[TokenStep, ...] | None = None
    proven_gap: float | None = None

    def parse(self, model: Any = None) -> Any:
        """The text as JSON: of a pydantic model or TypeAdapter where one is given, else plain values."""
        for name in ("model_validate_json", "validate_json"):
            if callable(read_json := getattr(model, name, None)):
                return read_json(self.text)
        if model is not None:
            raise TypeError(f"parse takes a pydantic model or a TypeAdapter, not {model!r}")
        return json.loads(self.text)


@dataclass(frozen=True)
class Usage:
    """Tokens read, tokens written over all answers, texts written side by side."""

    prompt_tokens: int
    completion_tokens: int
    sequences: int


@dataclass(frozen=True)
class Timings:
    """Where the time went, in milliseconds. `cached`: the constraint was compiled already."""

    compile_ms: float
    queue_ms: float
    decode_ms: float
    total_ms: float
    cached: bool


@dataclass(frozen=True)
class LetterNote:
    """What a letter of an automaton means; `holds`: the propositions, None where letters are no sets of them."""

    name: str
    means: str
    holds: tuple[str, ...] | None = None


@dataclass(frozen=True)
class StateNote:
    """A state of an automaton. `distance`: fewest tokens to the end, None where no answer can be finished."""

    state: int
    distance: int | None
    accepting: bool
    start: bool


@dataclass(frozen=True)
class Explanation:
    """What was compiled, in words and numbers; a shortest text and random ones that are accepted."""

    sentences: tuple[str, ...]
    letters: tuple[LetterNote, ...] = ()
    letters_more: int = 0
    states: tuple[StateNote, ...] = ()
    states_more: int = 0
    shortest: str | None = None
    samples: tuple[str, ...] = ()


@dataclass(frozen=True)
class LabelStep:
    """A label of a decoded sequence. `distance`: fewest further labels to acceptance."""

    label: str
    state: int
    distance: int
    propositions: tuple[str, ...]
    log_prob: float


@dataclass(frozen=True)
class PartCheck:
    """A conjunct of a constraint, checked by itself."""

    constraint: dict[str, Any]
    satisfied: bool
    violated_at: int | None


@dataclass(frozen=True)
class State:
    """A state of an automaton. `distance`: fewest tokens to the end, None where dead."""

    id: int
    accepting: bool
    distance: int | None = None


@dataclass(frozen=True)
class Transition:
    """All letters that lead from one state to another, by their places in `letters` of the automaton."""

    source: int = field(metadata={"name": "from"})
    to: int
    letters: tuple[int, ...]


def read(kind: type[T], data: Any, where: str = "the answer") -> T:
    """A value of this type from its JSON; what the type does not know is left out, but for `raw`.

    Raises AnswerInvalid where something is missing or of another type.
    """
    if is_dataclass(kind):
        return typing.cast(T, _record(kind, data, where))
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return typing.cast(T, None if data is None else read(inner[0], data, where))
    if origin is tuple and isinstance(data, list):
        return typing.cast(T, tuple(read(inner[0], item, where) for item in data))
    accepts = {float: (int, float), Any: object, Literal: str}.get(origin or kind, origin or kind)
    if not isinstance(data, accepts) or (isinstance(data, bool) and kind in (int, float)):  # type: ignore[arg-type]
        raise AnswerInvalid(f"{where} is not what this client knows")
    return typing.cast(T, data)


def _record(kind: Any, data: Any, where: str) -> Any:
    if not isinstance(data, Mapping):
        raise AnswerInvalid(f"{where} is not what this client knows")
    given: dict[str, Any] = {}
    for one in fields(kind):
        name = one.metadata.get("name", one.name)
        if one.name == "raw":
            given["raw"] = data
        elif one.name == "svg":
            continue
        elif name in data:
            given[one.name] = read(_hints(kind)[one.name], data[name], f"{name} of {where}")
        elif one.default is MISSING and one.default_factory is MISSING:
            raise AnswerInvalid(f"{where} lacks {name}")
    return kind(**given)


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return typing.get_type_hints(kind)
