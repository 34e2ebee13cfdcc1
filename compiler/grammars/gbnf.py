"""Reads GBNF, the grammars of llama.cpp (grammars/README.md in its repository).

A grammar is a list of rules `name ::= ...` over Unicode characters; its texts are those of the rule `root`. Terminals
are "literals", [classes], `.`, any character, and tokens by their names. There is no lexer and nothing is skipped
between terminals.
"""

from __future__ import annotations

import re

from compiler.grammars.bnf import BnfDialect, BnfReader
from compiler.grammars.rules import ParsedGrammar
from compiler.grammars.scanner import Escapes
from compiler.limits import ResourceGuard

_ESCAPES = Escapes(
    {"t": "\t", "r": "\r", "n": "\n", "\\": "\\", '"': '"', "[": "[", "]": "]", "-": "-"},
    {"x": 2, "u": 4, "U": 8},
    r"\t, \r, \n, \\, \", \[, \], \-, \xXX, \uXXXX or \UXXXXXXXX, at most 0010FFFF",
)
_GBNF = BnfDialect(
    name=re.compile(r"[A-Za-z0-9_-]+"),
    space=re.compile(r"(?:[ \t\r\n]|#[^\r\n]*)*"),
    line_space=re.compile(r"(?:[ \t]|#[^\r\n]*)*"),
    escapes=_ESCAPES,
    class_escapes=_ESCAPES,
    refused={"token": re.compile(r"!?<\[[0-9]*\]>")},  # by their ids, which no text has
    tokens=True,
)


def read_gbnf(text: str, guard: ResourceGuard) -> ParsedGrammar:
    """The grammar of a GBNF text.

    A rule is defined once. Raises SpecSyntaxError (with place and what was expected) for a text that is no GBNF, for a
    rule that is missing or defined twice, and for a text without `root`; SpecUnsupported (with the place) for a token
    by its id; SpecUnsatisfiable where no text is derived; LimitExceeded over `grammar_chars_max` or
    `nesting_depth_max`.

    >>> from compiler.limits import DEFAULT_LIMITS
    >>> from compiler.pushdown import build_machine
    >>> guard = ResourceGuard(DEFAULT_LIMITS)
    >>> machine = build_machine(read_gbnf('root ::= "(" root? ")" | [0-9]{1,3}', guard).grammar, guard)
    >>> machine.accepts(b"((42))"), machine.accepts(b"((42)")
    (True, False)
    """
    guard.check("grammar_chars_max", len(text))
    with guard.recursion():
        return BnfReader(text, _GBNF, guard).grammar(first_is_root=False)
