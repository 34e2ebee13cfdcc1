"""Bases of request bodies, and their validation.

A body is open to unknown fields, and a field may accept only values without effect.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from app.api.errors import FAULTS_MAX
from app.api.schemas import Body
from app.errors import InvalidRequest
from app.openai.responses import DeferredModel

_UNSUPPORTED = "Not supported: "
DID_YOU_MEAN = "x-did-you-mean"
# FastAPI needs the body model of a route when the route is added.
BUILD_AT_ONCE = ConfigDict(defer_build=False)


class OpenBody(DeferredModel, Body):
    """A body with unknown fields, which `unknown_fields` names or refuses."""

    model_config = ConfigDict(extra="allow")

    @model_validator(mode="before")
    @classmethod
    def _limit_unknown_names(cls, body: object) -> object:
        # In place of that of `Body`, which drops names: each has to be compared with those of constraints.
        if isinstance(body, dict) and len(body) > len(cls.model_fields) + FAULTS_MAX:
            raise ValueError(f"contains more than {FAULTS_MAX} unknown fields")
        return body


def unsupported(reason: str, *neutral: JsonValue) -> Any:
    """A field that accepts null and the values that change nothing."""
    return Field(None, description=f"{_UNSUPPORTED}{reason}", json_schema_extra={"enum": [None, *neutral]})


def spelled_elsewhere(meant: str, reason: str, *neutral: JsonValue) -> Any:
    """A constraint, tool or budget of other servers, not taken here. Its values are kept for `ignored_fields`.

    meant  the field to send in its place
    """
    extra: dict[str, JsonValue] = {"enum": [None, *neutral], DID_YOU_MEAN: meant}
    return Field(None, description=f"{_UNSUPPORTED}{reason}", json_schema_extra=extra)


def refused_spellings(body: BaseModel) -> Iterator[tuple[str, str]]:
    """The fields of `spelled_elsewhere` with values, and why they are refused."""
    for name, field in type(body).model_fields.items():
        extra = field.json_schema_extra
        if isinstance(extra, dict) and DID_YOU_MEAN in extra and getattr(body, name) is not None:
            reason = (field.description or "").removeprefix(_UNSUPPORTED)
            yield name, f"not supported: did you mean `{extra[DID_YOU_MEAN]}`? {reason}"


class NeutralValues(OpenBody):
    """Rejects other values in the fields made by `unsupported`."""

    @field_validator("*", mode="before")
    @classmethod
    def _require_neutral(cls, value: object, info: ValidationInfo) -> object:
        assert info.field_name is not None
        field = cls.model_fields[info.field_name]
        description, extra = field.description or "", field.json_schema_extra
        if not description.startswith(_UNSUPPORTED) or not isinstance(extra, dict):
            return value
        neutral = extra["enum"]
        assert isinstance(neutral, list)
        if value not in neutral and DID_YOU_MEAN in extra:
            return value
        if value not in neutral:
            raise ValueError(f"not supported: {description.removeprefix(_UNSUPPORTED)}")
        return None


def validated(kind: Any, fields: Mapping[str, Any], path: str) -> Any:
    """A body of its kind. Raises InvalidRequest with paths below `path`."""
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_input=False, include_context=False)
        shown = [(".".join([path, *map(str, fault["loc"])]).strip("."), fault["msg"]) for fault in faults[:FAULTS_MAX]]
        raise InvalidRequest(tuple((name, text.removeprefix("Value error, ")) for name, text in shown)) from None
