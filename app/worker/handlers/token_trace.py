"""Builds the token trace of an answer from its replay."""

from __future__ import annotations

from collections.abc import Sequence

from app.messages import AlternativeBody, TokenStepBody
from compiler.artifact import CompiledConstraint
from compiler.text import replay
from decoding.alternatives import AlternativesRecorder
from decoding.replay import TraceStep


def token_trace(
    steps: Sequence[TraceStep], recorder: AlternativesRecorder | None, constraint: CompiledConstraint, *,
    vocabulary: Sequence[bytes | None], before: str | None,
) -> tuple[TokenStepBody, ...]:
    """The trace of an answer.

    recorder    what could stand in the place of each token; None: it is not recorded
    vocabulary  the bytes of each id, None where it writes none
    before      the part of the constrained text before the answer; None: there is none
    """
    pieces = [vocabulary[step.token] or b"" for step in steps[:-1]]  # the last token is EOS
    words = replay(constraint.text, pieces, before)
    places = [None] * len(steps) if recorder is None else recorder.places

    def text_of(token: int) -> str:
        return (vocabulary[token] or b"").decode(errors="replace")

    return tuple(
        TokenStepBody(
            token=step.token, text=text_of(step.token), state=word.state, distance=step.distance, alpha=step.alpha,
            log_prob=step.log_prob, score=step.score, propositions=word.letters, stack=word.stack,
            constrained_log_prob=None if place is None else place.written.constrained_log_prob,
            top_log_probs=None if place is None else tuple(
                AlternativeBody(other.token, text_of(other.token), other.log_prob, other.constrained_log_prob)
                for other in place.top
            ),
        )
        for step, word, place in zip(steps, words, places, strict=True)
    )
