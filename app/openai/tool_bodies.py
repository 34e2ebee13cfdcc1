"""The JSON of the tools in a request.

Functions have a schema, and custom tools take a text.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from app.api.conversations import require_kind
from app.openai.fields import OpenBody

FunctionName = Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]{1,128}$")]


class FunctionBody(OpenBody):
    """A function that an answer may call. Without parameters it takes an empty object."""

    name: FunctionName
    description: str | None = None
    parameters: dict[str, Any] | None = Field(None, description="The JSON schema of the arguments")
    strict: bool | None = Field(None, description="No effect: arguments always satisfy the parameters")


class ToolGrammarBody(OpenBody):
    """A grammar in Lark, or a pattern."""

    syntax: Literal["lark", "regex"]
    definition: str


class ToolFormatBody(OpenBody):
    """The format of the text that a custom tool takes."""

    type: Literal["text", "grammar"]
    grammar: ToolGrammarBody | None = None

    @model_validator(mode="after")
    def _require_grammar(self) -> Self:
        if (self.type == "grammar") != (self.grammar is not None):
            raise ValueError('has a `grammar` if, and only if, its type is "grammar"')
        return self


class CustomToolBody(OpenBody):
    """A tool that takes a text. Without a format it takes any text."""

    name: FunctionName
    description: str | None = None
    format: ToolFormatBody | None = None


class ToolBody(OpenBody):
    """A tool: a function or a custom tool."""

    type: Literal["function", "custom"]
    function: FunctionBody | None = None
    custom: CustomToolBody | None = None

    @model_validator(mode="after")
    def _require_kind(self) -> Self:
        require_kind(self)
        return self

    @property
    def name(self) -> str:
        tool = self.function or self.custom
        assert tool is not None
        return tool.name
