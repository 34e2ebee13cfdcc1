"""Computes the tables of a `DistinctAutomaton`, with which it bounds distances."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from compiler.automata import DEAD, distinct, spread, stable_order
from compiler.lifting import UNREACHABLE, TokenAutomaton
from compiler.limits import ResourceGuard
from compiler.products.distinct import FAR, HALF, LOW, DistinctAutomaton, Integers

_CELLS = 1 << 20  # of the tables that are read at once
_PRICES_MAX = 8  # lists of prices
_ROUNDS_MAX = 4  # arrays one behind the other whose letters are priced


def distinct_automaton(tokens: TokenAutomaton, guard: ResourceGuard) -> DistinctAutomaton:
    """The automaton with the tables of its bounds. `tokens` is lifted with `distinct_letters`."""
    acts, rows = _Functions.of(tokens), tokens.states // tokens.letter_states
    edges = _LetterEdges.of(tokens, acts)
    writes = np.asarray(acts.writes.any(axis=1))
    writing, staying, forgetting = edges.chosen(writes), edges.chosen(~acts.forgets), edges.chosen(acts.forgets)
    ends = (tokens.distance == 0).reshape(rows, -1).any(axis=1)
    reachable = np.zeros((rows, acts.writes.shape[1]), dtype=np.bool_)
    np.logical_or.at(reachable, writing.source, acts.writes[writing.function])
    following = np.column_stack([reachable, ends])
    following[forgetting.chosen(~writes).source, -1] = True
    staying.chosen(~writes).settle(following, np.logical_or, lambda _, behind: behind, guard=guard)
    staying.settle(reachable, np.logical_or, lambda _, behind: behind, guard=guard)
    avoidable = np.repeat(ends[:, None], reachable.shape[1], axis=1)
    np.logical_or.at(avoidable, forgetting.source, ~acts.writes[forgetting.function])
    staying.settle(avoidable, np.logical_or, lambda function, behind: behind & ~acts.writes[function], guard=guard)
    plain = np.where(ends, 0, UNREACHABLE).astype(np.int64)[:, None]
    edges.settle(plain, np.minimum, _one_more, guard=guard)
    with_letter = _with_letter(edges, writing, acts, plain, start=tokens.start // tokens.letter_states, guard=guard)
    together = reachable.T.astype(np.int64) @ reachable > 0  # letters of one array
    height = with_letter - np.where(together, with_letter, FAR).min(axis=1, initial=FAR)
    found = DistinctAutomaton(
        tokens=tokens, prices=np.zeros((1, acts.writes.shape[1]), dtype=np.int64), least=plain, reachable=reachable,
        avoidable=avoidable, following=following, height=np.clip(height, 0, LOW),
        through=np.full(following.shape, FAR),
    )
    found = _with_uppers(found, edges, acts, ends, together=together, guard=guard)
    prices = _prices(with_letter)
    cost = 1 + acts.writes @ prices.T  # [F, K]
    for _ in range(_ROUNDS_MAX):
        least = np.repeat(np.where(ends, 0, UNREACHABLE)[:, None], len(prices), axis=1).astype(np.int64)
        # Behind letter 0 the bound of the states before it holds: those of the round before.
        behind = found.bounds(forgetting.target, acts.after[forgetting.function]).astype(np.int64)
        np.minimum.at(least, forgetting.source, behind[:, None] + cost[forgetting.function])
        staying.settle(least, np.minimum, lambda function, after: after + cost[function], guard=guard)
        before, found = found, replace(found, prices=prices, least=least)
        if np.array_equal(before.least, found.least):
            break
    return found


def _with_uppers(
    found: DistinctAutomaton, edges: _LetterEdges, acts: _Functions, ends: np.ndarray, *, together: np.ndarray,
    guard: ResourceGuard,
) -> DistinctAutomaton:
    """The automaton with its table `through`.

    together  bool [N, N]  whether two letters are those of one array
    """
    through, count = found.through, acts.writes.sum(axis=1)
    through[ends, -1] = 0
    letter = np.where(count == 0, found.letters, acts.writes.argmax(axis=1))  # the column of an edge
    silent = edges.chosen((count == 0) & ~acts.forgets)
    writing, forgetting = edges.chosen((count == 1) & ~acts.forgets), edges.chosen((count < 2) & acts.forgets)
    sources = np.unique(np.concatenate([writing.source, forgetting.source]))
    targets, place = np.unique(writing.target, return_inverse=True)
    letters = found.reachable[targets].astype(np.int64) @ together > 0  # of the array, not only those behind a state

    def lower(table: np.ndarray) -> None:
        """Lower what edges with letters lead to."""
        behind = found.uppers(forgetting.target, acts.after[forgetting.function]).astype(np.int64)
        behind = np.where(behind == UNREACHABLE, FAR, behind + 1)
        np.minimum.at(table, (forgetting.source, letter[forgetting.function]), behind)
        others = 1 + _any_others(found, targets, letters)[place]
        np.minimum.at(table, (writing.source, letter[writing.function]), others)

    fresh = np.arange(len(through))
    while len(fresh):
        silent.settle(through, np.minimum, _one_more, guard=guard, fresh=fresh)
        before = through[sources]
        lower(through)
        fresh = sources[(through[sources] < before).any(axis=1)]
    # A number may rest on one that was lowered since. Then no token may lead nearer: no number is used.
    again = np.full_like(through, FAR)
    again[ends, -1] = 0
    rows, least = silent.joined(through, np.minimum, _one_more, np.arange(len(silent.source)))
    again[rows] = np.minimum(again[rows], least)
    lower(again)
    return found if np.array_equal(again, through) else replace(found, through=np.full_like(through, FAR))


def _one_more(_: Integers, behind: np.ndarray) -> np.ndarray:
    return behind + 1


def _any_others(found: DistinctAutomaton, rows: Integers, letters: np.ndarray) -> Integers:
    """The tokens of a text whose letters are still open: int64 [n].

    It begins in the transducer states `rows`. The heights of its letters are left out, and the high half counts these.
    FAR where not all letters may be written, or different numbers of others follow.

    letters  bool [n, N]  those of the array
    """
    through, silent = found.through[rows, :-1], found.through[rows, -1]
    more = through >> HALF
    most = np.where(letters, more, 0).max(axis=1, initial=0)
    fits = letters.any(axis=1) & ~(letters & ((through >= FAR) | (more != most[:, None]))).any(axis=1)
    tokens = np.where(letters, (through & LOW) - found.height, 0).max(axis=1, initial=0)
    return np.where(silent < FAR, silent, np.where(fits, (most + 1 << HALF) + tokens, FAR))


def _with_letter(
    edges: _LetterEdges, writing: _LetterEdges, acts: _Functions, plain: Integers, *, start: int, guard: ResourceGuard
) -> Integers:
    """The fewest tokens of a text with each letter: int64 [N]. What one has more than others is its value's cost.

    plain  int64 [L, 1]  the distances where letters may repeat
    """
    reached = np.full_like(plain, UNREACHABLE)
    reached[start] = 0
    backwards = edges._replace(source=edges.target, target=edges.source)
    backwards.settle(reached, np.minimum, _one_more, guard=guard)
    through = (reached[writing.source] + 1 + plain[writing.target])[:, 0]
    by_function = np.full(len(acts.writes), UNREACHABLE, dtype=np.int64)
    np.minimum.at(by_function, writing.function, through)
    return np.asarray(np.where(acts.writes, by_function[:, None], UNREACHABLE).min(axis=0))


def _prices(with_letter: Integers) -> Integers:
    """Lists of prices. Each raises letters that cost less to one height: int64 [K, N]."""
    heights = np.unique(with_letter[with_letter < UNREACHABLE])[1:]
    if len(heights) > _PRICES_MAX:
        heights = heights[np.linspace(0, len(heights) - 1, _PRICES_MAX).astype(np.int64)]
    return np.asarray(np.maximum(0, np.append(0, heights)[:, None] - with_letter))


class _Functions(NamedTuple):
    """What the functions of edges do to letters. F functions, N letters.

    alive    bool [F]      whether some set of letters allows it
    writes   bool [F, N]   the letters before the first letter 0
    forgets  bool [F]      whether letter 0 is written
    after    int64 [F, N]  the states of the letters' DFAs, where none was written before
    """

    alive: np.ndarray
    writes: np.ndarray
    forgets: np.ndarray
    after: Integers

    @classmethod
    def of(cls, tokens: TokenAutomaton) -> _Functions:
        first = np.arange(1, tokens.letter_states, 2)
        unwritten, written = tokens.function[:, first].astype(np.int64), tokens.function[:, first + 1]
        # Without letter 0, a DFA stays in both states, or its letter is written.
        stays = ((unwritten == first) & (written == first + 1)) | ((unwritten == first + 1) & (written == DEAD))
        return cls((unwritten != DEAD).all(axis=1), written == DEAD, ~stays.all(axis=1), unwritten)


class _LetterEdges(NamedTuple):
    """The distinct edges that some set of letters allows: int64 [E] each."""

    source: Integers
    target: Integers
    function: Integers

    @classmethod
    def of(cls, tokens: TokenAutomaton, acts: _Functions) -> _LetterEdges:
        count = len(tokens.edge_target)
        keys = [distinct(state * count + edge) for state, _, edge in tokens.live_entries(_CELLS)]
        source, edge = np.divmod(distinct(np.concatenate(keys)), count)
        target, function = tokens.edge_target[edge].astype(np.int64), tokens.edge_function[edge].astype(np.int64)
        allowed = acts.alive[function] & (target != DEAD)
        return cls(source[allowed], target[allowed], function[allowed])

    def chosen(self, functions: np.ndarray) -> _LetterEdges:
        """Those with some of the functions. `functions` is bool [F]."""
        kept = functions[self.function]
        return _LetterEdges(*(column[kept] for column in self))

    def settle(
        self, values: np.ndarray, join: np.ufunc, along: Callable[[Integers, np.ndarray], np.ndarray], *,
        guard: ResourceGuard, fresh: Integers | None = None,
    ) -> None:
        """Join the values of states with those behind, until none changes.

        values  of states: [L, X], changed in place
        along   the values at edges, from their functions and the values at their targets
        fresh   the states whose values are new; None: all
        """
        by_target = stable_order(self.target)
        first = np.searchsorted(self.target[by_target], np.arange(len(values) + 1))
        fresh = np.arange(len(values)) if fresh is None else fresh
        while len(fresh):
            guard.check_time()
            edges = by_target[spread(first[fresh], first[fresh + 1])[0]]
            if not len(edges):
                return
            rows, found = self.joined(values, join, along, edges)
            before = values[rows]
            values[rows] = join(before, found)
            fresh = rows[(values[rows] != before).any(axis=1)]

    def joined(
        self, values: np.ndarray, join: np.ufunc, along: Callable[[Integers, np.ndarray], np.ndarray], edges: Integers
    ) -> tuple[Integers, np.ndarray]:
        """The sources of some edges, and what is joined behind each. There is an edge."""
        edges = edges[stable_order(self.source[edges])]
        begin = np.flatnonzero(np.diff(self.source[edges], prepend=-1))
        behind = along(self.function[edges], values[self.target[edges]])
        return self.source[edges[begin]], join.reduceat(behind, begin, axis=0)
