"""Decodes a matrix of log-probs over labels, and checks the result. The search is a parameter."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from app.errors import InternalError
from app.messages import CompileJobResult, DecodeJob, DecodeJobResult, LabelStepBody
from app.worker.handlers.base import timings_of
from compiler.artifact import CompiledConstraint
from compiler.lifting import TokenAutomaton
from compiler.text import TextAutomaton, check_labels
from decoding.label_decoding import BeamOptions, LabelPath, beam_labels, best_labels

_ROUNDING = 1e-6  # difference per label between two orders of summation
LabelSearch = Callable[[NDArray[np.float64], TokenAutomaton], LabelPath]


def label_path(
    job: DecodeJob, cancelled: Callable[[], bool], log_probs: NDArray[np.float64], automaton: TokenAutomaton
) -> LabelPath:
    """The labels of the search that a job names. Raises the search's errors."""
    if job.beams == "exact":
        return best_labels(log_probs, automaton, cancelled)
    return beam_labels(log_probs, automaton, BeamOptions(job.beams, job.alpha_min, job.gamma), cancelled)


def decode_matrix(
    job: DecodeJob, constraint: CompiledConstraint, search: LabelSearch, sizes: CompileJobResult, waited_s: float
) -> DecodeJobResult:
    """The job's answer, with its trace. Log-probs slightly above 0 are rounding errors and count as 0.

    Raises the search's errors, and InternalError if its answer fails the checks, which is a bug.
    """
    started = time.perf_counter()
    matrix = np.array(job.log_probs, dtype=np.float64)  # [steps, labels]; None becomes NaN
    text, tokens = constraint.text, constraint.tokens
    assert isinstance(text, TextAutomaton) and isinstance(tokens, TokenAutomaton)  # of labels
    path = search(np.where(np.isnan(matrix), -np.inf, np.minimum(matrix, 0.0)), tokens)
    labels = tuple(text.symbol_names[number] for number in path.labels)
    check = check_labels(text, labels)
    if not check.satisfied or len(labels) != len(matrix):
        raise InternalError("the decoded labels do not satisfy their constraint")
    if abs(sum(path.log_probs) - path.log_prob) > _ROUNDING * len(labels):
        raise InternalError("the log-probs of the decoded labels do not add up")
    trace = tuple(
        LabelStepBody(step.text, step.state, _to_go(constraint, step.state), step.letters, log_prob)
        for step, log_prob in zip(check.words, path.log_probs, strict=True)
    )
    timings = timings_of(job, sizes, waited_s, time.perf_counter() - started)
    return DecodeJobResult(labels, path.log_prob, path.score, check.satisfied, trace, sizes.automaton, timings)


def _to_go(constraint: CompiledConstraint, state: int) -> int:
    """The fewest further labels to acceptance. A stored distance also counts the end, which is no label."""
    distance = constraint.state_distances[state]
    if distance is None:
        raise InternalError("the decoded labels lead through the dead state")
    return distance - 1
