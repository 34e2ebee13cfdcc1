"""Scores answers and prompts by separate passes of the model.

Replays, traces and echoed prompts need them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from app.messages import PromptTokenBody
from decoding.alternatives import AlternativesRecorder
from decoding.engine import Engine
from decoding.model import LanguageModel, ScoredSequence
from decoding.penalties import PenalizedScores, Penalties
from decoding.replay import TraceStep
from decoding.tensors import LOG_PROB_FLOOR


def rescored(
    engine: Engine, prompt_ids: Sequence[int], tokens: Sequence[int], *, recorder: AlternativesRecorder | None,
    penalties: Penalties | None, cancelled: Callable[[], bool], model: LanguageModel[Any],
) -> tuple[ScoredSequence, ScoredSequence]:
    """The log-probs of an answer's tokens: own ones, and changed ones."""
    changed = None if penalties is None else PenalizedScores(penalties, tokens)
    observers = [each for each in (recorder, changed) if each is not None]

    def observe(begin: int, log_probs: Any) -> None:
        for each in observers:
            each(begin, log_probs)

    own = engine.check(prompt_ids, tokens, cancelled, observe if observers else None, model=model)
    return own, own if changed is None else changed.scored


def with_own_log_probs(steps: Sequence[TraceStep], own: ScoredSequence) -> tuple[TraceStep, ...]:
    """Steps that were replayed with changed log-probs, with the model's own ones. Their scores stay."""
    pairs = zip(steps, own.log_probs, strict=True)
    return tuple(replace(step, log_prob=max(log_prob, LOG_PROB_FLOOR)) for step, log_prob in pairs)


def prompt_tokens(
    engine: Engine, ids: Sequence[int], count: int | None, cancelled: Callable[[], bool], *,
    model: LanguageModel[Any],
) -> tuple[PromptTokenBody, ...] | None:
    """The tokens of a prompt with the model's log-probs. None if they are not requested.

    count  how many of the most probable tokens in the place of each; of equal ones the lowest ids
    """
    if count is None:
        return None
    top = dict[int, tuple[tuple[int, float], ...]]()

    def observe(begin: int, log_probs: Any) -> None:
        for place, row in enumerate(log_probs.double().clamp(min=LOG_PROB_FLOOR), begin):
            best = row.sort(descending=True, stable=True)
            top[place] = tuple(zip(best.indices[:count].tolist(), best.values[:count].tolist(), strict=True))

    scored = engine.check(ids[:1], ids[1:], cancelled, observe, model=model).log_probs if len(ids) > 1 else ()
    following = (
        PromptTokenBody(token, max(log_prob, LOG_PROB_FLOOR), top[place])
        for place, (token, log_prob) in enumerate(zip(ids[1:], scored, strict=True))
    )
    return (PromptTokenBody(ids[0], None), *following)
