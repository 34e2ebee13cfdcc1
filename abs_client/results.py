"""What the service answers to a request. What a newer service says beside it is kept in `raw`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from abs_client import html
from abs_client.pieces import Answer, Explanation, LabelStep, PartCheck, State, Timings, Transition, Unit, Usage


@dataclass(frozen=True)
class Result:
    """An answer to a request. `raw` is its JSON.

    `svg` fetches the picture of its automaton, or raises AbsError; it is the client's that asked.
    """

    automaton: str
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False, kw_only=True)
    svg: Callable[[], str] | None = field(default=None, repr=False, compare=False, kw_only=True)


@dataclass(frozen=True)
class GenerateResult(Result):
    """Texts that satisfy the constraint, best first. `id` is the job's; `seed` the one that sampled them."""

    id: str
    model: str
    choices: tuple[Answer, ...]
    usage: Usage
    timings: Timings
    seed: int | None = None

    @property
    def text(self) -> str:
        """The best answer's."""
        return self.choices[0].text

    @property
    def texts(self) -> tuple[str, ...]:
        """All answers'."""
        return tuple(choice.text for choice in self.choices)

    def parse(self, model: Any = None) -> Any:
        """The best answer's text as JSON: of a pydantic model where one is given, else plain values."""
        return self.choices[0].parse(model)

    def _repr_html_(self) -> str:
        usage, times = self.usage, self.timings
        tokens = f"{usage.prompt_tokens} + {usage.completion_tokens} tokens"
        compiled = "constraint cached" if times.cached else f"compile {times.compile_ms:.0f} ms"
        said = f"{self.model}: {tokens}, {compiled}, total {times.total_ms:.0f} ms"
        return html.generated(self.choices, said, self.automaton, self.svg)


@dataclass(frozen=True)
class CompileResult(Result):
    """A compiled constraint, which `generate` takes in a constraint's place. `min_tokens`: the least budget."""

    states: int
    letters: int
    token_states: int
    token_classes: int
    min_tokens: int
    cached: bool
    compile_ms: float
    explanation: Explanation | None = None

    def _repr_html_(self) -> str:
        sizes = f"{self.states} states, {self.letters} letters; needs at least {self.min_tokens} tokens"
        return html.compiled(self.explanation, sizes, self.automaton, self.svg)


@dataclass(frozen=True)
class DecodeResult(Result):
    """The best sequence of labels under the constraint."""

    labels: tuple[str, ...]
    log_prob: float
    score: float
    satisfied: bool
    trace: tuple[LabelStep, ...]
    timings: Timings


@dataclass(frozen=True)
class CheckResult:
    """Whether a text satisfies. `violated_at`: the first character after which nothing can satisfy any more, or the
    text's length where it only ends too early; None where satisfied. `conjuncts` is None unless requested."""

    satisfied: bool
    words: tuple[Unit, ...]
    violated_at: int | None = None
    conjuncts: tuple[PartCheck, ...] | None = None
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def __bool__(self) -> bool:
        return self.satisfied


@dataclass(frozen=True)
class Automaton(Result):
    """A compiled constraint as people look at it: a DFA over letters, each the list of propositions that hold."""

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
        sizes = f"{len(self.states)} states over {self.kind}; needs at least {self.min_tokens} tokens"
        return html.compiled(self.explanation, sizes, self.automaton, self.svg)


@dataclass(frozen=True)
class Readiness:
    """Whether requests would be served now, and why not. True or false as it says."""

    ready: bool
    reasons: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.ready


@dataclass(frozen=True)
class JobState:
    """Where a job is. `submitted` is Unix time in s; `ahead`: how many go before it; `error`: what it failed with."""

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
        """Whether it changes no more."""
        return self.state not in ("waiting", "running")


@dataclass(frozen=True)
class ModelCard:
    """A served model. `context_tokens`: the most that it reads, None without limit."""

    id: str
    context_tokens: int | None = None
    vocabulary: int | None = None
