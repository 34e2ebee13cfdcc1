"""A generation, told in one loop: automata-guided beam search (paper, Algorithm 1).

Owns the loop, when it may stop, and the last choice. The arithmetic of a step is `step`'s, the model's is `model`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import inf, isfinite
from typing import Literal, TypeVar

import torch
from torch import Tensor

from compiler.token_automaton import UNREACHABLE, TokenAutomaton
from decoding.beams import DEAD_SCORE, Beams, Tables
from decoding.errors import (
    BudgetTooSmall,
    Cancelled,
    ModelOutputInvalid,
    OptionsInvalid,
    PromptTooLong,
    SearchExhausted,
    VocabularyMismatch,
)
from decoding.model import LanguageModel
from decoding.ramp import push_up
from decoding.step import step

SessionT = TypeVar("SessionT")
TextOf = Callable[[tuple[int, ...]], bytes]


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """What a caller may choose. Raises OptionsInvalid where a value is out of its range.

    max_tokens  T, the budget in tokens, EOS among them
    beams       k, the rows kept after each step
    algorithm   "abs", the paper's Algorithm 1
    alpha_min   the least push-up, 0 to 1 (paper, Eq. 2)
    gamma       sharpness of the ramp, above 0
    n           how many distinct answers, at most `beams`
    rank_by     the last choice: by the model's own "log_prob", or by the pushed "score" as in the paper
    """

    max_tokens: int
    beams: int = 16
    algorithm: Literal["abs"] = "abs"
    alpha_min: float = 0.5
    gamma: float = 1.0
    n: int = 1
    rank_by: Literal["score", "log_prob"] = "log_prob"

    def __post_init__(self) -> None:
        _require(self.max_tokens >= 1, "max_tokens", "at least 1")
        _require(self.beams >= 1, "beams", "at least 1")
        _require(self.algorithm == "abs", "algorithm", '"abs"')
        _require(0.0 <= self.alpha_min <= 1.0, "alpha_min", "between 0 and 1")
        _require(isfinite(self.gamma) and self.gamma > 0.0, "gamma", "a finite number above 0")
        _require(1 <= self.n <= self.beams, "n", f"between 1 and the number of beams, {self.beams}")
        _require(self.rank_by in ("score", "log_prob"), "rank_by", '"score" or "log_prob"')


def _require(holds: bool, field: str, expected: str) -> None:
    if not holds:
        raise OptionsInvalid(field, expected)


@dataclass(frozen=True, slots=True)
class BeamRow:
    """One row of a beam after a step.

    tokens    all ids so far; a finished row ends in its one EOS, however long ago that was
    parent    the row it extends, in the beam before
    state     automaton state after the tokens
    distance  fewest tokens from there to acceptance; 0 when finished
    alpha     push-up at the step that wrote the last token
    score     pushed sum
    log_prob  the model's own sum
    """

    tokens: tuple[int, ...]
    parent: int
    state: int
    distance: int
    alpha: float
    score: float
    log_prob: float

    @property
    def finished(self) -> bool:
        return self.distance == 0


@dataclass(frozen=True, slots=True)
class StepEvent:
    """The beam after step `step_number` (t, from 1), best row first, with the budget left: T - t tokens."""

    step_number: int
    budget_after: int
    rows: tuple[BeamRow, ...]


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A finished answer: its ids with one EOS at the end, and its sums. It always finishes, hence one reason."""

    tokens: tuple[int, ...]
    score: float
    log_prob: float
    finish_reason: Literal["eos"] = "eos"


def generate(
    model: LanguageModel[SessionT],
    prompt_ids: Sequence[int],
    automaton: TokenAutomaton,
    options: SearchOptions,
    *,
    on_step: Callable[[StepEvent], None] | None = None,
    cancelled: Callable[[], bool] | None = None,
    text_of: TextOf | None = None,
) -> tuple[Hypothesis, ...]:
    """The best `options.n` continuations of the prompt that the automaton accepts, best first, all distinct.

    on_step    is told of every beam
    cancelled  is asked before every step
    text_of    the bytes of a row's ids without EOS; with it answers are distinct as texts, without it as ids
    Fewer than n come back where the last beam holds no more; never none.
    Raises BudgetTooSmall, PromptTooLong and VocabularyMismatch before the model is asked for the first token,
    Cancelled and ModelOutputInvalid on the way, SearchExhausted where the automaton's distances are wrong.
    """
    _refuse_early(model, prompt_ids, automaton, options)
    search = _Search(automaton, options, model.device)
    rows = search.first_rows()
    session, first = model.prefill(prompt_ids)
    log_probs = first[None]  # [1, V]
    for step_number in range(1, options.max_tokens + 1):
        if cancelled is not None and cancelled():
            raise Cancelled("the generation was cancelled")
        before, rows = rows, search.advance(rows, log_probs, step_number)
        if on_step is not None:
            on_step(StepEvent(step_number, options.max_tokens - step_number, rows))
        if _settled(rows, options, text_of):
            break
        live = [row for row in rows if not row.finished]
        model_row = {number: place for place, number in enumerate(_live_numbers(before))}
        log_probs = model.step(session, [model_row[row.parent] for row in live], [row.tokens[-1] for row in live])
    chosen = _distinct(sorted((row for row in rows if row.finished), key=_last_choice(options)), text_of, options.n)
    return tuple(Hypothesis(row.tokens, row.score, row.log_prob) for row in chosen)


def _refuse_early(
    model: LanguageModel[SessionT], prompt_ids: Sequence[int], automaton: TokenAutomaton, options: SearchOptions
) -> None:
    if model.vocab_size != automaton.vocabulary_size:
        raise VocabularyMismatch(automaton.vocabulary_size, model.vocab_size)
    if automaton.min_tokens > options.max_tokens:
        raise BudgetTooSmall(
            automaton.min_tokens if automaton.min_tokens != UNREACHABLE else None, options.max_tokens
        )
    read = max(1, len(prompt_ids)) + options.max_tokens - 1  # the last token, EOS, is written but never read
    if model.context_length is not None and read > model.context_length:
        raise PromptTooLong(len(prompt_ids), options.max_tokens, model.context_length)


class _Search:
    """One generation's tensors; its rows' tokens stay on the host, where the events and the last choice need them."""

    def __init__(self, automaton: TokenAutomaton, options: SearchOptions, device: torch.device) -> None:
        self._automaton = automaton
        self._options = options
        self._device = device
        self._tables = Tables.from_automaton(automaton, device)
        self._beams = Beams.start(automaton.start, device)

    def first_rows(self) -> tuple[BeamRow, ...]:
        start = self._automaton.start
        return (BeamRow((), 0, start, int(self._automaton.distance[start]), 0.0, 0.0, 0.0),)

    def advance(self, rows: Sequence[BeamRow], log_probs: Tensor, step_number: int) -> tuple[BeamRow, ...]:
        """The rows after one more step; `log_probs` float32 [R, V] has one row for each live one of `rows`."""
        options = self._options
        budget_before = options.max_tokens - step_number + 1
        peak = log_probs.amax(dim=1)  # [R]; NaN anywhere in a row is NaN here
        if not bool(peak.isfinite().all()):
            raise ModelOutputInvalid("the model's log-probs hold NaN, or none of them is finite")
        alphas = [push_up(row.distance, budget_before, options.alpha_min, options.gamma) for row in rows]
        live = _live_numbers(rows)
        done = [number for number, row in enumerate(rows) if row.finished]
        beams = step(
            self._beams, self._whole(live), self._whole(done), log_probs, peak,
            torch.tensor([alphas[number] for number in live], dtype=torch.float64, device=self._device),
            self._tables, budget_before - 1, options.beams,
        )
        found = [row for row in beams.to_host() if row.score != DEAD_SCORE]
        if not found:
            raise SearchExhausted(f"no row could be extended with {budget_before} tokens left")
        self._beams = beams.select(self._whole(range(len(found))))  # the dead ones are last
        return tuple(
            BeamRow(
                rows[row.parent].tokens if rows[row.parent].finished else (*rows[row.parent].tokens, row.token),
                row.parent, row.state, int(self._automaton.distance[row.state]), alphas[row.parent], row.score,
                row.log_prob,
            )
            for row in found
        )

    def _whole(self, numbers: Iterable[int]) -> Tensor:
        return torch.tensor(list(numbers), dtype=torch.int64, device=self._device)


def _live_numbers(rows: Sequence[BeamRow]) -> list[int]:
    return [number for number, row in enumerate(rows) if not row.finished]


def _last_choice(options: SearchOptions) -> Callable[[BeamRow], tuple[float, float, int, tuple[int, ...]]]:
    """Sort key of the finished rows, best first: as asked, then by the other sum, then shorter, then lower ids."""
    if options.rank_by == "score":
        return lambda row: (-row.score, -row.log_prob, len(row.tokens), row.tokens)
    return lambda row: (-row.log_prob, -row.score, len(row.tokens), row.tokens)


def _distinct(rows: Iterable[BeamRow], text_of: TextOf | None, count: int) -> list[BeamRow]:
    """The first `count` rows whose texts differ."""
    first: dict[bytes | tuple[int, ...], BeamRow] = {}
    for row in rows:
        ids = row.tokens[:-1]
        first.setdefault(ids if text_of is None else text_of(ids), row)
        if len(first) == count:
            break
    return list(first.values())


def _settled(rows: Sequence[BeamRow], options: SearchOptions, text_of: TextOf | None) -> bool:
    """True when running on to the end of the budget cannot change the answers.

    No step raises a sum, so a finished row above every live row stays in the beam whatever they become, and above
    all that they become. The answers are settled when they are such rows and, where they are ranked by log-prob,
    no live row still has more; ties go to the shorter, which is the one already finished.
    """
    live = _live_numbers(rows)
    if not live:
        return True
    best = _distinct(sorted((row for row in rows if row.finished), key=_last_choice(options)), text_of, options.n)
    if len(best) < options.n:
        return False
    safe = set(rows[: live[0]])
    still_open = max(rows[number].log_prob for number in live) if options.rank_by == "log_prob" else -inf
    return best[-1].log_prob >= still_open and all(row in safe for row in best)
