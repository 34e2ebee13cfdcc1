"""The syntaxes of grammars, by name."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Literal

from compiler.errors import SpecSyntaxError
from compiler.grammars.ebnf import read_ebnf
from compiler.grammars.gbnf import read_gbnf
from compiler.grammars.lark import read_lark
from compiler.grammars.rules import ParsedGrammar
from compiler.limits import ResourceGuard

_READERS: Mapping[str, Callable[[str, ResourceGuard], ParsedGrammar]] = {
    "lark": read_lark, "gbnf": read_gbnf, "ebnf": read_ebnf,
}  # fmt: skip
SYNTAXES = tuple(_READERS)
_RULE = re.compile(r"^[^\S\n]*(?:\[\d+\]\s*)?[A-Za-z_][\w.-]*\s*::=", re.MULTILINE)


def read_grammar(text: str, syntax: str, guard: ResourceGuard) -> ParsedGrammar:
    """The grammar of a text in a syntax, one of SYNTAXES. Raises as its reader does, SpecSyntaxError for another one.

    >>> from compiler.limits import DEFAULT_LIMITS
    >>> parsed = read_grammar('root ::= "a"\\nb ::= "b"', "gbnf", ResourceGuard(DEFAULT_LIMITS))
    >>> parsed.warnings
    (GrammarWarning(message='the rule b is not used', line=2, column=1),)
    """
    reader = _READERS.get(syntax)
    if reader is None:
        raise SpecSyntaxError("this syntax of grammars is unknown", expected=", ".join(SYNTAXES), field="syntax")
    return reader(text, guard)


def likely_syntax(text: str) -> Literal["ebnf", "lark"]:
    """The syntax of a grammar whose author names none.

    It is EBNF where a line begins with a name and `::=`, else Lark.
    """
    return "ebnf" if _RULE.search(text) else "lark"
