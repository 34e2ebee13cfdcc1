"""Builds the event of each decode step for the job's subscribers. Needs no model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from app.messages import Reason, RejectedTokenBody, StepMessage, StepRow
from app.worker.handlers.base import Context
from compiler.artifact import CompiledConstraint
from compiler.lifting import UNREACHABLE
from compiler.text import display_state_of


class ReportedRow(Protocol):
    """What a search says of a row (`decoding.generation.BeamRow`)."""

    @property
    def tokens(self) -> tuple[int, ...]: ...
    @property
    def parent(self) -> int: ...
    @property
    def state(self) -> int: ...
    @property
    def distance(self) -> int: ...
    @property
    def alpha(self) -> float: ...
    @property
    def score(self) -> float: ...
    @property
    def log_prob(self) -> float: ...
    @property
    def finished(self) -> bool: ...


class ReportedTopToken(Protocol):
    """What a search says of a token that the model would have written (`decoding.generation.Wanted`)."""

    @property
    def tokens(self) -> tuple[int, ...]: ...
    @property
    def token(self) -> int: ...
    @property
    def log_prob(self) -> float: ...


class ReportedStep(Protocol):
    """What a search says of a step (`decoding.generation.BeamStep`)."""

    @property
    def step_number(self) -> int: ...
    @property
    def budget_after(self) -> int: ...
    @property
    def rows(self) -> Sequence[ReportedRow]: ...
    @property
    def top_tokens(self) -> Sequence[ReportedTopToken]: ...


class _Said(NamedTuple):
    """What some ids have written: the bytes, the automaton's state, and the last one that people are shown."""

    text: bytes
    state: int
    shown: int


class StepEventBuilder:
    """Tells one generation step by step, and remembers its rows: those of the next step continue them.

    vocabulary  the bytes of each id, None where it writes none
    start       the automaton's state before the answer
    """

    def __init__(
        self, vocabulary: Sequence[bytes | None], compiled: CompiledConstraint, start: int, context: Context
    ) -> None:
        self._vocabulary, self._compiled, self._context = vocabulary, compiled, context
        shown = display_state_of(compiled.text, start)
        assert shown is not None  # an answer begins between characters
        self._nothing = _Said(b"", start, shown)
        self._known: dict[tuple[int, ...], _Said] = {}
        self._place: dict[tuple[int, ...], int] = {(): 0}  # of each row of the step before

    def __call__(self, event: ReportedStep) -> None:
        rejected = tuple(self._rejected(event))
        known = {row.tokens: self._read(row.tokens, row.state) for row in event.rows}
        self._known = known
        self._place = {row.tokens: place for place, row in reversed(list(enumerate(event.rows)))}
        rows = tuple(
            StepRow(
                known[row.tokens].text.decode(errors="replace"), row.parent, known[row.tokens].shown, row.distance,
                row.alpha, row.score, row.log_prob, row.finished,
            )
            for row in event.rows
        )
        self._context.tell(StepMessage(event.step_number, event.budget_after, rows, rejected))

    def _rejected(self, event: ReportedStep) -> Iterator[RejectedTokenBody]:
        """Of the tokens that the model wanted, those that no row may write."""
        tokens = self._compiled.tokens
        # samples may be equal so far
        for wanted in {(top.tokens, top.token): top for top in event.top_tokens}.values():
            if wanted.tokens not in self._place:  # given up before it came to this step
                continue
            state = tokens.advance(self._read(wanted.tokens).state, wanted.token)
            distance = int(tokens.distance[state])
            if distance <= event.budget_after:
                continue
            written = self._vocabulary[wanted.token] or b""
            yield RejectedTokenBody(
                parent=self._place[wanted.tokens],
                text="" if wanted.token in tokens.eos_ids else written.decode(errors="replace"),
                log_prob=wanted.log_prob,
                distance=None if distance == UNREACHABLE else distance,
                reason=self._reason(wanted.token, distance),
            )

    def _reason(self, token: int, distance: int) -> Reason:
        """Why a row may not write a token after which the end is so far away."""
        if token in self._compiled.tokens.eos_ids:
            return "incomplete"
        if distance != UNREACHABLE:
            return "over_budget"
        return "violates" if self._vocabulary[token] else "no_bytes"

    def _read(self, tokens: tuple[int, ...], state: int | None = None) -> _Said:
        """What the ids say; `state` is the one they lead to, where it is known."""
        if not tokens:
            return self._nothing
        if tokens in self._known:
            return self._known[tokens]
        before = self._read(tokens[:-1])
        if state is None:
            state = self._compiled.tokens.advance(before.state, tokens[-1])
        shown = display_state_of(self._compiled.text, state)
        text = before.text + (self._vocabulary[tokens[-1]] or b"")
        return _Said(text, state, before.shown if shown is None else shown)

