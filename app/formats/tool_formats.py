"""The formats in which model families write calls and thoughts.

A format is found from the texts that its chat templates contain, or named by ABS_CHAT_FORMAT. `{name}` stands for the
name of a tool or of a parameter, `{index}` for a number that counts the calls of a conversation. Names of special and
added tokens in these texts are written as single tokens where the vocabulary has them. Each format has an example,
which the tests write and read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass

AUTO = "auto"


@dataclass(frozen=True, slots=True)
class ParameterFormat:
    """How each argument of a call is written.

    open, close  the texts around a value
    separator    the text between two arguments
    python       true and false are written True and False; otherwise strings are written without quotation marks
    whole        the texts around all arguments as one JSON object, where the schema names no single ones
    quote        the text around strings, in arrays and objects too; all arguments are such an object, keys are sorted
    """

    open: str
    close: str
    _: KW_ONLY
    separator: str = ""
    python: bool = False
    whole: tuple[str, str] = ("", "\n")
    quote: str = ""

    @property
    def around_input(self) -> tuple[str, str]:
        """The texts around what a custom tool takes, the argument `input`."""
        before, after = self.open.replace("{name}", "input"), self.close
        return (f"{{{before}{self.quote}", f"{self.quote}{after}}}") if self.quote else (before, after)

    def written(self, arguments: Mapping[str, object]) -> str:
        """The text of the arguments of a past call."""
        if self.quote:
            return json.dumps(arguments, ensure_ascii=False)
        return self.separator.join(
            self.open.replace("{name}", name) + self._value(value) + self.close for name, value in arguments.items()
        )

    def _value(self, value: object) -> str:
        if isinstance(value, str) and not self.python:
            return value
        return str(value) if isinstance(value, bool) and self.python else json.dumps(value, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class CallFormat:
    """How calls are written.

    First `begin`, then heads, arguments and tails of calls with separators, then `end`.

    separator   None if an answer has at most one call
    trigger     the text that a reply must not contain, because a call begins with it; empty if the first character
                of an answer decides
    parameters  how single arguments are written; None if they are one JSON object
    id_chars    the characters of the ids that the templates require; None if they take any
    id_form     the ids that the templates require, with the number of the call; empty if they take any
    """

    head: str
    tail: str
    _: KW_ONLY
    begin: str = ""
    separator: str | None = None
    end: str = ""
    trigger: str = ""
    parameters: ParameterFormat | None = None
    id_chars: int | None = None
    id_form: str = ""

    @property
    def opening(self) -> str:
        """The text with which all arguments begin. It ends a name that only the arguments follow."""
        return "{" if self.parameters is not None and self.parameters.quote else ""


@dataclass(frozen=True, slots=True)
class ChatFormat:
    """The format of a model family.

    found      texts that all occur in its chat templates
    calls      how calls are written
    reply      the text before a reply
    reply_end  the text behind a reply
    example    an answer with the calls refund(amount=5, note="late") and notify(), or with the first one alone
    """

    name: str
    found: tuple[str, ...]
    calls: CallFormat
    example: str
    _: KW_ONLY
    reply: str = ""
    reply_end: str = ""


@dataclass(frozen=True, slots=True)
class ThinkFormat:
    """How thoughts are written. `mark` is the end that a thought must not contain; `end` contains it.

    found  texts that all occur in the chat template, or end the prompt
    """

    begin: str
    end: str
    mark: str
    found: tuple[str, ...]


_JSON_HEAD = '{"name": "{name}", "arguments": '
_TAGGED = "<tool_call>"
_DEEPSEEK = "<｜tool▁calls▁begin｜>"
_SEED, _NEMOTRON = "<seed:tool_call>", "<TOOLCALL>"
_GRANITE, _LFM = "<|tool_call|>", "<|tool_call_start|>"
_KIMI, _GEMMA = "<|tool_calls_section_begin|>", "<|tool_call>"
_PYTHON = ParameterFormat("{name}=", "", separator=", ", python=True, whole=("**", ""))

CHAT_FORMATS = (
    ChatFormat(
        "harmony", ("<|channel|>analysis", "<|call|>"),
        CallFormat("<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>", ""),
        '<|channel|>commentary to=functions.refund <|constrain|>json<|message|>{"amount": 5, "note": "late"}',
        reply="<|channel|>final<|message|>",
    ),
    ChatFormat(
        "gemma4", (_GEMMA, '<|"|>'),
        CallFormat(
            "<|tool_call>call:{name}", "<tool_call|>", separator="", trigger=_GEMMA,
            parameters=ParameterFormat("{name}:", "", separator=",", quote='<|"|>'),
        ),
        '<|tool_call>call:refund{amount:5,note:<|"|>late<|"|>}<tool_call|><|tool_call>call:notify{}<tool_call|>',
    ),
    ChatFormat(
        "seed", (_SEED,),
        CallFormat(
            "<seed:tool_call>\n<function={name}>\n", "</function>\n</seed:tool_call>", separator="\n", trigger=_SEED,
            parameters=ParameterFormat("<parameter={name}>", "</parameter>\n"),
        ),
        "<seed:tool_call>\n<function=refund>\n<parameter=amount>5</parameter>\n<parameter=note>late</parameter>\n"
        "</function>\n</seed:tool_call>\n<seed:tool_call>\n<function=notify>\n</function>\n</seed:tool_call>",
    ),
    ChatFormat(
        "qwen-coder", ("<function=", "<parameter="),
        CallFormat(
            "<tool_call>\n<function={name}>\n", "</function>\n</tool_call>", separator="\n", trigger=_TAGGED,
            parameters=ParameterFormat("<parameter={name}>\n", "\n</parameter>\n"),
        ),
        "<tool_call>\n<function=refund>\n<parameter=amount>\n5\n</parameter>\n<parameter=note>\nlate\n</parameter>\n"
        "</function>\n</tool_call>\n<tool_call>\n<function=notify>\n</function>\n</tool_call>",
    ),
    ChatFormat(
        "glm", ("<arg_key>", "<arg_value>"),
        CallFormat(
            "<tool_call>{name}\n", "</tool_call>", separator="\n", trigger=_TAGGED,
            parameters=ParameterFormat("<arg_key>{name}</arg_key>\n<arg_value>", "</arg_value>\n"),
        ),
        "<tool_call>refund\n<arg_key>amount</arg_key>\n<arg_value>5</arg_value>\n<arg_key>note</arg_key>\n"
        "<arg_value>late</arg_value>\n</tool_call>\n<tool_call>notify\n</tool_call>",
    ),
    ChatFormat(
        "nemotron", (_NEMOTRON,),
        CallFormat(
            _JSON_HEAD, "}", begin="<TOOLCALL>[", separator=", ", end="]</TOOLCALL>", trigger=_NEMOTRON,
        ),
        '<TOOLCALL>[{"name": "refund", "arguments": {"amount": 5, "note": "late"}}, '
        '{"name": "notify", "arguments": {}}]</TOOLCALL>',
    ),
    ChatFormat(
        "granite", (_GRANITE, "<|start_of_role|>"),
        CallFormat(_JSON_HEAD, "}", begin="<|tool_call|>[", separator=", ", end="]", trigger=_GRANITE),
        '<|tool_call|>[{"name": "refund", "arguments": {"amount": 5, "note": "late"}}, '
        '{"name": "notify", "arguments": {}}]',
    ),
    ChatFormat(
        "hermes", (_TAGGED,),
        CallFormat(f"<tool_call>\n{_JSON_HEAD}", "}\n</tool_call>", separator="\n", trigger=_TAGGED),
        '<tool_call>\n{"name": "refund", "arguments": {"amount": 5, "note": "late"}}\n</tool_call>\n'
        '<tool_call>\n{"name": "notify", "arguments": {}}\n</tool_call>',
    ),
    ChatFormat(
        "mistral-args", ("[TOOL_CALLS]", "[ARGS]"),
        CallFormat("[TOOL_CALLS]{name}[ARGS]", "", separator="", trigger="[TOOL_CALLS]", id_chars=9),
        '[TOOL_CALLS]refund[ARGS]{"amount": 5, "note": "late"}[TOOL_CALLS]notify[ARGS]{}',
    ),
    ChatFormat(
        "mistral", ("[TOOL_CALLS] [",),
        CallFormat(
            _JSON_HEAD, "}", begin="[TOOL_CALLS] [", separator=", ", end="]", trigger="[TOOL_CALLS]", id_chars=9,
        ),
        '[TOOL_CALLS] [{"name": "refund", "arguments": {"amount": 5, "note": "late"}}, '
        '{"name": "notify", "arguments": {}}]',
    ),
    ChatFormat(
        "mistral-v7", ("[TOOL_CALLS]",),
        CallFormat(
            _JSON_HEAD, "}", begin="[TOOL_CALLS][", separator=", ", end="]", trigger="[TOOL_CALLS]", id_chars=9,
        ),
        '[TOOL_CALLS][{"name": "refund", "arguments": {"amount": 5, "note": "late"}}, '
        '{"name": "notify", "arguments": {}}]',
    ),
    ChatFormat(
        "deepseek-v3", ("<｜tool▁sep｜>", "```json"),
        CallFormat(
            "<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n", "\n```<｜tool▁call▁end｜>",
            begin=_DEEPSEEK, separator="\n", end="<｜tool▁calls▁end｜>", trigger=_DEEPSEEK,
        ),
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>refund\n```json\n"
        '{"amount": 5, "note": "late"}\n```<｜tool▁call▁end｜>\n'
        "<｜tool▁call▁begin｜>function<｜tool▁sep｜>notify\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    ),
    ChatFormat(
        "deepseek-v3.1", ("<｜tool▁sep｜>",),
        CallFormat(
            "<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>", "<｜tool▁call▁end｜>",
            begin=_DEEPSEEK, separator="", end="<｜tool▁calls▁end｜>", trigger=_DEEPSEEK,
        ),
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>refund<｜tool▁sep｜>"
        '{"amount": 5, "note": "late"}<｜tool▁call▁end｜>'
        "<｜tool▁call▁begin｜>notify<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    ),
    ChatFormat(
        "kimi-k2", (_KIMI,),
        CallFormat(
            "<|tool_call_begin|>functions.{name}:{index}<|tool_call_argument_begin|>", "<|tool_call_end|>",
            begin=_KIMI, separator="", end="<|tool_calls_section_end|>", trigger=_KIMI,
            id_form="functions.{name}:{index}",
        ),
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.refund:0<|tool_call_argument_begin|>"
        '{"amount": 5, "note": "late"}<|tool_call_end|>'
        "<|tool_call_begin|>functions.notify:1<|tool_call_argument_begin|>{}<|tool_call_end|>"
        "<|tool_calls_section_end|>",
    ),
    ChatFormat(
        "command", ("<|START_ACTION|>", "<|START_RESPONSE|>"),
        CallFormat(
            '{"tool_call_id": "{index}", "tool_name": "{name}", "parameters": ', "}",
            begin="<|START_ACTION|>[\n    ", separator=",\n    ", end="\n]<|END_ACTION|>",
        ),
        '<|START_ACTION|>[\n    {"tool_call_id": "0", "tool_name": "refund", '
        '"parameters": {"amount": 5, "note": "late"}},\n'
        '    {"tool_call_id": "1", "tool_name": "notify", "parameters": {}}\n]<|END_ACTION|>',
        reply="<|START_RESPONSE|>", reply_end="<|END_RESPONSE|>",
    ),
    ChatFormat(
        "lfm2", ("<|im_start|>", "List of tools: "),
        CallFormat(
            "{name}(", ")", begin="<|tool_call_start|>[", separator=", ", end="]<|tool_call_end|>", trigger=_LFM,
            parameters=_PYTHON,
        ),
        '<|tool_call_start|>[refund(amount=5, note="late"), notify()]<|tool_call_end|>',
    ),
    ChatFormat(
        "pythonic", ("[func_name1(",),
        CallFormat("{name}(", ")", begin="[", separator=", ", end="]", parameters=_PYTHON),
        '[refund(amount=5, note="late"), notify()]',
    ),
    ChatFormat(
        "llama3-json", ("<|start_header_id|>", '"parameters": '),
        CallFormat('{"name": "{name}", "parameters": ', "}"),
        '{"name": "refund", "parameters": {"amount": 5, "note": "late"}}',
    ),
    ChatFormat(
        "plain", (), CallFormat(_JSON_HEAD, "}"), '{"name": "refund", "arguments": {"amount": 5, "note": "late"}}'
    ),
)  # fmt: skip
"""The formats, the first one that is found in a template is its format. The last one is found in every template."""

THINK_FORMATS = (
    ThinkFormat(
        "<|channel|>analysis<|message|>", "<|end|><|start|>assistant", "<|end|>", ("<|channel|>analysis", "<|call|>")
    ),
    ThinkFormat("<|channel>thought\n", "<channel|>", "<channel|>", ("<|channel>thought",)),
    ThinkFormat("<|START_THINKING|>", "<|END_THINKING|>", "<|END_THINKING|>", ("<|START_THINKING|>",)),
    ThinkFormat("[THINK]", "[/THINK]", "[/THINK]", ("[THINK]",)),
    ThinkFormat("<seed:think>", "</seed:think>\n", "</seed:think>", ("<seed:think>",)),
    ThinkFormat("\n<think>", "</think>\n", "</think>", ("<think>", "<arg_key>")),
    ThinkFormat("<think>", "</think>", "</think>", ("<think>", "<｜tool▁calls▁begin｜>")),
    ThinkFormat("<think>", "</think>", "</think>", ("<think>", "<|start_of_role|>")),
    ThinkFormat("<think>", "</think>", "</think>", ("<think>", _KIMI)),
    ThinkFormat("<think>", "</think>", "</think>", ("</think>", "List of tools: ")),
    ThinkFormat("<think>\n", "\n</think>\n\n", "</think>", ("<think>",)),
)
"""The formats of thoughts; the first one that is found in a template is its format, if any is."""


PLAIN_CALLS = CHAT_FORMATS[-1].calls


def chat_format(template: str | None, name: str = AUTO) -> ChatFormat:
    """The format of a chat template, or the one of a name."""
    for each in CHAT_FORMATS:
        if each.name == name or (name == AUTO and all(text in (template or "") for text in each.found)):
            return each
    raise ValueError(f"no chat format is named {name}")


def think_format(template: str | None) -> ThinkFormat | None:
    """The format of thoughts of a chat template. None if it knows none."""
    return next((each for each in THINK_FORMATS if all(text in (template or "") for text in each.found)), None)
