"""Reads a JSON schema (draft 2020-12) into nodes. Owns which keywords are read, left alone, or refused by name.

A keyword that is unknown is refused, never ignored. What is shorthand is written out here: a constant object is an
object schema, `dependentRequired` a choice. Knows nothing of texts or automata.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from compiler.errors import SpecSyntaxError, SpecUnsupported
from compiler.json_schema.keywords import TypeKeywords, strings_of
from compiler.json_schema.nodes import (
    ANNOTATIONS,
    ASSERTIONS,
    EXTENSION,
    LISTS,
    MAPS,
    SINGLE,
    TYPES,
    Either,
    ObjectFacts,
    Schema,
)
from compiler.json_schema.references import Place, References
from compiler.json_schema.unevaluated import unevaluated
from compiler.limits import ResourceGuard

_DRAFTS = ("://json-schema.org/draft/", "://json-schema.org/draft-0")
_SHOWN = 40  # characters of an unknown keyword in the message


def supported_keywords() -> tuple[str, ...]:
    """The keywords that are understood or knowingly left alone; all others are refused."""
    return tuple(dict.fromkeys((*ASSERTIONS, *SINGLE, *LISTS, *MAPS, *ANNOTATIONS)))


_KNOWN = frozenset(supported_keywords())


class SchemaReader:
    """The nodes of one document that its root leads to, by number; the root is 0.

    Raises SpecSyntaxError for what is no schema, SpecUnsupported for what we do not compile, LimitExceeded over
    `nesting_depth_max` or `compile_s_max`.
    """

    def __init__(self, document: object, guard: ResourceGuard) -> None:
        self._references = References(document, guard)
        self._count = 0
        self._numbers: dict[int | tuple[str, bool], int] = {}
        self._waiting: list[tuple[int, Place]] = []
        self._nodes: dict[int, Schema] = {}
        self.node(self._references.root)
        while self._waiting:
            number, place = self._waiting.pop()
            guard.check_time()
            self._nodes[number] = self._read(place)
        self._nodes.update(unevaluated(self._nodes, self.add))
        self.nodes = tuple(self._nodes[number] for number in range(len(self._nodes)))

    def node(self, place: Place) -> int:
        """The number of the node at a place, which is read later."""
        key = id(place.value) if isinstance(place.value, dict) else (place.field, bool(place.value))
        if key not in self._numbers:
            self._numbers[key] = self._count
            self._count += 1
            self._waiting.append((self._numbers[key], place))
        return self._numbers[key]

    def add(self, schema: Schema) -> int:
        """The number of a node that stands for shorthand."""
        number = self._count
        self._count += 1
        self._nodes[number] = schema
        return number

    def _read(self, place: Place) -> Schema:
        value = place.value
        if isinstance(value, bool):
            return Schema(place.field, never=not value)
        if not isinstance(value, dict):
            raise SpecSyntaxError("a schema is an object or a boolean", expected="a schema", field=place.field)
        here = replace(place, base=self._references.base_of(value, place.base))
        for keyword in value:
            if keyword not in _KNOWN and not keyword.startswith(EXTENSION):
                shown = keyword if len(keyword) <= _SHOWN else keyword[:_SHOWN] + "…"
                raise SpecUnsupported(
                    f"the schema keyword {shown} is not supported", construct=shown, field=place.below(keyword)
                )
        _check_draft(value.get("$schema"), here)
        return _Reading(self, self._references, here, value).schema()


def _check_draft(name: object, place: Place) -> None:
    """Refuse a dialect of its own: there, keywords may mean something else."""
    if name is not None and not (isinstance(name, str) and any(draft in name for draft in _DRAFTS)):
        raise SpecUnsupported(
            "only the dialects of json-schema.org are read", construct="$schema", field=place.below("$schema")
        )


class _Reading:
    """One schema object, keyword by keyword."""

    def __init__(self, library: SchemaReader, references: References, place: Place, value: dict[str, object]) -> None:
        self._library, self._references = library, references
        self._place, self._value = place, value
        self._parts = TypeKeywords(value, place, self._child, library.add)

    def schema(self) -> Schema:
        parts = self._parts
        either = [Either(parts.children("anyOf"))] if "anyOf" in self._value else []
        if "oneOf" in self._value:
            either.append(Either(parts.children("oneOf"), exactly_one=True))
        values, containers = parts.values()
        if containers:
            scalars = (self._library.add(Schema(self._place.field, values=values)),) if values else ()
            either.append(Either((*scalars, *containers)))
            values = None
        order = self._order()
        return Schema(
            self._place.field,
            types=self._types(),
            values=values,
            numbers=parts.numbers(),
            strings=parts.strings(),
            arrays=parts.arrays(),
            objects=parts.objects(),
            all_of=(*self._reference(), *(parts.children("allOf") if "allOf" in self._value else ())),
            either=(*either, *self._dependencies()),
            none_of=self._child("not") if "not" in self._value else (),
            conditions=parts.conditions(),
            order=(*order, *containers),
            unevaluated_items=self._only("unevaluatedItems"),
            unevaluated_properties=self._only("unevaluatedProperties"),
        )

    def _only(self, keyword: str) -> int | None:
        return self._child(keyword)[0] if keyword in self._value else None

    def _child(self, *steps: str) -> tuple[int, ...]:
        value: object = self._value
        for step in steps:
            value = value[int(step)] if isinstance(value, list) else value[step]  # type: ignore[index]
        return (self._library.node(Place(value, self._place.below(*steps), self._place.base)),)

    def _types(self) -> frozenset[str] | None:
        if "type" not in self._value:
            return None
        given = self._value["type"]
        named = given if isinstance(given, list) else [given]
        if not named or not all(isinstance(name, str) and name in TYPES for name in named):
            raise SpecSyntaxError(
                "this is not a type", expected=f"one of {', '.join(sorted(TYPES))}", field=self._place.below("type")
            )
        return frozenset(named)

    def _reference(self) -> tuple[int, ...]:
        if "$ref" not in self._value:
            return ()
        target = self._value["$ref"]
        if not isinstance(target, str):
            raise SpecSyntaxError("a reference is a string", expected="a string", field=self._place.below("$ref"))
        return (self._library.node(self._references.resolve(target, self._place)),)

    def _dependencies(self) -> Sequence[Either]:
        """`dependentRequired` and `dependentSchemas` as choices: the key is absent, or the rest holds."""
        found = []
        required = self._parts.named("dependentRequired")
        for name, wanted in required.items():
            facts = ObjectFacts(required=strings_of(wanted, self._place.below("dependentRequired", name)))
            rest = self._library.add(Schema(self._place.field, objects=facts, order=facts.required))
            found.append(Either((self._absent(name), rest)))
        for name in self._parts.named("dependentSchemas"):
            found.append(Either((self._absent(name), *self._child("dependentSchemas", name))))
        return found

    def _absent(self, name: str) -> int:
        never = self._library.add(Schema(self._place.field, never=True))
        facts = ObjectFacts(properties=((name, never),))
        return self._library.add(Schema(self._place.field, objects=facts, order=(name,)))

    def _order(self) -> tuple[str | int, ...]:
        """Names and nodes in place, as the document has them; names that are only required come last."""
        order: list[str | int] = []
        for keyword in self._value:
            if keyword == "properties":
                order.extend(self._parts.named("properties"))
            elif keyword in ("allOf", "anyOf", "oneOf"):
                order.extend(self._parts.children(keyword))
            elif keyword in ("not", "if", "then", "else"):
                order.extend(self._child(keyword))
            elif keyword == "$ref":
                order.extend(self._reference())
        for name in self._parts.named("dependentSchemas"):
            order.extend((name, *self._child("dependentSchemas", name)))
        for name, wanted in self._parts.named("dependentRequired").items():
            order.extend((name, *strings_of(wanted, self._place.below("dependentRequired", name))))
        return (*order, *strings_of(self._value.get("required", []), self._place.below("required")))
