"""Records the model's most probable tokens after the rows of a generation.

The engine's thread records ids and log-probs only. The reader decides whether the constraint allows a token, and
whether its row is still in the beam: the search may drop rows within a stretch that is read in one pass.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from torch import Tensor

from decoding.generation import BeamStep, Generation, GenerationSize, Hypothesis, Snapshot, TopToken
from decoding.model import Scores

ROWS_RECORDED = 16  # rows of a step that are recorded, the best first; readers show no more


class TopTokensRecorder:
    """A generation that also records the model's most probable tokens. It obeys `Generation`, and records `count`
    tokens after each of its best rows.
    """

    def __init__(self, generation: Generation, count: int) -> None:
        self._generation, self._count = generation, count
        self._row_ids: list[tuple[int, ...]] = [()]  # the ids of each row of the present feed
        self._steps = 1  # that this feed is for

    @property
    def size(self) -> GenerationSize:
        """The size of the generation."""
        return self._generation.size

    @property
    def done(self) -> bool:
        """Whether the generation is done."""
        return self._generation.done

    def advance(self, scores: Scores) -> list[Snapshot]:
        """The steps of the generation. The last one has the top tokens after the rows of the feed."""
        top_tokens = self._top_tokens(scores.log_probs)
        steps = self._generation.advance(scores)
        # With fewer steps the generation ended within a stretch, before the step that these scores are for.
        if len(steps) == self._steps:
            steps[-1] = partial(_with_top_tokens, steps[-1], top_tokens)
        return steps

    def feed(self) -> tuple[Tensor, Tensor]:
        """The feed of the generation."""
        rows, tokens, *_ = self._generation.feed()
        fed = zip(rows.tolist(), tokens.tolist(), strict=True)
        self._row_ids = [self._row_ids[row] + tuple(ids) for row, ids in fed]
        self._steps = tokens.shape[1]
        return rows, tokens

    def answers(self) -> tuple[Hypothesis, ...]:
        """The answers of the generation."""
        return self._generation.answers()

    def _top_tokens(self, log_probs: Tensor) -> tuple[TopToken, ...]:
        """The top tokens of log-probs, in the order of the feed.

        These are float32 [R, V]. The first scores are those of the prompt's single row.
        """
        best = log_probs[:ROWS_RECORDED].topk(min(self._count, log_probs.shape[1]), dim=1)
        rows = zip(self._row_ids, best.values.tolist(), best.indices.tolist(), strict=False)
        return tuple(
            TopToken(row_ids, token, log_prob)
            for row_ids, values, ids in rows
            for log_prob, token in zip(values, ids, strict=True)
        )


def _with_top_tokens(step: Snapshot, top_tokens: tuple[TopToken, ...]) -> BeamStep:
    return replace(step(), top_tokens=top_tokens)
