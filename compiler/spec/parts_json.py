"""Reads and writes the JSON of the parts of a sequence."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from compiler.errors import SpecSyntaxError, did_you_mean, require
from compiler.spec.parts import (
    AnyPart,
    CapturePart,
    FreePart,
    OptionalPart,
    Part,
    RepeatPart,
    SequencePart,
    TextPart,
    TokenPart,
)
from compiler.spec.reading import bound, field_prefix, printable_name, refuse_unknown_fields, strings, typed
from compiler.spec.types import Spec

_DEPTH_MAX = 32  # of parts within parts
_FIELDS = ("token", "free", "optional", "repeat", "any", "capture", "sequence")
_EXPECTED = "a string, or an object with one of " + ", ".join(_FIELDS) + ", or a constraint"
ReadSpec = Callable[[Mapping[str, object], int], Spec | None]


def sequence_from_json(value: object, depth: int, read_spec: ReadSpec) -> SequencePart:
    """The parts in the field `sequence`, checked.

    read_spec  reads a constraint at a depth; None where the fields are those of no form
    """
    return SequencePart(_parts(value, "sequence", depth, read_spec))


def _parts(value: object, field: str, depth: int, read_spec: ReadSpec) -> tuple[Part, ...]:
    parts = []
    for number, item in enumerate(typed(value, list, field, "a list of parts")):
        with field_prefix(f"{field}.{number}"):
            parts.append(_part(item, depth + 1, read_spec))
    return tuple(parts)


def _part(value: object, depth: int, read_spec: ReadSpec) -> Part:
    require(depth <= _DEPTH_MAX, f"parts nest at most {_DEPTH_MAX} deep", "")
    if isinstance(value, str):
        return value
    fields: Mapping[str, object] = typed(value, dict, "constraint", _EXPECTED)
    if "token" in fields:
        refuse_unknown_fields(fields, ("token",), "a token")
        return TokenPart(typed(fields["token"], str, "token", "the name of a token"))
    if "free" in fields:
        return _free(fields)
    if "optional" in fields:
        refuse_unknown_fields(fields, ("optional",), "an optional part")
        return OptionalPart(_inside(fields, "optional", depth, read_spec))
    if "repeat" in fields:
        return _repeat(fields, depth, read_spec)
    if "capture" in fields:
        refuse_unknown_fields(fields, ("capture", "part"), "a capture")
        require("part" in fields, "a capture has the field part: what it captures", "part", "a part")
        return CapturePart(
            typed(fields["capture"], str, "capture", "a name"), _inside(fields, "part", depth, read_spec)
        )
    if "any" in fields:
        refuse_unknown_fields(fields, ("any",), "a choice of parts")
        return AnyPart(_parts(fields["any"], "any", depth, read_spec))
    if "sequence" in fields and "leading_space" not in fields:
        refuse_unknown_fields(fields, ("sequence",), "a sequence inside another one")
        return SequencePart(_parts(fields["sequence"], "sequence", depth, read_spec))
    spec = read_spec(fields, depth)
    if spec is None:
        hint = did_you_mean(printable_name(next(iter(fields), "")), _FIELDS)
        raise SpecSyntaxError(f"a part is {_EXPECTED}{hint}", field="constraint", expected=_EXPECTED)
    return TextPart(spec)


def _inside(fields: Mapping[str, object], name: str, depth: int, read_spec: ReadSpec) -> Part:
    with field_prefix(name):
        return _part(fields[name], depth + 1, read_spec)


def _free(fields: Mapping[str, object]) -> FreePart:
    refuse_unknown_fields(fields, ("free",), "free text")
    names = ("until", "without", "max_tokens", "max_chars")
    free = typed(fields["free"], dict, "free", f"an object with {', '.join(names)}, or {{}}")
    refuse_unknown_fields(free, names, "free text", "free")
    until, without = (strings(free.get(name, []), f"free.{name}") for name in names[:2])
    return FreePart(until, without, *(bound(free, name, f"free.{name}") for name in names[2:]))


def _repeat(fields: Mapping[str, object], depth: int, read_spec: ReadSpec) -> RepeatPart:
    refuse_unknown_fields(fields, ("repeat", "min", "max", "separator"), "a repeated part")
    part = _inside(fields, "repeat", depth, read_spec)
    separator = _inside(fields, "separator", depth, read_spec) if "separator" in fields else None
    return RepeatPart(part, bound(fields, "min", "min") or 0, bound(fields, "max", "max"), separator)


def part_to_json(part: Part, write_spec: Callable[[Spec], object]) -> object:
    """A part as JSON, with every default value written out."""

    def write(inside: Part) -> object:
        return part_to_json(inside, write_spec)

    match part:
        case str():
            return part
        case TokenPart():
            return {"token": part.name}
        case FreePart():
            bounds = {"max_tokens": part.max_tokens, "max_chars": part.max_chars}
            most = {name: value for name, value in bounds.items() if value is not None}
            return {"free": {"until": list(part.until), "without": list(part.without), **most}}
        case OptionalPart():
            return {"optional": write(part.part)}
        case RepeatPart():
            separator = {} if part.separator is None else {"separator": write(part.separator)}
            most = {} if part.maximum is None else {"max": part.maximum}
            return {"repeat": write(part.part), "min": part.minimum, **most, **separator}
        case AnyPart() | SequencePart():
            return {part.field: [write(each) for each in part.parts]}
        case CapturePart():
            return {"capture": part.name, "part": write(part.part)}
        case TextPart():
            return write_spec(part.spec)
