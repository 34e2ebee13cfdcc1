"""Searches sequences of labels with an autoregressive scorer.

A scorer is a function from prefixes to log-probs of what follows. `ScorerModel` makes a `LanguageModel` of it, so that
the library's searches, samples and replays read it. `search_labels` finds the best sequence that ends within a budget.
The automaton is a plain table over labels: ids 0..L-1 are the labels, L is the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from compiler.lifting import TokenAutomaton
from decoding.errors import ModelOutputInvalid, RequestTooLarge
from decoding.label_decoding import LabelPath
from decoding.model import ObserveScores, ScoredSequence, Scores, StepInput, WholePrompts
from decoding.options import SearchOptions
from decoding.prepared_constraint import PreparedConstraint
from decoding.replay import replay
from decoding.search import drive, search_of
from decoding.tensors import LOG_PROB_FLOOR

LabelScorer = Callable[[list[list[int]]], NDArray[np.floating]]
"""The log-probs after each prefix: from N lists of label numbers to [N, L + 1], the end last. -inf rules a label out.

All prefixes of one call have the same length in a search; a check of an answer has prefixes of all lengths.
"""
_ROUNDING = 1e-3  # a softmax in half precision may exceed 0 by this much
_TOLERANCE = 1e-2  # nats between two batches of one model


@dataclass(slots=True)
class LabelSession:
    """The rows of one generation, each as all its labels."""

    rows: list[list[int]]


class ScorerModel(WholePrompts[LabelSession]):
    """A `LanguageModel` over labels, scored by a function.

    scorer          see `LabelScorer`
    labels          L, their number
    context_length  the longest prefix that the scorer reads, with one place for the beginning; None: any
    """

    device = torch.device("cpu")
    tolerance = _TOLERANCE
    supports_batching = True

    def __init__(self, scorer: LabelScorer, labels: int, context_length: int | None = None) -> None:
        self._scorer = scorer
        self.vocab_size, self.eos_ids = labels + 1, (labels,)
        self.context_length = context_length

    def log_probs(self, prefixes: list[list[int]]) -> Tensor:
        """The log-probs after each prefix, float32 [N, L + 1]. Raises ModelOutputInvalid."""
        found = np.asarray(self._scorer(prefixes))
        expected = len(prefixes), self.vocab_size
        if found.shape != expected:
            raise ModelOutputInvalid(f"the scorer returned an array {found.shape} in place of {expected}")
        if np.isnan(found).any() or (found > _ROUNDING).any():
            raise ModelOutputInvalid("the scorer's log-probs hold NaN or a value above 0")
        return torch.from_numpy(np.minimum(found, 0.0).astype(np.float32))

    def prefill(self, prompt_ids: Sequence[int]) -> tuple[LabelSession, Tensor]:
        row = list(prompt_ids)
        return LabelSession([row]), self.log_probs([row])[0]

    def step(self, feeds: Sequence[StepInput[LabelSession]]) -> list[Scores]:
        return [self._extend(feed) for feed in feeds]

    def _extend(self, feed: StepInput[LabelSession]) -> Scores:
        fed = feed.tokens.tolist()
        rows = [feed.session.rows[parent] for parent in feed.parents.tolist()]
        inner = torch.empty(len(fed), feed.tokens.shape[1] - 1, self.vocab_size, dtype=torch.float32)
        for column in range(inner.shape[1]):
            inner[:, column] = self.log_probs([[*row, *ids[: column + 1]] for row, ids in zip(rows, fed, strict=True)])
        feed.session.rows = [[*row, *ids] for row, ids in zip(rows, fed, strict=True)]
        token_log_probs = inner.gather(2, feed.tokens[:, 1:, None])[:, :, 0]
        return Scores(self.log_probs(feed.session.rows), token_log_probs, inner.amax(dim=2))

    def bytes_for(self, prompt_tokens: int, rows: int, max_tokens: int, scratch_bytes: int = 0) -> int:
        # The labels of each row before and after a step, and its log-probs as the scorer's and as ours.
        return 16 * rows * (prompt_tokens + max_tokens) + 16 * rows * self.vocab_size + scratch_bytes

    def score(
        self, prompt_ids: Sequence[int], tokens: Sequence[int], observe: ObserveScores | None = None
    ) -> ScoredSequence:
        rows = self.log_probs([[*prompt_ids, *tokens[:index]] for index in range(len(tokens))])
        if observe is not None:
            observe(0, rows)
        found = rows.gather(1, torch.tensor(tokens)[:, None])[:, 0]
        return ScoredSequence(tuple(found.tolist()), tuple(rows.amax(dim=1).tolist()))


def search_labels(
    model: ScorerModel, automaton: TokenAutomaton, options: SearchOptions, *, prefix: Sequence[int] = (),
    cancelled: Callable[[], bool] | None = None, memory_bytes: int | None = None,
) -> LabelPath:
    """The best labels that go on after a prefix and end. Prefix and labels together are accepted.

    options       its `max_tokens` are the most labels, where the end counts as one
    prefix        labels that stand already; the state after them is not dead
    memory_bytes  the most that the search may take; None: any number

    The result's log-probs have one of the end behind those of the labels. Raises BudgetTooSmall, PromptTooLong,
    RequestTooLarge, VocabularyMismatch, ModelOutputInvalid, Cancelled, and ReplayRejected for an answer that fails its
    check.

    A scorer that finds both labels and the end alike, under an automaton that accepts the labels 1, 0:

    >>> def scorer(prefixes):
    ...     return np.full((len(prefixes), 3), -1.0)
    >>> search_labels(ScorerModel(scorer, labels=2), automaton, SearchOptions(max_tokens=3, beams=4)).labels
    (1, 0)
    """
    start = automaton.start
    for label in prefix:
        start = automaton.advance(start, label)
    prepared = PreparedConstraint.prepare(automaton, model.device)
    prepared.refuse_early(model, len(prefix) + 1, options.max_tokens, start)  # one place for the beginning
    search = search_of(prepared, options, start=start, prompt_ids=prefix)
    size = search.size
    needed = model.bytes_for(len(prefix), size.rows, size.max_tokens, size.scratch_bytes) + size.kept_bytes
    if memory_bytes is not None and needed > memory_bytes:
        raise RequestTooLarge(needed, memory_bytes)
    best = drive(model, prefix, search, cancelled=cancelled)[0]
    rescored = model.score(prefix, best.tokens)
    replay(automaton, best, rescored, options, tolerance=model.tolerance, start=start)
    log_probs = tuple(max(log_prob, LOG_PROB_FLOOR) for log_prob in rescored.log_probs)
    return LabelPath(best.tokens[:-1], log_probs, best.log_prob, best.score)
