"""The trace of an answer, replayed from its tokens: a second, independent check of the search.

Takes nothing from the search but the tokens and the sums it claims: states come from `TokenAutomaton.advance`, not
from the tensors' tables, and log-probs from a fresh pass of the model, not from the beams.
"""

from __future__ import annotations

from dataclasses import dataclass

from compiler.lifting import UNREACHABLE, TokenAutomaton
from decoding.errors import ReplayRejected
from decoding.generation import Hypothesis
from decoding.model import ScoredSequence
from decoding.options import SearchOptions, push_up, pushed
from decoding.sampling import SamplingOptions
from decoding.tensors import LOG_PROB_FLOOR


@dataclass(frozen=True, slots=True)
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
    automaton: TokenAutomaton,
    hypothesis: Hypothesis,
    rescored: ScoredSequence,
    options: SearchOptions | SamplingOptions,
    tolerance: float,
    start: int | None = None,
) -> tuple[TraceStep, ...]:
    """The trace of an answer. Raises ReplayRejected where the answer is not what the search says it is.

    rescored   the model's opinion of the answer's tokens, EOS among them, from `LanguageModel.score`
    tolerance  how far a log-prob may be off, in nats a token, from `LanguageModel.tolerance`
    start      the state the answer starts in, where it is not the automaton's own
    """
    if not len(hypothesis.tokens) == len(rescored.log_probs) == len(rescored.peaks):
        raise ReplayRejected(f"{len(hypothesis.tokens)} tokens were rescored as {len(rescored.log_probs)}")
    if len(hypothesis.tokens) > options.max_tokens:
        raise ReplayRejected(f"the answer has {len(hypothesis.tokens)} tokens, the budget is {options.max_tokens}")
    steps: list[TraceStep] = []
    state = automaton.start if start is None else start
    for place, token in enumerate(hypothesis.tokens):
        taken = _replay_token(automaton, options, state, place, token, rescored.log_probs[place], rescored.peaks[place])
        steps.append(taken)
        state = taken.state
    if automaton.distance[state] != 0:
        raise ReplayRejected(f"the answer stops {int(automaton.distance[state])} tokens short of acceptance")
    _compare("log-probs", [taken.log_prob for taken in steps], hypothesis.log_prob, tolerance)
    if isinstance(options, SearchOptions):  # what a sample scores is its probability among all allowed tokens
        _compare("scores", [taken.score for taken in steps], hypothesis.score, tolerance)
    return tuple(steps)


def _replay_token(
    automaton: TokenAutomaton, options: SearchOptions | SamplingOptions, state: int, place: int, token: int,
    log_prob: float, peak: float,
) -> TraceStep:
    before = int(automaton.distance[state])
    if before == 0:
        raise ReplayRejected(f"token {place} follows the end of the text")
    after_state = automaton.advance(state, token)
    after = int(automaton.distance[after_state])
    budget_before = options.max_tokens - place
    if after == UNREACHABLE:
        raise ReplayRejected(f"token {place} leads to the dead state")
    if after > budget_before - 1:
        raise ReplayRejected(f"after token {place} acceptance is {after} tokens away, with {budget_before - 1} left")
    alpha = 0.0
    if isinstance(options, SearchOptions) and options.algorithm == "abs":
        alpha = push_up(before, budget_before, options.alpha_min, options.gamma)
    own, best = max(log_prob, LOG_PROB_FLOOR), max(peak, LOG_PROB_FLOOR)
    score = pushed(own, best, alpha) if after < before else own
    return TraceStep(token, after_state, after, budget_before, alpha, own, score)


def _compare(name: str, parts: list[float], claimed: float, tolerance: float) -> None:
    total = sum(parts)
    if not abs(total - claimed) <= tolerance * len(parts):  # also catches NaN
        raise ReplayRejected(f"the {name} of the tokens add up to {total:.6g}, the search says {claimed:.6g}")
