"""Prompts made of messages by chat templates in a sandbox."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from app.errors import InvalidRequest, SettingsInvalid
from app.formats import chat_format, think_format
from app.models import ModelFiles, open_model_files
from app.openai.chats.chat_template import render_prompt
from app.openai.chats.chat_turn import chat_family
from app.openai.chats.tools import tool_use
from app.openai.requests import ChatRequest, MessageBody
from tests.app.openai.chat_models import MARKERS, TEMPLATES, call_begin, small_family, without_ids

CHATML = (
    "{% for message in messages %}\n    {%- if loop.first and message['role'] != 'system' %}"
    "{{ '<|im_start|>system\\nBe brief.<|im_end|>\\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\\n' + message['content'] | trim + '<|im_end|>' + '\\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}"
    "{% if not thinks %}{{ '<think></think>' }}{% endif %}{% endif %}"
)
STRICT = (
    "{{ bos_token }}{% for message in messages %}{% if (message.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Roles must alternate') }}{% endif %}{% generation %}{{ message | tojson }}{% endgeneration %}"
    "{% if loop.index > 2 %}{% break %}{% endif %}{% endfor %}"
)
LOOP, CALLS = "{% for message in messages %}<{{ message.role }}>", "{% set calls = message.tool_calls %}"
TURNS = [("user", " Hello, \"wörld\" "), ("assistant", "Hi."), ("user", "And now?")]


@pytest.fixture
def folder(tmp_path: Path, captions_dir: Path) -> Path:
    """A copy of the built-in model's files without its template."""
    for name in ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(captions_dir / name, tmp_path / name)
    return tmp_path


def files_with(folder: Path, template: Any) -> ModelFiles:
    """The same with a template in the tokenizer's configuration."""
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"chat_template": template}))
    open_model_files.cache_clear()
    return open_model_files(str(folder))


def messages_of(*messages: tuple[str, str]) -> list[MessageBody]:
    return [MessageBody.model_validate({"role": role, "content": content}) for role, content in messages]


@pytest.mark.parametrize("template", [CHATML, STRICT], ids=["chatml", "strict"])
@pytest.mark.parametrize("going_on", [True, False])
def test_a_prompt_is_the_one_that_transformers_makes(folder: Path, template: str, going_on: bool) -> None:
    files = files_with(folder, template)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(str(folder))
    messages = [{"role": role, "content": content} for role, content in TURNS]
    theirs = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=going_on, thinks=True)
    assert render_prompt(files, messages_of(*TURNS), going_on, {"thinks": True}).text == theirs


SEVERAL = [{"name": "default", "template": "listed"}, {"name": "tool_use", "template": "tools {{ tools | length }}"}]


@pytest.mark.parametrize("configured", [None, "one", SEVERAL, SEVERAL[1:], [{"name": "rag", "template": "rag"}]])
@pytest.mark.parametrize("written", [(), ("",), ("", "tool_use"), ("tool_use",), ("", "rag"), ("default",)], ids=str)
def test_transformers_and_we_choose_the_same_template(folder: Path, configured: Any, written: tuple[str, ...]) -> None:
    (folder / "additional_chat_templates").mkdir()
    for name in written:
        file = f"additional_chat_templates/{name}.jinja" if name else "chat_template.jinja"
        (folder / file).write_text("{{ eos_token }}file " + name, encoding="utf-8")
    files, tokenizer = files_with(folder, configured), PreTrainedTokenizerFast.from_pretrained(str(folder))
    messages: Any = [{"role": "user", "content": "a"}]
    given: Any = [{"type": "function", "function": {"name": "f"}}]
    for tools in (None, given):
        request = ChatRequest.model_validate({"messages": messages, "tools": tools})
        theirs: Any = None
        with contextlib.suppress(ValueError):  # no template has a name that is looked for
            theirs = tokenizer.apply_chat_template(messages, tools=tools, tokenize=False)
        assert (files.template(tools is not None) is None) == (theirs is None)
        if theirs is not None:
            assert render_prompt(files, request.messages, tools=tool_use(request)).text == theirs


def test_the_template_for_tools_says_how_calls_are_written(folder: Path) -> None:
    template = "<tool_call>{% for message in messages %}{{ message.content }}{% endfor %}"
    files = files_with(folder, [{"name": "default", "template": "a"}, {"name": "tool_use", "template": template}])
    assert chat_family(files, "auto").name == "hermes"


@pytest.mark.parametrize(("roles", "written"), [
    ("developer", "<system>0"), ("user developer", "<user>0<system>1"),
    ("system developer user", "<system>0\n\n1<user>2"), ("developer system user", "<system>0\n\n1<user>2"),
    ("developer developer user", "<system>0\n\n1<user>2"),
    ("system user assistant developer user", "<system>0\n\n3<user>1<assistant>2<user>4"),
    ("system system user", "<system>0<system>1<user>2"), ("user system", "<user>0<system>1"),
])  # fmt: skip
def test_messages_of_developer_and_system_become_one(folder: Path, roles: str, written: str) -> None:
    files = files_with(folder, LOOP + "{{ message.content }}{% endfor %}")
    messages = messages_of(*((role, str(number)) for number, role in enumerate(roles.split())))
    assert render_prompt(files, messages).text == written


def refusal(files: ModelFiles, *messages: tuple[str, str], **arguments: Any) -> str:
    with pytest.raises(InvalidRequest) as error:
        render_prompt(files, messages_of(*messages), True, arguments)
    return str(error.value)


def test_a_model_without_a_template_refers_to_completions(folder: Path) -> None:
    assert "/v1/completions" in refusal(files_with(folder, None), ("user", "MARKER"))


def test_a_template_error_is_shown_unless_it_quotes_messages(folder: Path) -> None:
    assert "Roles must alternate" in refusal(files_with(folder, STRICT), ("assistant", "MARKER"))
    quoting_files = files_with(folder, "{{ raise_exception('I do not like ' + messages[0].content) }}")
    assert "MARKER" not in refusal(quoting_files, ("user", "MARKER"))


@pytest.mark.parametrize(
    "attack",
    ["{{ messages.__class__.__mro__ }}{{ messages.append(1) }}", "{{ ''.__class__.__base__.__subclasses__() }}",
     "{% include 'config.json' %}", "{{ cycler.__init__.__globals__ }}"],
)  # fmt: skip
def test_a_template_cannot_leave_its_sandbox(folder: Path, attack: str) -> None:
    with pytest.raises((InvalidRequest, SettingsInvalid)):
        render_prompt(files_with(folder, attack), messages_of(("user", "a")))
    assert render_prompt(files_with(folder, "{{ messages[0].content }}"), messages_of(("user", attack))).text == attack


def test_a_template_sees_no_tools_as_in_transformers(folder: Path) -> None:
    tools = "{% if tools is not none or documents is not none %}tools: {{ tools }}{% endif %}{{ messages[0].content }}"
    files, tokenizer = files_with(folder, tools), PreTrainedTokenizerFast.from_pretrained(str(folder))
    theirs = tokenizer.apply_chat_template([{"role": "user", "content": "a"}], tokenize=False)
    assert render_prompt(files, messages_of(("user", "a"))).text == theirs == "a"


def test_arguments_reach_the_template_and_replace_nothing(folder: Path) -> None:
    files = files_with(folder, "{{ mood }}{{ bos_token }}")
    assert render_prompt(files, messages_of(("user", "a")), True, {"mood": "glad"}).text == "glad<eos>"
    for name in ("messages", "bos_token"):
        assert name in refusal(files, ("user", "a"), **{name: "MARKER"})


def test_a_malformed_template_is_an_operator_error(folder: Path) -> None:
    files = dataclasses.replace(files_with(folder, None), chat_template="{% if %}")
    with pytest.raises(SettingsInvalid):
        render_prompt(files, messages_of(("user", "a")))


TOOL_TEMPLATE = (
    "{% if tools %}{% for tool in tools %}{{ tool | tojson }}{% endfor %}{% endif %}"
    "{% for message in messages %}<{{ message.role }}>{{ message.content }}"
    "{% for call in message.tool_calls or [] %}{{ call.function.name }}({{ call.function.arguments | tojson }})"
    "{% endfor %}{% endfor %}"
)


def test_a_template_describes_tools_as_transformers_does(folder: Path) -> None:
    files = files_with(folder, TOOL_TEMPLATE)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(str(folder))
    function = {"name": "refund", "description": "Pays back", "parameters": {"type": "object"}}
    tools = [{"type": "function", "function": function}]
    call = {"type": "function", "function": {"name": "refund", "arguments": {"amount": 5}}}
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "a"}, {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "b"},
    ]
    theirs = tokenizer.apply_chat_template(messages, tools=tools, tokenize=False)
    sent = [*messages[:1], {"role": "assistant", "tool_calls": [
        {"id": "c", "type": "function", "function": {"name": "refund", "arguments": '{"amount": 5}'}}
    ]}, messages[2]]  # fmt: skip
    request = ChatRequest.model_validate({"messages": sent, "tools": tools})
    assert render_prompt(files, request.messages, True, None, tools=tool_use(request)).text == theirs


CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
HISTORY = [
    {"role": "user", "content": "a"}, {"role": "assistant", "reasoning_content": "hm", "tool_calls": [CALL]},
    {"role": "tool", "content": "b", "tool_call_id": "c"},
]  # fmt: skip


@pytest.mark.parametrize(("body", "written"), [
    ("{{ message.content }}", '<user>a<assistant>{"name": "f", "arguments": {}}<user>b'),
    ("{% if tools %}{% endif %}{{ message.content }}", '<user>a<assistant>{"name": "f", "arguments": {}}<tool>b'),
    ("{{ message.content }}{{ message.tool_calls | length }}", "<user>a0<assistant>1<tool>b0"),
    ("{{ message['content'] }}{{ message['tool_calls'] | length }}", "<user>a0<assistant>1<tool>b0"),
    ("{{ message.content }}{{ 'tool_calls' in message }}", "<user>aFalse<assistant>True<tool>bFalse"),
    (CALLS + "{{ message.content is none }}", "<user>False<assistant>True<tool>False"),
    (CALLS + "{{ message['content'] is not none }}", "<user>True<assistant>False<tool>True"),
    (CALLS + "{{ message.reasoning_content }}", "<user><assistant>hm<tool>"),
    (CALLS + "{{ message.thinking }}", "<user><assistant>hm<tool>"),
    (CALLS + "{{ message.thinking }}{{ message.reasoning_content }}", "<user><assistant>hm<tool>"),
    (CALLS + "{{ message['reasoning'] }}", "<user><assistant>hm<tool>"),
    (CALLS + "{{ message.reasoning_content }}{{ message.reasoning }}", "<user><assistant>hm<tool>"),
    (CALLS + "{{ thinking }}{{ message.thoughts }}", "<user><assistant><tool>"),
])  # fmt: skip
def test_a_template_gets_the_fields_that_it_reads(folder: Path, body: str, written: str) -> None:
    files = files_with(folder, LOOP + body + "{% endfor %}")
    messages = [MessageBody.model_validate(message) for message in HISTORY]
    assert render_prompt(files, messages).text == written


HARMONY_CALL = "<|start|>assistant to=functions.refund<|channel|>commentary json<|message|>"
# Published chat templates, which are not in the repository, beside our own small ones. The folder `data/chat_templates`
# of the shared data has them, with their sources and licences.
FAMILIES = [  # file, format, the thought before a call, other text of a call than that of answers
    ("qwen2.5", "hermes", "", ""),
    ("qwen3", "hermes", "<think>\nTHOUGHT\n</think>\n\n", ""),
    ("qwen3.5", "qwen-coder", "<think>\nTHOUGHT\n</think>\n\n", ""),
    ("seed-oss", "seed", "<seed:think>THOUGHT</seed:think>\n", ""),
    ("nemotron-nano-v2", "nemotron", "", ""),
    ("glm-4.5", "glm", "\n<think>THOUGHT</think>\n", ""),
    ("mistral-nemo", "mistral-v7", "", ""),
    ("mistral-small-3.2", "mistral-args", "", ""),
    ("deepseek-r1-distill", "deepseek-v3", "", ""),
    ("deepseek-v3.1", "deepseek-v3.1", "", ""),
    ("gpt-oss", "harmony", "<|channel|>analysis<|message|>THOUGHT<|end|>", HARMONY_CALL),
]  # fmt: skip
FAMILY_TOOLS = [{"type": "function", "function": {"name": name, "description": ""}} for name in ("refund", "notify")]


@pytest.mark.parametrize(("file", "name", "thought", "head"), FAMILIES, ids=[file for file, *_ in FAMILIES])
def test_published_templates_write_what_our_formats_say(
    shared: Path, file: str, name: str, thought: str, head: str
) -> None:
    path = shared / "data" / "chat_templates" / f"{file}.jinja"
    if not path.exists():
        pytest.skip(f"no file {path}")
    files = small_family(name, path.read_text(encoding="utf-8"))
    family = chat_format(files.chat_template)
    assert family.name == name and (think_format(files.chat_template) is not None or not thought)
    texts = ["Q " + "".join(files.markers), "R " + "".join(files.markers)]
    function = {"name": "notify", "arguments": "{}"}
    messages = [
        {"role": "user", "content": texts[0]},
        {"role": "assistant", "reasoning_content": "THOUGHT", "tool_calls": [{"id": "c", "function": function}]},
        {"role": "tool", "content": texts[1], "tool_call_id": "c"},
    ]  # fmt: skip
    request = ChatRequest.model_validate({"messages": messages, "tools": FAMILY_TOOLS})
    prompt = render_prompt(files, request.messages, True, None, tools=tool_use(request), calls=family.calls)
    result = TEMPLATES[name]["result"].replace("{}", texts[1])
    written = without_ids(prompt.text)
    assert texts[0] in written and result in written and thought in written
    call = head.replace("refund", "notify") or call_begin(family.calls, "notify")
    assert call in written
    # Everything that is written like a marker is one, except in texts of callers.
    own = [(at, at + len(text)) for text in texts for at in [prompt.text.index(text)]]
    found = [match.span() for match in MARKERS[name].finditer(prompt.text)]
    marked = [span for span in found if not any(start <= span[0] < end for start, end in own)]
    assert list(prompt.markers) == marked
