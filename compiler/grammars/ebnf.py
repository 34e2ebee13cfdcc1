"""Reads EBNF: W3C's with the extensions of XGrammar, and ISO 14977.

A grammar is ISO 14977's where its first rule has `=` behind its name, and W3C's where it has `::=`. Terminals are
literals and characters in both, nothing is skipped between them, and texts are those of the rule `root`, or of the
first rule where none has this name.
"""

from __future__ import annotations

import re

from compiler.grammars.bnf import BnfDialect, BnfReader
from compiler.grammars.iso import IsoReader
from compiler.grammars.rules import ParsedGrammar
from compiler.grammars.scanner import Escapes
from compiler.limits import ResourceGuard

_CONTROLS = {
    "n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f", "a": "\a", "v": "\v", "0": "\0", "e": "\x1b",
}  # fmt: skip
_CODE_POINTS = {"x": 0, "u": 4, "U": 8}
_SHOWN = r"\n, \r, \t, \b, \f, \a, \v, \0, \e, \x..., \uXXXX, \UXXXXXXXX"
_LITERAL_ESCAPES = Escapes(_CONTROLS | dict(zip(s := "\"\\/'?", s, strict=True)), _CODE_POINTS, rf'{_SHOWN}, \" or \\')
_CLASS_ESCAPES = Escapes(
    _CONTROLS | dict(zip(s := "\"\\/'?^$.*+()[]{}|-", s, strict=True)), _CODE_POINTS, rf"{_SHOWN}, or \ and a sign"
)
_W3C = BnfDialect(
    name=re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*"),
    # `#x20` is a character. Productions may be numbered, as those of W3C's specifications: [1].
    space=re.compile(
        r"(?:[ \t\r\n]|#(?!x[0-9A-Fa-f])[^\r\n]*+|/\*(?:[^*]|\*(?!/))*\*/|^[ \t]*\[[0-9]+[a-z]?\](?=[ \t]+[A-Za-z_]))*",
        re.MULTILINE,
    ),
    line_space=None,
    escapes=_LITERAL_ESCAPES,
    class_escapes=_CLASS_ESCAPES,
    refused={
        "macro": re.compile(r"(?:Regex|Substring|TagDispatch|Token|ExcludeToken)\("),
        "look-ahead": re.compile(r"\(="),
        "rule option": re.compile(r"\[[^\]\r\n]*\][ \t]*::="),
    },
    w3c=True,
)
_ISO_RULE = re.compile(r"(?:\s|\(\*(?:[^*]|\*(?!\)))*\*\))*[A-Za-z][A-Za-z0-9_ \t\r\n]*=")


def read_ebnf(text: str, guard: ResourceGuard) -> ParsedGrammar:
    """The grammar of an EBNF text.

    A rule is defined once. Raises SpecSyntaxError (with place and what was expected) for a text of neither dialect, for
    a rule that is missing or defined twice; SpecUnsupported (with the place) for XGrammar's macros, rule options and
    look-aheads, for ISO's special sequences, and for a difference of rules that call themselves; SpecUnsatisfiable
    where no text is derived; LimitExceeded over `grammar_chars_max` or `nesting_depth_max`, and for a difference over
    `nfa_positions_max` or `dfa_states_max`.

    >>> from compiler.limits import DEFAULT_LIMITS
    >>> from compiler.pushdown import build_machine
    >>> guard = ResourceGuard(DEFAULT_LIMITS)
    >>> w3c = build_machine(read_ebnf("list ::= '(' (list | [a-z]+ - 'end')? ')'", guard).grammar, guard)
    >>> w3c.accepts(b"((so))"), w3c.accepts(b"((end))")
    (True, False)
    >>> iso = build_machine(read_ebnf('list = "(", [ list | 3 * "a" ], ")";', guard).grammar, guard)
    >>> iso.accepts(b"((aaa))"), iso.accepts(b"(a)")
    (True, False)
    """
    guard.check("grammar_chars_max", len(text))
    with guard.recursion():
        if _ISO_RULE.match(text):
            return IsoReader(text, guard).grammar()
        return BnfReader(text, _W3C, guard).grammar(first_is_root=True)
