"""What a caller of decode wants: a matrix of log-probs over labels, a constraint on them, and how to search."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from app.errors import RequestOverLimit
from app.messages import Priority
from app.settings import Settings
from compiler.spec import LabelsSpec


@dataclass(frozen=True, slots=True)
class DecodeParams:
    """A matrix with one column for each of the constraint's labels; None is -inf. For beams see `DecodeJob`."""

    spec: LabelsSpec
    log_probs: tuple[tuple[float | None, ...], ...]
    beams: int | Literal["exact"]
    alpha_min: float
    gamma: float
    timeout_s: float | None
    priority: Priority = "interactive"

    @property
    def weight(self) -> int:
        """What the request counts in the queue: rows that are written side by side, times their length."""
        return len(self.log_probs) * (1 if self.beams == "exact" else self.beams)


def check_order(order: DecodeParams, settings: Settings) -> None:
    """Raise RequestOverLimit where a matrix is too large to be taken at all, or the beams are too many."""
    if len(order.log_probs) > settings.matrix_rows_max:
        raise RequestOverLimit("log_probs", "matrix_rows_max", settings.matrix_rows_max)
    if len(order.log_probs) * len(order.spec.labels) > settings.matrix_cells_max:
        raise RequestOverLimit("log_probs", "matrix_cells_max", settings.matrix_cells_max)
    if order.beams != "exact" and order.beams > settings.beams_max:
        raise RequestOverLimit("beams", "beams_max", settings.beams_max)


def check_paths(rows: int, states: int, settings: Settings) -> None:
    """Raise RequestOverLimit if the search would hold too many paths: rows times the automaton's states."""
    if rows * states > settings.matrix_states_max:
        raise RequestOverLimit("log_probs", "matrix_states_max", settings.matrix_states_max)
