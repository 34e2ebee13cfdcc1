"""Decodes the labels of a matrix, or writes labels with a scorer. The result is checked."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from app.errors import InternalError, PromptViolates
from app.messages import (
    CompileJobResult,
    DecodeJob,
    DecodeJobResult,
    LabelStepBody,
    ScorerTask,
    TimingsBody,
    named_decoding,
)
from app.models import ScorerFiles
from app.requests import check_paths
from app.settings import Settings
from app.worker.handlers.base import Context, load_constraint, sizes_of, timings_of
from app.worker.handlers.engine import label_bytes_max
from compiler.artifact import CompiledConstraint
from compiler.lifting import UNREACHABLE, TokenAutomaton
from compiler.text import TextAutomaton, check_labels
from decoding.errors import ModelUnavailable, RequestTooLarge
from decoding.label_decoding import BeamOptions, LabelPath, beam_bytes, beam_labels, best_labels
from decoding.label_scoring import LabelScorer, ScorerModel, search_labels
from decoding.options import SearchOptions
from decoding.scorer_models import LabelIds, open_scorer

_ROUNDING = 1e-6  # difference per label between two orders of summation
_SCORED_ROUNDING = 1e-2  # the same between two passes of a scorer
LabelSearch = Callable[[NDArray[np.float64], TokenAutomaton], LabelPath]
Decode = Callable[[str, bytes], CompiledConstraint]


class LabelDecoder:
    """Runs the jobs of POST /decode. Any number of threads may call `run` at once.

    Raises ModelUnavailable for a scorer that cannot be loaded.
    """

    def __init__(self, settings: Settings, decode: Decode, scorers: Mapping[str, ScorerFiles]) -> None:
        self._settings, self._decode = settings, decode
        self._scorers = {name: _LoadedScorer(files, settings.inference.device) for name, files in scorers.items()}

    def run(self, job: DecodeJob, context: Context) -> DecodeJobResult:
        """Answer a job.

        Raises what decoding.errors names, AutomatonMissing where the store forgot the constraint, PromptViolates.
        """
        constraint = load_constraint(job.automaton, self._decode, context, self._settings.retention.automaton_ttl_s)
        assert isinstance(constraint.text, TextAutomaton)  # of labels
        sizes = sizes_of(job.automaton, constraint, context)
        if job.scorer is not None:
            result = self._write(job, job.scorer, constraint, context=context, sizes=sizes)
        else:
            check_paths(len(job.log_probs), constraint.text.display_dfa.states, self._settings)
            _require_memory(job, self._settings)
            search = functools.partial(label_path, job, context.cancelled)
            result = decode_matrix(job, constraint, search, sizes, context.waited_s)
        return named_decoding(result, job.names)

    def _write(
        self, job: DecodeJob, task: ScorerTask, constraint: CompiledConstraint, *, context: Context,
        sizes: CompileJobResult,
    ) -> DecodeJobResult:
        """The labels that a scorer writes, with their trace."""
        started = time.perf_counter()
        assert isinstance(constraint.text, TextAutomaton) and isinstance(job.beams, int)
        assert isinstance(constraint.tokens, TokenAutomaton)
        names = constraint.text.symbol_names
        if task.name not in self._scorers:
            raise ModelUnavailable(f"ABS_SCORERS of this worker has no {task.name!r}")
        model = self._scorers[task.name].model_of(names)
        prefix = _numbers_of(task.prefix, names, constraint.tokens)
        options = SearchOptions(task.max_tokens, beams=job.beams, length_penalty=task.length_penalty)
        path = search_labels(
            model, constraint.tokens, options, prefix=prefix, cancelled=context.cancelled,
            memory_bytes=label_bytes_max(self._settings),
        )
        seconds = time.perf_counter() - started
        _require_sum(path, _SCORED_ROUNDING)
        timings = timings_of(job, sizes, context.waited_s, seconds)
        return _checked(constraint, path, task.prefix, sizes.automaton, timings=timings)


def _require_memory(job: DecodeJob, settings: Settings) -> None:
    """Raise RequestTooLarge where a search by beams may take too much."""
    if job.beams == "exact":
        return
    needed, most = beam_bytes(len(job.log_probs), len(job.log_probs[0]), job.beams), label_bytes_max(settings)
    if needed > most:
        raise RequestTooLarge(needed, most)


class _LoadedScorer:
    """A scorer with its labels."""

    def __init__(self, files: ScorerFiles, device: str) -> None:
        self._files = files
        ids = LabelIds(files.label_ids, files.begin_id, files.end_id)
        self._scorer: LabelScorer = open_scorer(files.folder, ids, device=device)

    def model_of(self, names: tuple[str, ...]) -> ScorerModel:
        """The model over the labels of an automaton. Raises ModelUnavailable for labels that the scorer lacks."""
        # The API process read the same folder, perhaps before its files were replaced.
        if names != self._files.labels:
            raise ModelUnavailable(f"the labels of the scorer {self._files.name!r} have changed: restart all processes")
        return ScorerModel(self._scorer, len(names), self._files.context_tokens)


def _numbers_of(prefix: tuple[str, ...], names: tuple[str, ...], automaton: TokenAutomaton) -> list[int]:
    """The numbers of a prefix's labels. Raises PromptViolates where nothing that follows can be accepted."""
    number, state, numbers = {name: at for at, name in enumerate(names)}, automaton.start, list[int]()
    for position, label in enumerate(prefix):
        state = automaton.advance(state, number[label])
        if automaton.distance[state] == UNREACHABLE:
            raise PromptViolates(position, labels=True)
        numbers.append(number[label])
    return numbers


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
    tokens = constraint.tokens
    assert isinstance(tokens, TokenAutomaton)  # of labels
    path = search(np.where(np.isnan(matrix), -np.inf, np.minimum(matrix, 0.0)), tokens)
    if len(path.labels) != len(matrix):
        raise InternalError("the decoded labels are not as many as the matrix has rows")
    _require_sum(path, _ROUNDING)
    timings = timings_of(job, sizes, waited_s, time.perf_counter() - started)
    return _checked(constraint, path, (), sizes.automaton, timings=timings)


def _require_sum(path: LabelPath, rounding: float) -> None:
    if abs(sum(path.log_probs) - path.log_prob) > rounding * len(path.log_probs):
        raise InternalError("the log-probs of the decoded labels do not add up")


def _checked(
    constraint: CompiledConstraint, path: LabelPath, prefix: tuple[str, ...], automaton: str, *, timings: TimingsBody
) -> DecodeJobResult:
    """The result of a path. The constraint's text automaton checks prefix and labels.

    Raises InternalError where they do not satisfy.
    """
    text = constraint.text
    assert isinstance(text, TextAutomaton)
    labels = tuple(text.symbol_names[number] for number in path.labels)
    check = check_labels(text, (*prefix, *labels))
    if not check.satisfied:
        raise InternalError("the decoded labels do not satisfy their constraint")
    trace = tuple(
        LabelStepBody(step.text, step.state, _to_go(constraint, step.state), step.letters, log_prob)
        for step, log_prob in zip(check.words[len(prefix) :], path.log_probs, strict=False)  # the end has no step
    )
    return DecodeJobResult(labels, path.log_prob, path.score, check.satisfied, trace, automaton, timings)


def _to_go(constraint: CompiledConstraint, state: int) -> int:
    """The fewest further labels to acceptance. A stored distance also counts the end, which is no label."""
    distance = constraint.state_distances[state]
    if distance is None:
        raise InternalError("the decoded labels lead through the dead state")
    return distance - 1
