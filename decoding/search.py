"""A generation, told in one loop: automata-guided beam search (paper, Algorithm 1, and what goes beyond it).

Owns what a search remembers between two forward passes, when it may stop, and the last choice. The arithmetic of a
step is `step`'s, the model's is `model`'s; `engine` drives many searches at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from compiler.token_automaton import UNREACHABLE, TokenAutomaton
from decoding.arrays import Array, count_up, like
from decoding.beams import Beams
from decoding.constraint import Constraint
from decoding.errors import (
    BudgetTooSmall,
    Cancelled,
    ModelOutputInvalid,
    PromptTooLong,
    SearchExhausted,
    VocabularyMismatch,
)
from decoding.finished import Finished
from decoding.forced import FREE
from decoding.heuristics import ALL, Heuristics
from decoding.history import Columns, History
from decoding.language_model import Feed, LanguageModel, Scores
from decoding.lessons import Lessons
from decoding.moves import NO_FLOOR
from decoding.options import SearchOptions
from decoding.plan import Plan
from decoding.runs import BeamRow, Hypothesis, Run, Snapshot, StepEvent, TextOf
from decoding.step import forced_step, step
from decoding.widths import nodes_at_most, rows_after, tightness


def generate(
    model: LanguageModel[Any],
    prompt_ids: Sequence[int],
    automaton: TokenAutomaton | Constraint,
    options: SearchOptions,
    *,
    on_step: Callable[[StepEvent], None] | None = None,
    cancelled: Callable[[], bool] | None = None,
    text_of: TextOf | None = None,
    heuristics: Heuristics = ALL,
) -> tuple[Hypothesis, ...]:
    """The best `options.n` continuations of the prompt that the automaton accepts, best first, all distinct.

    on_step    is told of every beam
    cancelled  is asked before every step
    text_of    with it answers are distinct as texts, without it as ids
    Fewer than n come back where the last beam holds no more; never none.
    Raises BudgetTooSmall, PromptTooLong and VocabularyMismatch before the model is asked for the first token,
    Cancelled and ModelOutputInvalid on the way, SearchExhausted where the automaton's distances are wrong.
    """
    if isinstance(automaton, TokenAutomaton):
        automaton = Constraint.prepare(automaton, model.device)
    refuse_early(model, len(prompt_ids), automaton, options.max_tokens)
    search = BeamSearch(automaton, options, text_of=text_of, heuristics=heuristics)
    return drive(model, prompt_ids, search, on_step, cancelled)


def refuse_early(
    model: LanguageModel[Any], prompt_tokens: int, constraint: Constraint, max_tokens: int, start: int | None = None
) -> None:
    """Raise what is wrong with a request before the model is asked: VocabularyMismatch, BudgetTooSmall, PromptTooLong.

    start  the state the answer starts in, where it is not the automaton's own
    """
    automaton = constraint.automaton
    if model.vocab_size != automaton.vocabulary_size:
        raise VocabularyMismatch(automaton.vocabulary_size, model.vocab_size)
    least = int(automaton.distance[automaton.start if start is None else start])
    if least > max_tokens:
        raise BudgetTooSmall(least if least != UNREACHABLE else None, max_tokens)
    read = max(1, prompt_tokens) + max_tokens - 1  # the last token, EOS, is written but never read
    if model.context_length is not None and read > model.context_length:
        raise PromptTooLong(prompt_tokens, max_tokens, model.context_length)


@torch.inference_mode()
def drive(
    model: LanguageModel[Any], prompt_ids: Sequence[int], run: Run,
    on_step: Callable[[StepEvent], None] | None = None, cancelled: Callable[[], bool] | None = None,
) -> tuple[Hypothesis, ...]:
    """Drive one run by itself, in this thread."""
    session, first = model.prefill(prompt_ids)
    scores = first_scores(first)
    while True:
        if cancelled is not None and cancelled():
            raise Cancelled("the generation was cancelled")
        for snapshot in run.advance(scores):
            if on_step is not None:
                on_step(snapshot())
        if run.done:
            return run.answers()
        del scores  # the model has need of their memory
        (scores,) = model.step([Feed(session, *run.feed())])


def first_scores(log_probs: Tensor) -> Scores:
    """The prompt's log-probs float32 [V] as the scores of a feed of one row."""
    nothing = log_probs.new_empty((1, 0))
    return Scores(log_probs[None], nothing, nothing)


class BeamSearch:
    """One search between two forward passes; obeys `Run`.

    start  the state the answer starts in, where it is not the automaton's own: what the prompt has led to
    tight  how tight the budget is, by which the search keeps more rows (`widths.tightness`); None: as it is

    With "abs" finished rows stay in the beam, as in the paper, and the answers are chosen from the last one. Otherwise
    they are taken out as they come, and live rows that can no longer beat them are dropped, so that the search ends of
    itself, and keeps more rows than k at first (`widths`). Where the constraint has what it takes
    (`Constraint.class_cost`) what its rows have read corrects the estimate as it goes.
    """

    def __init__(
        self, constraint: Constraint, options: SearchOptions, *, start: int | None = None,
        text_of: TextOf | None = None, tight: int | None = None, heuristics: Heuristics = ALL,
    ) -> None:
        self._options, self._text_of, self._heuristics = options, text_of, heuristics
        self._tables, self._eos_ids = constraint.tables.for_search(), constraint.automaton.eos_ids
        texts, estimate = constraint.texts, constraint.estimate
        start = constraint.automaton.start if start is None else start
        if tight is None:
            tight = tightness(int(constraint.automaton.distance[start]), options.max_tokens)
        self._tight = tight if heuristics.tight_budgets else 0
        end_cost, endings = constraint.end_cost, constraint.endings
        self._paper = options.algorithm == "abs"
        self._plan = Plan.prepare(
            self._tables, texts, estimate, options, end_cost, self._tight, endings, heuristics, self._rows_after(1)
        )
        self._lessons = self._new_lessons(constraint)
        self._forced = constraint.forced if heuristics.forced and not self._paper else None  # the paper tries all
        self._device = constraint.tables.distance.device
        self._finished = Finished(options, text_of)
        self._beams = Beams.start(start, self._tables.distance)
        self._columns = Columns.of(self._beams, self._tables)
        self._before = self._columns
        self._history = History()
        self._scored = np.zeros(1, dtype=np.int64)  # for each row of the beam, its row in the scores to come
        self._parents = self._scored  # for each row of the beam, its parent's row in the feed before
        self._chain: list[NDArray[np.int64]] = []  # dictated tokens fed in advance, each for all rows of the feed
        self._done = False

    def _new_lessons(self, constraint: Constraint) -> Lessons | None:
        """What is to be learned on the way; None where nothing is."""
        if self._paper or constraint.class_cost is None or not Lessons.possible(constraint.automaton):
            return None
        if not self._heuristics.corrections or self._heuristics.cost_to_go != "unigram":
            return None
        return Lessons(constraint.automaton, self._tables, constraint.class_cost, self._plan.estimates())

    @property
    def done(self) -> bool:
        return self._done

    def advance(self, scores: Scores) -> list[Snapshot]:
        snapshots = []
        for place in range(len(self._chain)):
            snapshots.append(self._forced_step(scores, place))
            if self._done:  # what is left of the stretch can beat no answer
                return snapshots
        return [*snapshots, self._free_step(scores.log_probs)]

    def feed(self) -> tuple[Tensor, Tensor]:
        live = self._columns.live
        parents = self._parents[live]
        self._chain = self._dictated()
        self._scored = np.zeros(self._columns.rows, dtype=np.int64)
        self._scored[live] = np.arange(len(live))
        tokens = np.stack([self._columns.token[live], *self._chain], axis=1)
        return self._whole(parents), self._whole(tokens)

    def answers(self) -> tuple[Hypothesis, ...]:
        return self._finished.answers()

    @property
    def _budget_before(self) -> int:
        return self._options.max_tokens - len(self._history)

    @property
    def _floor(self) -> float:
        """The log-prob that a live row must have more of to become an answer; no step raises a log-prob."""
        if self._paper or not self._heuristics.floor:
            return NO_FLOOR
        return float(self._finished.threshold * self._options.max_tokens**self._options.length_power)

    @property
    def _step_plan(self) -> Plan:
        """The plan with as many rows as the next step keeps."""
        if self._paper:
            return self._plan
        return self._plan.keeping(self._rows_after(len(self._history) + 1))

    def _rows_after(self, step: int) -> int:
        options, factor = self._options, self._heuristics.row_factor
        if self._paper:
            return options.beams
        if factor is not None:
            return max(1, round(factor * options.beams))
        return rows_after(step, options.beams, options.max_tokens, self._tight)

    def _forced_step(self, scores: Scores, place: int) -> Snapshot:
        """One step of a stretch that every live row is in: nothing to choose from, only sums and order."""
        at = self._scored[self._columns.live]
        tokens, fed = self._array(self._chain[place][at]), self._array(at)
        own, peak = (self._array(column[:, place])[fed] for column in (scores.own, scores.peak))
        beams = forced_step(
            self._beams, tokens, own, peak, self._tables, self._step_plan, self._budget_before, self._floor
        )
        snapshot = self._take(beams)
        self._scored = self._scored[self._columns.parent]
        return snapshot

    def _free_step(self, log_probs: Tensor) -> Snapshot:
        at = self._scored[self._columns.live]
        if not np.array_equal(at, np.arange(len(log_probs))):
            log_probs = log_probs[self._whole(at)]
        allowed, leader = self._allowed(), self._tables.best_of_chunks(log_probs)
        if self._lessons is not None:
            self._learn(self._lessons, leader, allowed)
        beams = step(
            self._beams, log_probs, self._tables, self._step_plan, self._budget_before, allowed, self._floor, leader
        )
        snapshot = self._take(beams)
        self._parents = self._scored[self._columns.parent]
        return snapshot

    def _learn(self, lessons: Lessons, leader: Array, allowed: Array | None) -> None:
        """What the rows have read corrects what acceptance is expected to cost, before they are extended."""
        lessons.learn(self._columns.state[self._columns.live], leader, allowed)
        estimate = lessons.estimate(len(self._history) + 1)
        if estimate is not None:
            self._plan = self._plan.with_learned(estimate)

    def _take(self, beams: Beams) -> Snapshot:
        """The new beam in place of the old one. Raises ModelOutputInvalid, SearchExhausted."""
        columns = Columns.of(beams, self._tables)
        if np.isnan(columns.score).any():
            raise ModelOutputInvalid("the model's log-probs hold NaN, or none of them is finite")
        if not columns.rows and not self._finished.complete:
            raise SearchExhausted(f"no row could be extended with {self._budget_before} tokens left")
        self._before, self._columns = self._columns, columns
        self._history.add(columns)
        kept = columns.rows if self._paper else len(columns.live)  # live ones first, then those that have just finished
        self._beams = beams if kept == len(beams.token) else beams.select(count_up(beams.token, kept))
        if self._paper:
            self._done = self._settled()
        else:
            shrunk = columns.log_prob[columns.finished] / len(self._history) ** self._options.length_power
            self._collect(columns.finished[shrunk >= self._finished.threshold])
            self._done = not columns.live.size
        return self._snapshot()

    def _collect(self, rows: NDArray[np.int64]) -> None:
        """Adds finished rows of the present beam to the answers."""
        columns = self._columns
        for row, ids in zip(rows.tolist(), self._history.tokens(rows, len(self._history), self._eos_ids), strict=True):
            self._finished.add(Hypothesis(ids, float(columns.score[row]), float(columns.log_prob[row])))

    def _allowed(self) -> Array | None:
        """What each live row may only take, FREE where it may choose; None where all may."""
        if self._forced is None:
            return None
        states = self._columns.state[self._columns.live]
        tokens = self._forced.tokens(states, self._budget_before - 1)
        return self._array(tokens) if (tokens != FREE).any() else None

    def _dictated(self) -> list[NDArray[np.int64]]:
        """The tokens that every live row must take next, step by step, as far as all have one; EOS is never fed.

        No more than all rows together have room for: `nodes_at_most` is what a generation is admitted with.
        """
        columns: list[NDArray[np.int64]] = []
        if self._forced is None:
            return columns
        states = self._columns.state[self._columns.live]
        nodes = nodes_at_most(self._options.beams, self._options.max_tokens, self._tight)
        room = nodes // len(states) - len(self._history)
        for budget_after in range(self._budget_before - 1, max(0, self._budget_before - 1 - room), -1):
            tokens = self._forced.tokens(states, budget_after)
            if (tokens == FREE).any() or self._forced.ends(tokens).any():
                break
            columns.append(tokens)
            states = self._forced.after(states)
        return columns

    def _settled(self) -> bool:
        """True when running "abs" on to the end of the budget cannot change the answers.

        No step raises a sum, so a finished row above every live row stays in the beam whatever they become, and above
        all that they become. The answers are settled when they are such rows, and no live row can still end better by
        the last choice; ties go to the shorter, which is the one already finished.
        """
        columns, options = self._columns, self._options
        self._finished = Finished(options, self._text_of)
        if not columns.live.size:
            self._collect(columns.finished)
            return True
        sums = columns.score if options.rank_by == "score" else columns.log_prob
        still_open = sums[columns.live].max() / options.max_tokens**options.length_power
        safe = columns.finished[columns.finished < columns.live[0]]
        longest = len(self._history) ** options.length_power
        if len(safe) < options.n or sums[safe].max() / longest < still_open:
            return False
        self._collect(columns.finished)
        kept = set(self._history.tokens(safe, len(self._history), self._eos_ids))
        return self._finished.threshold >= still_open and all(one.tokens in kept for one in self._finished.answers())

    def _array(self, numbers: Array) -> Array:
        """As the step's own arrays."""
        return like(self._tables.distance, numbers)

    def _whole(self, numbers: NDArray[np.int64]) -> Tensor:
        """On the model's device."""
        return torch.from_numpy(np.ascontiguousarray(numbers)).to(self._device)

    def _snapshot(self) -> Snapshot:
        """The beam as it is now, in words when somebody asks: what it reads never changes."""
        columns, before, history, steps = self._columns, self._before, self._history, len(self._history)
        plan, eos_ids, budget_after = self._plan, self._eos_ids, self._options.max_tokens - len(self._history)

        def event() -> StepEvent:
            rows = []
            for row, ids in enumerate(history.tokens(np.arange(columns.rows), steps, eos_ids)):
                parent = int(columns.parent[row])
                alpha = plan.alpha_of(int(before.distance[parent]), budget_after + 1)
                rows.append(BeamRow(
                    ids, parent, int(columns.state[row]), int(columns.distance[row]), alpha,
                    float(columns.score[row]), float(columns.log_prob[row]),
                ))
            return StepEvent(steps, budget_after, tuple(rows))

        return event
