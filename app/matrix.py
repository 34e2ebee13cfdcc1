"""What a caller of decode wants: a matrix of log-probs over labels, a constraint on them, and how to search."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from app.errors import RequestOverLimit
from app.jobs import CompileResult, DecodeJob, DecodeResult
from app.settings import Settings
from compiler.spec import LabelsSpec


@dataclass(frozen=True, slots=True)
class DecodeOrder:
    """A matrix with one column for each of the constraint's labels; None is -inf. For beams see `DecodeJob`."""

    spec: LabelsSpec
    log_probs: tuple[tuple[float | None, ...], ...]
    beams: int | Literal["exact"]
    alpha_min: float
    gamma: float
    timeout_s: float | None


@dataclass(frozen=True, slots=True)
class DecodeAnswer:
    """The decode result, and what happened on the way."""

    compiled: CompileResult
    result: DecodeResult
    total_ms: float


def check_order(order: DecodeOrder, settings: Settings) -> None:
    """Raise RequestOverLimit where a matrix is too large to be taken at all, or the beams are too many."""
    if len(order.log_probs) > settings.decode_rows_max:
        raise RequestOverLimit("log_probs", "decode_rows_max", settings.decode_rows_max)
    if len(order.log_probs) * len(order.spec.labels) > settings.decode_cells_max:
        raise RequestOverLimit("log_probs", "decode_cells_max", settings.decode_cells_max)
    if order.beams != "exact" and order.beams > settings.beams_max:
        raise RequestOverLimit("beams", "beams_max", settings.beams_max)


def decode_job(order: DecodeOrder, compiled: CompileResult, settings: Settings, deadline: float) -> DecodeJob:
    """The job for a constraint that is stored. Raises RequestOverLimit where the search would have to hold too much."""
    if len(order.log_probs) * compiled.states > settings.decode_paths_max:
        raise RequestOverLimit("log_probs", "decode_paths_max", settings.decode_paths_max)
    return DecodeJob(compiled.automaton, order.log_probs, order.beams, order.alpha_min, order.gamma, deadline)
