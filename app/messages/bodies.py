"""The bodies of answers and events, as the API sends them. A job's result carries the same fields to the API."""

from __future__ import annotations

import operator
from dataclasses import field, fields
from typing import Annotated, Self

from pydantic import Field
from pydantic.dataclasses import dataclass

from app.messages.json_values import JsonObject
from app.messages.parts import (
    CONFIG,
    CaptureBody,
    ChoiceBody,
    ConjunctBody,
    LabelStepBody,
    RejectedTokenBody,
    StepRowBody,
    TimingsBody,
    UsageBody,
    ViolationBody,
    WordBody,
)
from app.messages.policies import BrokenRuleBody, PolicyStateBody
from app.messages.suggestions import WarningBody
from compiler.diagnostics import ConstraintExplanation

Warnings = Annotated[tuple[WarningBody, ...], Field(exclude_if=operator.not_)]


@dataclass(frozen=True, config=CONFIG)
class CompiledEventBody:
    """The event `compiled` of a stream: the sizes of the constraint. `compile_ms` is 0 if it was stored already.

    `not_enforced` has the JSON pointers of schema keywords and formats that have no effect, `approximate` of those that
    have another: the caller allows it, or `warnings` say it. Of a grammar, `states` are the control states of its
    pushdown automaton, `letters` classes of bytes. `warnings` are what is probably a mistake. `min_tokens` are enough;
    where no proof says that fewer are not, `min_tokens_at_least` is what a proof says.
    """

    automaton: str
    states: int
    letters: int
    token_states: int
    token_classes: int
    min_tokens: int
    cached: bool
    compile_ms: float
    not_enforced: tuple[str, ...] = field(default=(), kw_only=True)
    approximate: tuple[str, ...] = field(default=(), kw_only=True)
    warnings: Warnings = field(default=(), kw_only=True)
    min_tokens_at_least: Annotated[int | None, Field(exclude_if=operator.not_)] = field(default=None, kw_only=True)


@dataclass(frozen=True, config=CONFIG)
class StepEventBody:
    """The event `step` of a stream. It has the rows after step `step`, from 1, best first, with `budget_after` tokens
    left.

    Of `banked` the finished rows come before the others. A reader that lags misses steps. `rejected_tokens` is empty
    unless the request sets `rejected_top_k`.
    """

    step: int
    budget_after: int
    rows: tuple[StepRowBody, ...]
    rejected_tokens: tuple[RejectedTokenBody, ...] = ()


@dataclass(frozen=True, config=CONFIG)
class RestartEventBody:
    """The event `restarted` of a stream. Another worker restarts the job, and all earlier events are void."""

    attempt: int


@dataclass(frozen=True, config=CONFIG)
class CompileResponse(CompiledEventBody):
    """A compiled constraint. It has a hash, sizes, and the smallest sufficient max_tokens.

    `explanation` is null if it was not requested, or cannot be given within the limits.
    """

    explanation: ConstraintExplanation | None

    @classmethod
    def of(
        cls, sizes: CompiledEventBody, explanation: ConstraintExplanation | None,
        warnings: tuple[WarningBody, ...] = (),
    ) -> Self:
        """The body for a constraint of these sizes. `warnings` are about the caller's spelling of it."""
        # A message has `kind` and `version` besides these fields, so only the shared ones are copied.
        values = {item.name: getattr(sizes, item.name) for item in fields(CompiledEventBody)}
        values["warnings"] = (*sizes.warnings, *warnings)
        return cls(**values, explanation=explanation)


@dataclass(frozen=True, config=CONFIG)
class CheckResponse:
    """Whether a text satisfies, and its word trace.

    `violated_at` is null where satisfied; else the offset of the first character (or label) after which nothing can
    satisfy any more, or the text's length where it only ends too early. `conjuncts` is null unless requested.

    A JSON text is decided by its value: `violated_at` is where the value begins that is at fault, and `violation` says
    why. `canonical` says whether generation could write the text; null where the constraint is too large to compile.
    `captures` is as in an answer. `warnings` are what is probably a mistake in the constraint.
    """

    satisfied: bool
    words: tuple[WordBody, ...]
    violated_at: int | None
    conjuncts: tuple[ConjunctBody, ...] | None = None
    canonical: bool | None = None
    violation: ViolationBody | None = None
    captures: tuple[CaptureBody, ...] | None = None
    warnings: Warnings = ()


@dataclass(frozen=True, config=CONFIG)
class PolicyResponse:
    """What the rules of a policy say of a conversation.

    `broken` are the rules that the conversation does not satisfy as it stands, `open_rules` those that a reply now
    would leave unmet. `reply` and `tools` are what may come next: a reply in words, and calls whose arguments satisfy
    these schemas. `calls_needed` are the fewest calls before a reply that satisfies all rules, whatever the results
    are; null where no number is enough. `conflict` are rules that cannot be met together any more, and `past` the
    fewest events that lead there. `states` is null unless requested.
    """

    satisfied: bool
    broken: tuple[BrokenRuleBody, ...]
    open_rules: tuple[str, ...]
    reply: bool
    tools: dict[str, JsonObject]
    calls_needed: int | None
    conflict: tuple[str, ...]
    past: tuple[str, ...]
    states: tuple[PolicyStateBody, ...] | None = None


@dataclass(frozen=True, config=CONFIG)
class GeneratedBody:
    """The answers, best first. A search gives fewer than `n` if its beams have fewer distinct ones.

    `seed` is that of a sample, null for a search. `not_enforced` has the JSON pointers of schema keywords and formats
    that have no effect, `approximate` of those that have another: the caller allows it, or `warnings` say it.
    `warnings` are what is probably a mistake in the constraint.
    """

    automaton: str
    choices: tuple[ChoiceBody, ...]
    seed: int | None
    usage: UsageBody
    timings: TimingsBody
    not_enforced: tuple[str, ...] = field(default=(), kw_only=True)
    approximate: tuple[str, ...] = field(default=(), kw_only=True)
    warnings: Warnings = field(default=(), kw_only=True)


@dataclass(frozen=True, config=CONFIG)
class DecodeResponse:
    """The sequence that was decoded. `score` is its pushed sum where beams read a matrix, else `log_prob`.

    With a scorer, `labels` go on after the prefix, and `log_prob` has that of the end, too.

    A log-prob below -10000 counts as -10000: a label that is ruled out is taken where there is no other way.
    """

    labels: tuple[str, ...]
    log_prob: float
    score: float
    satisfied: bool
    trace: tuple[LabelStepBody, ...]
    automaton: str
    timings: TimingsBody
