"""Grammars and schemas as pushdown machines. They stand alone: combinations cannot hold one yet."""

from __future__ import annotations

from dataclasses import dataclass

from compiler.grammars import GrammarWarning, read_grammar
from compiler.limits import ResourceGuard
from compiler.pushdown import PushdownMachine, build_machine, with_leading_space
from compiler.regex import blame_field
from compiler.spec import GrammarSpec
from compiler.text import PushdownText


@dataclass(frozen=True, slots=True, eq=False)
class PushdownForm:
    """A constraint that is a pushdown machine.

    warnings      what is probably a mistake in a grammar
    approximated  the paths of keywords in a schema that have no effect
    """

    text: PushdownText
    warnings: tuple[GrammarWarning, ...] = ()
    approximated: tuple[tuple[str, ...], ...] = ()


def grammar_form(spec: GrammarSpec, guard: ResourceGuard) -> PushdownForm:
    """The texts of a grammar.

    Raises SpecSyntaxError or SpecUnsupported, whose `field` is the constraint's, where it cannot be read,
    SpecUnsatisfiable where it has no text, LimitExceeded where it outgrows a limit.
    """
    with blame_field("grammar"):
        parsed = read_grammar(spec.text, spec.syntax, guard)
        machine = build_machine(parsed.grammar, guard)
    return PushdownForm(pushdown_text(machine, spec.leading_space == "strip", guard), parsed.warnings)


def pushdown_text(machine: PushdownMachine, strips_space: bool, guard: ResourceGuard) -> PushdownText:
    """The texts of a machine. With `strips_space` one space may stand before an answer."""
    start, machine = machine.start, with_leading_space(machine) if strips_space else machine
    return PushdownText(machine=machine, text_start=start, strips_space=strips_space, limits=guard.limits)
