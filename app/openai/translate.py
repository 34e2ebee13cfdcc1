"""A request of OpenAI's kind as an order of ours: which constraint, which algorithm, which budget."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from app.api.generate_schemas import GenerateRequest
from app.errors import InvalidRequest, JobFailed, RequestOverLimit
from app.models import ModelFiles
from app.openai.chat_template import prompt_of
from app.openai.constraints import ParsedConstraint, spelled_by
from app.openai.requests import ChatRequest, CompletionRequest, OpenAIRequest
from app.openai.stops import stopping, strips, taken_off
from app.requests import GenerateParams
from compiler.errors import SpecSyntaxError, SpecUnsupported
from compiler.spec import spec_from_json

COMPLETION_TOKENS, CHAT_TOKENS = 64, 256  # the budget where none is given
BEAMS = 16
_ANY_TEXT = {"regex": r"(?s:.*)", "leading_space": "forbid"}  # goes on where the prompt ends, with a space or without
_ANY_ANSWER = {"regex": r"(?:\S(?s:.*))?"}
_SEARCHED = ("beams", "length_penalty", "alpha_min", "gamma", "rank_by")
_FIRST, _STOP = "all.0.", "all.1."  # what stands around a constraint where there are stop strings
_SAMPLED = "goes with sampling, not with beams: leave it out, or use_beam_search, best_of and beams"


@dataclass(frozen=True, slots=True)
class TranslatedRequest:
    """What a request comes to.

    order        for the service
    n            how many answers
    stops        strings that are taken off the end of an answer
    logprobs     whether each answer tells those of its tokens
    before       what each answer begins with: the prompt, where it is to be echoed
    best_by_token
                 of more samples than answers those with the highest log-prob a token are taken
    free         there is no constraint: what ends at its budget was cut short
    spelled      how the constraint was given
    fields       what the request calls fields that POST /generate calls otherwise
    """

    order: GenerateParams
    n: int
    stops: tuple[str, ...]
    logprobs: bool
    before: str
    best_by_token: bool
    free: bool
    spelled: ParsedConstraint | None
    fields: Mapping[str, str]

    @property
    def former(self) -> bool:
        """Whether the request is written in a way that is on its way out."""
        return self.spelled is not None and self.spelled.former


@dataclass(frozen=True, slots=True)
class _Budget:
    """As the request gives it, else a default, which is made to fit."""

    given: int | None
    default: int


def completion_order(asked: CompletionRequest, most_tokens: int) -> TranslatedRequest:
    """Where no budget is given it is at most `most_tokens`.

    Raises InvalidRequest, RequestValidationError, SpecSyntaxError.
    """
    if asked.echo and asked.logprobs:
        raise InvalidRequest((("echo", "the prompt's log-probabilities are not known: leave echo out, or logprobs"),))
    if asked.scope == "full" and asked.stop:
        raise InvalidRequest((("stop", 'the prompt may hold the string: leave it out, or "scope": "full"'),))
    given = {"prompt": asked.prompt, "scope": asked.scope}
    budget = _Budget(asked.max_tokens, min(COMPLETION_TOKENS, most_tokens))
    return _order(asked, given, budget, bool(asked.logprobs), before=asked.prompt if asked.echo else "")


def chat_order(asked: ChatRequest, files: ModelFiles, most_tokens: int) -> TranslatedRequest:
    """Raises what `completion_order` does, and what `prompt_of` does."""
    if None not in (asked.max_tokens, asked.max_completion_tokens) and asked.max_tokens != asked.max_completion_tokens:
        raise InvalidRequest((("max_tokens", "differs from max_completion_tokens, which is its newer name: give one"),))
    prompt = prompt_of(files, asked.messages, asked.add_generation_prompt is not False, asked.chat_template_kwargs)
    budget = _Budget(asked.max_completion_tokens or asked.max_tokens, min(CHAT_TOKENS, most_tokens))
    return _order(asked, {"prompt": prompt}, budget, bool(asked.logprobs), templated=True)


def _order(
    asked: OpenAIRequest,
    given: dict[str, Any],
    budget: _Budget,
    logprobs: bool,
    before: str = "",
    templated: bool = False,
) -> TranslatedRequest:
    spelled = spelled_by(asked)
    free = spelled is None and asked.automaton is None
    rows = _rows(asked, free)
    whole = given | rows | {name: getattr(asked, name) for name in ("model", "timeout_s", "priority", "automaton")}
    whole |= {"stream": bool(asked.stream), "trace": logprobs or bool(before)}
    whole["max_tokens"] = budget.given or budget.default
    stops: tuple[str, ...] = ()
    if asked.automaton is None:
        with named(spelled):
            whole["constraint"], stops = _stopped(asked, spelled, templated)
    elif asked.stop:
        raise InvalidRequest((("stop", "goes with a constraint that is given whole, not with automaton"),))
    order = _checked({name: value for name, value in whole.items() if value is not None}, spelled)
    n = asked.n or 1
    best_by_token = order.options.algorithm == "sample" and order.options.n > n
    if best_by_token and asked.stream:
        raise InvalidRequest((("best_of", "the best of several samples is known at the end: do not stream them"),))
    order = dataclasses.replace(order, from_chat_template=templated, clamp_to_context=budget.given is None)
    fields = _fields(asked, order, templated)
    return TranslatedRequest(order, n, stops, logprobs, before, best_by_token, free, spelled, fields)


def _fields(asked: OpenAIRequest, order: GenerateParams, chat: bool) -> dict[str, str]:
    fields = {"prompt": "messages"} if chat else {}
    if isinstance(asked, ChatRequest) and asked.max_completion_tokens is not None:
        fields["max_tokens"] = "max_completion_tokens"
    if order.options.n > (asked.n or 1):
        fields["n"] = "best_of"
    if asked.beams is None and (asked.best_of or 1) > 1:
        fields["beams"] = "best_of"
    return fields


def _stopped(
    asked: OpenAIRequest, spelled: ParsedConstraint | None, chat: bool
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The constraint that the text is to satisfy, and the stop strings that may be at its end."""
    if spelled is None:
        constraint, spec = _ANY_ANSWER if chat else _ANY_TEXT, None
        leading_space = "strip" if chat else "forbid"
    else:
        constraint, spec = spelled.constraint, spec_from_json(spelled.constraint)
        leading_space = "strip" if strips(spec) else "forbid"
    if not asked.stop:
        return constraint, ()
    stops = taken_off(spec, asked.stop)
    return {"all": [constraint, stopping(asked.stop, bool(stops), leading_space)]}, stops


def _rows(asked: OpenAIRequest, free: bool) -> dict[str, Any]:
    """The algorithm and what belongs to it.

    It is a search where beams are asked for. Else it is sampling where that is asked for by a temperature above 0, a
    top_p below 1 or a seed, or where there is no constraint: the most probable of all texts is hardly ever wanted.
    What is left, a constraint alone or at temperature 0, is a search.
    """
    n, best_of = asked.n or 1, asked.best_of or 1
    if asked.best_of is not None and best_of < n:
        raise InvalidRequest((("best_of", "must not be less than n"),))
    drawn = {"temperature": asked.temperature, "top_p": asked.top_p, "seed": asked.seed}
    own = {name: getattr(asked, name) for name in _SEARCHED}
    cold = asked.temperature == 0
    if asked.algorithm is not None:
        rows = {"algorithm": asked.algorithm, "n": n, **own, **drawn}
        if asked.algorithm != "sample" and asked.beams is None:
            rows["beams"] = _beams(n, best_of)
        elif asked.algorithm == "sample":
            rows["n"] = max(n, best_of)
        return rows
    warm = not cold and (asked.temperature is not None or asked.top_p not in (None, 1.0) or asked.seed is not None)
    wide = bool(asked.use_beam_search) or any(value is not None for value in own.values())
    if wide and warm:
        name = next(name for name, value in drawn.items() if value is not None and (name, value) != ("top_p", 1.0))
        raise InvalidRequest(((name, _SAMPLED),))
    if wide or not (warm or free):
        beams = _beams(n, best_of) if asked.beams is None else asked.beams
        pushed = any(value is not None for value in (asked.alpha_min, asked.gamma, asked.rank_by))
        return {"n": n, **own, "algorithm": "abs" if pushed else "banked", "beams": beams}
    return {"algorithm": "sample", "n": max(n, best_of), **drawn}


def _beams(n: int, best_of: int) -> int:
    return best_of if best_of > 1 else max(n, BEAMS)


def _checked(fields: dict[str, Any], spelled: ParsedConstraint | None) -> GenerateParams:
    """The request as /generate would take it, with its own words for what is wrong."""
    try:
        asked = GenerateRequest.model_validate(fields)
    except ValidationError as error:
        raise RequestValidationError([{**one, "loc": ("body", *one["loc"])} for one in error.errors()]) from None
    with named(spelled):
        return asked.to_params()


@contextmanager
def named(spelled: ParsedConstraint | None, fields: Mapping[str, str] | None = None) -> Iterator[None]:
    """Errors name the field of the request that is at fault, whatever was put around the constraint that it holds."""
    try:
        yield
    except (SpecSyntaxError, SpecUnsupported) as error:
        error.field = _field(error.field, spelled)
        raise
    except RequestOverLimit as error:
        raise RequestOverLimit((fields or {}).get(error.path, error.path), error.limit, error.cap) from None
    except JobFailed as error:
        if isinstance(error.fields.get("field"), str):
            error.fields["field"] = _field(str(error.fields["field"]), spelled)
        raise


def _field(field: str, spelled: ParsedConstraint | None) -> str:
    whole = spelled is not None and "all" in spelled.constraint and not field.startswith(f"{_FIRST}all.")
    if field.startswith(_STOP) and not whole:
        return "stop"
    inner = field if whole else field.removeprefix(_FIRST)
    return inner if spelled is None else spelled.field(inner)
