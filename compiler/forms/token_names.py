"""Checks the tokens that a constraint names against a vocabulary."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from compiler.errors import SpecSyntaxError, SpecUnsatisfiable, did_you_mean
from compiler.grammars import read_grammar
from compiler.limits import ResourceGuard
from compiler.regex import blame_field
from compiler.spec import (
    AllSpec,
    AnySpec,
    GrammarSpec,
    LabelsSpec,
    NotSpec,
    Part,
    SequenceSpec,
    Spec,
    TextPart,
    TokenPart,
    field_prefix,
    inner_parts,
)
from compiler.vocab import Vocabulary


def check_token_names(spec: Spec, vocabulary: Vocabulary, guard: ResourceGuard) -> None:
    """Check each named token.

    Raises SpecSyntaxError, with its field, for one that the vocabulary does not have, or that ends a text; and what
    `read_grammar` raises, but for a grammar without texts.
    """
    match spec:
        case AllSpec() | AnySpec():
            for number, part in enumerate(spec.parts):
                with field_prefix(f"{spec.form}.{number}"):
                    check_token_names(part, vocabulary, guard)
        case NotSpec():
            with field_prefix("not"):
                check_token_names(spec.part, vocabulary, guard)
        case LabelsSpec():
            check_token_names(spec.part, vocabulary, guard)
        case SequenceSpec():
            _check_part(spec.root, vocabulary, guard)
        case GrammarSpec(syntax="gbnf") if "<" in spec.text:
            with blame_field("grammar"), suppress(SpecUnsatisfiable):
                for name, place in read_grammar(spec.text, spec.syntax, guard).token_places.items():
                    _check(name, vocabulary, source=spec.text, position=place)


def _check_part(part: Part, vocabulary: Vocabulary, guard: ResourceGuard) -> None:
    if isinstance(part, TokenPart):
        _check(part.name, vocabulary, field="token")
    elif isinstance(part, TextPart):
        check_token_names(part.spec, vocabulary, guard)
    for path, inside in inner_parts(part):
        with field_prefix(path):
            _check_part(inside, vocabulary, guard)


def _check(name: str, vocabulary: Vocabulary, **place: Any) -> None:
    if vocabulary.checks_texts:
        return
    if name not in vocabulary.names:
        hint = did_you_mean(name, vocabulary.names)
        message = f"the model has no special or added token of this name{hint}; write other text as a string"
        raise SpecSyntaxError(message, expected="a token of the model, such as <tool_call>", **place)
    if vocabulary.names[name] in vocabulary.eos_ids:
        message = "this token ends the text: leave it out, the end of a sequence needs no part"
        raise SpecSyntaxError(message, expected="a token that does not end the text", **place)
