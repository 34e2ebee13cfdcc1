"""The templates of Declare as formulas over events.

They are those of Pesic, "Constraint-based workflow management systems", 2008.

Between a call and the next one stands a result. So the chain templates pass over results, unless they name one.
A conversation ends with a reply. So `end` passes over results and replies, unless it names one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from compiler.errors import SpecSyntaxError, SpecUnsupported, did_you_mean, shown_name

# {next_b}: b is the next event; {before_a}: a was the event before. Both pass over results.
# {passed}: events that may follow the last one.
BINARY = {
    "responded_existence": "F {a} -> F {b}",
    "co_existence": "F {a} <-> F {b}",
    "choice": "F {a} | F {b}",
    "exclusive_choice": "(F {a} | F {b}) & !(F {a} & F {b})",
    "response": "G({a} -> F {b})",
    "precedence": "!{b} W {a}",
    "succession": "G({a} -> F {b}) & (!{b} W {a})",
    "alternate_response": "G({a} -> X(!{a} U {b}))",
    "alternate_precedence": "(!{b} W {a}) & G({b} -> WX(!{b} W {a}))",
    "alternate_succession": "G({a} -> X(!{a} U {b})) & (!{b} W {a}) & G({b} -> WX(!{b} W {a}))",
    "chain_response": "G({a} -> {next_b})",
    "chain_precedence": "G({b} -> {before_a})",
    "chain_succession": "G({a} -> {next_b}) & G({b} -> {before_a})",
    "not_responded_existence": "F {a} -> !F {b}",
    "not_co_existence": "!(F {a} & F {b})",
    "not_response": "G({a} -> !F {b})",
    "not_precedence": "G({b} -> !O {a})",
    "not_succession": "G({a} -> !F {b})",
    "not_chain_response": "G({a} -> !{next_b})",
    "not_chain_precedence": "G({b} -> !{before_a})",
    "not_chain_succession": "G({a} -> !{next_b})",
}
UNARY = {"init": "{a}", "end": "F({a} & WX G({passed}))"}
COUNTED = ("existence", "absence", "exactly")
TEMPLATES = (*COUNTED, *UNARY, *BINARY)
COUNT_MAX = 50
_CALL = re.compile(r"\s*([A-Za-z_]\w*)\s*\(")
_COUNT = re.compile(r"\s*(\d+)\s*")


def template_of(rule: str) -> str | None:
    """The template that a rule begins with. None where the rule is a formula."""
    match = _CALL.match(rule)
    return match[1] if match and match[1] in TEMPLATES else None


def expanded(rule: str) -> str:
    """The formula of a rule that is a template. A formula is given back as it is.

    Raises SpecSyntaxError for a wrong number of arguments, or a count that is not from 1 to 50.
    """
    template = template_of(rule)
    if template is None:
        return rule
    first, *others = _arguments(rule)
    if template in COUNTED:
        count = _count(others[0], rule) if others else 1
        _expect(len(others) <= 1, "an event, and optionally a number", rule)
        return _counted(template, f"({first})", count)
    if template in UNARY:
        _expect(not others, "one event", rule)
        passed = "false" if _is(first, "reply") else "reply" if _is(first, "result") else "result | reply"
        return UNARY[template].format(a=f"({first})", passed=passed)
    _expect(len(others) == 1, "two events", rule)
    a, b = f"({first})", f"({others[0]})"
    next_b = f"X{b}" if _is(others[0], "result") else f"X(result U {b})"
    before_a = f"Y{a}" if _is(first, "result") else f"Y(result S {a})"
    return BINARY[template].format(a=a, b=b, next_b=next_b, before_a=before_a)


def _counted(template: str, event: str, count: int) -> str:
    """At least, at most count - 1, or exactly `count` such events."""
    if template == "existence":
        return _at_least(event, count)
    if template == "absence":
        return f"!({_at_least(event, count)})"
    return f"{_at_least(event, count)} & !({_at_least(event, count + 1)})"


def _at_least(event: str, count: int) -> str:
    formula = f"F {event}"
    for _ in range(count - 1):
        formula = f"F({event} & X({formula}))"
    return formula


def _is(event: str, kind: str) -> bool:
    return re.match(rf"\s*{kind}(?!\w)", event) is not None


def _arguments(rule: str) -> list[str]:
    """The arguments of a template. Commas within brackets and quotes do not separate them."""
    match = _CALL.match(rule)
    assert match is not None  # the caller has found the template
    depth, start, arguments, at = 1, match.end(), [], match.end()
    while at < len(rule) and depth:
        character = rule[at]
        if character == '"':
            quoted = re.compile(r'"(?:[^"\\]|\\.)*"').match(rule, at)
            at = quoted.end() if quoted else len(rule)
            continue
        depth += (character == "(") - (character == ")")
        if depth == 0 or (character == "," and depth == 1):
            arguments.append(rule[start:at])
            start = at + 1
        at += 1
    _expect(depth == 0 and not rule[at:].strip(), "a closing bracket, and nothing after it", rule)
    _expect(all(argument.strip() for argument in arguments), "an event between the commas", rule)
    return [argument.strip() for argument in arguments]


def _count(text: str, rule: str) -> int:
    match = _COUNT.fullmatch(text)
    _expect(
        bool(match) and 1 <= int(match[1]) <= COUNT_MAX if match else False, f"a number from 1 to {COUNT_MAX}", rule
    )
    return int(text)


def _expect(holds: bool, expected: str, rule: str) -> None:
    if not holds:
        message = f"the template {shown_name(template_of(rule) or '')} is not used as it must be"
        raise SpecSyntaxError(message, source=rule, position=0, expected=expected, field="policy.rules")


# --- files of Declare -----------------------------------------------------------------------------------------------

_LINE = re.compile(r"\s*([A-Za-z][A-Za-z -]*?)\s*(\d*)\s*\[([^|]*)\]\s*(\|.*)?")
# Activities, attributes and comments. The names of attributes hold any signs; a colon ends them.
_DECLARATION = re.compile(r"\s*(?:(?:activity|bind|attribute)\b|#|[^\[]*:)")
_ALIASES = {"end": "end", "last": "end", "exclusive_choice": "exclusive_choice", "coexistence": "co_existence",
            "not_coexistence": "not_co_existence"}  # fmt: skip


def read_decl(text: str) -> list[str]:
    """The rules of a `.decl` file, one a line. Activities are calls of the tools of their names.

    A byte order mark, comments, and lines that declare activities and attributes are passed over. Raises
    SpecSyntaxError for unknown templates, and SpecUnsupported for conditions on data or time.
    """
    rules = []
    for number, line in enumerate(text.removeprefix("\ufeff").splitlines(), 1):
        if not line.strip() or _DECLARATION.match(line):
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            raise SpecSyntaxError(
                f"line {number} of the Declare file does not read", expected="Template[A, B] | | |", field="decl"
            )
        rules.append(_rule(match, number))
    return rules


def _rule(match: re.Match[str], line: int) -> str:
    spelled = re.sub(r"(?<=[a-z])(?=[A-Z])|[ -]+", "_", match[1].strip()).lower()
    template = _ALIASES.get(spelled, spelled)
    if template not in TEMPLATES:
        message = f"line {line}: there is no template {shown_name(match[1])}{did_you_mean(template, TEMPLATES)}"
        raise SpecSyntaxError(message, expected="a template of Declare", field="policy.decl")
    if match[4] and match[4].replace("|", "").strip():
        message = f"line {line}: conditions of Declare files are not supported: write them as call(tool, path > 5)"
        raise SpecUnsupported(message, construct="condition of a Declare file", field="policy.decl")
    names = _names(match[3])
    count = [match[2]] if match[2] else []
    return f"{template}({', '.join([*names, *count])})"


def _names(text: str) -> Sequence[str]:
    """The activities in quotes, so that each is a name."""
    escaped = (name.strip().replace("\\", "\\\\").replace('"', '\\"') for name in text.split(","))
    return [f'"{name}"' for name in escaped]
