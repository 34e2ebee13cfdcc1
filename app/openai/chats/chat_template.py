"""Renders messages with the model's chat template in a Jinja sandbox. It renders as transformers does."""

from __future__ import annotations

import datetime
import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any

from app.errors import InvalidRequest, SettingsInvalid
from app.formats import PLAIN_CALLS, CallFormat
from app.models import ModelFiles
from app.openai.chats.markers import CallerText, RenderedPrompt
from app.openai.chats.tools import TemplateFields, ToolUse, object_of, template_messages, tool_variable
from app.openai.requests import MessageBody

_NO_TEMPLATE = "the model has no chat template: send a prompt to /v1/completions"
_REJECTED = "the model's chat template rejects these messages"
_RESERVED = ("messages", "add_generation_prompt")  # variables that a request must not replace
# Of the fields that a template reads, the first is written.
_THOUGHTS = ("reasoning_content", "thinking", "reasoning", "tool_plan")
_UNUSED = {"tools": None, "documents": None}  # some templates test these for none, not for being defined


class _TemplateRejection(Exception):
    """Raised by a template through `raise_exception`, with its reason."""


def render_prompt(
    files: ModelFiles, messages: Sequence[MessageBody], add_generation_prompt: bool = True,
    arguments: Mapping[str, object] | None = None, *, tools: ToolUse | None = None, calls: CallFormat = PLAIN_CALLS,
) -> RenderedPrompt:
    """The prompt that the chat template makes of messages and tools. Their text contains no markers.

    calls  how the model writes calls

    Raises InvalidRequest if the model has no template or the template rejects the messages, and SettingsInvalid if the
    template is invalid.
    """
    source = files.template(with_tools=tools is not None)
    if source is None:
        raise InvalidRequest((("messages", _NO_TEMPLATE),))
    for name in arguments or {}:
        if name in _RESERVED or name in files.special_tokens:
            raise InvalidRequest(((f"chat_template_kwargs.{name}", "is set by the server: leave it out"),))
    template, fields = _compiled(source)
    sent: dict[str, Any] = {**(arguments or {}), "messages": template_messages(messages, fields, calls)}
    sent |= {} if tools is None else {"tools": tool_variable(tools)}
    text = CallerText(files.markers, sent, source + "".join(files.special_tokens.values()))
    variables = {**_UNUSED, **files.special_tokens, "add_generation_prompt": add_generation_prompt}
    variables |= {name: text.covered(value) for name, value in sent.items()}
    return text.uncovered(_rendered(template, variables, text))


def _render(template: Any, variables: dict[str, Any]) -> str:
    """The text of a template. Where it fails on arguments of calls, it gets all as texts, then all as objects."""
    called = [call["function"] for message in variables["messages"] for call in message.get("tool_calls", ())]
    arguments = [function["arguments"] for function in called]
    failure: Exception | None = None
    for form in (_unchanged, _as_text, _as_object) if called else (_unchanged,):
        for function, value in zip(called, arguments, strict=True):
            function["arguments"] = form(value)
        try:
            return str(template.render(variables))
        except Exception as error:  # of the template's code, in any way
            # A reason that the template gives says more than a failure of its code.
            failure = error if failure is None or isinstance(error, _TemplateRejection) else failure
    assert failure is not None
    raise failure


def _unchanged(arguments: object) -> object:
    return arguments


def _as_text(arguments: object) -> object:
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


def _as_object(arguments: object) -> object:
    return object_of(arguments) if isinstance(arguments, str) else arguments


def _rendered(template: Any, variables: dict[str, Any], text: CallerText) -> str:
    try:
        return _render(template, variables)
    except _TemplateRejection as rejection:
        # An error never repeats what the caller sent, so a reason that quotes a message is left out.
        reason = str(rejection)
        quotes = any(message["content"] and message["content"] in reason for message in variables["messages"])
        if not reason or quotes or text.is_in(reason):
            raise InvalidRequest((("messages", _REJECTED),)) from None
        raise InvalidRequest((("messages", f"{_REJECTED}: {reason}"),)) from None
    except Exception as error:  # the template's code may fail in any way on messages it does not expect
        raise InvalidRequest((("messages", f"{_REJECTED} ({type(error).__name__})"),)) from None


@functools.lru_cache(maxsize=16)
def _compiled(text: str) -> tuple[Any, TemplateFields]:
    """The compiled template, and the fields of messages that it reads."""
    # Imported here, because most processes never render a template.
    from jinja2 import TemplateError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _generation_tag()]
    )
    environment.filters["tojson"] = _to_json
    environment.globals |= {"raise_exception": _raise, "strftime_now": _now}
    try:
        return environment.from_string(text), _fields_of(environment.parse(text))
    except TemplateError as error:
        raise SettingsInvalid(f"the model's chat template cannot be read: {error}") from None


def _fields_of(syntax: Any) -> TemplateFields:
    """The fields that the syntax tree of a template reads."""
    from jinja2 import meta, nodes

    read = {node.attr for node in syntax.find_all(nodes.Getattr)}
    read |= {node.arg.value for node in syntax.find_all(nodes.Getitem) if isinstance(node.arg, nodes.Const)}
    calls = "tool_calls" in read or any(node.value == "tool_calls" for node in syntax.find_all(nodes.Const))
    # A template without `tools` may still write calls and results, as DeepSeek's do.
    results = calls or "tools" in meta.find_undeclared_variables(syntax)
    thought = next((name for name in _THOUGHTS if name in read), _THOUGHTS[0])
    return TemplateFields(calls, results, thought, any(map(_is_null_test, syntax.find_all(nodes.Test))))


def _is_null_test(test: Any) -> bool:
    """Whether a test asks if the content of a message is null."""
    from jinja2 import nodes

    match test:
        case nodes.Test(name="none", node=nodes.Getattr(attr="content")):
            return True
        case nodes.Test(name="none", node=nodes.Getitem(arg=nodes.Const(value="content"))):
            return True
    return False


def _generation_tag() -> Any:
    """An extension that ignores `{% generation %}`. That tag marks the text of the assistant for training."""
    from jinja2.ext import Extension

    class GenerationTag(Extension):
        tags = {"generation"}  # noqa: RUF012 - declared so by Extension

        def parse(self, parser: Any) -> Any:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    return GenerationTag


def _to_json(value: object, ensure_ascii: bool = False, indent: int | None = None, **options: Any) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **options)


def _raise(message: object) -> None:
    raise _TemplateRejection(str(message))


def _now(form: str) -> str:
    return datetime.datetime.now().strftime(form)
