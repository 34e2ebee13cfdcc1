"""The values that requests return. Log-probs are natural logarithms, times are in milliseconds unless named `_s`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Literal

from abs_client._json import JsonText
from abs_client._notebook import automaton_html, checked_html, decoded_html, generated_html
from abs_client.explanations import CompileWarning, Explanation, State, Transition

_NOT_JSON = {"json_name": None}  # metadata of a field that is not read from the response


@dataclass(frozen=True)
class TracedWord:
    """A step of a word trace: a word or punctuation mark.

    propositions  those that hold at it
    state         the automaton's state after it, as `automaton` numbers it
    """

    text: str
    propositions: tuple[str, ...]
    state: int


@dataclass(frozen=True)
class Alternative:
    """A token that could stand in a place. `constrained_log_prob` is None where it is not allowed."""

    token: int
    text: str
    log_prob: float
    constrained_log_prob: float | None


@dataclass(frozen=True)
class TokenStep:
    """A token of a generated text.

    token         its id in the model's vocabulary
    text          the text that it writes; "" for the end
    state         the automaton's state after it, as `automaton` numbers it
    distance      fewest tokens to the end after it, EOS included
    alpha         the push towards acceptance before it, 0 to 1
    propositions  for each word that it completes, the propositions that hold there
    stack         the rules of a grammar that are open after it, the innermost last; None without a grammar
    top_log_probs  the most probable tokens in its place; None, as `constrained_log_prob`, unless requested
    """

    token: int
    text: str
    state: int
    distance: int
    alpha: float
    log_prob: float
    score: float
    propositions: tuple[tuple[str, ...], ...] = ()
    stack: tuple[str, ...] | None = None
    constrained_log_prob: float | None = None
    top_log_probs: tuple[Alternative, ...] | None = None


@dataclass(frozen=True)
class Capture:
    """A captured part of a text.

    start, end   in characters of the text
    token_start  the first token that writes some of it; None for a checked text
    token_end    the token behind the last that does
    """

    name: str
    text: str
    start: int
    end: int
    _: KW_ONLY
    token_start: int | None = None
    token_end: int | None = None


@dataclass(frozen=True)
class GeneratedText(JsonText):
    """One text that satisfies the constraint.

    log_prob    sum of its tokens' log-probs
    score       the log-prob that the algorithm ranks or draws by: with the push (abs), after temperature (sample)
    words       its word trace
    trace       its tokens; None unless the request sets `trace`
    proven_gap  how much better the best satisfying text can be at most, as a length-normalized log-prob: 0 for a text
                that is proven the best, None where the algorithm keeps no bound
    captures    the captured parts; None without a sequence that captures
    message     the text as the next message, with its calls; None unless the request has messages
    raw_text    what the tokens of `trace` spell, with white space around the text; None where it is the text
    stop        the stop string that ended the text, which does not contain it; None where none did
    """

    text: str
    finish_reason: str
    log_prob: float
    score: float
    satisfied: bool
    words: tuple[TracedWord, ...] = ()
    trace: tuple[TokenStep, ...] | None = None
    proven_gap: float | None = None
    captures: tuple[Capture, ...] | None = None
    message: dict[str, Any] | None = None
    raw_text: str | None = None
    stop: str | None = None


@dataclass(frozen=True)
class Usage:
    """The work of a request. The completion tokens are those of all texts, their ends and thoughts included.

    sequences  texts that were written in parallel
    """

    prompt_tokens: int
    completion_tokens: int
    sequences: int
    reasoning_tokens: int = 0


@dataclass(frozen=True)
class Timings:
    """Where the time of a request went, in milliseconds. `cached`: the constraint was compiled before."""

    compile_ms: float
    queue_ms: float
    decode_ms: float
    total_ms: float
    cached: bool


@dataclass(frozen=True)
class LabelStep:
    """A label of a decoded sequence. `distance`: fewest further labels to acceptance."""

    label: str
    state: int
    distance: int
    propositions: tuple[str, ...]
    log_prob: float


@dataclass(frozen=True)
class ConjunctCheck:
    """The check of one conjunct.

    path         its place in the constraint object, such as "all.0.keywords.1"
    summary      the conjunct in a few words
    constraint   the conjunct as a constraint object
    violated_at  as in CheckResult
    """

    path: str
    summary: str
    constraint: dict[str, Any]
    satisfied: bool
    violated_at: int | None


@dataclass(frozen=True)
class Violation:
    """Why a JSON text does not fit its schema.

    path     the value that is at fault, such as "$.items[3].price"
    keyword  the keyword that it violates; "json" where the text is no JSON text
    field    the schema that has the keyword, as in errors
    """

    path: str
    keyword: str
    field: str
    message: str


@dataclass(frozen=True)
class _CompiledSizes:
    """The hash of a compiled constraint, its sizes and its compile time.

    token_states, token_classes  sizes of the automaton over tokens
    min_tokens                   a sufficient `max_tokens`, the smallest one unless the next field says otherwise
    min_tokens_at_least          no smaller `max_tokens` is sufficient; None where that is `min_tokens`
    cached                       the constraint was compiled before
    not_enforced                 JSON pointers of schema keywords and formats that have no effect
    approximate                  those of keywords that have none because `approximate` allows it
    warnings                     what is probably a mistake in the constraint
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
    warnings: tuple[CompileWarning, ...] = field(default=(), kw_only=True)
    min_tokens_at_least: int | None = field(default=None, kw_only=True)


@dataclass(frozen=True)
class Result:
    """A result that names an automaton by its hash.

    raw  the response's JSON, with the fields of a newer service
    svg  fetches a picture of the automaton; raises AbsError
    """

    automaton: str
    # Not compared: results are equal if their values are, whichever client fetched them.
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False, kw_only=True, metadata=_NOT_JSON)
    svg: Callable[[], str] | None = field(default=None, repr=False, compare=False, kw_only=True, metadata=_NOT_JSON)


@dataclass(frozen=True)
class GenerateResult(Result, JsonText):
    """Texts that satisfy the constraint, best first. `id` is the job's; `seed` repeats a sample, else it is None.

    not_enforced  JSON pointers of schema keywords and formats that have no effect
    approximate   those of keywords that have none because `approximate` allows it
    warnings      what is probably a mistake in the constraint
    """

    id: str
    model: str
    choices: tuple[GeneratedText, ...]
    usage: Usage
    timings: Timings
    seed: int | None = None
    not_enforced: tuple[str, ...] = ()
    approximate: tuple[str, ...] = ()
    warnings: tuple[CompileWarning, ...] = ()

    @property
    def text(self) -> str:
        """The best text."""
        return self.choices[0].text

    @property
    def texts(self) -> tuple[str, ...]:
        """All texts, best first."""
        return tuple(choice.text for choice in self.choices)

    def _repr_html_(self) -> str:
        return generated_html(self)


@dataclass(frozen=True)
class CompileResult(_CompiledSizes, Result):
    """A compiled constraint; `generate` takes it as its constraint.

    explanation  None if the request sets explain=False, or if it would exceed the limits
    """

    explanation: Explanation | None = None

    def _repr_html_(self) -> str:
        return automaton_html(self, f"{self.states} states, {self.letters} letters")


@dataclass(frozen=True)
class DecodeResult(Result):
    """The best sequence of labels under the constraint."""

    labels: tuple[str, ...]
    log_prob: float
    score: float
    satisfied: bool
    trace: tuple[LabelStep, ...]
    timings: Timings

    def _repr_html_(self) -> str:
        return decoded_html(self)


@dataclass(frozen=True)
class CheckResult:
    """Whether a text satisfies a constraint. The result itself is true or false.

    violated_at  offset of the first character (or label) after which no continuation satisfies; the text's length if it
                 only ends too early; None if it satisfies
    conjuncts    None unless the request sets conjuncts=True
    canonical    whether generation could write the text; None where the constraint is too large to compile
    violation    why a JSON text does not fit its schema
    captures     the captured parts; None without a sequence that captures
    warnings     what is probably a mistake in the constraint
    """

    satisfied: bool
    words: tuple[TracedWord, ...]
    violated_at: int | None = None
    conjuncts: tuple[ConjunctCheck, ...] | None = None
    canonical: bool | None = None
    violation: Violation | None = None
    captures: tuple[Capture, ...] | None = None
    warnings: tuple[CompileWarning, ...] = ()
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False, metadata=_NOT_JSON)

    def __bool__(self) -> bool:
        return self.satisfied

    def _repr_html_(self) -> str:
        return checked_html(self)


@dataclass(frozen=True)
class Automaton(Result):
    """The DFA of a compiled constraint.

    kind     "words", "characters" (classes of them, for patterns) or "labels": what a letter stands for
    letters  for each letter the propositions that hold
    start    index into `states`, like those of `accepting` and `transitions`
    """

    constraint: dict[str, Any]
    kind: str
    start: int
    letters: tuple[tuple[str, ...], ...]
    states: tuple[State, ...]
    transitions: tuple[Transition, ...]
    accepting: tuple[int, ...]
    min_tokens: int
    explanation: Explanation | None = None

    def _repr_html_(self) -> str:
        return automaton_html(self, f"{len(self.states)} states over {self.kind}")


@dataclass(frozen=True)
class Readiness:
    """Whether the service serves requests now. The value itself is true or false; `reasons` say why not."""

    ready: bool
    reasons: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.ready


@dataclass(frozen=True)
class JobState:
    """The state of a job.

    submitted  Unix time in seconds
    attempt    number of times that a worker took the job
    ahead      number of jobs before it in the queue
    result     the JSON of the result; None unless the state is "done"
    error      the problem document of the error (RFC 9457); None unless the state is "failed"
    """

    id: str
    kind: str
    state: Literal["waiting", "running", "done", "failed", "cancelled"]
    submitted: float
    attempt: int = 0
    ahead: int = 0
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None

    @property
    def over(self) -> bool:
        """Whether the state is final."""
        return self.state not in ("waiting", "running")


@dataclass(frozen=True)
class ModelCard:
    """A served model. `context_tokens`: the longest input; None without a limit. `vocabulary`: number of tokens.

    `parent` is the model that an adapter changes; None where it is a model of its own.
    """

    id: str
    context_tokens: int | None
    vocabulary: int
    parent: str | None = None
