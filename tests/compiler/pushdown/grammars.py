"""Grammars of the tests, with characters and tokens of small, hard vocabularies."""

from __future__ import annotations

from dataclasses import dataclass

from compiler.pushdown import Grammar
from tests.references.context_free import grammar_of

WS = "[ \t\n\r]*"
STRING = r'"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"'
NUMBER = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?"
SCALAR = f"{STRING}|{NUMBER}|true|false|null"
NAME = "[a-z_][a-z0-9_]*"


@dataclass(frozen=True, slots=True, eq=False)
class GrammarCase:
    """A grammar of the tests.

    alphabet       characters of its small vocabularies
    tokens         tokens across borders of rules
    deterministic  whether its machine has no conflict
    heights        the bounds of stacks in the reference, and up to which height it is compared
    """

    grammar: Grammar
    alphabet: str
    tokens: tuple[str, ...]
    deterministic: bool
    heights: tuple[int, int] = (9, 2)


GRAMMARS = {
    "brackets": GrammarCase(
        grammar_of(s=r"(?:\(<s>\)|\[<s>\])*"), "()[]", (")](", "]])", "((", ")))", "()[", "([])", "]))(", "[[(("), True
    ),
    "arithmetic": GrammarCase(
        grammar_of(e="<t>(?:[-+]<t>)*", t="<f>(?:[*/]<f>)*", f=r"[0-9]+|-<f>|\(<e>\)"), "()+-*1",
        ("))", "((", "1)", ")*(", ")+", "1))", "(1", ")-((", "+1)", ")))", "((1", "-(", "1*1)+", "*(1"), True,
    ),
    "json": GrammarCase(
        grammar_of(
            doc=f"{WS}<value>{WS}",
            value=f"{SCALAR}|<object>|<array>",
            object=rf"\{{{WS}(?:<member>(?:,{WS}<member>)*)?\}}",
            member=f"{STRING}{WS}:{WS}<value>{WS}",
            array=rf"\[{WS}(?:<value>{WS}(?:,{WS}<value>{WS})*)?\]",
        ),
        '{}[]":,1a t\\n',
        ('"},{"', "]]", "},", '":[', "}]", '"]}', "1]", "1}", "[[[", '{"":', "]]]]", '"}', "],[", '":1', "{}", "[{",
         ',[[', 'a":{"', '"],["', " }", '" ', "] ", " ]}", "} ,"), True,
    ),
    "tree": GrammarCase(
        grammar_of(
            node=rf'\{{"name":{STRING}(?:,"size":-?(?:0|[1-9][0-9]*))?,"children":\[(?:<node>(?:,<node>)*)?\]\}}'
        ),
        '{}[]":,1nameschildrz',
        ('":[]}', "[]}]", "]}]}", ',"children":[', '{"name":"', "]},{", '","', "},", '":[{"', "1,", 'e":1'), True,
        (9, 2),
    ),
    "sql": GrammarCase(
        grammar_of(
            select=r"SELECT (?:\*|<item>(?:, <item>)*) FROM <source>(?: WHERE <expr>)?(?: ORDER BY <expr>(?: ASC)?)?",
            item=f"<expr>(?: AS {NAME})?",
            source=rf"(?:{NAME}|\(<select>\))(?: AS {NAME})?",
            expr="<term>(?: (?:[=<+]|AND|OR) <term>)*(?: IS (?:NOT )?NULL)?",
            term=rf"{NAME}|[0-9]+|'(?:[ -&(-~]|'')*'|NOT <term>|\((?:<expr>|<select>)\)|{NAME}\(<expr>(?:, <expr>)*\)",
        ),
        "SELCTFROMWHANDS ()*,ab1='UYB",
        (" FROM a", "SELECT ", " (", "))", ") AND (", ") FROM", "a)", " WHERE ", " AND", "(SELECT * FROM ", "a FROM b)",
         " AS a", "a, b", " IS", " NOT NULL", "a FROM a", "))) "), True, (8, 1),
    ),
    "palindromes": GrammarCase(grammar_of(s="a<s>?a|b<s>?b|a|b"), "ab", (), False),
    "counting": GrammarCase(grammar_of(s="<x>|<y>", x="a<x>?b", y="a<y>?bb"), "ab", (), False, (14, 6)),
    "dangling else": GrammarCase(
        grammar_of(s=r"i<s>(?:e<s>)?|x|\(<s>(?:,?<s>)*\)"), "iex(),", ("xe", "))", "x)", "ii"), False, (8, 1)
    ),
    "right recursion": GrammarCase(
        grammar_of(s="é<s>|é<t>|<t>", t=r"\(<s>\)|日?"), "é日()", ("é(", "))", "日)", "日))"), True
    ),
}
