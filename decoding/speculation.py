"""Speculative sampling: a pass also reads tokens that probably follow.

Each token is drawn as without speculation, from the same log-probs and with the same random number. A draft only
decides how many draws one pass allows: up to the first draw that differs from it. So the distribution is unchanged, and
so is each answer of a seed, up to rounding. Drafts are the tokenizer's spelling of a forced text, else what followed
the last two tokens before, in the prompt or the answer (prompt look-up decoding, Saxena 2023).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from decoding.forced_tokens import NO_FORCED_TOKEN, ForcedTokens
from decoding.generation import GenerationSize, Hypothesis, Snapshot
from decoding.model import Scores
from decoding.prepared_constraint import PreparedConstraint
from decoding.sampling import Sampling

DRAFT_FIRST, DRAFT_MAX = 4, 16  # tokens of a draft at most: at first, and ever


CountDrafts = Callable[[int, int], None]
"""Receives after each draft how many tokens it had, and how many of them were drawn."""


class SpeculativeSampling:
    """A `Sampling` of one row with drafts; obeys `Generation`.

    count  receives the size of each draft

    The model must take back tokens (`StepInput.undo`).

    >>> from decoding.sampling import SamplingOptions
    >>> from decoding.search import drive
    >>> constraint = PreparedConstraint.prepare(automaton, model.device)
    >>> sampling = Sampling(constraint, SamplingOptions(max_tokens=3, seed=1))
    >>> drive(model, [0], SpeculativeSampling(sampling, constraint, [0]))[0].tokens
    (1, 0, 2)
    """

    def __init__(
        self, sampling: Sampling, constraint: PreparedConstraint, prompt_ids: Sequence[int],
        count: CountDrafts | None = None,
    ) -> None:
        self._sampling, self._count = sampling, count
        self._drafter = _Drafter(prompt_ids, constraint.forced_tokens(sampling.states))
        self._draft: list[int] = []
        self._undo = 0

    @property
    def size(self) -> GenerationSize:
        """That of the sampling."""
        return self._sampling.size

    @property
    def done(self) -> bool:
        """Whether the sampling is done."""
        return self._sampling.done

    def advance(self, scores: Scores) -> list[Snapshot]:
        """One step for each drawn token of the draft, and one more."""
        rows = scores.log_probs if scores.inner is None else torch.cat([scores.inner[0], scores.log_probs])  # [1+m, V]
        snapshots = list[Snapshot]()
        for drawn, log_probs in enumerate(rows):
            snapshots += self._sampling.advance(Scores.of_prompt(log_probs))
            token = self._sampling.last_token
            self._drafter.add(token)
            if self._sampling.done or drawn == len(self._draft) or token != self._draft[drawn]:
                self._settle(drawn)
                break
        return snapshots

    def _settle(self, drawn: int) -> None:
        """Ends a draft of which `drawn` tokens were drawn."""
        drafted, self._undo = len(self._draft), len(self._draft) - drawn
        if not drafted:
            return
        # Longer drafts while all is drawn, else as much as was: what is read in vain costs time beside other requests.
        limit = min(max(self._drafter.limit, 2 * drafted), DRAFT_MAX)
        self._drafter.limit = limit if drawn == drafted else max(1, drawn)
        if self._count is not None:
            self._count(drafted, drawn)

    def feed(self) -> tuple[Tensor, Tensor, int]:
        """The last token and a draft. It takes back what was not drawn of the last one."""
        parents, tokens = self._sampling.feed()
        self._draft = self._drafter.draft(self._sampling.last_state, self._sampling.budget)
        return parents, torch.cat([tokens, tokens.new_tensor([self._draft])], dim=1), self._undo

    def answers(self) -> tuple[Hypothesis, ...]:
        """The answer."""
        return self._sampling.answers()


class _Drafter:
    """Proposes at most `limit` tokens. `forced`: of the generation's states."""

    def __init__(self, prompt_ids: Sequence[int], forced: ForcedTokens | None) -> None:
        self._forced, self.limit = forced, DRAFT_FIRST
        self._ids: list[int] = []
        self._following: dict[tuple[int, int], int] = {}  # by two ids, where those after their last occurrence begin
        for token in prompt_ids:
            self.add(token)

    def add(self, token: int) -> None:
        """Appends a token."""
        self._ids.append(token)
        if len(self._ids) > 2:  # the pair before the new token: what follows the last pair is not known yet
            self._following[self._ids[-3], self._ids[-2]] = len(self._ids) - 1

    def draft(self, state: int, budget: int) -> list[int]:
        """The tokens that may follow. At least one token of the budget is left to be drawn without a draft."""
        if tokens := self._spelling(state, budget):
            return tokens
        begin = self._following.get((self._ids[-2], self._ids[-1])) if len(self._ids) > 1 else None
        return [] if begin is None else self._ids[begin : begin + min(self.limit, budget - 1)]

    def _spelling(self, state: int, budget: int) -> list[int]:
        tokens = list[int]()
        states = np.array([state])
        while self._forced is not None and len(tokens) < min(self.limit, budget - 1):
            token = self._forced.tokens(states, budget - len(tokens) - 1)
            if token[0] == NO_FORCED_TOKEN or self._forced.ends(token)[0]:
                break
            tokens.append(int(token[0]))
            states = self._forced.after(states)
        return tokens
