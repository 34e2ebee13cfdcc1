"""Warnings about constraints that probably mean something else than their authors think."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from compiler.errors import Edit
from compiler.ltlf import Op, formula_tokens, glued_operators
from compiler.spec.near_misses import is_formula
from compiler.spec.parts import Part, TextPart, inner_parts
from compiler.spec.types import (
    AllSpec,
    AnySpec,
    KeywordsSpec,
    LabelsSpec,
    LtlfSpec,
    NotSpec,
    RegexSpec,
    SequenceSpec,
    Spec,
)

_CONSTANTS = (Op.TRUE, Op.FALSE, Op.LAST)
WARNINGS_MAX = 8  # of one constraint
_NEGATED_LIST = "not all of the keywords: texts with some of them are accepted. For none of them write none: true"
_FORMULA = "this pattern reads like a formula: did you mean ltlf?"
_GLUED = "a name is read as one word of the text: for the operator put a space behind it"
_CONSTANT = "true, false and last are operators: for the label of this name put it in quotes"


@dataclass(frozen=True, slots=True)
class SpecWarning:
    """What is probably a mistake in a constraint that is accepted.

    field       the path of the part
    position    the character of it that is meant, where it is a string
    suggestion  edits of the constraint that were probably meant, as in SpecSyntaxError
    """

    message: str
    field: str
    position: int | None = None
    suggestion: tuple[Edit, ...] = ()


def spec_warnings(spec: Spec) -> tuple[SpecWarning, ...]:
    """The first warnings about a constraint that can be compiled."""
    found = _warnings(spec, ())
    return tuple(warning for warning, _ in zip(found, range(WARNINGS_MAX), strict=False))


def is_negated_list(spec: Spec) -> bool:
    """Whether a constraint negates several keywords that only have to occur."""
    if not isinstance(spec, NotSpec) or not isinstance(spec.part, KeywordsSpec):
        return False
    return len(spec.part.concepts) > 1 and not spec.part.ordered and not spec.part.counts


def _of_parts(part: Part, path: tuple[str, ...]) -> Iterator[SpecWarning]:
    for name, inside in inner_parts(part):
        if isinstance(inside, TextPart):
            yield from _warnings(inside.spec, (*path, name))
        else:
            yield from _of_parts(inside, (*path, name))


def _warnings(spec: Spec, path: tuple[str, ...], labels: Collection[str] = ()) -> Iterator[SpecWarning]:
    pointer = "".join(f"/{name}" for part in path for name in part.split("."))
    match spec:
        case AllSpec() | AnySpec():
            for number, part in enumerate(spec.parts):
                yield from _warnings(part, (*path, f"{spec.form}.{number}"), labels)
        case LabelsSpec():
            yield from _warnings(spec.part, path, [label.lower() for label in spec.labels])
        case SequenceSpec():
            yield from _of_parts(spec.root, path)
        case NotSpec() if is_negated_list(spec):
            edits: tuple[Edit, ...] = (
                {"op": "move", "from": f"{pointer}/not", "path": pointer},
                {"op": "add", "path": f"{pointer}/none", "value": True},
            )
            yield SpecWarning(_NEGATED_LIST, ".".join((*path, "not")), suggestion=edits)
        case NotSpec():
            yield from _warnings(spec.part, (*path, "not"), labels)
        case RegexSpec() if is_formula(spec.pattern):
            edit: Edit = {"op": "move", "from": f"{pointer}/regex", "path": f"{pointer}/ltlf"}
            yield SpecWarning(_FORMULA, ".".join((*path, "regex")), suggestion=(edit,))
        case LtlfSpec():
            declared = dict(spec.propositions)
            for token in formula_tokens(spec.formula, None):
                name = token.text
                if token.op is Op.NAME and token.bare and name not in declared and (glued := glued_operators(name)):
                    at = token.position + glued
                    edit = {"op": "splice", "path": f"{pointer}/ltlf", "start": at, "end": at, "value": " "}
                    yield SpecWarning(_GLUED, ".".join((*path, "ltlf")), token.position, (edit,))
                if token.op in _CONSTANTS and name.lower() in labels:
                    at, end = token.position, token.position + len(name)
                    edit = {"op": "splice", "path": f"{pointer}/ltlf", "start": at, "end": end, "value": f'"{name}"'}
                    yield SpecWarning(_CONSTANT, ".".join((*path, "ltlf")), at, (edit,))
