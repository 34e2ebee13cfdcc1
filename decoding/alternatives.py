"""The most probable tokens in each place of an answer.

Their probabilities are given with and without the constraint.

The constrained distribution is the model's, restricted to the tokens after which the text can still be finished in
time, d(q') <= T - t, and renormalised. A search does not draw from it, and a sample draws from it at temperature 1 if
no other option changes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from decoding.prepared_constraint import DEFAULT_STATE_LIMITS, Automaton, Start, StateLimits, host_states
from decoding.tensors import LOG_PROB_FLOOR

ALTERNATIVES_MAX = 20


@dataclass(frozen=True, slots=True)
class TokenAlternative:
    """A token in some place of a text.

    log_prob              the model's own
    constrained_log_prob  in the constrained distribution; None where the token is not allowed
    """

    token: int
    log_prob: float
    constrained_log_prob: float | None


@dataclass(frozen=True, slots=True)
class Place:
    """A token of an answer, and the most probable ones there.

    The best one comes first.
    """

    written: TokenAlternative
    top: tuple[TokenAlternative, ...]


class AlternativesRecorder:
    """Receives the log-probs of an answer's places from `LanguageModel.score`. A place may come twice.

    tokens  of the answer, EOS among them
    count   how many of the most probable tokens; of equal ones the lowest ids
    start   the state before the answer; None: the automaton's own
    """

    def __init__(
        self, automaton: Automaton, tokens: Sequence[int], max_tokens: int, count: int, *, start: Start | None = None,
        limits: StateLimits = DEFAULT_STATE_LIMITS,
    ) -> None:
        self._tokens, self._max_tokens, self._count = tokens, max_tokens, count
        self._states, state = host_states(automaton, start, limits)
        self._path = [state]
        for token in tokens[:-1]:
            self._path.append(self._states.advance(self._path[-1], token))
        self._places: dict[int, Place] = {}

    def __call__(self, begin: int, log_probs: Tensor) -> None:
        """Records the places from `begin` on. Log-probs are float32 [N, V]."""
        for position, row in enumerate(log_probs.double().clamp(min=LOG_PROB_FLOOR), begin):
            distance, _ = self._states.expand(self._path[position])
            allowed_classes = distance <= self._max_tokens - position - 1  # [C]
            allowed = torch.from_numpy(allowed_classes[self._states.token_class]).to(row.device)  # [V]
            total = float(row[allowed].logsumexp(dim=0))
            best = row.sort(descending=True, stable=True).indices[: self._count].tolist()
            written, *top = (
                TokenAlternative(token, value, min(0.0, value - total) if allowed[token] else None)
                for token in (self._tokens[position], *best)
                for value in (float(row[token]),)
            )
            self._places[position] = Place(written, tuple(top))

    @property
    def places(self) -> tuple[Place, ...]:
        """The places in the order of the answer's tokens."""
        return tuple(self._places[position] for position in range(len(self._tokens)))
