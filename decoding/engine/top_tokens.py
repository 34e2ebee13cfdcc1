"""Records the model's most probable tokens after the rows of a run.

The engine's thread records ids and log-probs only. The reader decides whether the constraint allows a token, and
whether its row is still in the beam: the search may drop rows within a stretch that is read in one pass.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from torch import Tensor

from decoding.generation import Generation, GenerationSize, Hypothesis, Snapshot, StepEvent, TopToken
from decoding.model import Scores

ROWS_NOTED = 16  # rows of a step that are recorded, the best first; readers show no more


class TopTokensRecorder:
    """A generation that records the `count` most probable tokens after each of its best rows; obeys `Generation`."""

    def __init__(self, run: Generation, count: int) -> None:
        self._run, self._count = run, count
        self._fed: list[tuple[int, ...]] = [()]  # the ids of each row of the feed at hand
        self._steps = 1  # that this feed is for

    @property
    def size(self) -> GenerationSize:
        return self._run.size

    @property
    def done(self) -> bool:
        return self._run.done

    def advance(self, scores: Scores) -> list[Snapshot]:
        wanted = self._wanted(scores.log_probs)
        told = self._run.advance(scores)
        if len(told) == self._steps:  # else the run was over before it came to the step that these scores are for
            told[-1] = partial(_with, told[-1], wanted)
        return told

    def feed(self) -> tuple[Tensor, Tensor]:
        rows, tokens = self._run.feed()
        fed = zip(rows.tolist(), tokens.tolist(), strict=True)
        self._fed = [self._fed[row] + tuple(written) for row, written in fed]
        self._steps = tokens.shape[1]
        return rows, tokens

    def answers(self) -> tuple[Hypothesis, ...]:
        return self._run.answers()

    def _wanted(self, log_probs: Tensor) -> tuple[TopToken, ...]:
        """Of float32 [R, V], the rows as they were fed: of all that begin with the prompt's one row there is one."""
        best = log_probs[:ROWS_NOTED].topk(min(self._count, log_probs.shape[1]), dim=1)
        rows = zip(self._fed, best.values.tolist(), best.indices.tolist(), strict=False)
        return tuple(
            TopToken(fed, token, log_prob)
            for fed, values, ids in rows
            for log_prob, token in zip(values, ids, strict=True)
        )


def _with(told: Snapshot, wanted: tuple[TopToken, ...]) -> StepEvent:
    return replace(told(), wanted=wanted)
