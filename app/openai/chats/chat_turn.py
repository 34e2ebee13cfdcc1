"""Makes the prompt of a chat, and the format of its answer."""

from __future__ import annotations

from dataclasses import dataclass, replace

from app.errors import InvalidRequest
from app.formats import AUTO, AnswerFormat, ChatFormat, MarkerSplitter, Thinking, chat_format, think_format
from app.models import ModelFiles
from app.openai.chats.chat_template import render_prompt
from app.openai.chats.markers import RenderedPrompt
from app.openai.chats.policies import AppliedPolicy, under_policy
from app.openai.chats.reasoning import template_arguments, thinking_of
from app.openai.chats.tools import ToolUse, callable_tools, tool_use
from app.openai.constraints import ParsedConstraint
from app.openai.requests import ChatRequest


@dataclass(frozen=True, slots=True)
class ChatTurn:
    """The model's turn in a chat.

    prompt  what the chat template makes of messages and tools
    answer  the format of the answer; None if it is a text
    """

    prompt: RenderedPrompt
    answer: AnswerFormat | None


def chat_turn(
    request: ChatRequest, files: ModelFiles, *, form: str = AUTO, policy: AppliedPolicy | None = None,
) -> ChatTurn:
    """The turn of the model after the messages.

    form    the name of the model's chat format
    policy  the policy of the request, or of its API key, applied to the messages
    Raises what `tool_use`, `render_prompt` and `under_policy` raise.
    """
    if request.automaton is not None and policy is not None:
        whose = "policy" if request.policy is not None else "the policy of the API key"
        raise InvalidRequest((("automaton", f"cannot be combined with {whose}: send the constraint itself"),))
    tools, family = tool_use(request), chat_family(files, form)
    thinks = think_format(files.template(with_tools=tools is not None))
    prompt = chat_prompt(request, files, tools, family)
    if policy is not None:
        tools = under_policy(tools, policy)
    thinking = thinking_of(request, thinks, prompt.text)
    if family.reply and prompt.text.endswith(family.reply):
        family, thinking = replace(family, reply=""), None
    answer = answer_format(files, family, tools, None if request.add_generation_prompt is False else thinking)
    return ChatTurn(prompt, answer)


def chat_family(files: ModelFiles, form: str) -> ChatFormat:
    """The format of a model's replies and calls. `form` is its name, or says that the template decides."""
    return chat_format(files.template(with_tools=True), form)


def answer_format(
    files: ModelFiles, family: ChatFormat, tools: ToolUse | None, thinking: Thinking | None
) -> AnswerFormat | None:
    """The format of an answer that may think and call. None if it is a text."""
    if tools is not None and not tools.callable:
        tools = None  # a policy allows a reply alone
    if tools is None and thinking is None and not family.reply and not family.reply_end:
        return None
    split = MarkerSplitter(files)
    if tools is None:
        return AnswerFormat(split, reply=family.reply, reply_end=family.reply_end, thinking=thinking)
    return AnswerFormat(
        split, calls=family.calls, tools=callable_tools(tools, family.calls, split), required=tools.required,
        parallel=tools.parallel, reply=family.reply, reply_end=family.reply_end, thinking=thinking,
    )


def chat_prompt(
    request: ChatRequest, files: ModelFiles, tools: ToolUse | None, family: ChatFormat
) -> RenderedPrompt:
    """The prompt of a chat. Raises what `render_prompt` raises."""
    generation_prompt, arguments = request.add_generation_prompt is not False, template_arguments(request)
    return render_prompt(files, request.messages, generation_prompt, arguments, tools=tools, calls=family.calls)


def answer_constraint(answer: AnswerFormat, reply: ParsedConstraint | None) -> ParsedConstraint:
    """The constraint of an answer. Its `reply_spec` is the request's own constraint, if there is one."""
    deprecated = reply is not None and reply.deprecated
    bound = None if answer.required else reply
    return ParsedConstraint(answer.constraint, "tools", "", deprecated, reply=bound, places=answer.places())
