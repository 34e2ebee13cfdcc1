"""Reads the rules of a policy. They are formulas or templates of Declare."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from compiler.errors import CompileError, SpecSyntaxError, did_you_mean, shown_name
from compiler.limits import ResourceGuard
from compiler.ltlf import LtlfFormula, parse_formula, propositions_of
from compiler.policies.declare import expanded, template_of
from compiler.policies.events import EventKind, EventProposition, read_proposition


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule as the caller wrote it, and its formula.

    propositions  what the names of the formula stand for
    """

    text: str
    formula: LtlfFormula
    propositions: dict[str, EventProposition]


def read_rules(
    texts: Sequence[str], tools: Iterable[str] | None, guard: ResourceGuard, field: str = "policy.rules"
) -> list[Rule]:
    """The rules of these texts. `tools` are the names that events may have; None for any.

    field  where the texts stand
    Raises SpecSyntaxError, which names the rule by its number, SpecUnsupported and LimitExceeded.
    """
    rules = []
    known = None if tools is None else sorted(tools)
    for number, text in enumerate(texts):
        try:
            rules.append(_read_rule(text, known, guard))
        except CompileError as error:
            if isinstance(error, SpecSyntaxError):
                error.field = f"{field}.{number}"
            raise
    return rules


def _read_rule(text: str, tools: Sequence[str] | None, guard: ResourceGuard) -> Rule:
    propositions: dict[str, EventProposition] = {}

    def atoms(source: str, position: int) -> tuple[str, int] | None:
        found = read_proposition(source, position)
        if found is None:
            return None
        propositions[str(found[0])] = found[0]
        return str(found[0]), found[1]

    source = expanded(text)
    try:
        formula = parse_formula(source, guard, atoms)
    except SpecSyntaxError as error:
        if template_of(text):  # the place would be one of a formula that the caller did not write
            error.position = error.line = error.column = error.replacement = None
        raise
    # a name that stands alone is a call of the tool
    meaning = {
        name: propositions.get(name, EventProposition(EventKind.CALL, name)) for name in propositions_of(formula)
    }
    for proposition in meaning.values():
        tool = proposition.tool
        if tool is not None and tools is not None and tool not in tools:
            message = f"there is no tool {shown_name(tool)}{did_you_mean(tool, tools)}"
            raise SpecSyntaxError(message, expected="the name of a tool")
    return Rule(text, formula, meaning)
