"""Replays the trace of an answer from its tokens. It is a second check that is independent of the search.

It takes from the search only the tokens and their sums. States come from `advance` of the automaton, not from the
tables on the device or the search's own configurations, and log-probs from another pass of the model.
"""

from __future__ import annotations

from dataclasses import dataclass

from compiler.lifting import UNREACHABLE
from compiler.products import UNKNOWN
from decoding.errors import ReplayRejected
from decoding.generation import Hypothesis
from decoding.model import ScoredSequence
from decoding.options import SearchOptions, push_up, pushed
from decoding.prepared_constraint import DEFAULT_STATE_LIMITS, Automaton, Start, StateLimits, host_states
from decoding.sampling import SamplingOptions
from decoding.tensors import LOG_PROB_FLOOR, HostStates


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceStep:
    """One token of an answer.

    token          id
    state          automaton state after it
    distance       fewest tokens from there to acceptance
    budget_before  T - t + 1, the tokens that could still be written before this one
    alpha          push-up at this step; 0 where the algorithm pushes nothing
    log_prob       the model's own, of this token
    score          what this token adds to the answer's pushed score: its log-prob, pushed where it comes closer to
                   acceptance and the algorithm pushes
    """

    token: int
    state: int
    distance: int
    budget_before: int
    alpha: float
    log_prob: float
    score: float


def replay(
    automaton: Automaton,
    hypothesis: Hypothesis,
    rescored: ScoredSequence,
    options: SearchOptions | SamplingOptions,
    *,
    tolerance: float,
    start: Start | None = None,
    limits: StateLimits = DEFAULT_STATE_LIMITS,
) -> tuple[TraceStep, ...]:
    """The trace of an answer. Raises ReplayRejected where the answer is not what the search says it is.

    rescored     the log-probs of the answer's tokens, EOS among them, from `LanguageModel.score`
    tolerance    how far a log-prob may be off, in nats a token, from `LanguageModel.tolerance`
    start        the state the answer starts in, where it is not the automaton's own
    limits       those of the search
    """
    if not len(hypothesis.tokens) == len(rescored.log_probs) == len(rescored.max_log_probs):
        raise ReplayRejected(f"{len(hypothesis.tokens)} tokens were rescored as {len(rescored.log_probs)}")
    if len(hypothesis.tokens) > options.max_tokens:
        raise ReplayRejected(f"the answer has {len(hypothesis.tokens)} tokens, the budget is {options.max_tokens}")
    steps: list[TraceStep] = []
    states, state = host_states(automaton, start, limits)
    rows = zip(hypothesis.tokens, rescored.log_probs, rescored.max_log_probs, strict=True)
    for position, (token, log_prob, max_log_prob) in enumerate(rows):
        steps.append(
            _replay_token(
                states, options, state, position, token=token, log_prob=log_prob, max_log_prob=max_log_prob
            )
        )
        state = steps[-1].state
    if states.distance_of(state) != 0:
        raise ReplayRejected(f"the answer stops {states.distance_of(state)} tokens short of acceptance")
    _require_sum("log-probs", [step.log_prob for step in steps], hypothesis.log_prob, tolerance)
    # The score of a sample is its probability in the masked distribution, which one row of log-probs does not give.
    if isinstance(options, SearchOptions):
        _require_sum("scores", [step.score for step in steps], hypothesis.score, tolerance)
    return tuple(steps)


def _replay_token(
    states: HostStates, options: SearchOptions | SamplingOptions, state: int, position: int, *, token: int,
    log_prob: float, max_log_prob: float,
) -> TraceStep:
    """Check one token against the guarantee. The guarantee is d(q') <= T - t after every token."""
    before = states.distance_of(state)
    if before == 0:
        raise ReplayRejected(f"token {position} follows the end of the text")
    after_state = states.advance(state, token)
    after = states.distance_of(after_state)
    budget_before = options.max_tokens - position
    if after == UNREACHABLE:
        raise ReplayRejected(f"token {position} leads to the dead state")
    if after == UNKNOWN:
        raise ReplayRejected(f"after token {position} no way to acceptance is known")
    if after > budget_before - 1:
        raise ReplayRejected(f"after token {position} acceptance is {after} tokens away, with {budget_before - 1} left")
    alpha = 0.0
    if isinstance(options, SearchOptions) and options.algorithm == "abs":
        alpha = push_up(before, budget_before, options.alpha_min, options.gamma)
    # The search adds up floored log-probs, and pushes only tokens that come closer to acceptance.
    log_prob, max_log_prob = max(log_prob, LOG_PROB_FLOOR), max(max_log_prob, LOG_PROB_FLOOR)
    score = pushed(log_prob, max_log_prob, alpha) if after < before else log_prob
    return TraceStep(
        token=token, state=after_state, distance=after, budget_before=budget_before, alpha=alpha, log_prob=log_prob,
        score=score,
    )


def _require_sum(name: str, parts: list[float], claimed: float, tolerance: float) -> None:
    total = sum(parts)  # rounding errors of independent passes add up, so the tolerance is one for each token
    if not abs(total - claimed) <= tolerance * len(parts):  # also catches NaN
        raise ReplayRejected(f"the {name} of the tokens add up to {total:.6g}, the search says {claimed:.6g}")
