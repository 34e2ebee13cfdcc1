"""Algorithm 1 of the paper in plain Python: the slow twin of `decoding.search`, written to be read.

Every row is extended by every token, finished rows are padded with EOS at cost 0, the loop always runs to T. The
deviations from the paper are the design's: one row at the start, T - t + 1 in Equation 2, ties by rule, one candidate
for all the EOS ids, and a choice of how to rank at the end. Shares no code with `decoding`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from compiler.token_automaton import TokenAutomaton

LEAST_LOG_PROB = -1e4


class Row:
    """One beam: its ids (padding included), state, pushed score and log-prob."""

    def __init__(self, ids: tuple[int, ...], state: int, score: float, log_prob: float) -> None:
        self.ids, self.state, self.score, self.log_prob = ids, state, score, log_prob


def ramp(distance: int, t: int, budget: int, alpha_min: float, gamma: float) -> float:
    """Equation 2, with T - t + 1 for T - t."""
    return alpha_min + (1.0 - alpha_min) * min(1.0, distance / (budget - t + 1)) ** gamma


def beam_search(
    log_probs_of: Callable[[tuple[int, ...]], Any], automaton: TokenAutomaton, *, budget: int, beams: int,
    alpha_min: float, gamma: float,
) -> list[list[Row]]:
    """The beams after each step, best row first.

    log_probs_of  the log-probs (V floats, or a tensor) after a prefix of generated ids
    """
    distance = automaton.distance.tolist()
    history = [[Row((), automaton.start, 0.0, 0.0)]]
    for t in range(1, budget + 1):
        pool: list[tuple[tuple[float, float, float, int, int], Row]] = []
        for number, row in enumerate(history[-1]):
            if distance[row.state] == 0:
                padded = Row((*row.ids, automaton.eos_ids[0]), row.state, row.score, row.log_prob)
                pool.append(((-row.score, -row.log_prob, -0.0, -1, number), padded))
                continue
            z = [max(float(value), LEAST_LOG_PROB) for value in log_probs_of(row.ids)]
            peak = max(z)
            alpha = ramp(distance[row.state], t, budget, alpha_min, gamma)
            best_eos = min(automaton.eos_ids, key=lambda eos: (-z[eos], eos))
            after = automaton.successors(row.state).tolist()
            for x, own in enumerate(z):
                state = after[automaton.token_class[x]]
                if distance[state] > budget - t:
                    continue
                if x in automaton.eos_ids and x != best_eos:
                    continue
                gain = alpha * peak + (1.0 - alpha) * own if distance[state] < distance[row.state] else own
                new = Row((*row.ids, x), state, row.score + gain, row.log_prob + own)
                pool.append(((-new.score, -new.log_prob, -own, x, number), new))
        pool.sort(key=lambda candidate: candidate[0])
        history.append([row for _, row in pool[:beams]])
    return history[1:]


def answers(
    last: Sequence[Row], automaton: TokenAutomaton, *, n: int, rank_by: str,
    text_of: Callable[[tuple[int, ...]], bytes] | None = None,
) -> list[tuple[tuple[int, ...], float, float]]:
    """(ids with one EOS, score, log_prob) of the n best distinct rows of the last beam."""
    found = []
    for row in last:
        end = next(place for place, token in enumerate(row.ids) if token in automaton.eos_ids)
        sums = (row.score, row.log_prob) if rank_by == "score" else (row.log_prob, row.score)
        found.append((-sums[0], -sums[1], end + 1, row.ids[: end + 1], row))
    found.sort(key=lambda entry: entry[:4])
    chosen: dict[Any, tuple[tuple[int, ...], float, float]] = {}
    for _, _, _, ids, row in found:
        text = ids[:-1] if text_of is None else text_of(ids[:-1])
        chosen.setdefault(text, (ids, row.score, row.log_prob))
    return list(chosen.values())[:n]
