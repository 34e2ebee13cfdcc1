"""XGrammar's structural tags, which vLLM and SGLang take, as our sequences.

A tag is a tree of formats. Each becomes a part of a sequence, or a constraint. What has no equal here is refused by
name. Free text inside a tag does not contain the strings that end the tag. Text never contains special tokens, so
tokens that are excluded from it need no rule.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from app.errors import InvalidRequest
from app.openai.chats.xml_parameters import XML_STYLES, xml_parameters
from compiler.errors import did_you_mean

_Part: TypeAlias = "str | dict[str, Any]"
_EMPTY = ""  # the part of no text
_FIELDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {  # of each format: required ones, others
    "const_string": (("value",), ()),
    "json_schema": (("json_schema",), ("style", "any_order", "max_whitespace_cnt")),
    "grammar": (("grammar",), ()),
    "regex": (("pattern",), ()),
    "any_text": ((), ("excludes", "max_tokens", "max_chars")),
    "any_tokens": ((), ("exclude_tokens", "max_tokens")),
    "sequence": (("elements",), ()),
    "or": (("elements",), ()),
    "optional": (("content",), ()),
    "plus": (("content",), ()),
    "star": (("content",), ()),
    "repeat": (("content", "min", "max"), ()),
    "tag": (("begin", "content", "end"), ()),
    "triggered_tags": (("triggers", "tags"), ("at_least_one", "stop_after_first", "excludes")),
    "tags_with_separator": (("tags", "separator"), ("at_least_one", "stop_after_first")),
    "dispatch": (("rules",), ("loop", "excludes")),
    "token": (("token",), ()),
    "token_triggered_tags": (("trigger_tokens", "tags"), ("at_least_one", "stop_after_first", "exclude_tokens")),
    "token_dispatch": (("rules",), ("loop", "exclude_tokens")),
}


def structural_tag(
    value: dict[str, Any], path: str, names: Mapping[str, int] | None = None
) -> dict[str, Any]:
    """The constraint of a structural tag. Raises InvalidRequest with the field.

    names  the ids of the model's special and added tokens; None if they are not known: then no ids are accepted

    >>> tag = {"type": "tag", "begin": "<a>", "content": {"type": "any_text"}, "end": "</a>"}
    >>> structural_tag({"type": "structural_tag", "format": tag}, "response_format")
    {'sequence': ['<a>', {'free': {'without': ['</a>']}}, '</a>']}
    """
    if value.get("structures") is not None:  # the first shape of these requests
        _only(value, path, ("structures", "triggers"), ("type",))
        tags = [
            {"type": "tag", **_fields(each, f"{path}.structures.{number}", ("begin", "schema", "end"))}
            for number, each in enumerate(_typed(value["structures"], list, f"{path}.structures"))
        ]
        for tag in tags:
            tag["content"] = {"type": "json_schema", "json_schema": tag.pop("schema")}
        form = {"type": "triggered_tags", "triggers": value["triggers"], "tags": tags}
        return _constraint(_TagFormats(names=names).part(form, path))
    _only(value, path, ("format",), ("type",))
    return _constraint(_TagFormats(names=names).part(value["format"], f"{path}.format"))


def _constraint(part: _Part) -> dict[str, Any]:
    if isinstance(part, dict) and set(part) == {"sequence"}:
        return part
    return {"sequence": [part]}


class _TagFormats:
    """Translates the formats inside one tag.

    ends   the strings that end the tag, which free text does not contain
    names  as of `structural_tag`
    """

    def __init__(self, ends: Sequence[str] = (), names: Mapping[str, int] | None = None) -> None:
        self._ends = tuple(end for end in ends if end)
        self._names = names

    def part(self, value: object, path: str) -> _Part:
        """The part of a format."""
        form = _typed(value, dict, path, "must be a format: an object with a type")
        kind = form.get("type")
        if kind == "exclude_token":
            message = "text has no format of exactly one token: use any_tokens, or put star or repeat from 0 around it"
            raise InvalidRequest(((f"{path}.type", f"this format is not supported here: {message}"),))
        if kind not in _FIELDS:
            names = ", ".join(_FIELDS)
            message = f"this format is not supported{did_you_mean(str(kind), _FIELDS)}; supported are {names}"
            raise InvalidRequest(((f"{path}.type", message),))
        _only(form, path, *(_FIELDS[kind][0], (*_FIELDS[kind][1], "type")))
        translate: Callable[[dict[str, Any], str], _Part] = getattr(self, f"_{kind}")
        return translate(form, path)

    def _parts(self, values: object, path: str) -> list[_Part]:
        return [self.part(each, f"{path}.{number}") for number, each in enumerate(_typed(values, list, path))]

    def _const_string(self, form: dict[str, Any], path: str) -> _Part:
        return _string(form["value"], f"{path}.value")

    def _json_schema(self, form: dict[str, Any], path: str) -> _Part:
        style = form.get("style", "json")
        if style in XML_STYLES:
            if form.get("any_order"):
                raise InvalidRequest(((f"{path}.any_order", f"is not supported with the style {style}"),))
            return xml_parameters(form["json_schema"], style, f"{path}.json_schema")
        if style != "json":
            names = ", ".join(("json", *XML_STYLES))
            raise InvalidRequest(((f"{path}.style", f"this style is not supported; supported are {names}"),))
        order = {"property_order": "any"} if form.get("any_order") else {}
        return {"json_schema": form["json_schema"], **order}

    def _grammar(self, form: dict[str, Any], path: str) -> _Part:
        return {"grammar": _string(form["grammar"], f"{path}.grammar"), "syntax": "ebnf"}

    def _regex(self, form: dict[str, Any], path: str) -> _Part:
        return {"regex": _string(form["pattern"], f"{path}.pattern")}

    def _any_text(self, form: dict[str, Any], path: str) -> _Part:
        without, chars = (*_strings(form, "excludes", path), *self._ends), form.get("max_chars")
        tokens = form.get("max_tokens")
        if chars is None:
            return _free(without, tokens)
        if tokens is not None:
            return _free(without, 0 if chars == 0 else tokens, max_chars=chars)
        pattern = "|".join(map(re.escape, without))
        excluded = [{"not": {"regex": f"(?s:.*)(?:{pattern})(?s:.*)"}}] if without else []
        return {"all": [{"max_chars": chars}, *excluded]}

    def _any_tokens(self, form: dict[str, Any], path: str) -> _Part:
        self._check_excluded(form, path)
        return _free((), form.get("max_tokens"))

    def _token(self, form: dict[str, Any], path: str) -> _Part:
        return {"token": self._token_name(form["token"], f"{path}.token")}

    def _token_name(self, value: object, path: str) -> str:
        """The name of a token, from its name or its id."""
        if isinstance(value, str):
            return value
        if self._names is None or type(value) is not int:  # True is an int in Python
            raise InvalidRequest(((path, "must be the name of a token, such as <tool_call>, or its id"),))
        name = next((name for name, number in self._names.items() if number == value), None)
        if name is None:
            raise InvalidRequest(((path, "is the id of no special or added token: text may be spelled in any tokens"),))
        return name

    def _check_excluded(self, form: dict[str, Any], path: str) -> None:
        """Raise InvalidRequest for excluded tokens that free text may contain. Others it never contains."""
        for number, token in enumerate(_typed(form.get("exclude_tokens", []), list, f"{path}.exclude_tokens")):
            inside = f"{path}.exclude_tokens.{number}"
            if self._token_name(token, inside) not in (self._names or (token,)):
                raise InvalidRequest(((inside, "is no special or added token of the model: exclude its text"),))

    def _sequence(self, form: dict[str, Any], path: str) -> _Part:
        return _in_order(self._parts(form["elements"], f"{path}.elements"))

    def _or(self, form: dict[str, Any], path: str) -> _Part:
        return {"any": self._parts(form["elements"], f"{path}.elements")}

    def _optional(self, form: dict[str, Any], path: str) -> _Part:
        return {"optional": self.part(form["content"], f"{path}.content")}

    def _plus(self, form: dict[str, Any], path: str) -> _Part:
        return {"repeat": self.part(form["content"], f"{path}.content"), "min": 1}

    def _star(self, form: dict[str, Any], path: str) -> _Part:
        if _is_one_token(form["content"]):  # by definition any_tokens
            return self.part({**form["content"], "type": "any_tokens"}, f"{path}.content")
        return {"repeat": self.part(form["content"], f"{path}.content")}

    def _repeat(self, form: dict[str, Any], path: str) -> _Part:
        if _is_one_token(form["content"]) and form["min"] == 0:
            most = {} if form["max"] == -1 else {"max_tokens": form["max"]}
            return self.part({**form["content"], "type": "any_tokens", **most}, f"{path}.content")
        bounds = {"min": form["min"], **({} if form["max"] == -1 else {"max": form["max"]})}
        return {"repeat": self.part(form["content"], f"{path}.content"), **bounds}

    def _tag(self, form: dict[str, Any], path: str) -> _Part:
        begin = form["begin"]
        first = begin if isinstance(begin, str) else self.part(begin, f"{path}.begin")
        return _in_order([first, *self._rest(form, path)])

    def _rest(self, form: dict[str, Any], path: str) -> list[_Part]:
        """What follows the beginning of a tag."""
        end = form["end"]
        if isinstance(end, dict):
            content = _TagFormats(names=self._names).part(form["content"], f"{path}.content")
            return [content, self.part(end, f"{path}.end")]
        ends = [end] if isinstance(end, str) else list(_strings(form, "end", path))
        content = _TagFormats(ends, self._names).part(form["content"], f"{path}.content")
        return [content, ends[0] if len(ends) == 1 else {"any": ends}]

    def _tags_with_separator(self, form: dict[str, Any], path: str) -> _Part:
        most = {"max": 1} if form.get("stop_after_first") else {}
        separator = _string(form["separator"], f"{path}.separator")
        least = {"min": 1} if form.get("at_least_one") else {}
        return {"repeat": {"any": self._tags(form, path)}, **least, **most, "separator": separator}

    def _tags(self, form: dict[str, Any], path: str) -> list[_Part]:
        return [self._tag(each, inside) for each, inside in self._tag_formats(form, path)]

    def _tag_formats(self, form: dict[str, Any], path: str) -> Iterator[tuple[dict[str, Any], str]]:
        for number, each in enumerate(_typed(form["tags"], list, f"{path}.tags")):
            inside = f"{path}.tags.{number}"
            if not isinstance(each, dict) or each.get("type", "tag") != "tag":
                raise InvalidRequest(((inside, 'must be a format of the type "tag"'),))
            _only(each, inside, _FIELDS["tag"][0], ("type",))
            yield each, inside

    # --- free text with what a trigger in it begins -----------------------------------------------------------------

    def _triggered_tags(self, form: dict[str, Any], path: str) -> _Part:
        triggers = _strings(form, "triggers", path)
        rules = dict[str, list[_Part]]()
        for tag, inside in self._tag_formats(form, path):
            begin = _string(tag["begin"], f"{inside}.begin")
            found = [trigger for trigger in triggers if begin.startswith(trigger)]
            if len(found) != 1:
                raise InvalidRequest(((f"{inside}.begin", "must begin with exactly one of the triggers"),))
            rest = _in_order([begin[len(found[0]) :], *self._rest(tag, inside)])
            rules.setdefault(found[0], []).append(rest)
        loop, first = not form.get("stop_after_first", False), bool(form.get("at_least_one"))
        return self._dispatched(rules, triggers, form, path, loop=loop, begins=first)

    def _dispatch(self, form: dict[str, Any], path: str) -> _Part:
        rules = dict[str, list[_Part]]()
        for pattern, content, inside in _rules(form, path):
            name = _string(pattern, f"{inside}.0")
            rules.setdefault(name, []).append(self.part(content, f"{inside}.1"))
        return self._dispatched(rules, list(rules), form, path, loop=form.get("loop", True), begins=False)

    def _dispatched(
        self, rules: dict[str, list[_Part]], triggers: Sequence[str], form: dict[str, Any], path: str, *, loop: bool,
        begins: bool,
    ) -> _Part:
        """Free text with rules behind its triggers. With `begins` no text stands before the first."""
        if any(one in other for one in triggers for other in triggers if one != other) or "" in triggers:
            message = "one trigger is a part of another: it is not clear which of them begins a tag"
            raise InvalidRequest(((path, message),))
        excludes = [*_strings(form, "excludes", path), *self._ends]
        called = []
        for trigger, rests in rules.items():
            others = [each for each in triggers if each != trigger]
            called.append(_in_order([_free([*others, *excludes], until=[trigger]), _one(rests)]))
        free = _free([*triggers, *excludes])
        first = [_in_order([trigger, _one(rests)]) for trigger, rests in rules.items()]
        return _calls(_one(called), free, _one(first) if begins else None, loop=loop)

    def _token_triggered_tags(self, form: dict[str, Any], path: str) -> _Part:
        for number, token in enumerate(_typed(form["trigger_tokens"], list, f"{path}.trigger_tokens")):
            self._token_name(token, f"{path}.trigger_tokens.{number}")
        self._check_excluded(form, path)
        tags = _one(self._tags(form, path))
        free = _free(self._ends)
        first = tags if form.get("at_least_one") else None
        return _calls(_in_order([free, tags]), free, first, loop=not form.get("stop_after_first", False))

    def _token_dispatch(self, form: dict[str, Any], path: str) -> _Part:
        rules = [
            _in_order([{"token": self._token_name(token, f"{inside}.0")}, self.part(content, f"{inside}.1")])
            for token, content, inside in _rules(form, path)
        ]
        self._check_excluded(form, path)
        free = _free(self._ends)
        return _calls(_in_order([free, _one(rules)]), free, None, loop=form.get("loop", True))


def _calls(called: _Part, free: _Part, first: _Part | None, *, loop: bool) -> _Part:
    """Calls in free text.

    first  a call without text before it, if there must be one
    loop   whether there may be several
    """
    if loop:
        return _in_order([*([] if first is None else [first]), {"repeat": called}, free])
    return {"any": [called, free]} if first is None else first


def _in_order(parts: Sequence[_Part]) -> _Part:
    written = [part for part in parts if part != _EMPTY]
    return written[0] if len(written) == 1 else {"sequence": written or [_EMPTY]}


def _one(parts: Sequence[_Part]) -> _Part:
    return parts[0] if len(parts) == 1 else {"any": list(parts)}


def _free(
    without: Sequence[str], max_tokens: object = None, until: Sequence[str] = (), max_chars: object = None
) -> _Part:
    if max_tokens == 0:
        return _EMPTY
    strings = {"until": list(until), "without": list(dict.fromkeys(without))}
    bounds = {"max_tokens": max_tokens, "max_chars": max_chars}
    most = {name: value for name, value in bounds.items() if value is not None}
    return {"free": {**{name: value for name, value in strings.items() if value}, **most}}


def _is_one_token(form: object) -> bool:
    """Whether a format is one token of text."""
    return isinstance(form, dict) and form.get("type") == "exclude_token"


def _rules(form: dict[str, Any], path: str) -> Iterator[tuple[object, object, str]]:
    """The pattern and the format of each rule, with its path."""
    for number, rule in enumerate(_typed(form["rules"], list, f"{path}.rules")):
        inside = f"{path}.rules.{number}"
        if not isinstance(rule, list) or len(rule) != 2:
            raise InvalidRequest(((inside, "must be a pair of a pattern and a format"),))
        yield rule[0], rule[1], inside


def _strings(form: dict[str, Any], name: str, path: str) -> list[str]:
    values = _typed(form.get(name, []), list, f"{path}.{name}")
    return [_string(each, f"{path}.{name}.{number}") for number, each in enumerate(values)]


def _string(value: object, path: str) -> str:
    found: str = _typed(value, str, path)
    return found


def _typed(value: object, kind: type, path: str, message: str = "") -> Any:
    if not isinstance(value, kind):
        name = "a list" if kind is list else "a string" if kind is str else "an object"
        raise InvalidRequest(((path, message or f"must be {name}"),))
    return value


def _fields(value: object, path: str, names: tuple[str, ...]) -> dict[str, Any]:
    fields: dict[str, Any] = _typed(value, dict, path)
    _only(fields, path, names, ())
    return fields


def _only(value: dict[str, Any], path: str, required: Sequence[str], others: Sequence[str]) -> None:
    """Raise InvalidRequest for a field that is missing or unknown."""
    for name in required:
        if value.get(name) is None:
            raise InvalidRequest(((f"{path}.{name}", "field required"),))
    for name, item in value.items():
        if name not in (*required, *others) and item is not None:
            hint = did_you_mean(name, (*required, *others))
            raise InvalidRequest(((f"{path}.{name}", f"unknown field{hint}; it takes {', '.join(required)}"),))
