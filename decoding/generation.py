"""The protocol of a generation, with its beam steps and its answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

from torch import Tensor

from decoding.model import Scores

_STEP_BYTES = 2**12  # of a step: the headers of its arrays, and its snapshot while it waits for a reader
_ROW_BYTES = 2**8  # of a token of a row: back-pointers, its part of a snapshot, its ids and text in events of a reader

TextOf = Callable[[tuple[int, ...]], bytes]
"""The bytes of an answer, from its ids without EOS: answers of equal bytes count once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hypothesis:
    """A finished answer, with one EOS at the end of its ids.

    proven_gap  no satisfying text has a value (its log-prob after the length penalty) higher by more than this;
                0 where the answer is proven the best; None where the algorithm keeps no bound. Of texts with a forced
                stretch, only the tokenizer's spelling of the stretch counts.
    """

    tokens: tuple[int, ...]
    score: float
    log_prob: float
    proven_gap: float | None = None
    finish_reason: Literal["eos"] = "eos"  # every answer fits in the budget, so there is no other reason


@dataclass(frozen=True, slots=True, kw_only=True)
class BeamRow:
    """One row of a beam after a step.

    tokens    all ids so far; a finished row ends in its first EOS
    parent    the row it extends, in the beam before
    state     automaton state after the tokens
    distance  fewest tokens from there to acceptance; 0 when finished
    alpha     push-up at the step that wrote the last token
    score     pushed sum
    log_prob  the model's own sum
    """

    tokens: tuple[int, ...]
    parent: int
    state: int
    distance: int
    alpha: float
    score: float
    log_prob: float

    @property
    def finished(self) -> bool:
        """Whether the row ends in EOS."""
        return self.distance == 0


@dataclass(frozen=True, slots=True)
class TopToken:
    """One of the most probable tokens after a row, allowed or not.

    tokens    all ids of the row
    log_prob  of the token alone
    """

    tokens: tuple[int, ...]
    token: int
    log_prob: float


@dataclass(frozen=True, slots=True)
class BeamStep:
    """The beam after a step, best row first. `step_number` is t, from 1; the budget left is T - t tokens.

    top_tokens  after the best rows of the beam before, where a recorder adds them (`engine.top_tokens`)
    """

    step_number: int
    budget_after: int
    rows: tuple[BeamRow, ...]
    top_tokens: tuple[TopToken, ...] = ()


# The engine's thread makes a snapshot for each step; its text is built in the thread of the caller that wants it.
Snapshot = Callable[[], BeamStep]
"""A beam that becomes a `BeamStep` only when it is called, in the caller's thread."""


@dataclass(frozen=True, slots=True)
class GenerationSize:
    """What a generation may need at most, for admission control.

    rows           read side by side in one step
    max_tokens     of each row, so that its rows write at most rows * max_tokens nodes of a prefix tree
    scratch_bytes  made by `advance` beside the scores
    states_bytes   of the automaton's states that it may meet
    """

    rows: int
    max_tokens: int
    scratch_bytes: int
    states_bytes: int = 0

    @property
    def kept_bytes(self) -> int:
        """What it keeps on the host: states, and its rows' history."""
        return self.states_bytes + self.max_tokens * (_STEP_BYTES + self.rows * _ROW_BYTES)


class Generation(Protocol):
    """One generation between two forward passes. Not thread-safe.

    Its driver calls advance(the prompt's scores), then, until `done`, feed() and advance(scores of that feed), and at
    last answers().
    """

    @property
    def size(self) -> GenerationSize:
        """What it may need at most; known before its first step."""

    @property
    def done(self) -> bool:
        """True when no further step can change the answers."""

    def advance(self, scores: Scores) -> list[Snapshot]:
        """Take the scores of the last fed rows, on the model's device. There is one step for each token of a row.

        Raises ModelOutputInvalid, SearchExhausted.
        """

    def feed(self) -> tuple[Tensor, Tensor] | tuple[Tensor, Tensor, int]:
        """The rows to extend, the tokens that extend them, and perhaps `StepInput.undo`.

        Rows are numbered as in the feed before: int64 [N]; the tokens are int64 [N, m].
        """

    def answers(self) -> tuple[Hypothesis, ...]:
        """The answers; at least one."""
