"""Grammars as pushdown machines, and the conjunction of two schemas."""

from __future__ import annotations

import json
from dataclasses import replace

from compiler.automata import char_complement, everything
from compiler.errors import SpecUnsatisfiable
from compiler.forms.sequences import PartRules, PartTexts
from compiler.grammars import read_grammar
from compiler.limits import ResourceGuard
from compiler.pushdown import INLINE_GROWTH_MAX, build_machine, prepared_rules, rule_dfa
from compiler.regex import blame_field
from compiler.spec import GrammarSpec, JsonSchemaSpec
from compiler.text import CharLeaf, PushdownLeaf

_SIDES = ("abs-server:left", "abs-server:right")  # the URIs of two schemas as documents


def grammar_leaf(spec: GrammarSpec, guard: ResourceGuard, path: tuple[str, ...]) -> PushdownLeaf | CharLeaf:
    """The texts of a grammar that stands at a path.

    Raises SpecSyntaxError or SpecUnsupported, whose `field` is the constraint's, where it cannot be read,
    SpecUnsatisfiable where it stands alone and has no text, LimitExceeded where it outgrows a limit.
    """
    strips_space = spec.leading_space == "strip"
    try:
        with blame_field("grammar"):
            parsed = read_grammar(spec.text, spec.syntax, guard)
            machine = build_machine(parsed.grammar, guard)
    except SpecUnsatisfiable:
        if not path:
            raise
        return CharLeaf(char_complement(everything()), strips_space)  # other parts may have texts
    return PushdownLeaf(
        machine=machine, source=spec, leading_space=strips_space, field=".".join((*path, "grammar")),
        warnings=parsed.warnings,
    )  # fmt: skip


def grammar_part(spec: GrammarSpec, guard: ResourceGuard) -> PartTexts:
    """The rules of a grammar inside a sequence."""
    try:
        with blame_field("grammar"):
            parsed = read_grammar(spec.text, spec.syntax, guard)
            prepared = prepared_rules(parsed.grammar, INLINE_GROWTH_MAX, guard)
            rules = [rule_dfa(node, guard) for node in prepared.rules]
    except SpecUnsatisfiable:
        return char_complement(everything())  # other parts may have texts
    return PartRules(
        names=prepared.names, rules=(rules[0].without_end(), *rules[1:]), terminals=prepared.terminals,
        single_tokens=prepared.single_tokens, marks=prepared.marks,
    )  # fmt: skip


def all_of(left: JsonSchemaSpec, right: JsonSchemaSpec) -> JsonSchemaSpec | None:
    """The schema of the values of two. None where their texts are written in different ways.

    >>> left, right = JsonSchemaSpec('{"type": "object"}'), JsonSchemaSpec('{"required": ["a"]}')
    >>> both = all_of(left, right)
    >>> both and both.schema
    '{"allOf": [{"$ref": "abs-server:left"}, {"$ref": "abs-server:right"}]}'
    """
    if replace(left, schema=right.schema, schemas=right.schemas, leading_space=right.leading_space) != right:
        return None
    if left.closed_objects:  # each schema closes its own objects
        return None
    # Digits of numbers are kept: documents are joined as texts.
    documents = dict(zip(_SIDES, (left.schema, right.schema), strict=True))
    tables = dict.fromkeys((left.schemas, right.schemas))
    names = [name for table in tables for name in json.loads(table)]
    if len({*names, *_SIDES}) < len(names) + len(_SIDES):
        return None
    shared = filter(None, (table.strip()[1:-1].strip() for table in tables))
    members = [*(f'"{name}": {text}' for name, text in documents.items()), *shared]
    references = ", ".join(f'{{"$ref": "{name}"}}' for name in documents)
    return replace(left, schema=f'{{"allOf": [{references}]}}', schemas=f"{{{', '.join(members)}}}")
