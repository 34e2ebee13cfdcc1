"""Writes JSON, and reads it into typed values: dataclasses, tuples, optional values."""

from __future__ import annotations

import json
import math
import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from decimal import Decimal, InvalidOperation
from functools import cache
from typing import Any, Literal, Protocol, TypeVar, overload

from abs_client.errors import InvalidResponseError

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class ReadsJson(Protocol[T_co]):
    """A TypeAdapter of pydantic, which this package does not import."""

    def validate_json(self, data: str, /) -> T_co:
        """The value of a JSON text."""


class _HasText(Protocol):
    @property
    def text(self) -> str: ...


class JsonText:
    """A result whose text may be JSON."""

    @overload
    def parse(self: _HasText, model: None = None) -> Any: ...
    @overload
    def parse(self: _HasText, model: type[T]) -> T: ...
    @overload
    def parse(self: _HasText, model: ReadsJson[T]) -> T: ...
    def parse(self: _HasText, model: Any = None) -> Any:
        """Parse the (best) text as JSON, also into a pydantic model.

        model  a pydantic model or TypeAdapter
        """
        # By the methods, not the class: this package does not import pydantic.
        for name in ("model_validate_json", "validate_json"):
            if callable(read_json := getattr(model, name, None)):
                return read_json(self.text)
        if model is not None:
            raise TypeError(f"parse takes a pydantic model or a TypeAdapter, not {model!r}")
        return json.loads(self.text)


_CONTAINERS = (dict, list, tuple)
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


def dump(value: Any) -> str:
    """The JSON text of a value. Decimals are written with all of their digits.

    So are subclasses of float, as their `str`. Raises ValueError for NaN and infinities, TypeError for what JSON does
    not have.
    """
    text = _exact_text(value)
    return _encode(value) if text is None else text


def _exact_text(value: Any) -> str | None:
    """The text of a value with decimals in it. None for others, which the encoder writes much faster."""
    if not isinstance(value, _CONTAINERS):
        if isinstance(value, Decimal) and not value.is_finite():
            raise ValueError(f"{value} is no number of JSON")
        is_subclass = isinstance(value, float) and type(value) is not float
        return str(value) if isinstance(value, Decimal) or (is_subclass and math.isfinite(value)) else None
    items = [*value.values()] if isinstance(value, dict) else value
    exact = list(map(_exact_text, items))
    if all(text is None for text in exact):
        return None
    texts = [_encode(item) if text is None else text for item, text in zip(items, exact, strict=True)]
    if not isinstance(value, dict):
        return f"[{', '.join(texts)}]"
    members = (f"{_encode(str(name))}: {text}" for name, text in zip(value, texts, strict=True))
    return f"{{{', '.join(members)}}}"


def load(text: str) -> Any:
    """The value of a JSON text. Numbers that a float would spell in another way are Decimals."""
    return json.loads(text, parse_float=_number)


def _number(text: str) -> float | Decimal:
    number = float(text)
    try:
        return number if repr(number) == text else Decimal(text)
    except InvalidOperation:  # an exponent of 19 digits
        return number


def read(kind: type[T], data: Any, where: str = "the response") -> T:
    """A value of this type from its JSON. `where` names the value in errors.

    Fields that the type does not have come from a newer service: they are ignored, and only `raw` keeps them.
    Raises InvalidResponseError if a field is missing or of another type.
    """
    if is_dataclass(kind):
        return typing.cast(T, _record(kind, data, where))
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    # The types of this package have no union but that with None.
    if origin in (typing.Union, types.UnionType):
        return typing.cast(T, None if data is None else read(inner[0], data, where))
    if origin is tuple and isinstance(data, list):
        return typing.cast(T, tuple(read(inner[0], item, where) for item in data))
    # JSON writes 1.0 as 1, so an int is a float; a bool is an int in Python, but not in JSON.
    accepts = {float: (int, float), Any: object, Literal: str}.get(origin or kind, origin or kind)
    if not isinstance(data, accepts) or (isinstance(data, bool) and kind in (int, float)):  # type: ignore[arg-type]
        raise InvalidResponseError(f"{where} does not have the type {_name(kind)}")
    return typing.cast(T, data)


def _record(kind: Any, data: Any, where: str) -> Any:
    if not isinstance(data, Mapping):
        raise InvalidResponseError(f"{where} does not have the type {_name(kind)}")
    values: dict[str, Any] = {}
    for field in fields(kind):
        name = json_name(field)
        # `raw` also holds the fields that this version does not know.
        if field.name == "raw":
            values["raw"] = data
        elif name is None:
            continue
        elif name in data:
            values[field.name] = read(_hints(kind)[field.name], data[name], f"{name} of {where}")
        elif field.default is MISSING and field.default_factory is MISSING:
            raise InvalidResponseError(f"{where} lacks {name}")
    return kind(**values)


def json_name(field: Field[Any]) -> str | None:
    """The name of a field in JSON. None: the field is not read from JSON."""
    name: str | None = field.metadata.get("json_name", field.name)
    return name


def _name(kind: Any) -> str:
    return str(getattr(kind, "__name__", kind))


# Resolving the annotations of a class takes longer than reading a value.
@cache
def _hints(kind: Any) -> dict[str, Any]:
    return typing.get_type_hints(kind)
