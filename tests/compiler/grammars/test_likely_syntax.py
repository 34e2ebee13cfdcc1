"""The syntax of a grammar that names none."""

from __future__ import annotations

import pytest

from compiler.grammars import likely_syntax


@pytest.mark.parametrize(
    ("text", "syntax"),
    [
        ('root ::= "a"', "ebnf"),
        ('# a comment\n  my-rule.1\n   ::= "a"\nroot ::= my-rule.1', "ebnf"),
        ('[1] root ::= "a"', "ebnf"),
        ('start: "a"', "lark"),
        ('start: "x ::= y"', "lark"),
        ('?start: a\n// root ::= a\na: "::="', "lark"),
        ("", "lark"),
    ],
)
def test_a_rule_with_two_colons_and_equals_is_ebnf(text: str, syntax: str) -> None:
    assert likely_syntax(text) == syntax
