"""Grammars in GBNF: what they accept, and what is wrong with them."""

from __future__ import annotations

import pytest

from compiler.errors import SpecSyntaxError, SpecUnsupported
from compiler.grammars import read_gbnf
from compiler.limits import DEFAULT_LIMITS, ResourceGuard
from compiler.pushdown import PushdownMachine, build_machine

WRONG = {
    "name": ('"a"', 1, 1, "the name of a rule"),
    "assignment": ('root = "a"', 1, 6, "::="),
    "second definition": ('root ::= "a"\nroot ::= "b"', 2, 1, "another name"),
    "no newline": ('root ::= "a" )', 1, 14, "a newline"),
    "open bracket": ('root ::= ("a"\nb ::= "c"', 2, 3, ")"),
    "open literal": ('root ::= "a\n', 2, 1, '"'),
    "open class": ("root ::= [a", 1, 12, "]"),
    "escape": (r'root ::= "\q"', 1, 11, r"\xXX"),
    "short escape": (r'root ::= "\x4"', 1, 11, r"\xXX"),
    "escape beyond the last character": (r'root ::= "\U00110000"', 1, 11, r"\xXX"),
    "range": ("root ::= [z-a]", 1, 11, "the lower character first"),
    "token": ("root ::= !<a", 1, 10, "<name> or !<name>"),
    "repetition": ('root ::= "a"{3,2}', 1, 13, "{m,n} with m <= n"),
}


def machine_of(text: str) -> PushdownMachine:
    guard = ResourceGuard(DEFAULT_LIMITS)
    return build_machine(read_gbnf(text, guard).grammar, guard)


@pytest.mark.parametrize("text, line, column, expected", WRONG.values(), ids=WRONG)
def test_a_fault_is_shown_with_its_place(text: str, line: int, column: int, expected: str) -> None:
    with pytest.raises(SpecSyntaxError) as caught:
        machine_of(text)
    error = caught.value
    assert (error.line, error.column) == (line, column)
    assert expected in error.expected


def test_a_token_by_its_id_is_refused_with_its_place() -> None:
    with pytest.raises(SpecUnsupported, check=lambda error: (error.construct, error.position) == ("token", 13)):
        machine_of('root ::= "a" !<[1000]>')


def test_comments_and_newlines_stand_between_elements() -> None:
    machine = machine_of('# first\nroot ::= # here\n  ( "a" # then\n b\n) |\n  "c"\r\nb ::= [b] # last')
    assert machine.accepts(b"ab") and machine.accepts(b"c") and not machine.accepts(b"a")


def test_escapes_and_classes_spell_any_character() -> None:
    machine = machine_of(r'root ::= "\x41\u00e9\U0001F600\"\\\t" [^a-c\]] [-x] [x-]')
    assert machine.accepts('Aé😀"\\\td-x'.encode()) and machine.accepts('Aé😀"\\\t\nx-'.encode())
    assert not machine.accepts('Aé😀"\\\tb-x'.encode()) and not machine.accepts('Aé😀"\\\t]-x'.encode())


def test_a_literal_is_repeated_as_a_whole() -> None:
    machine = machine_of('root ::= "ab"{2} " " "c" + ?')
    assert machine.accepts(b"abab ") and machine.accepts(b"abab ccc") and not machine.accepts(b"abb ")


def test_an_escaped_hyphen_makes_no_range() -> None:
    machine = machine_of(r'root ::= "\-" [a\-c]+')
    assert machine.accepts(b"-a-c") and not machine.accepts(b"-b")
