"""Builds the event of each decode step for the job's subscribers. Needs no model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from app.messages import Reason, RejectedTokenBody, StepMessage, StepRowBody
from app.worker.handlers.base import Context
from compiler.artifact import CompiledConstraint
from compiler.lifting import UNREACHABLE
from compiler.products import UNKNOWN
from compiler.pushdown import NOWHERE
from decoding.generation import BeamStep
from decoding.prepared_constraint import Start, StateLimits, host_states
from decoding.token_texts import TokenTexts


class _WrittenText(NamedTuple):
    """The text of a row. It has the bytes, the automaton's state and the last displayed state.

    compared  how many of the row's ids have been compared with what the library decodes
    """

    text: bytes
    state: int
    display_state: int
    compared: int


class StepEventBuilder:
    """Publishes each step of one generation. It stores the rows, because those of the next step continue them.

    token_texts   what the ids write
    start         the automaton's state before the answer; None: its own
    limits        those of the generation's states
    """

    def __init__(
        self, token_texts: TokenTexts, constraint: CompiledConstraint, start: Start | None,
        context: Context, limits: StateLimits,
    ) -> None:
        self._token_texts, self._text, self._context = token_texts, constraint.text, context
        self._vocabulary = token_texts.written
        self._states, first = host_states(constraint.tokens, start, limits)
        display_state = self._text.display_state_of(self._states.control_of(first))
        # An answer begins between characters; but nothing continues a part of a product that the prompt violates.
        self._empty = _WrittenText(b"", first, NOWHERE if display_state is None else display_state, 0)
        self._texts: dict[tuple[int, ...], _WrittenText] = {}
        self._row_of: dict[tuple[int, ...], int] = {(): 0}  # of the previous step: row index by tokens

    def __call__(self, event: BeamStep) -> None:
        rejected = tuple(self._rejected(event))
        texts = {row.tokens: self._read(row.tokens) for row in event.rows}
        self._texts = texts
        self._row_of = {row.tokens: index for index, row in reversed(list(enumerate(event.rows)))}
        rows = tuple(
            StepRowBody(
                texts[row.tokens].text.decode(errors="replace"), row.parent, texts[row.tokens].display_state,
                row.distance, row.alpha, row.score, row.log_prob, row.finished,
            )
            for row in event.rows
        )
        self._context.publish(StepMessage(event.step_number, event.budget_after, rows, rejected))

    def _rejected(self, event: BeamStep) -> Iterator[RejectedTokenBody]:
        """The most probable tokens of the model that no row may write."""
        states = self._states
        # Rows of samples may have equal tokens, and then the same rejected tokens; each is reported once.
        for top in {(top.tokens, top.token): top for top in event.top_tokens}.values():
            if top.tokens not in self._row_of:  # the search dropped the row before this step
                continue
            distance = states.distance_of(states.advance(self._read(top.tokens).state, top.token))
            if distance <= event.budget_after:
                continue
            piece = self._vocabulary[top.token] or b""
            yield RejectedTokenBody(
                parent=self._row_of[top.tokens],
                text="" if top.token in states.eos_ids else piece.decode(errors="replace"),
                log_prob=top.log_prob,
                distance=None if distance >= UNKNOWN else distance,
                reason=self._reason(top.token, distance),
            )

    def _reason(self, token: int, distance: int) -> Reason:
        """Why a row may not write a token. `distance` is that of the token's target."""
        if token in self._states.eos_ids:
            return "incomplete"
        if distance != UNREACHABLE:
            return "over_budget"
        return "violates" if self._vocabulary[token] else "no_bytes"

    def _read(self, tokens: tuple[int, ...]) -> _WrittenText:
        """The text of a row's ids."""
        if not tokens:
            return self._empty
        if tokens in self._texts:
            return self._texts[tokens]
        before = self._read(tokens[:-1])
        state = self._states.advance(before.state, tokens[-1])
        display_state = self._text.display_state_of(self._states.control_of(state))
        if display_state is None:
            display_state = before.display_state
        text, compared = before.text + (self._vocabulary[tokens[-1]] or b""), before.compared
        with suppress(UnicodeDecodeError):  # compared with the rest of the character
            self._token_texts.compared(tokens[compared:])
            compared = len(tokens)
        return _WrittenText(text, state, display_state, compared)

