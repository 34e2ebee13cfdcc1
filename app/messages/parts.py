"""The values that requests, jobs, results and events are made of.

Each is defined once, and is a part of the API's bodies and of the messages between processes. Nothing is coerced,
and unknown fields are errors.
"""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema
from pydantic.dataclasses import dataclass

from app.messages.json_values import JsonObject

Priority = Literal["interactive", "batch"]
Algorithm = Literal["abs", "banked", "sample"]
Reason = Literal["violates", "over_budget", "incomplete", "no_bytes"]  # why the constraint rejects a token after a row
ALGORITHM_DEFAULT: Final = "banked"
SEED_MAX = 2**63 - 1  # the largest signed 64-bit integer
REJECTED_TOP_K_MAX = 16
ALTERNATIVES_MAX = 20
BIASES_MAX, BIAS_MAX = 1024, 100.0
_TOKEN_ID = re.compile("[0-9]{1,9}")
# Validators are built at their first use (`defer_build`), which keeps the import of this package fast.
CONFIG = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, defer_build=True)


class StrictModel(BaseModel):
    """A body that coerces no values and permits no unknown fields."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


def _biases(value: object) -> object:
    """Read biases by token id. One error stands for all entries."""
    if value is None:
        return None
    entries = dict(value) if isinstance(value, dict) else None
    if entries is None or len(entries) > BIASES_MAX or not all(map(_is_bias, entries.items())):
        raise ValueError(f"must be an object of at most {BIASES_MAX} token ids with numbers from -100 to 100")
    return {int(token): float(bias) for token, bias in entries.items()}


def _is_bias(entry: tuple[object, object]) -> bool:
    token, bias = entry
    if isinstance(bias, bool) or not isinstance(bias, int | float):  # True is an int in Python, but no number in JSON
        return False
    return bool(_TOKEN_ID.fullmatch(str(token))) and abs(bias) <= BIAS_MAX


_BIASES_SCHEMA = {
    "type": "object", "maxProperties": BIASES_MAX, "propertyNames": {"pattern": _TOKEN_ID.pattern},
    "additionalProperties": {"type": "number", "minimum": -BIAS_MAX, "maximum": BIAS_MAX},
}
LogitBias = Annotated[dict[int, float], BeforeValidator(_biases), WithJsonSchema(_BIASES_SCHEMA)]


class GenerationOptions(StrictModel):
    """The options of a generation, from the request body to the worker.

    A new option is a field here; `USED_BY` names the algorithms that use it, if not all do.
    """

    max_tokens: int = Field(64, ge=1, description="The budget in tokens, the end of the text among them")
    n: int = Field(1, ge=1, description="How many answers: distinct ones, at most; with `sample` independent ones")
    scope: Literal["answer", "full"] = Field("answer", description="What satisfies: the answer, or prompt and answer")
    algorithm: Algorithm = Field(ALGORITHM_DEFAULT, description="Two searches with beams, and sampling")
    beams: int = Field(16, ge=1, description="Width of a search; `banked` reads three times as many rows")
    alpha_min: float = Field(0.5, ge=0, le=1, description="Of `abs`: the least push-up")
    gamma: float = Field(1.0, gt=0, le=100, description="Of `abs`: how sharply the push-up grows")
    rank_by: Literal["score", "log_prob"] = Field("log_prob", description="Of `abs`: the last choice")
    length_penalty: float = Field(
        0.5, ge=0, le=2, description="Of `banked`: the last choice divides by the length to this power"
    )
    temperature: float = Field(1.0, ge=0, le=100, description="Of `sample`; 0 takes the most probable token")
    top_p: float = Field(1.0, gt=0, le=1, description="Of `sample`: the nucleus")
    top_k: int = Field(0, ge=-1, description="Of `sample`: at most this many tokens, among the allowed ones; 0: all")
    min_p: float = Field(0.0, ge=0, le=1, description="Of `sample`: the least probability, as a share of the best one")
    frequency_penalty: float = Field(0.0, ge=-2, le=2, description="Taken off for each time that a token occurred")
    presence_penalty: float = Field(0.0, ge=-2, le=2, description="Taken off once for a token that occurred")
    repetition_penalty: float = Field(
        1.0, gt=0, le=10, description="The factor of the log-prob of tokens in prompt or answer"
    )
    logit_bias: LogitBias = Field(
        default_factory=dict, description="Nats by token id, added before the constraint's mask"
    )
    seed: int | None = Field(None, ge=0, le=SEED_MAX, description="Of `sample`: drawn, and answered, where absent")
    trace: bool = Field(False, description="Whether the answers carry their traces")
    top_log_probs: int = Field(
        0, ge=0, le=ALTERNATIVES_MAX, description="With `trace`: how many of the model's most probable tokens to list "
        "in the place of each token, each with its probability under the constraint",
    )
    rejected_top_k: int = Field(
        0, ge=0, le=REJECTED_TOP_K_MAX, description="With `stream`: how many of the most probable tokens to compare "
        "with the constraint after each of the best 16 rows; each step lists the rejected ones",
    )

    @property
    def rows(self) -> int:
        """The texts that are generated side by side, at most."""
        # Samples are independent rows; a search keeps `beams` rows and answers with the best `n` of them.
        return self.n if self.algorithm == "sample" else self.beams

    def rank_value(self, log_prob: float, tokens: int) -> float:
        """The value by which `banked` ranks its finished answers."""
        return float(log_prob / tokens**self.length_penalty)


# Requests that set an option of another algorithm are refused, so that no option is ignored silently.
_SEARCHES: tuple[Algorithm, ...] = ("banked", "abs")
USED_BY: Final[dict[str, tuple[Algorithm, ...]]] = {
    "beams": _SEARCHES,
    "alpha_min": ("abs",),
    "gamma": ("abs",),
    "rank_by": ("abs",),
    "length_penalty": ("banked",),
    "temperature": ("sample",),
    "top_p": ("sample",),
    "top_k": ("sample",),
    "min_p": ("sample",),
    "seed": ("sample",),
}
"""The algorithms that use an option; all use those that are not named here."""


@dataclass(frozen=True, config=CONFIG)
class StepRowBody:
    """One text as far as a step has written it.

    text      all that the model wrote, a leading space among it that is no part of the answer
    parent    the row that it continues, in the step before
    state     of the constraint's automaton after the text, as GET /automata shows it
    distance  fewest tokens to the end, exact, EOS among them; 0 where the text is finished. Of a constraint too large
              for one automaton, tokens that are enough
    alpha     the push-up at the state before the last token
    """

    text: str
    parent: int
    state: int
    distance: int
    alpha: float
    score: float
    log_prob: float
    finished: bool


@dataclass(frozen=True, config=CONFIG)
class RejectedTokenBody:
    """A probable next token that the constraint rejects.

    parent    the row, in the step before; of the first step 0, the start
    text      what the token writes; nothing where it ends the text
    log_prob  of the token alone, by the model
    distance  fewest tokens from there to the end; null where no continuation satisfies, or none is known
    reason    "violates": no continuation satisfies; "over_budget": no continuation within the budget is known;
              "incomplete": the text may not end yet; "no_bytes": the token writes nothing
    """

    parent: int
    text: str
    log_prob: float
    distance: int | None
    reason: Reason


@dataclass(frozen=True, config=CONFIG)
class WordBody:
    """One step of the word trace. It has a unit of the text, the propositions that hold there and the state after it.
    """

    text: str
    propositions: tuple[str, ...]
    state: int


@dataclass(frozen=True, config=CONFIG)
class CaptureBody:
    """A captured part of a text. `start` and `end` count characters of the text.

    `token_start` is the first token that writes some of it, counted from the answer's first, and `token_end` the one
    behind the last. Both are null where no tokens are known, as in a check.
    """

    name: str
    text: str
    start: int
    end: int
    token_start: int | None = None
    token_end: int | None = None


@dataclass(frozen=True, config=CONFIG)
class ConjunctBody:
    """A conjunct of a constraint, checked by itself.

    path         where it stands in the constraint: `all.0.keywords.1`
    summary      the conjunct in a few words
    constraint   the conjunct, as a request could give it
    violated_at  as for the whole
    """

    path: str
    summary: str
    constraint: JsonObject
    satisfied: bool
    violated_at: int | None


@dataclass(frozen=True, config=CONFIG)
class ViolationBody:
    """Why a JSON text does not fit its schema.

    path     the value that is at fault, as `$.items[3].price`
    keyword  the keyword that it violates; `json` where the text is no JSON text
    field    the schema that has the keyword, as in errors
    """

    path: str
    keyword: str
    field: str
    message: str


@dataclass(frozen=True, config=CONFIG)
class AlternativeBody:
    """A token that could stand in some place.

    log_prob              the model's own
    constrained_log_prob  among the tokens that the constraint and the budget allow there; null where it is not one
    """

    token: int
    text: str
    log_prob: float
    constrained_log_prob: float | None


@dataclass(frozen=True, config=CONFIG)
class TokenStepBody:
    """One token of an answer.

    state     of the constraint's automaton after the token, as GET /automata shows it
    distance  fewest tokens to the end after the token, exact, EOS among them. Of a constraint too large for one
              automaton, tokens that are enough
    alpha     the push-up at the state before the token
    propositions  the propositions of each step of the word trace that this token completes
    stack     the rules of a grammar that are open after the token, at most the 64 innermost ones, which come last;
              left out without a grammar
    constrained_log_prob  of the token among those that constraint and budget allow; left out unless `top_log_probs`
    top_log_probs  the model's most probable tokens in this place, best first; left out unless the request has them
    """

    token: int
    text: str
    state: int
    distance: int
    alpha: float
    log_prob: float
    score: float
    propositions: tuple[tuple[str, ...], ...]
    stack: Annotated[tuple[str, ...] | None, Field(exclude_if=lambda stack: stack is None)] = None
    constrained_log_prob: Annotated[float | None, Field(exclude_if=lambda value: value is None)] = None
    top_log_probs: Annotated[tuple[AlternativeBody, ...] | None, Field(exclude_if=lambda top: top is None)] = None


@dataclass(frozen=True, config=CONFIG)
class AnsweredFunctionBody:
    """The function of a call, and its arguments as JSON text."""

    name: str
    arguments: str


@dataclass(frozen=True, config=CONFIG)
class AnsweredCallBody:
    """A call in an answer."""

    id: str
    function: AnsweredFunctionBody
    type: Literal["function"] = "function"


@dataclass(frozen=True, config=CONFIG)
class AnswerMessageBody:
    """An answer as a message. The next request may have it among its `messages`."""

    content: str | None
    tool_calls: Annotated[tuple[AnsweredCallBody, ...] | None, Field(exclude_if=lambda calls: calls is None)] = None
    reasoning_content: Annotated[str | None, Field(exclude_if=lambda text: text is None)] = None
    role: Literal["assistant"] = "assistant"


@dataclass(frozen=True, config=CONFIG)
class PromptTokenBody:
    """One token of a prompt. Its log-probs are null for the first one, before which nothing is read.

    top_log_probs  ids of the model's most probable tokens in this place, best first, and their log-probs
    """

    token: int
    log_prob: float | None
    top_log_probs: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, config=CONFIG)
class ChoiceBody:
    """One answer, checked again on its finished text. `trace` is null unless requested.

    `text` has no white space around it, unless the constraint is not met without. Tokens and log-probs are those of
    `raw_text`, which is left out where it is equal.

    `score` is the pushed sum of `abs`; of a sample the log-prob under the distribution that it was drawn from, to
    which the scores in its trace, the model's own log-probs, do not add up.

    `proven_gap` bounds how much better the best satisfying text can be than this one, in `log_prob` divided by tokens
    to the power `length_penalty`: 0 where this answer is proven the best. Of text that the constraint dictates, only
    the tokenizer's own spelling counts. Null for `abs` and `sample`, which keep no bound.

    `captures` is null without a sequence that captures, and where to find them takes too many steps. With the scope
    `full` they are places in prompt and answer. `message` is left out unless the request has `messages`. `stop` is the
    stop string that ended the text and is no part of it, left out where none did.
    """

    text: str
    finish_reason: str
    log_prob: float
    score: float
    satisfied: bool
    words: tuple[WordBody, ...]
    trace: tuple[TokenStepBody, ...] | None
    proven_gap: float | None = None
    captures: tuple[CaptureBody, ...] | None = None
    message: Annotated[AnswerMessageBody | None, Field(exclude_if=lambda message: message is None)] = None
    raw_text: Annotated[str | None, Field(exclude_if=lambda text: text is None)] = None
    stop: Annotated[str | None, Field(exclude_if=lambda stop: stop is None)] = None


@dataclass(frozen=True, config=CONFIG)
class LabelStepBody:
    """One label of a decoded sequence.

    state     of the constraint's automaton after the label, as GET /automata shows it
    distance  fewest further labels to acceptance; 0 where the sequence may end
    propositions  the propositions that hold at the label
    log_prob  the matrix's value, at least -10000
    """

    label: str
    state: int
    distance: int
    propositions: tuple[str, ...]
    log_prob: float


@dataclass(frozen=True, config=CONFIG)
class ScorerTask:
    """What a scorer writes. Labels go on after a prefix, at most `max_tokens` with the end counted as one."""

    name: str
    prefix: tuple[str, ...]
    max_tokens: int
    length_penalty: float


@dataclass(frozen=True, config=CONFIG)
class UsageBody:
    """The tokens read and written, and the number of sequences. The written tokens are those of all choices, each with
    its end.

    `reasoning_tokens` are those of thoughts among the written ones, without their markers; left out if there are none.
    """

    prompt_tokens: int
    completion_tokens: int
    sequences: int
    reasoning_tokens: Annotated[int, Field(exclude_if=lambda tokens: tokens == 0)] = 0


@dataclass(frozen=True, config=CONFIG)
class TimingsBody:
    """Where the time went, in ms. `cached`: the constraint was compiled already."""

    compile_ms: float
    queue_ms: float
    decode_ms: float
    total_ms: float
    cached: bool
