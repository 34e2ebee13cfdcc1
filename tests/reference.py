"""Both searches in plain Python: the slow twin of `decoding.step`, written to be read.

Every row is extended by every token, finished rows are padded with EOS at cost 0, the loop always runs to T. Where
"abs" deviates from the paper's Algorithm 1 it is the design's: one row at the start, T - t + 1 in Equation 2, ties by
rule, one candidate for all the EOS ids, and a choice of how to rank at the end. Shares no code with `decoding`.

    python -m tests.reference --cases 5000      both searches, fast and slow, over so many random automata
"""

from __future__ import annotations

import argparse
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from compiler.token_automaton import TokenAutomaton

LEAST_LOG_PROB = -1e4
POOL, RESERVE_SHARE, GROUP_COST, NATS_A_TOKEN, RECENT = 8, 8, 3.0, 6.0, 3
LEAST_PRIOR, NAT = -20.0, 2**20


@dataclass
class Row:
    """One beam: its ids (padding included), the log-prob of the last one, and the number of its parent."""

    ids: tuple[int, ...]
    state: int
    score: float
    log_prob: float
    own: float = field(default=0.0, compare=False)
    parent: int = field(default=0, compare=False)
    text: bytes = field(default=b"", compare=False)
    gains: bool = field(default=False, compare=False)  # it came closer to acceptance


@dataclass(frozen=True)
class Ways:
    """Nats to the end after an id, and the id that goes on with, -1 for EOS, by how many may come before EOS.

    pairs  the same by the id before and the id, which counts where it is less
    first  the ids that lead there soonest
    """

    ids: Sequence[Sequence[tuple[float, int]]]
    pairs: Mapping[tuple[int, int], Sequence[tuple[float, int]]]
    first: Sequence[int]

    def after(self, ids: Sequence[int], left: int) -> tuple[float, int]:
        """After these ids, with so many tokens left: nats, and the next id."""
        before, last = (0, 0, *ids)[-2:]
        more = max(0, min(len(self.ids) - 1, left - 1))
        cost, then = self.ids[more][last]
        if (before, last) in self.pairs and self.pairs[before, last][more][0] < cost:
            cost, then = self.pairs[before, last][more]
        return cost, then

    def nats(self, row: Row, left: int, automaton: TokenAutomaton) -> float:
        """After a row, with so many tokens left; inf where the next one would lead away from acceptance."""
        cost, then = self.after(row.ids, left)
        return cost if then < 0 or automaton.distance[automaton.advance(row.state, then)] == 1 else math.inf


@dataclass(frozen=True)
class Settings:
    """What a search is asked for; see `decoding.options.SearchOptions`.

    pieces    the bytes of each id, nothing for EOS; with them "banked" keeps one row of those that say the same
    text_of   what makes answers distinct, as in `answers`
    dictated  the one token a state may take with so many tokens left after it, None where any
    estimate  nats to acceptance by state; None takes NATS_A_TOKEN a token
    class_cost  nats of each class of tokens; with them "banked" learns on its way
    end_cost    nats of EOS after each id, inf where unknown; with them "banked" puts right what its pool holds
    endings     the ways to EOS that are known; with them it looks for these, too
    """

    budget: int
    beams: int
    algorithm: str = "abs"
    alpha_min: float = 0.5
    gamma: float = 1.0
    n: int = 1
    length_penalty: float = 0.0
    pieces: Sequence[bytes] | None = None
    text_of: Callable[[tuple[int, ...]], bytes] | None = None
    dictated: Callable[[int, int], int | None] | None = None
    estimate: Sequence[float] | None = None
    class_cost: Sequence[float] | None = None
    end_cost: Sequence[float] | None = None
    endings: Ways | None = None


def ramp(distance: int, t: int, budget: int, alpha_min: float, gamma: float) -> float:
    """Equation 2, with T - t + 1 for T - t."""
    return alpha_min + (1.0 - alpha_min) * min(1.0, distance / (budget - t + 1)) ** gamma


LogProbsOf = Callable[[tuple[int, ...]], Any]


def _is_free(row: Row, t: int, automaton: TokenAutomaton, settings: Settings) -> bool:
    """Whether the row is alive, and may choose what it takes in this step."""
    told = settings.dictated is not None and settings.dictated(row.state, settings.budget - t) is not None
    return automaton.distance[row.state] != 0 and not told


def _learned(
    beams: Sequence[Sequence[Row]], log_probs_of: LogProbsOf, automaton: TokenAutomaton, settings: Settings
) -> list[float]:
    """Nats to acceptance by state: the cheapest way, by the mean cost of each class after each labeller state.

    Seen from all rows so far that were free to choose, and once from the prior; states inside characters keep what they
    have.
    """
    assert settings.estimate is not None and settings.class_cost is not None
    between, classes = automaton.edge_outer.shape
    total, count = [[0] * classes for _ in range(between)], [0] * between
    for t, rows in enumerate(beams, start=1):
        for row in rows:
            labeller = row.state // automaton.letter_states
            if labeller >= between or not _is_free(row, t, automaton, settings):
                continue
            best = [LEAST_PRIOR] * classes
            for kind, z in zip(automaton.token_class.tolist(), log_probs_of(row.ids), strict=True):
                if kind < classes:
                    best[kind] = max(best[kind], float(z))
            total[labeller] = [one + round(-z * NAT) for one, z in zip(total[labeller], best, strict=True)]
            count[labeller] += 1
    cost = [
        [(seen / NAT + prior) / (count[labeller] + 1.0) for seen, prior in zip(row, settings.class_cost, strict=False)]
        for labeller, row in enumerate(total)
    ]
    return _cheapest(cost, automaton, settings.estimate)


def _cheapest(cost: Sequence[Sequence[float]], automaton: TokenAutomaton, estimate: Sequence[float]) -> list[float]:
    """Ways to acceptance from the states between characters, round by round until nothing becomes cheaper."""
    free = range(len(cost) * automaton.letter_states)
    distance = automaton.distance.tolist()
    alive = [far <= automaton.states for far in distance]
    found = [value if alive[state] else math.inf for state, value in enumerate(estimate)]
    found[: len(free)] = [0.0 if distance[state] == 0 else math.inf for state in free]
    after = [automaton.successors(state).tolist() for state in free]
    changed = True
    while changed:
        changed = False
        for state in free:
            costs = cost[state // automaton.letter_states]
            ways = [one + found[to] for one, to in zip(costs, after[state], strict=False)]
            if min(ways) < found[state]:
                found[state], changed = min(ways), True
    return [value if alive[state] else 0.0 for state, value in enumerate(found)]


def beam_search(log_probs_of: LogProbsOf, automaton: TokenAutomaton, settings: Settings) -> list[list[Row]]:
    """The beams after each step, best row first; "banked": live rows, then those that finish in this step.

    log_probs_of  the log-probs (V floats, or a tensor) after a prefix of generated ids
    "banked" learns, where it can, what acceptance costs: ever more seldom, and where some row may choose.
    """
    distance, asked, due = automaton.distance.tolist(), settings, 1
    history = [[Row((), automaton.start, 0.0, 0.0)]]
    for t in range(1, settings.budget + 1):
        learns = asked.class_cost is not None and asked.algorithm == "banked" and t >= due
        if learns and any(_is_free(row, t, automaton, asked) for row in history[-1]):
            settings = replace(asked, estimate=_learned(history, log_probs_of, automaton, asked))
            due = t + max(1, t // 2)
        finished, candidates = [], []
        for number, row in enumerate(history[-1]):
            if distance[row.state] != 0:
                candidates += list(_extensions(row, number, log_probs_of(row.ids), t, automaton, settings))
            elif settings.algorithm == "abs":
                ids = (*row.ids, automaton.eos_ids[0])
                finished.append(Row(ids, row.state, row.score, row.log_prob, 0.0, number))
        if settings.algorithm == "abs":
            history.append(_ranked(finished, candidates)[: settings.beams])
        else:
            ended = sorted((row for row in candidates if distance[row.state] == 0), key=lambda row: row.parent)
            alive = [row for row in candidates if distance[row.state] != 0]
            known = [row for rows in history for row in rows if distance[row.state] == 0]
            floor = _floor(known, settings)
            rows = rows_kept(t, automaton.min_tokens, settings.beams, settings.budget)
            history.append(_shared_out(alive, floor, automaton, rows, t, settings) + ended)
    return history[1:]


def _extensions(
    row: Row, number: int, log_probs: Any, t: int, automaton: TokenAutomaton, settings: Settings
) -> Iterator[Row]:
    """A row with each token that may follow; of the EOS ids only the best."""
    distance = automaton.distance
    z = [max(float(value), LEAST_LOG_PROB) for value in log_probs]
    after = automaton.successors(row.state).tolist()
    best_eos = min(automaton.eos_ids, key=lambda eos: (-z[eos], eos))
    only = settings.dictated(row.state, settings.budget - t) if settings.dictated else None
    ids = [x for x in range(len(z)) if x == best_eos or x not in automaton.eos_ids] if only is None else [only]
    alpha = ramp(int(distance[row.state]), t, settings.budget, settings.alpha_min, settings.gamma)
    for x in ids:
        state = after[automaton.token_class[x]]
        if distance[state] > settings.budget - t:
            continue
        log_prob = row.log_prob + z[x]
        closer = bool(distance[state] < distance[row.state])
        if settings.algorithm == "abs":
            score = row.score + (alpha * max(z) + (1.0 - alpha) * z[x] if closer else z[x])
        else:
            score = log_prob - (_to_come(state, distance, settings) if distance[state] else 0.0)
        text = row.text + settings.pieces[x] if settings.pieces else b""
        yield Row((*row.ids, x), state, score, log_prob, z[x], number, text, closer)


def _to_come(state: int, distance: Any, settings: Settings) -> float:
    """What acceptance is still expected to cost, as far as that is believed."""
    weight = 0.8 + 0.2 / math.sqrt(settings.beams)
    if settings.estimate is not None:
        return weight * float(settings.estimate[state])
    return weight * (NATS_A_TOKEN * int(distance[state]))


def _ranked(finished: Sequence[Row], live: Sequence[Row]) -> list[Row]:
    """Best first; of those that tie the finished ones first, then the lower last id, then the lower row."""
    keyed = [((-row.score, -row.log_prob, 0.0, -1, row.parent), row) for row in finished]
    keyed += [((-row.score, -row.log_prob, -row.own, row.ids[-1], row.parent), row) for row in live]
    return [row for _, row in sorted(keyed, key=lambda entry: entry[0])]


def _floor(finished: Sequence[Row], settings: Settings) -> float:
    """The log-prob that a live row must be above to end, perhaps, better than the n-th best finished row so far."""
    power, best = settings.length_penalty, dict[Any, float]()
    for row in finished:
        text = row.ids[:-1] if settings.text_of is None else settings.text_of(row.ids[:-1])
        best[text] = max(row.log_prob / len(row.ids) ** power, best.get(text, -math.inf))
    if len(best) < settings.n:
        return -math.inf
    return sorted(best.values(), reverse=True)[settings.n - 1] * settings.budget**power


def rows_kept(t: int, least: int, k: int, budget: int) -> int:
    """After step t so many rows as the step's place between two of these steps says, in proportion; none is beyond T.

    Where the shortest text takes more than a fifth of the budget, or a fourth, they are more. The first of the steps is
    an eighth of the budget where that is sooner, for 64 beams the second a fourth.
    """
    if k < 64:
        more = [(4, 4 * k), (31, 2 * k), (62, k)] if k < 16 else [(4, 5 * k), (31, 3 * k), (62, k)]
        points = more if 5 * least > budget else [(4, 3 * k), (31, k)]
    elif 4 * least > budget:
        points = [(2, max(1024, 8 * k)), (5, max(1024, 4 * k)), (31, max(1024, 4 * k)), (62, k)]
    elif 5 * least > budget:
        points = [(2, 8 * k), (5, max(512, 2 * k)), (20, max(512, k)), (31, max(512, k)), (62, k)]
    else:
        points = [(2, 8 * k), (5, max(192, 2 * k)), (20, k)]
    steps = [min(at, budget) for at, _ in points]
    steps[0] = min(steps[0], budget // 8)
    if k >= 64:
        steps[1] = min(steps[1], budget // 4)
    rows = [row for _, row in points]
    for number in range(1, len(points)):
        if steps[number - 1] < t <= steps[number]:
            share = Fraction(steps[number] - t, steps[number] - steps[number - 1])
            return int(rows[number] + (rows[number - 1] - rows[number]) * share)
    return rows[0] if t <= steps[0] else rows[-1]


def _shared_out(
    alive: Sequence[Row], floor: float, automaton: TokenAutomaton, rows: int, t: int, settings: Settings
) -> list[Row]:
    """At most `rows`, R: of 8 R by rank one of each kind, the r-th of those equally far off 3 ln(r) worse.

    And always the best R / 8 of those that came closer to acceptance, which are looked for among all. Looked for are
    also the best R of those that near the end.
    """
    distance = automaton.distance.tolist()
    ranked = _ranked([], [row for row in alive if row.log_prob > floor])
    reserve = max(1, rows // RESERVE_SHARE) if rows > 1 else 0
    pool = ranked[: POOL * rows]
    pool += [row for row in [row for row in ranked if row.gains][: 2 * reserve] if all(row is not one for one in pool)]
    ending = _ending(ranked, automaton, settings.budget - t, settings)[:rows]
    pool += [row for row in ending if all(row is not one for one in pool)]
    pool = _ends_told(pool, automaton, settings.budget - t, settings)
    said, recent, count = set(), set(), Counter[int]()
    keyed = []
    for row in pool:
        text, last = (row.text, row.state), (row.ids[-RECENT:], row.state)
        if last not in recent and (text not in said or settings.pieces is None):
            count[distance[row.state]] += 1
            kept = row.gains and reserve > 0
            reserve -= kept
            key = math.inf if kept else row.score - GROUP_COST * math.log(count[distance[row.state]])
            keyed.append((key, row))
        said.add(text)
        recent.add(last)
    keyed.sort(key=lambda found: -found[0])
    return [row for _, row in keyed[:rows]]


def _ending(ranked: Sequence[Row], automaton: TokenAutomaton, left: int, settings: Settings) -> list[Row]:
    """Of the candidates those whose last id leads to the end at less than they owe, best first."""
    found, weight, ways = [], 0.8 + 0.2 / math.sqrt(settings.beams), settings.endings
    for row in ranked:
        sought = ways and (row.ids[-1] in ways.first or row.ids[-1] == ways.after(row.ids[:-1], left + 1)[1])
        if ways and sought and automaton.distance[row.state] == 1:
            known = weight * ways.nats(row, left, automaton)
            if known < _to_come(row.state, automaton.distance, settings):
                found.append(((known - row.log_prob, -row.log_prob, -row.own, row.ids[-1], row.parent), row))
    return [row for _, row in sorted(found, key=lambda entry: entry[0])]


def _ends_told(pool: Sequence[Row], automaton: TokenAutomaton, left: int, settings: Settings) -> list[Row]:
    """The pool, best first again, where rows that lack but EOS owe what it costs after their last id, if less."""
    if settings.end_cost is None:
        return list(pool)
    told, weight, distance = [], 0.8 + 0.2 / math.sqrt(settings.beams), automaton.distance
    for row in pool:
        way = settings.endings.nats(row, left, automaton) if settings.endings else math.inf
        known = weight * min(settings.end_cost[row.ids[-1]], way)
        owes_less = distance[row.state] == 1 and known < _to_come(row.state, distance, settings)
        told.append(replace(row, score=row.log_prob - known) if owes_less else row)
    return sorted(told, key=lambda row: -row.score)


def answers(
    last: Sequence[Row], automaton: TokenAutomaton, *, n: int, rank_by: str = "log_prob", length_penalty: float = 0.0,
    text_of: Callable[[tuple[int, ...]], bytes] | None = None,
) -> list[tuple[tuple[int, ...], float, float]]:
    """(ids with one EOS, score, log_prob) of the n best distinct rows of the last beam."""
    found = []
    for row in last:
        end = next(place for place, token in enumerate(row.ids) if token in automaton.eos_ids)
        shrink = (end + 1) ** length_penalty
        sums = (row.score, row.log_prob) if rank_by == "score" else (row.log_prob, row.score)
        found.append((-sums[0] / shrink, -sums[1] / shrink, end + 1, row.ids[: end + 1], row))
    found.sort(key=lambda entry: entry[:4])
    chosen: dict[Any, tuple[tuple[int, ...], float, float]] = {}
    for _, _, _, ids, row in found:
        text = ids[:-1] if text_of is None else text_of(ids[:-1])
        chosen.setdefault(text, (ids, row.score, row.log_prob))
    return list(chosen.values())[:n]


def main() -> None:
    """Compares the fast search with this one; exits with 1 where they differ."""
    from tests.decoding.twins import compare_many  # which sees this module

    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--cases", type=int, default=5000, help="random automata for each of the two searches")
    raise SystemExit(compare_many(parser.parse_args().cases))


if __name__ == "__main__":
    main()
