"""What was probably meant where a constraint is none, and the edits."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from compiler.errors import Edit, LimitExceeded, SpecError, SpecSyntaxError, nearest
from compiler.limits import DEFAULT_LIMITS, ResourceGuard
from compiler.ltlf import TEMPORAL, parse_formula

_NAME_CHARS_MAX = 40
_SIMILAR = 0.7  # of names, from 0 to 1
_ASIDE = "#/_"  # where a value waits while an object is made around it
# Other names of forms: what people write, and what other libraries call them.
_FORMS = {
    "keyword": "keywords", "words": "keywords", "word": "keywords", "contains": "keywords", "contain": "keywords",
    "include": "keywords", "includes": "keywords", "must_contain": "keywords", "mentions": "keywords",
    "phrases": "keywords", "terms": "keywords", "pattern": "regex", "regexp": "regex", "re": "regex",
    "guided_regex": "regex", "json": "json_schema", "schema": "json_schema", "jsonschema": "json_schema",
    "guided_json": "json_schema", "json_object": "json_schema", "choices": "choice", "enum": "choice",
    "options": "choice", "one_of": "choice", "select": "choice", "guided_choice": "choice", "formula": "ltlf",
    "ltl": "ltlf", "logic": "ltlf", "temporal": "ltlf", "template": "infill", "fill": "infill", "cfg": "grammar",
    "and": "all", "allof": "all", "all_of": "all", "or": "any", "anyof": "any", "any_of": "any", "no": "not",
    "parts": "sequence", "seq": "sequence", "concat": "sequence", "automaton": "dfa", "max_length": "max_chars",
    "length": "max_words", "min_length": "min_words",
}  # fmt: skip
_AVOIDING = frozenset(
    {"avoid", "avoids", "banned", "ban", "exclude", "excludes", "forbid", "forbidden", "without", "never", "none",
     "bad_words", "blocked", "must_not_contain", "not_keywords"}
)  # fmt: skip
_SYNTAXES = frozenset({"lark", "gbnf", "ebnf"})
# Fields of requests that stand beside the constraint.
_REQUEST_FIELDS = frozenset(
    {"prompt", "messages", "max_tokens", "beams", "n", "algorithm", "model", "temperature", "top_p", "top_k", "seed",
     "stream", "timeout_s", "scope", "trace", "priority"}
)  # fmt: skip
_PATTERN = re.compile(r"[\\\[\](){}*+?|^$]")


def normalized(name: str) -> str:
    """A field's name without case and hyphens."""
    return name[:_NAME_CHARS_MAX].lower().replace("-", "_")


def rename(name: str, other: str) -> Edit:
    """The edit that gives a field another name."""
    return {"op": "move", "from": f"/{name}", "path": f"/{other}"}


def wrapped(path: str, outer: object, inner: str) -> tuple[Edit, ...]:
    """The edits that put a value into an object or a list.

    outer  the object, without the value
    inner  where the value stands in it
    """
    aside: Edit = {"op": "move", "from": path, "path": _ASIDE}
    return aside, {"op": "add", "path": path, "value": outer}, {"op": "move", "from": _ASIDE, "path": path + inner}


def in_list(field: str) -> tuple[Edit, ...]:
    """The edits that make a list of a field's value."""
    return wrapped(f"/{field}", [], "/0")


def parse_edit(path: str, text: str) -> tuple[Edit, ...]:
    """The edit that replaces a text by the JSON object in it. None if it holds no object."""
    if len(text) > DEFAULT_LIMITS.schema_chars_max:
        return ()
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return ()
    return ({"op": "parse", "path": path},) if isinstance(value, dict) else ()


def unknown_form(fields: Mapping[str, object], forms: Sequence[str], expected: str) -> SpecSyntaxError:
    """The error for an object that has no form."""
    for name in fields:
        alias, edits = normalized(name), tuple[Edit, ...]()
        kind = fields["type"] if alias == "type" == name else None
        if isinstance(kind, str) and len(fields) == 2 and (form := _FORMS.get(normalized(kind), kind)) in forms:
            (source,) = (other for other in fields if other != "type")
            message = f"a constraint has its form as its field; did you mean {{{json.dumps(form)}: ...}}?"
            edits = (rename(source, form), {"op": "remove", "path": "/type"})
            return SpecSyntaxError(message, field="constraint", expected=expected, suggestion=edits)
        if {"type", "properties"} & {alias} and ("properties" in fields or isinstance(fields.get("type"), str)):
            message = 'a constraint has no field of a JSON Schema; did you mean {"json_schema": {...}} around it?'
            return SpecSyntaxError(
                message, field="constraint", expected=expected, suggestion=wrapped("", {}, "/json_schema")
            )
        if alias in _AVOIDING:
            edits = (rename(name, "keywords"), {"op": "add", "path": "/none", "value": True})
            meant, value = '{"keywords": [...], "none": true}', fields[name]
            edits = (*edits, *(in_list("keywords") if isinstance(value, str) else ()))
        elif alias in _SYNTAXES:
            edits = (rename(name, "grammar"), {"op": "add", "path": "/syntax", "value": alias})
            meant = f'{{"grammar": ..., "syntax": "{alias}"}}'
        else:
            target = alias if alias in forms else _FORMS.get(alias) or nearest(alias, forms, _SIMILAR)
            if target is None or target in fields:
                continue
            edits, meant = (rename(name, target),), target
        shown = name if name.isprintable() and len(name) <= _NAME_CHARS_MAX else "(a long name)"
        return SpecSyntaxError(
            f"a constraint has no form {shown!r}; did you mean {meant}?", field="constraint", expected=expected,
            suggestion=edits,
        )
    return SpecSyntaxError(f"a constraint is {expected}", field="constraint", expected=expected)


def several_forms(fields: Mapping[str, object], forms: Sequence[str], expected: str) -> SpecSyntaxError:
    """The error for an object with several forms. `forms` are their fields."""
    edits: tuple[Edit, ...] = ()
    if set(forms) == set(fields):  # it is not known to which form another field belongs
        moves: list[Edit] = [
            {"op": "move", "from": f"/{name}", "path": f"/all/{at}/{name}"} for at, name in enumerate(forms)
        ]
        edits = ({"op": "add", "path": "/all", "value": [{} for _ in forms]}, *moves)
    names = " and ".join(forms)
    message = f'a constraint has one form, and this one has {names}: join them as {{"all": [{{...}}, {{...}}]}}'
    return SpecSyntaxError(message, field="constraint", expected=expected, suggestion=edits)


def unknown_field(fields: Mapping[str, object], name: str, allowed: Sequence[str], form: str) -> SpecSyntaxError:
    """The error for a field that a form does not take."""
    shown = name if name.isprintable() and len(name) <= _NAME_CHARS_MAX else "(a long name)"
    message, edits = f"unknown field {shown!r} in {form}", tuple[Edit, ...]()
    target = nearest(normalized(name), [each for each in allowed if each not in fields], _SIMILAR)
    if target is not None:
        message, edits = f"{message}; did you mean {target}?", (rename(name, target),)
    elif name in _REQUEST_FIELDS:
        message += ": it stands in the request, beside constraint"
        edits = ({"op": "move", "from": f"/{name}", "path": f"#/{name}"},)
    takes = ", ".join(allowed)
    joint = " It takes" if message.endswith("?") else "; it takes"
    return SpecSyntaxError(f"{message}{joint} {takes}", field=shown, expected=takes, suggestion=edits)


def not_an_object(value: object) -> SpecSyntaxError:
    """The error for a constraint that is no JSON object."""
    expected = "an object"
    meant, edits = _meaning(value)
    message = f"a constraint is an object, not {_kind(value)}{meant}"
    return SpecSyntaxError(message, field="constraint", expected=expected, suggestion=edits)


def _kind(value: object) -> str:
    kinds = {str: "a string", list: "a list", bool: "true or false", type(None): "null"}
    return kinds.get(type(value), "a number")


def _meaning(value: object) -> tuple[str, tuple[Edit, ...]]:
    """What a value may stand for, as the end of a message."""
    if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        return '; did you mean {"keywords": [...]}?', wrapped("", {}, "/keywords")
    if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        return '; did you mean {"all": [...]}?', wrapped("", {}, "/all")
    if not isinstance(value, str):
        return ', such as {"keywords": ["dog"]}', ()
    if value.lstrip().startswith(("{", "[")) and value.rstrip().endswith(("}", "]")) and ":" in value:
        return " that holds one: send the object itself, without quotes around it", parse_edit("", value)
    if is_formula(value):
        return '; did you mean {"ltlf": "..."}?', wrapped("", {}, "/ltlf")
    if _PATTERN.search(value):
        return '; did you mean {"regex": "..."}?', wrapped("", {}, "/regex")
    return '; did you mean {"keywords": ["..."]}?', wrapped("", {"keywords": []}, "/keywords/0")


def is_formula(text: str) -> bool:
    """Whether a text reads as a formula with an operator of time."""
    if len(text) > DEFAULT_LIMITS.formula_chars_max:
        return False
    try:
        formula = parse_formula(text, ResourceGuard(DEFAULT_LIMITS), declared=())
    except (SpecError, LimitExceeded):
        return False
    return any(node.op in TEMPORAL for node in formula.nodes)

