"""The parts of a sequence as types. Knows neither their JSON nor how one is compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from compiler.errors import require
from compiler.spec.user_dfa import check_encodes

if TYPE_CHECKING:
    from compiler.spec.types import Spec

REPEATS_MAX = 1_000_000  # of a part; what is built of it has limits of its own


@dataclass(frozen=True, slots=True)
class TokenPart:
    """One token of the vocabulary, by its name. No text spells it."""

    field: ClassVar = "token"
    name: str

    def __post_init__(self) -> None:
        check_encodes(self.name, "token")
        require(bool(self.name), "a token has a name, such as <tool_call>", "token")


@dataclass(frozen=True, slots=True)
class FreePart:
    """Free text.

    until       strings of which the first occurrence ends the part; it belongs to the text
    without     strings that do not occur in it
    max_tokens  how many tokens may write it, where there is a bound
    max_chars   how many characters it may have, with the string of `until`
    """

    field: ClassVar = "free"
    until: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    max_tokens: int | None = None
    max_chars: int | None = None

    def __post_init__(self) -> None:
        for name in ("until", "without"):
            for number, text in enumerate(getattr(self, name)):
                check_encodes(text, f"free.{name}.{number}")
                require(bool(text), f"a string of {name} has at least one character", f"free.{name}.{number}")
        for name in ("max_tokens", "max_chars"):
            most = getattr(self, name)
            require(most is None or most >= 1, f"{name} is at least 1: leave the part out for none", f"free.{name}")


@dataclass(frozen=True, slots=True)
class OptionalPart:
    """The part, or nothing."""

    field: ClassVar = "optional"
    part: Part


@dataclass(frozen=True, slots=True)
class RepeatPart:
    """The part several times, with the separator between two of them."""

    field: ClassVar = "repeat"
    part: Part
    minimum: int = 0
    maximum: int | None = None
    separator: Part | None = None

    def __post_init__(self) -> None:
        ascending = self.maximum is None or self.minimum <= self.maximum
        require(0 <= self.minimum <= REPEATS_MAX and ascending, "min is not negative, and not more than max", "min")
        require((self.maximum or 0) <= REPEATS_MAX, f"max is at most {REPEATS_MAX}", "max")


@dataclass(frozen=True, slots=True)
class AnyPart:
    """One of the parts."""

    field: ClassVar = "any"
    parts: tuple[Part, ...]

    def __post_init__(self) -> None:
        require(bool(self.parts), "any has at least one part", "any")


@dataclass(frozen=True, slots=True)
class CapturePart:
    """A part whose place in the text is answered under a name."""

    field: ClassVar = "capture"
    name: str
    part: Part

    def __post_init__(self) -> None:
        check_encodes(self.name, "capture")
        require(bool(self.name), "a capture has a name", "capture")


@dataclass(frozen=True, slots=True)
class SequencePart:
    """Parts one after the other."""

    field: ClassVar = "sequence"
    parts: tuple[Part, ...]

    def __post_init__(self) -> None:
        require(bool(self.parts), "sequence has at least one part", "sequence")


@dataclass(frozen=True, slots=True)
class TextPart:
    """A text that satisfies a constraint of its own."""

    field: ClassVar = ""
    spec: Spec


# A string is literal text.
Part = str | TokenPart | FreePart | OptionalPart | RepeatPart | AnyPart | CapturePart | SequencePart | TextPart


def inner_parts(part: Part) -> tuple[tuple[str, Part], ...]:
    """The parts directly inside a part, each with its path."""
    match part:
        case SequencePart() | AnyPart():
            return tuple((f"{part.field}.{number}", each) for number, each in enumerate(part.parts))
        case OptionalPart(inside):
            return (("optional", inside),)
        case CapturePart():
            return (("part", part.part),)
        case RepeatPart():
            return (("repeat", part.part), *([] if part.separator is None else [("separator", part.separator)]))
        case _:
            return ()


def all_parts(part: Part) -> Iterator[Part]:
    """The part and those inside it, left to right."""
    yield part
    for _, inside in inner_parts(part):
        yield from all_parts(inside)


def part_specs(part: Part) -> tuple[Spec, ...]:
    """The constraints of a part's texts, left to right."""
    return tuple(each.spec for each in all_parts(part) if isinstance(each, TextPart))


def map_specs(part: Part, change: Callable[[Spec], Spec]) -> Part:
    """The part with each constraint inside replaced."""
    match part:
        case SequencePart() | AnyPart():
            return replace(part, parts=tuple(map_specs(each, change) for each in part.parts))
        case OptionalPart() | CapturePart():
            return replace(part, part=map_specs(part.part, change))
        case RepeatPart():
            separator = None if part.separator is None else map_specs(part.separator, change)
            return replace(part, part=map_specs(part.part, change), separator=separator)
        case TextPart():
            return TextPart(change(part.spec))
        case _:
            return part
