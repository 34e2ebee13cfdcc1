"""Drives a beam search to its answers: prompt in, satisfying texts out. `engine` drives many side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from decoding.errors import Cancelled
from decoding.generation import BeamStep, Generation, Hypothesis, TextOf
from decoding.model import LanguageModel, Scores, StepInput
from decoding.options import DEFAULT, Heuristics, SearchOptions
from decoding.penalties import PenalizedSearch, Penalties
from decoding.prepared_constraint import Automaton, PreparedConstraint, Start
from decoding.search.abs_search import AbsSearch
from decoding.search.banked_search import BankedSearch
from decoding.search.beam_search import Search
from decoding.tensors import ExplicitStates


def generate(
    model: LanguageModel[Any], prompt_ids: Sequence[int],
    automaton: Automaton | PreparedConstraint, options: SearchOptions, *,
    on_step: Callable[[BeamStep], None] | None = None,
    cancelled: Callable[[], bool] | None = None, text_of: TextOf | None = None,
) -> tuple[Hypothesis, ...]:
    """The best `options.n` continuations of the prompt that the automaton accepts. There may be fewer, but never none.

    on_step    receives every beam
    cancelled  is called before every step
    text_of    with it answers are distinct as texts, without it as ids

    Raises the errors of `PreparedConstraint.refuse_early` before the first forward pass; later Cancelled,
    ModelOutputInvalid, and SearchExhausted where the automaton's distances are wrong.

    An automaton that accepts the ids 1, 0 and then EOS, which is 2:

    >>> (answer,) = generate(model, [0], automaton, SearchOptions(max_tokens=3, beams=2))
    >>> answer.tokens
    (1, 0, 2)
    """
    # Without a prior the cost to go is a constant for each token of the distance.
    if not isinstance(automaton, PreparedConstraint):
        automaton = PreparedConstraint.prepare(automaton, model.device)
    automaton.refuse_early(model, len(prompt_ids), options.max_tokens)
    search = search_of(automaton, options, text_of=text_of, prompt_ids=prompt_ids)
    return drive(model, prompt_ids, search, on_step, cancelled=cancelled)


def search_of(
    constraint: PreparedConstraint, options: SearchOptions, *, start: Start | None = None,
    text_of: TextOf | None = None, heuristics: Heuristics = DEFAULT, prompt_ids: Sequence[int] = (),
) -> Search:
    """The search that `options.algorithm` names. The prompt counts for `repetition_penalty`."""
    tables = constraint.tables
    ids: Any = (tables.tokens if isinstance(tables, ExplicitStates) else tables).token_class
    penalties = Penalties.of_options(options, prompt_ids, len(ids), ids.device)
    if penalties is not None:
        own = replace(options, frequency_penalty=0.0, presence_penalty=0.0, repetition_penalty=1.0, logit_bias={})
        search = search_of(constraint, own, start=start, text_of=text_of, heuristics=replace(heuristics, forced=False))
        return PenalizedSearch(search, penalties, len(ids), ids.device)
    if options.algorithm == "abs":
        return AbsSearch(constraint, options, start=start, text_of=text_of)
    return BankedSearch(constraint, options, start=start, text_of=text_of, heuristics=heuristics)


def rows_of(options: SearchOptions, heuristics: Heuristics = DEFAULT) -> int:
    """The most rows that the search reads side by side."""
    return options.beams if options.algorithm == "abs" else heuristics.rows(options.beams)


@torch.inference_mode()
def drive(
    model: LanguageModel[Any], prompt_ids: Sequence[int], generation: Generation,
    on_step: Callable[[BeamStep], None] | None = None, *, cancelled: Callable[[], bool] | None = None,
) -> tuple[Hypothesis, ...]:
    """Drives one generation by itself, in this thread. Arguments as in `generate`."""
    session, first = model.prefill(prompt_ids)
    scores = Scores.of_prompt(first)
    # Each turn takes the scores of the last feed, then feeds the rows that the generation goes on with.
    while True:
        if cancelled is not None and cancelled():
            raise Cancelled("the generation was cancelled")
        for snapshot in generation.advance(scores):
            if on_step is not None:
                on_step(snapshot())
        if generation.done:
            return generation.answers()
        del scores  # [rows, V], as large as the scores that the next pass makes
        (scores,) = model.step([StepInput(session, *generation.feed())])

