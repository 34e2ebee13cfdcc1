"""Checks the tokens that a constraint names against a vocabulary."""

from __future__ import annotations

from collections.abc import Iterator

from compiler.errors import SpecSyntaxError, did_you_mean
from compiler.spec import (
    AllSpec,
    AnySpec,
    LabelsSpec,
    NotSpec,
    Part,
    SequenceSpec,
    Spec,
    TextPart,
    TokenPart,
    inner_parts,
)
from compiler.vocab import Vocabulary


def check_token_names(spec: Spec, vocabulary: Vocabulary) -> None:
    """Check each named token.

    Raises SpecSyntaxError, with its field, for one that the vocabulary does not have, or that ends a text.
    """
    if vocabulary.checks_texts:
        return
    for path, name in _names(spec):
        field = ".".join(path)
        if name not in vocabulary.names:
            hint = did_you_mean(name, vocabulary.names)
            message = f"the model has no special or added token of this name{hint}; write other text as a string"
            raise SpecSyntaxError(message, field=field, expected="a token of the model, such as <tool_call>")
        if vocabulary.names[name] in vocabulary.eos_ids:
            message = "this token ends the text: leave it out, the end of a sequence needs no part"
            raise SpecSyntaxError(message, field=field, expected="a token that does not end the text")


def _names(spec: Spec) -> Iterator[tuple[tuple[str, ...], str]]:
    """The names of tokens, with their paths."""
    match spec:
        case AllSpec() | AnySpec():
            for number, part in enumerate(spec.parts):
                yield from (((f"{spec.form}.{number}", *path), name) for path, name in _names(part))
        case NotSpec():
            yield from ((("not", *path), name) for path, name in _names(spec.part))
        case LabelsSpec():
            yield from _names(spec.part)
        case SequenceSpec():
            yield from _part_names(spec.root)


def _part_names(part: Part) -> Iterator[tuple[tuple[str, ...], str]]:
    if isinstance(part, TokenPart):
        yield ("token",), part.name
    elif isinstance(part, TextPart):
        yield from _names(part.spec)
    for path, inside in inner_parts(part):
        yield from (((path, *further), name) for further, name in _part_names(inside))
