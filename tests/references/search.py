"""Both searches in plain Python: the reference for `decoding.search.abs_search` and `banked_search`.

Every row is extended by every token, and all candidates are sorted. The numbers are computed in the order of the fast
search, so all beams are equal to the last bit. Of `decoding` only the options are used.

    python -m tests.references.search --cases 5000      compare the fast and the slow searches over 5000 random automata
"""

from __future__ import annotations

import argparse
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from compiler.lifting import TokenAutomaton
from decoding.options import DEFAULT, Heuristics, SearchOptions

LOG_PROB_FLOOR = -1e4
NATS_PER_TOKEN = 6.0
RETAINED = -1  # in place of the last token: a row of "abs" that finished in an earlier step


@dataclass(frozen=True)
class Row:
    """A row of a beam.

    parent  number of the row that it extends, in the beam before
    token   the last token, RETAINED where this step added none
    own     log-prob of that token
    """

    ids: tuple[int, ...]
    state: int
    score: float = 0.0
    log_prob: float = 0.0
    parent: int = 0
    token: int = field(default=RETAINED, compare=False)
    token_log_prob: float = field(default=0.0, compare=False)


class Beam(NamedTuple):
    """The rows after a step, best first.

    "banked": live rows, then those that finish. lost: the highest log-prob of the live candidates that the pool leaves
    out, or that are in it and not kept.
    """

    rows: list[Row]
    lost: float = -math.inf


Answer = tuple[tuple[int, ...], float, float, float | None]
"""The fields `tokens`, `score`, `log_prob` and `proven_gap` of a `decoding.generation.Hypothesis`."""


@dataclass(frozen=True)
class Problem:
    """What a search is given.

    log_probs_of  log-probs of the V next tokens after a prefix of generated ids
    cost_to_go    nats to acceptance by state; None: NATS_PER_TOKEN for each token of the distance
    forced        the token forced in a state with a budget after it, or None
    endings       nats to the end of the text after a token, by the ending's token before it (None: any other) and it
    text_of       answers of equal texts are one
    """

    log_probs_of: Callable[[tuple[int, ...]], Sequence[float]]
    automaton: TokenAutomaton
    options: SearchOptions
    cost_to_go: Sequence[float] | None = None
    forced: Callable[[int, int], int | None] = lambda state, budget_after: None
    endings: Mapping[tuple[int | None, int], float] = field(default_factory=dict)
    text_of: Callable[[tuple[int, ...]], object] = lambda ids: ids
    heuristics: Heuristics = DEFAULT

    def distance(self, state: int) -> int:
        """Fewest tokens from a state to acceptance, 0 where it is accepted."""
        return int(self.automaton.distance[state])

    def cost(self, state: int) -> float:
        """Nats that "banked" subtracts from a log-prob, by the state alone."""
        nats = NATS_PER_TOKEN * self.distance(state) if self.cost_to_go is None else self.cost_to_go[state]
        return self.heuristics.cost_weight * nats

    def cost_after(self, row: Row, token: int, state: int) -> float:
        """The cost after one more token. If only EOS is missing, an ending may cost less."""
        begins_character = self.automaton.token_class[token] < self.automaton.edge_boundary.shape[1]
        if self.distance(state) != 1 or not begins_character:
            return self.cost(state)
        tokens = {ending_token for _, ending_token in self.endings}
        last_token = row.ids[-1] if row.ids and row.ids[-1] in tokens else None
        return min(self.cost(state), self.heuristics.cost_weight * self.endings.get((last_token, token), math.inf))

    def log_probs(self, row: Row) -> list[float]:
        """Log-probs of the tokens after a row, none below LOG_PROB_FLOOR."""
        return [max(value, LOG_PROB_FLOOR) for value in self.log_probs_of(row.ids)]

    def successors(self, row: Row, z: Sequence[float], budget_after: int) -> Iterator[tuple[int, int]]:
        """Each allowed token of a live row, and the state after it. Of the EOS ids only the best competes."""
        eos_ids, token_class = self.automaton.eos_ids, self.automaton.token_class
        best_eos = min(eos_ids, key=lambda eos: (-z[eos], eos))
        forced = self.forced(row.state, budget_after)
        tokens = [v for v in range(len(z)) if v == best_eos or v not in eos_ids] if forced is None else [forced]
        targets = self.automaton.successors(row.state).tolist()
        for token in tokens:
            state = targets[token_class[token]]
            if self.distance(state) <= budget_after:
                yield token, state


def rank(row: Row) -> tuple[float, float, float, int, int]:
    """The sort key of candidates. Ties prefer retained rows, then lower tokens, then lower rows."""
    return -row.score, -row.log_prob, -row.token_log_prob, row.token, row.parent


def beam_search(problem: Problem) -> list[Beam]:
    """The beams after all steps, until no row is live."""
    options, beams = problem.options, [Beam([Row((), problem.automaton.start)])]
    stretch = 0  # forced steps ahead
    for budget_after in range(options.max_tokens - 1, -1, -1):
        live = [row for row in beams[-1].rows if problem.distance(row.state) > 0]
        if options.algorithm == "abs":
            beams.append(abs_step(beams[-1].rows, budget_after, problem))
        elif stretch:
            beams.append(forced_step(live, budget_after, floor(beams, problem), problem))
            stretch -= 1
        else:
            beams.append(banked_step(live, budget_after, floor(beams, problem), problem))
            stretch = forced_ahead(beams[-1].rows, budget_after, problem)
        if all(problem.distance(row.state) == 0 for row in beams[-1].rows):
            break
    return beams[1:]


def forced_ahead(rows: Sequence[Row], budget: int, problem: Problem) -> int:
    """The number of next steps where all live rows have forced tokens. EOS does not count."""
    states = [row.state for row in rows if problem.distance(row.state) > 0]
    for steps in range(budget if states else 0):
        tokens = [problem.forced(state, budget - steps - 1) for state in states]
        if any(token is None or token in problem.automaton.eos_ids for token in tokens):
            return steps
        states = [problem.automaton.advance(state, token or 0) for state, token in zip(states, tokens, strict=True)]
    return budget if states else 0


def abs_step(rows: Sequence[Row], budget_after: int, problem: Problem) -> Beam:
    """Algorithm 1 of the paper, lines 5-22."""
    candidates = []
    for number, row in enumerate(rows):
        distance = problem.distance(row.state)
        if distance == 0:
            candidates.append(replace(row, parent=number, token=RETAINED, token_log_prob=0.0))
            continue
        z = problem.log_probs(row)
        alpha = push_up(distance, budget_after + 1, problem.options)
        for token, state in problem.successors(row, z, budget_after):
            progress = problem.distance(state) < distance
            gain = alpha * max(z) + (1.0 - alpha) * z[token] if progress else z[token]
            sums = row.score + gain, row.log_prob + z[token]
            candidates.append(Row((*row.ids, token), state, *sums, number, token, z[token]))
    return Beam(sorted(candidates, key=rank)[: problem.options.beams])


def push_up(distance: int, budget_before: int, options: SearchOptions) -> float:
    """Equation 2 with T-t+1 in place of T-t."""
    ramp: float = min(1.0, distance / budget_before) ** options.gamma
    return options.alpha_min + (1.0 - options.alpha_min) * ramp


def candidates(rows: Sequence[Row], budget_after: int, floor: float, problem: Problem) -> tuple[list[Row], list[Row]]:
    """The live extensions of the rows of "banked", and the finished ones. Both are in the order of the rows."""
    live, finished = [], []
    for number, row in enumerate(rows):
        z = problem.log_probs(row)
        for token, state in problem.successors(row, z, budget_after):
            log_prob = row.log_prob + z[token]
            extension = Row((*row.ids, token), state, log_prob, log_prob, number, token, z[token])
            if problem.distance(state) == 0:
                finished.append(extension)
            elif log_prob > floor:
                score = row.log_prob + (-problem.cost_after(row, token, state) + z[token])
                live.append(replace(extension, score=score))
    return live, finished


def forced_step(rows: Sequence[Row], budget_after: int, floor: float, problem: Problem) -> Beam:
    """A step where every row has a forced token. The order is by log-prob minus cost to go."""
    live, _ = candidates(rows, budget_after, floor, problem)
    scored = [replace(row, score=row.log_prob - problem.cost(row.state)) for row in live]
    return Beam(sorted(scored, key=lambda row: -row.score))


def banked_step(rows: Sequence[Row], budget_after: int, floor: float, problem: Problem) -> Beam:
    """A step of the default search.

    It shares out the best candidates by log-prob minus cost to go over the distances.
    """
    live, finished = candidates(rows, budget_after, floor, problem)
    count = problem.heuristics.rows(problem.options.beams)
    size, ranked = problem.heuristics.pool * count, sorted(live, key=rank)
    pool = share_out(ranked[:size], problem)
    lost = max((row.log_prob for row in pool[count:] + ranked[size:]), default=-math.inf)
    return Beam(pool[:count] + finished, lost)


def share_out(pool: Sequence[Row], problem: Problem) -> list[Row]:
    """The pool in the order of retention. The r-th row of equal distance falls back by group_cost * ln(r)."""
    ranks, ranked = Counter[int](), []
    for row in pool:
        distance = problem.distance(row.state)
        ranks[distance] += 1
        ranked.append((row.score - problem.heuristics.group_cost * math.log(ranks[distance]), row))
    return [row for _, row in sorted(ranked, key=lambda entry: -entry[0])]


def floor(beams: Sequence[Beam], problem: Problem) -> float:
    """The log-prob that a live row must exceed to be useful.

    Below it, the row cannot become better than the n-th best answer so far.
    """
    options, answers = problem.options, distinct(beams, problem)
    if len(answers) < options.n:
        return -math.inf
    return value(answers[options.n - 1], options) * float(options.max_tokens**options.length_power)


def value(row: Row, options: SearchOptions) -> float:
    """What a finished row is worth."""
    return float(row.log_prob / len(row.ids) ** options.length_power)


def distinct(beams: Sequence[Beam], problem: Problem) -> list[Row]:
    """The finished rows, best first, with the best row of each text."""

    def key(row: Row) -> tuple[float, float, int, tuple[int, ...]]:
        merit = [-value(row, problem.options), -row.score / len(row.ids) ** problem.options.length_power]
        first, second = reversed(merit) if problem.options.rank_by == "score" else merit
        return first, second, len(row.ids), row.ids

    best = dict[object, Row]()
    for row in sorted((row for beam in beams for row in beam.rows if problem.distance(row.state) == 0), key=key):
        best.setdefault(problem.text_of(row.ids[:-1]), row)
    return list(best.values())


def answers(beams: Sequence[Beam], problem: Problem) -> list[Answer]:
    """The n best distinct answers, with the proven gap of "banked". In "abs" others can push out a finished row."""
    options = problem.options
    rows = distinct(beams[-1:] if options.algorithm == "abs" else beams, problem)[: options.n]
    if options.algorithm == "abs":
        return [(row.ids, row.score, row.log_prob, None) for row in rows]
    lost = max(beam.lost for beam in beams)
    best = max(lost / options.max_tokens**options.length_power, value(rows[0], options))
    return [(row.ids, row.score, row.log_prob, best - value(row, options)) for row in rows]


def main() -> None:
    """Compares the fast searches with the slow ones. Exits with 1 if they differ."""
    from tests.decoding.differential import compare_many  # imports this module

    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--cases", type=int, default=5000, help="random automata for each of the two searches")
    raise SystemExit(compare_many(parser.parse_args().cases))


if __name__ == "__main__":
    main()
