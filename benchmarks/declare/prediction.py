"""Predicts the rest of a trace, freely and under rules.

All systems read the same model. Those without rules are the library's own over an automaton that accepts every
sequence, so that they differ in the rules alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from benchmarks.declare.logs import Rules, Trace, state_after
from compiler.lifting import UNREACHABLE, TokenAutomaton
from compiler.pipeline import compile_spec
from compiler.spec import spec_from_json
from compiler.vocab import byte_vocabulary
from decoding.label_scoring import ScorerModel, search_labels
from decoding.options import SearchOptions
from decoding.prepared_constraint import PreparedConstraint
from decoding.sampling import Sampling, SamplingOptions
from decoding.search import drive

SYSTEMS = ("greedy", "sampling", "beams", "masks, greedy", "ours, greedy", "ours, sampling", "ours, beams")
BEAMS, TEMPERATURE = 8, 0.7  # the temperature is that of the logs' authors
System = Callable[[Trace, int, int], Trace]
"""Completes a trace: the beginning, the most further activities with the end, and a seed."""


def systems_of(model: ScorerModel, rules: Rules, activities: Sequence[str]) -> dict[str, System]:
    """The systems by name."""
    free = _Completer(model, free_automaton(activities))
    bound = _Completer(model, rules.automaton)
    return dict(zip(SYSTEMS, (
        free.greedy, free.sample, free.beams, MaskedGreedy(model, rules.automaton), bound.greedy, bound.sample,
        bound.beams,
    ), strict=True))  # fmt: skip


def free_automaton(activities: Sequence[str]) -> TokenAutomaton:
    """The automaton over activities that accepts every sequence."""
    spec = spec_from_json({"regex": "(?s:.*)", "labels": list(activities)})
    tokens = compile_spec(spec, byte_vocabulary()).tokens
    assert isinstance(tokens, TokenAutomaton)
    return tokens


class _Completer:
    """Completes traces by the library's samples and the search of POST /decode."""

    def __init__(self, model: ScorerModel, automaton: TokenAutomaton) -> None:
        self._model, self._automaton = model, automaton
        self._prepared = PreparedConstraint.prepare(automaton, model.device)

    def greedy(self, beginning: Trace, budget: int, seed: int) -> Trace:
        return self._sampled(beginning, SamplingOptions(budget, seed=seed, temperature=0.0))

    def sample(self, beginning: Trace, budget: int, seed: int) -> Trace:
        return self._sampled(beginning, SamplingOptions(budget, seed=seed, temperature=TEMPERATURE))

    def beams(self, beginning: Trace, budget: int, seed: int) -> Trace:
        options = SearchOptions(max_tokens=budget, beams=BEAMS)
        return search_labels(self._model, self._automaton, options, prefix=beginning).labels

    def _sampled(self, beginning: Trace, options: SamplingOptions) -> Trace:
        start = state_after(self._automaton, beginning)
        self._prepared.refuse_early(self._model, len(beginning), options.max_tokens, start)
        sampled = drive(self._model, beginning, Sampling(self._prepared, options, start=start))[0]
        return sampled.tokens[:-1]  # without the end


class MaskedGreedy:
    """The most probable activity after which rules can still be met.

    That is so at some length, as masks know it. A trace that has not ended within the budget is cut.
    """

    def __init__(self, model: ScorerModel, automaton: TokenAutomaton) -> None:
        self._model, self._automaton = model, automaton

    def __call__(self, beginning: Trace, budget: int, seed: int) -> Trace:
        state, rest = state_after(self._automaton, beginning), list[int]()
        for _ in range(budget):
            log_probs = self._model.log_probs([[*beginning, *rest]])[0].numpy()
            token = int(np.where(allowed_ids(self._automaton, state), log_probs, -np.inf).argmax())
            if token in self._automaton.eos_ids:
                break
            rest.append(token)
            state = state_after(self._automaton, (token,), state)
        return tuple(rest[: budget - 1])  # the last place is that of the end


def allowed_ids(automaton: TokenAutomaton, state: int) -> np.ndarray:
    """bool [V], the ids after which a sequence can be accepted."""
    return np.asarray((automaton.distance[automaton.successors(state)] < UNREACHABLE)[automaton.token_class])


def similarity(predicted: Trace, actual: Trace) -> float:
    """How alike two traces are, from 0 to 1.

    It is 1 minus the distance of Damerau and Levenshtein, divided by the longer length.
    """
    longest = max(len(predicted), len(actual))
    return 1.0 if not longest else 1.0 - edit_distance(predicted, actual) / longest


def edit_distance(first: Trace, second: Trace) -> int:
    """The fewest insertions, deletions, substitutions and swaps of neighbours.

    Neighbours that are swapped are not edited again.
    """
    before, row = list[int](), list(range(len(second) + 1))
    for at, item in enumerate(first, 1):
        earlier, before, row = before, row, [at]
        for place, other in enumerate(second, 1):
            best = min(before[place] + 1, row[-1] + 1, before[place - 1] + (item != other))
            if at > 1 and place > 1 and item == second[place - 2] and first[at - 2] == other:
                best = min(best, earlier[place - 2] + 1)
            row.append(best)
    return row[-1]
