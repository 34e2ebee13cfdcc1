"""Names unknown fields of a request, and refuses possible constraints.

Clients send fields of other servers, which do no harm. A constraint that is misspelled, or spelled as another server
does, would vanish silently: the answer would look valid and satisfy nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from typing import Literal, NamedTuple

from pydantic import BaseModel

from app.api.errors import FAULTS_MAX, UNKNOWN_FIELD, shown_path
from app.errors import InvalidRequest, UnknownField
from app.openai.fields import refused_spellings
from app.openai.requests import CONSTRAINT_FIELDS
from compiler.spec import FORM_FIELDS

FIELDS_MAX = 64  # each is compared with all protected names
DISTANCE_MAX = 2  # edits between an unknown name and a protected one
HEADER = "x-ignored-fields"
# Fields, beside those of constraints, whose loss would widen what an answer may be.
_PROTECTED = (
    *CONSTRAINT_FIELDS, "tools", "tool_choice", "parallel_tool_calls", "functions", "function_call", "parameters",
    "tool_calls", "tool_call_id", "policy", "max_tokens", "max_completion_tokens", "min_tokens", "stop", "scope",
    "custom_params", "stop_token_ids", "structural_tag", "logit_bias", "ignore_eos", "timeout_s", "max_thinking_tokens",
    "thinking_token_budget", "thinking_budget", "reasoning_effort",
)  # fmt: skip
_OF_BODIES = frozenset({  # the same, of bodies that have these fields themselves
    "text", "format", "effort", "reasoning", "max_output_tokens", "output_config", "stop_sequences", "thinking",
    "budget_tokens", "input_schema", "function", "custom", "grammar", "definition", "disable_parallel_tool_use",
})  # fmt: skip
_CONTAINERS = ("extra_body", "sampling_params", "options", "custom_params", "vllm_xargs")  # of other servers' fields
_FORMAT, _CONSTRAINT, _BUDGET, _TOOLS = "response_format", "constraint", "max_tokens", "tool_choice"
# Names of constraints, budgets and tools on other servers that are not read here: what to send in their place.
_ELSEWHERE = dict.fromkeys({*FORM_FIELDS, "propositions"} - {*CONSTRAINT_FIELDS}, _CONSTRAINT) | {
    # Ollama, Together, Anyscale, Gemini, Anthropic, the Responses API
    "format": _FORMAT, "schema": _FORMAT, "json_mode": _FORMAT, "json_object": _FORMAT, "json": _FORMAT,
    "response_schema": _FORMAT, "response_json_schema": _FORMAT, "response_mime_type": _FORMAT,
    "generation_config": _FORMAT, "output_format": _FORMAT, "output_config": _FORMAT, "output_schema": _FORMAT,
    "text": _FORMAT, "text_format": _FORMAT,
    # vLLM, SGLang, llama.cpp, TGI, NVIDIA NIM, Hugging Face
    "guided_decoding": "structured_outputs", "guided_options_request": "structured_outputs",
    "guided_json_object": _FORMAT, "guided_whitespace_pattern": _CONSTRAINT, "structural_tags": _FORMAT,
    "structural_tag": _FORMAT,
    "choice": "structured_outputs", "choices": "structured_outputs", "bnf": "grammar", "gbnf": "grammar",
    "lark": "structured_outputs", "grammar_string": "grammar", "grammar_lazy": "grammar",
    "grammar_triggers": _FORMAT, "guidance": "grammar", "nvext": "structured_outputs",
    "bad_words": _CONSTRAINT, "bad_words_ids": _CONSTRAINT, "force_words_ids": _CONSTRAINT,
    "allowed_token_ids": _CONSTRAINT, "suppress_tokens": _CONSTRAINT, "begin_suppress_tokens": _CONSTRAINT,
    "no_repeat_ngram_size": _CONSTRAINT, "constraints": _CONSTRAINT, "logits_processors": _CONSTRAINT,
    "logits_processor": _CONSTRAINT, "custom_logit_processor": _CONSTRAINT, "policies": _CONSTRAINT,
    "stop_regex": "stop", "stop_sequences": "stop", "stop_strings": "stop", "stop_words": "stop",
    "eos_token_id": "stop",
    # budgets
    "max_new_tokens": _BUDGET, "max_output_tokens": _BUDGET, "max_length": _BUDGET, "max_tokens_to_sample": _BUDGET,
    "n_predict": _BUDGET, "num_predict": _BUDGET, "min_new_tokens": _CONSTRAINT, "min_length": _CONSTRAINT,
    "truncate_prompt_tokens": "prompt", "timeout": "timeout_s", "thinking": "max_thinking_tokens",
    "thinking_budget_tokens": "max_thinking_tokens", "reasoning_budget": "max_thinking_tokens",
    "max_reasoning_tokens": "max_thinking_tokens", "thinking_config": "max_thinking_tokens",
    "budget_tokens": "max_thinking_tokens", "reasoning": "reasoning_effort",
    # tools
    "allowed_tools": _TOOLS, "tool_config": _TOOLS, "tool_mode": _TOOLS, "function_calling_config": _TOOLS,
    "disable_parallel_tool_use": "parallel_tool_calls", "max_tool_calls": "parallel_tool_calls",
    "tool_use": _TOOLS, "tool_resources": "tools", "builtin_tools": "tools", "mcp_servers": "tools",
}  # fmt: skip
# Fields that ask for nothing by an empty list or by another value. With that value a field is ignored.
_EMPTY_LISTS = frozenset({
    "bad_words", "bad_words_ids", "force_words_ids", "suppress_tokens", "begin_suppress_tokens", "constraints",
    "logits_processors", "logits_processor", "policies", "stop_regex", "stop_sequences", "stop_strings", "stop_words",
    "structural_tags", "grammar_triggers", "mcp_servers", "builtin_tools",
})  # fmt: skip
_NOTHING: dict[str, object] = {
    "json_mode": False, "json_object": False, "grammar_lazy": False, "disable_parallel_tool_use": False,
    "min_new_tokens": 0, "min_length": 0, "no_repeat_ngram_size": 0, "thinking": {"type": "disabled"},
}  # fmt: skip
_PARAMETERS = dict.fromkeys(("schema", "input_schema", "inputschema", "args_schema", "arguments"), "parameters")
_GRAMMARS = dict.fromkeys(("grammar", "regex", "lark", "syntax", "definition"), "format")  # of custom tools


class StrayField(NamedTuple):
    """A field that a body does not have.

    parent    the path before its name, which is ours
    name      the caller's
    declared  the fields that the body has
    empty     whether its value asks for nothing, as null does
    """

    parent: str
    name: str
    declared: frozenset[str]
    empty: bool


def ignored_fields(
    body: BaseModel, policy: Literal["ignore", "refuse"], further: Iterable[StrayField] = (), *,
    eos_ids: Collection[int] = (),
) -> tuple[str, ...]:
    """The paths of unknown fields, as a header may show them. Elements of lists have the number `*`.

    further  those of objects that are no bodies
    eos_ids  the tokens that end every text, so they may be among `stop_token_ids`
    Raises UnknownField for fields that may be a constraint, and InvalidRequest for all others by the policy "refuse".
    """
    stray = dict.fromkeys((*_stray_fields(body), *further))
    if len(stray) > FIELDS_MAX:
        raise InvalidRequest((("", f"the request has more than {FIELDS_MAX} unknown fields"),))
    meant = {_shown(field): _meant(field) for field in stray}
    refused = [(path, _message(path, name)) for path, name in meant.items() if name]
    ends = isinstance(ids := getattr(body, "stop_token_ids", None), list) and all(each in eos_ids for each in ids)
    refused += dict.fromkeys(each for each in _refused(body) if not (ends and each[0] == "stop_token_ids"))
    if refused:
        raise UnknownField(tuple(refused[:FAULTS_MAX]))
    if meant and policy == "refuse":
        raise InvalidRequest(tuple((path, "unknown field") for path in list(meant)[:FAULTS_MAX]))
    return tuple(meant)


def stray_keys(value: object, path: str, declared: Set[str]) -> Iterator[StrayField]:
    """The keys of an object that are none of these. Other values have none."""
    if isinstance(value, Mapping):
        names = frozenset(declared)
        yield from (
            StrayField(path, name, names, _is_empty(name, item)) for name, item in value.items() if name not in names
        )


def _is_empty(name: str, value: object) -> bool:
    nothing = [] if name in _EMPTY_LISTS else _NOTHING.get(name)
    return value is None or (type(value) is type(nothing) and value == nothing)  # `type`, because False equals 0


def _message(path: str, meant: str) -> str:
    parent, _, name = path.rpartition(".")
    if name != meant:
        return f"unknown field: did you mean `{meant}`?"
    if parent:
        return f"unknown field here: did you mean `{meant}` of the request?"
    return "not supported here: leave it out"


def header_of(ignored: tuple[str, ...]) -> dict[str, str]:
    """The response header that names ignored fields; none if there are none."""
    return {HEADER: ", ".join(ignored[:FAULTS_MAX])} if ignored else {}


def _shown(field: StrayField) -> str:
    """A path as a header may show it."""
    return f"{field.parent}{shown_path(field.name)}".replace(UNKNOWN_FIELD, "*")


def _stray_fields(value: object, path: str = "") -> Iterator[StrayField]:
    match value:
        case BaseModel():
            if extra := value.model_extra or {}:
                yield from stray_keys(extra, path, frozenset(type(value).model_fields))
            if not path:
                for name in _CONTAINERS:
                    yield from stray_keys(extra.get(name), f"{name}.", frozenset())
            for name in type(value).model_fields:
                yield from _stray_fields(getattr(value, name), f"{path}{name}.")
        case list() | tuple():
            for item in value:
                yield from _stray_fields(item, f"{path}*.")


def _refused(value: object, path: str = "") -> Iterator[tuple[str, str]]:
    """The known fields of other servers that are not taken, and why."""
    match value:
        case BaseModel():
            yield from ((f"{path}{name}", message) for name, message in refused_spellings(value))
            for name in type(value).model_fields:
                yield from _refused(getattr(value, name), f"{path}{name}.")
        case list() | tuple():
            for item in value:
                yield from _refused(item, f"{path}*.")


def _meant(field: StrayField) -> str | None:
    """The field that an unknown one may stand for."""
    if field.empty:
        return None
    name = field.name.lower().replace("-", "_")
    if not field.parent or field.parent.removesuffix(".") in _CONTAINERS:
        elsewhere = _ELSEWHERE
    elif field.parent.startswith("tools."):
        elsewhere = _GRAMMARS if "format" in field.declared else _PARAMETERS
    else:
        elsewhere = {}
    if name in elsewhere:
        return elsewhere[name]
    protected = (*_PROTECTED, *(_OF_BODIES & field.declared))
    near = [(edit_distance(name, known), known) for known in protected if abs(len(name) - len(known)) <= DISTANCE_MAX]
    distance, nearest = min(near, default=(len(name), None))
    return nearest if distance <= DISTANCE_MAX else None


def edit_distance(left: str, right: str) -> int:
    """The edits that make one text the other (Levenshtein 1966).

    An edit inserts, removes or replaces a character.

    >>> edit_distance("regx", "regex"), edit_distance("grammer", "grammar"), edit_distance("user", "regex")
    (1, 1, 4)
    """
    row = list(range(len(right) + 1))
    for number, character in enumerate(left, 1):
        diagonal, row[0] = row[0], number
        for at, other in enumerate(right, 1):
            diagonal, row[at] = row[at], min(row[at] + 1, row[at - 1] + 1, diagonal + (character != other))
    return row[-1]
