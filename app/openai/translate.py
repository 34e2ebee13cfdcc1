"""Translates an OpenAI request into one of POST /generate. It maps the constraint, algorithm, options and budget."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from app.api.schemas import GenerateRequest
from app.errors import InvalidRequest, JobFailed, RequestOverLimit
from app.formats import (
    AUTO,
    STOP_PATH,
    STOPPED_PATH,
    AnswerFormat,
    constraint_without,
    contradiction_with_stops,
    names_stops,
    stop_constraint,
)
from app.messages import USED_BY, failure_of
from app.models import ModelFiles
from app.openai.chats.chat_turn import answer_constraint, chat_turn
from app.openai.chats.policies import AppliedPolicy
from app.openai.constraints import ParsedConstraint, parse_constraint, removable_stops, strips_space
from app.openai.requests import ChatRequest, CompletionRequest, OpenAIRequest
from app.requests import GenerateParams, require_ids, seeded, seeded_apart, unsatisfiable_beside_tools
from compiler.errors import SpecSyntaxError, SpecUnsatisfiable, SpecUnsupported

COMPLETION_TOKENS, CHAT_TOKENS = 64, 256  # default budgets
BEAMS = 16
_ANY_TEXT = {"regex": r"(?s:.*)", "leading_space": "forbid"}  # continues the prompt, with a space or without
ANY_ANSWER = {"regex": r"(?:\S(?s:.*))?"}
_SAMPLING = tuple(name for name, users in USED_BY.items() if users == ("sample",))
# Values of sampling options that do not request sampling.
_NEUTRAL: dict[str, tuple[object, ...]] = {
    "top_p": (1.0,), "top_k": (0, -1), "min_p": (0,), "frequency_penalty": (0,), "presence_penalty": (0,),
    "repetition_penalty": (1,), "logit_bias": ({},),
}  # fmt: skip
# Those of searches, too. Without an option of a search they request samples, at temperature 0 the most probable tokens.
_CHANGES = ("frequency_penalty", "presence_penalty", "repetition_penalty", "logit_bias")
_BEFORE_SUFFIX = "sequence.0."
# Tokens before the prompt, the suffix and the answer: of Qwen, CodeGemma and others, of StarCoder, of DeepSeek.
_INFILL_TOKENS = (
    ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"), ("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),
    ("<\uff5cfim\u2581begin\uff5c>", "<\uff5cfim\u2581hole\uff5c>", "<\uff5cfim\u2581end\uff5c>"),
)  # fmt: skip
_SAMPLING_ONLY = "requires sampling: leave it out, or leave out the options of the search"

# field, conflict, message: a request is rejected if the conflict holds
_Conflicts = Sequence[tuple[str, Callable[[Any], bool], str]]
_CONFLICTS: _Conflicts = (
    ("best_of", lambda request: request.best_of is not None and request.best_of < (request.n or 1),
     "must not be less than n"),
    ("stop", lambda request: request.stop and request.automaton is not None,
     "cannot be combined with automaton: send the constraint itself"),
)  # fmt: skip
_COMPLETION_CONFLICTS: _Conflicts = (
    ("prompt", lambda request: request.scope == "full" and not all(isinstance(text, str) for text in request.prompt),
     'token ids need not be those of a text: send the text, or leave out "scope": "full"'),
    ("suffix", lambda request: request.suffix and request.automaton is not None,
     "cannot be combined with automaton: send the constraint itself"),
    ("suffix", lambda request: request.suffix and request.scope == "full",
     'the constraint is on the answer alone: leave out suffix, or "scope": "full"'),
    ("stop", lambda request: request.stop and request.scope == "full",
     'the prompt may contain the string: leave it out, or "scope": "full"'),
)  # fmt: skip
_CHAT_CONFLICTS: _Conflicts = (
    ("top_logprobs", lambda request: request.top_logprobs and not request.logprobs, 'goes with "logprobs": true'),
    ("automaton", lambda request: request.automaton is not None and request.tools and request.tool_choice != "none",
     "cannot be combined with tools: send the constraint itself"),
    ("max_tokens", lambda request: len({request.max_tokens, request.max_completion_tokens} - {None}) > 1,
     "differs from max_completion_tokens, which is its newer name: give one"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class TranslatedRequest:
    """A request for the service, and how to render its answers.

    params         the generation
    n              number of answers
    stops          strings that are removed from the end of an answer
    logprobs       whether each answer has the log-probs of its tokens
    prefix         text before each answer: the echoed prompt
    best_by_token  choose the samples with the highest log-prob per token, because more than n are drawn
    unconstrained  there is no constraint, so a text that uses up its budget was cut off
    constraint     the constraint as the request spells it
    answer         the format of an answer; None if it is a text
    include_reasoning  whether the thoughts of an answer are part of the response
    suffix         text at the end of each answer that is not part of it
    renamed        fields that the request calls otherwise than POST /generate: our name -> the request's
    """

    params: GenerateParams
    n: int
    stops: tuple[str, ...]
    logprobs: bool
    prefix: str
    best_by_token: bool
    unconstrained: bool
    constraint: ParsedConstraint | None
    renamed: Mapping[str, str]
    answer: AnswerFormat | None = None
    include_reasoning: bool = True
    suffix: str = ""

    @property
    def deprecated(self) -> bool:
        """Whether the request uses a deprecated spelling."""
        return self.constraint is not None and self.constraint.deprecated


def translate_completion(
    request: CompletionRequest, max_tokens: int, suffix_tokens: int = 0, names: Mapping[str, int] | None = None
) -> TranslatedRequest:
    """Translates a completion of its first prompt.

    max_tokens     the largest default budget
    suffix_tokens  the tokens of a suffix that the answer has to write; 0 if the model reads it before the answer
    names          the ids of the model's special and added tokens

    Raises InvalidRequest, RequestValidationError, SpecSyntaxError.
    """
    _check_conflicts(request, _COMPLETION_CONFLICTS)
    fields = {"prompt": "", "scope": request.scope}
    translated = _translate(
        request, fields, request.max_tokens, min(COMPLETION_TOKENS, max_tokens), bool(request.echo),
        suffix_tokens=suffix_tokens, names=names,
    )
    echoed = request.logprobs if request.echo else None
    params = dataclasses.replace(translated.params, prompt=request.prompt[0], prompt_log_probs=echoed)
    if len(request.prompt) > 1:  # one seed, by which the whole request can be repeated
        params = dataclasses.replace(params, options=seeded(params.options))
    return dataclasses.replace(translated, params=params)


def translations(
    request: CompletionRequest, files: ModelFiles, max_tokens: int, suffix_tokens: int = 0
) -> tuple[TranslatedRequest, ...]:
    """Translates a completion, once for each prompt. Raises what `translate_completion` raises."""
    first = translate_completion(request, max_tokens, suffix_tokens, files.vocabulary.names)

    def of_prompt(number: int, prompt: str | tuple[int, ...]) -> TranslatedRequest:
        options, text = seeded_apart(first.params.options, number), _with_suffix(prompt, request.suffix, files)
        params = dataclasses.replace(first.params, options=options, prompt=text)
        return dataclasses.replace(first, params=params, prefix=_text(prompt, files) if request.echo else "")

    return tuple(itertools.starmap(of_prompt, enumerate(request.prompt)))


def infill_tokens(files: ModelFiles) -> tuple[str, str, str] | None:
    """The model's tokens before a prompt, its suffix and the answer."""
    return next((names for names in _INFILL_TOKENS if all(name in files.vocabulary.names for name in names)), None)


def _with_suffix(prompt: str | tuple[int, ...], suffix: str | None, files: ModelFiles) -> str | tuple[int, ...]:
    """The prompt, with the suffix if the model has tokens for it."""
    names = infill_tokens(files)
    if not suffix or names is None:
        return prompt
    if not isinstance(prompt, str):
        raise InvalidRequest((("suffix", "goes with a text: token ids may have the suffix in them"),))
    before, behind, between = names
    return f"{before}{prompt}{behind}{suffix}{between}"


def _text(prompt: str | tuple[int, ...], files: ModelFiles) -> str:
    """The text of a prompt. Special tokens among its ids have none."""
    if isinstance(prompt, str):
        return prompt
    require_ids(prompt, files.vocabulary.size, "prompt")
    return b"".join(files.vocabulary.written[token] or b"" for token in prompt).decode(errors="replace")


def translate_chat(
    request: ChatRequest, files: ModelFiles, max_tokens: int, *, form: str = AUTO, policy: AppliedPolicy | None = None
) -> TranslatedRequest:
    """Translates a chat. For `form` and `policy` see `chat_turn`.

    Raises what `translate_completion` and `chat_turn` raise.
    """
    check_chat(request)
    turn = chat_turn(request, files, form=form, policy=policy)
    budget, default = request.max_completion_tokens or request.max_tokens, min(CHAT_TOKENS, max_tokens)
    fields = {"prompt": turn.prompt.text}
    return _translate(
        request, fields, budget, default, markers=turn.prompt.markers, answer=turn.answer,
        names=files.vocabulary.names,
    )  # fmt: skip


def check_chat(request: ChatRequest) -> None:
    """Raise InvalidRequest for fields of a chat that exclude each other."""
    _check_conflicts(request, _CHAT_CONFLICTS)


def _check_conflicts(request: OpenAIRequest, conflicts: _Conflicts) -> None:
    for field, conflict, message in conflicts:
        if conflict(request):
            raise InvalidRequest(((field, message),))


def _translate(
    request: CompletionRequest | ChatRequest, prompt: dict[str, Any], budget: int | None, default: int,
    echo: bool = False, markers: tuple[tuple[int, int], ...] | None = None, answer: AnswerFormat | None = None,
    suffix_tokens: int = 0, names: Mapping[str, int] | None = None,
) -> TranslatedRequest:
    is_chat = isinstance(request, ChatRequest)
    logprobs = request.top_log_probs is not None
    parsed = parse_constraint(request, names)
    with request_paths(parsed):
        warnings = () if parsed is None else parsed.warnings()
    _check_conflicts(request, _CONFLICTS)
    suffix = request.suffix or "" if isinstance(request, CompletionRequest) and suffix_tokens else ""
    answer = None if request.automaton is not None else answer  # a stored constraint is one of the whole answer
    unconstrained = parsed is None and request.automaton is None and not (answer and answer.required) and not suffix
    free_stops = request.stop if answer is not None and parsed is None else ()  # those of any text bind the reply alone
    if answer is not None:
        own = None if parsed is None else parsed.constraint
        answer = dataclasses.replace(answer, reply_spec=own, stops=free_stops)
        parsed = answer_constraint(answer, parsed)
    fields = prompt | _algorithm_fields(request, unconstrained)
    fields |= {name: getattr(request, name) for name in ("timeout_s", "priority", "automaton")}
    # An echoed prompt needs the trace: it holds the space that was removed before the answer.
    fields |= {"stream": bool(request.stream), "trace": logprobs or echo, "top_log_probs": request.top_log_probs}
    fields["max_tokens"] = (budget or default) + suffix_tokens
    stops: tuple[str, ...] = ()
    if parsed is not None and suffix:
        parsed = dataclasses.replace(parsed, prefix=_BEFORE_SUFFIX)
    if request.automaton is None:
        with request_paths(parsed):
            if suffix:
                fields["constraint"] = _constraint_with_suffix(suffix, request.stop, parsed)
            else:
                fields["constraint"], stops = constraint_with_stops(
                    () if free_stops else request.stop, parsed, is_chat
                )
    params = _validated({name: value for name, value in fields.items() if value is not None}, parsed)
    n = request.n or 1
    best_by_token = params.options.algorithm == "sample" and params.options.n > n
    if best_by_token and request.stream:
        raise InvalidRequest((("best_of", "the best of several samples cannot be streamed: leave out best_of"),))
    reader = None if answer is None or answer.thinking is None else answer.reader.as_dict()
    params = dataclasses.replace(
        params, markers=markers, clamp_to_context=budget is None, answer=reader, warnings=warnings
    )
    renamed = _renamed(request, params)
    return TranslatedRequest(
        params, n, free_stops or stops, logprobs, "", best_by_token, unconstrained, parsed, renamed, answer,
        include_reasoning=getattr(request, "include_reasoning", None) is not False,  # a completion has no thoughts
        suffix=suffix,
    )


def _renamed(request: CompletionRequest | ChatRequest, params: GenerateParams) -> dict[str, str]:
    renamed = {}
    if isinstance(request, ChatRequest):
        renamed["prompt"] = "messages"
        if request.max_completion_tokens is not None:
            renamed["max_tokens"] = "max_completion_tokens"
    if params.options.n > (request.n or 1):
        renamed["n"] = "best_of"
    if _option(request, "beams") is None and (request.best_of or 1) > 1:
        renamed["beams"] = "best_of"
    return renamed


def constraint_with_stops(
    stops: tuple[str, ...], parsed: ParsedConstraint | None, is_chat: bool
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The constraint with stop strings, and those that may end the text."""
    spec = None if parsed is None else parsed.spec
    default = ANY_ANSWER if is_chat else _ANY_TEXT
    constraint = default if parsed is None else parsed.constraint
    if not stops:
        return constraint, ()
    strips = is_chat if spec is None else strips_space(spec)
    removable = removable_stops(spec, stops)
    stop_free = stop_constraint(stops, bool(removable), "strip" if strips else "forbid")
    return constraint_without(stop_free, constraint), removable


def _constraint_with_suffix(suffix: str, stops: tuple[str, ...], parsed: ParsedConstraint | None) -> dict[str, Any]:
    """The constraint of an answer and the suffix behind it. No stop string may end the answer."""
    if parsed is None:
        return {"sequence": [{"free": {"without": list(stops)}}, suffix], "leading_space": "forbid"}
    part = {"all": [parsed.constraint, stop_constraint(stops, False, "forbid")]} if stops else parsed.constraint
    return {"sequence": [part, suffix]}


def _option(request: OpenAIRequest, name: str) -> Any:
    return getattr(request, name)  # a field that is made from the options of POST /generate


def _algorithm_fields(request: OpenAIRequest, unconstrained: bool) -> dict[str, Any]:
    """The algorithm and its options, None where they are left out.

    Options of a search request a search. Otherwise a temperature above 0, a top_p below 1, a seed, a bias or a penalty
    requests sampling, and so does a request without a constraint, because the most probable of all texts is rarely
    wanted. All other requests are searches.
    """
    options = {name: _option(request, name) for name in (*USED_BY, *_CHANGES)}
    options |= {name: None for name, neutral in _NEUTRAL.items() if options[name] in neutral}
    n, best_of = request.n or 1, request.best_of or 1
    algorithm = _option(request, "algorithm")
    if algorithm is None:
        algorithm = _algorithm(options, bool(request.use_beam_search), unconstrained)
        if algorithm != "sample":  # at temperature 0 options of sampling are accepted and have no effect
            options |= dict.fromkeys(_SAMPLING)
    if algorithm == "sample":
        n = max(n, best_of)
    elif options["beams"] is None:
        options["beams"] = best_of if best_of > 1 else max(n, BEAMS)
    return {"algorithm": algorithm, "n": n, **options}


def _algorithm(options: Mapping[str, Any], beam_search: bool, unconstrained: bool) -> str:
    search = {name for name, value in options.items() if value is not None and name not in (*_SAMPLING, *_CHANGES)}
    sampling = [name for name in _SAMPLING if options[name] is not None and options["temperature"] != 0]
    changes = [name for name in _CHANGES if options[name] is not None]
    if search or beam_search:
        if sampling:
            raise InvalidRequest(((sampling[0], _SAMPLING_ONLY),))
    elif sampling or changes or unconstrained:
        return "sample"
    return "abs" if any(USED_BY[name] == ("abs",) for name in search) else "banked"


def _validated(fields: dict[str, Any], parsed: ParsedConstraint | None) -> GenerateParams:
    """The request as POST /generate reads it, with its errors."""
    try:
        request = GenerateRequest.model_validate(fields)
    except ValidationError as error:
        faults = [{**fault, "loc": ("body", *fault["loc"])} for fault in error.errors()]
        raise RequestValidationError(faults) from None
    with request_paths(parsed):
        return dataclasses.replace(request.to_params(), keep_white_space=True)  # so that prompt and answer join


@contextmanager
def request_paths(parsed: ParsedConstraint | None, renamed: Mapping[str, str] | None = None) -> Iterator[None]:
    """Rewrites the fields of errors to those of the caller's request."""
    try:
        yield
    except (SpecSyntaxError, SpecUnsupported) as error:
        path, blame = _request_path(error.field, parsed)
        # Suggestions are of a constraint in the field `constraint`.
        if isinstance(error, SpecSyntaxError) and path not in (error.field, f"constraint.{error.field}"):
            error.suggestion, error.replacement = (), None
        error.field, error.args = path, (f"{blame}{error}",)
        raise
    except RequestOverLimit as error:
        raise RequestOverLimit((renamed or {}).get(error.path, error.path), error.limit, error.cap) from None
    except JobFailed as error:
        if parsed is not None and parsed.path == "tools" and error.facts == SpecUnsatisfiable.facts:
            failure = contradiction_with_stops(failure_of(error))
            raise unsatisfiable_beside_tools(failure, parsed.places).as_error() from None
        if names_stops(error.fields.get("conflict")):
            raise contradiction_with_stops(failure_of(error)).as_error() from None
        if isinstance(field := error.fields.get("field"), str):
            path, blame = _request_path(field, parsed)
            if path not in (field, f"constraint.{field}"):
                error.fields |= {"suggestion": None, "replacement": None}
            error.fields["field"], error.args = path, (f"{blame}{error}",)
        raise


def _request_path(field: str, parsed: ParsedConstraint | None) -> tuple[str, str]:
    """As `ParsedConstraint.path_of`."""
    if parsed is not None and parsed.prefix:
        if not field.startswith(parsed.prefix):
            return "suffix", ""
        field = field.removeprefix(parsed.prefix)
    # A caller's own `all` without stop strings has no further `all` around it.
    is_own_all = parsed is not None and "all" in parsed.constraint and not field.startswith(f"{STOPPED_PATH}all.")
    if field.startswith(STOP_PATH) and not is_own_all:
        return "stop", ""
    inner = field if is_own_all else field.removeprefix(STOPPED_PATH)
    return (inner, "") if parsed is None else parsed.path_of(inner)
