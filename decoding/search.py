"""Drives a beam search to its answers: prompt in, satisfying texts out. `engine` drives many side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from compiler.token_automaton import UNREACHABLE, TokenAutomaton
from decoding.abs_search import AbsSearch
from decoding.banked import BankedSearch
from decoding.constraint import Constraint
from decoding.errors import BudgetTooSmall, Cancelled, PromptTooLong, VocabularyMismatch
from decoding.language_model import Feed, LanguageModel, Scores
from decoding.options import DEFAULT, Heuristics, SearchOptions
from decoding.runs import Hypothesis, Run, StepEvent, TextOf


def generate(
    model: LanguageModel[Any], prompt_ids: Sequence[int], automaton: TokenAutomaton | Constraint,
    options: SearchOptions, *, on_step: Callable[[StepEvent], None] | None = None,
    cancelled: Callable[[], bool] | None = None, text_of: TextOf | None = None,
) -> tuple[Hypothesis, ...]:
    """The best `options.n` continuations of the prompt that the automaton accepts, or fewer, but never none.

    on_step    receives every beam
    cancelled  is called before every step
    text_of    with it answers are distinct as texts, without it as ids

    Raises what `refuse_early` raises before the first forward pass, Cancelled and ModelOutputInvalid later, and
    SearchExhausted where the automaton's distances are wrong.
    """
    if isinstance(automaton, TokenAutomaton):
        automaton = Constraint.prepare(automaton, model.device)
    refuse_early(model, len(prompt_ids), automaton, options.max_tokens)
    return drive(model, prompt_ids, search_of(automaton, options, text_of=text_of), on_step, cancelled)


def search_of(
    constraint: Constraint, options: SearchOptions, *, start: int | None = None, text_of: TextOf | None = None,
    heuristics: Heuristics = DEFAULT,
) -> AbsSearch | BankedSearch:
    """The search that `options.algorithm` names."""
    if options.algorithm == "abs":
        return AbsSearch(constraint, options, start=start, text_of=text_of)
    return BankedSearch(constraint, options, start=start, text_of=text_of, heuristics=heuristics)


def rows_of(options: SearchOptions, heuristics: Heuristics = DEFAULT) -> int:
    """The most rows that the search reads side by side."""
    return options.beams if options.algorithm == "abs" else heuristics.rows(options.beams)


def refuse_early(
    model: LanguageModel[Any], prompt_tokens: int, constraint: Constraint, max_tokens: int, start: int | None = None
) -> None:
    """Raises VocabularyMismatch, BudgetTooSmall or PromptTooLong. `start` as in `BeamRun`."""
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
        del scores  # the model needs their memory
        (scores,) = model.step([Feed(session, *run.feed())])


def first_scores(log_probs: Tensor) -> Scores:
    """The prompt's log-probs float32 [V] as the scores of a feed of one row."""
    nothing = log_probs.new_empty((1, 0))
    return Scores(log_probs[None], nothing, nothing)
