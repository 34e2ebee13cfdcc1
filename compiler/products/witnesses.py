"""Searches for witnesses from the states of a product.

Both searches are bounded by the number of states that they expand, never by time, so that answers depend on nothing
else. Neither depends on the numbers of the parts' states.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import NamedTuple, TypeAlias

import numpy as np

from compiler.automata import unique_rows
from compiler.lifting import UNREACHABLE
from compiler.products.space import ProductSpace, is_alive

Witness: TypeAlias = tuple[int, ...]
"""Token classes, that of EOS the last."""
_GREED = 5  # how much the estimate counts beside the tokens so far
_WIDTH = 12  # successors of an expanded state that the greedy search keeps
_BLOCK = 4 * _WIDTH  # token classes whose successors are found at once
_REACHED_PER_EXPANSION = 200  # states that A* reaches at most, for their memory
State: TypeAlias = tuple[int, ...]
Check: TypeAlias = Callable[[], None]
"""Called for each state that is expanded; raises what ends the search."""


class Completion(NamedTuple):
    """What a search found. `witness` is None where it gave up or there is none."""

    witness: Witness | None
    expansions: int


class LeastBudget(NamedTuple):
    """An interval of the least budget from a state.

    at_least  no shorter sequence leads to acceptance; UNREACHABLE: none does
    witness   one that does; None where none was found
    """

    at_least: int
    witness: Witness | None


def complete(space: ProductSpace, start: State, expansions_max: int, check: Check = lambda: None) -> Completion:
    """A witness by best-first search on the estimate. It need not be a shortest one."""
    waiting, order, expansions, seen = [(0, 0, start)], 0, 0, {start}
    depth, paths = {start: 0}, dict[State, tuple[State, int]]()
    while waiting and expansions < expansions_max:
        check()
        _, _, state = heappop(waiting)
        bound, estimates = space.class_bounds(state)
        expansions += 1
        if bound[space.eos_class] == 0:
            return Completion((*_path(paths, state), space.eos_class), expansions)
        classes = np.flatnonzero(is_alive(bound))
        # Blocks, not one cut of the classes: what is kept does not depend on how fine the classes are.
        best, kept = classes[np.argsort(estimates[classes], kind="stable")], 0
        for begin in range(0, len(best), _BLOCK):
            block = best[begin : begin + _BLOCK]
            after = space.after(np.repeat([state], len(block), axis=0), block)
            for token_class, successor in zip(block.tolist(), map(tuple, after.tolist()), strict=True):
                if successor in seen or kept == _WIDTH:
                    continue
                seen.add(successor)
                order, kept = order + 1, kept + 1
                paths[successor], depth[successor] = (state, token_class), depth[state] + 1
                heappush(waiting, (_GREED * int(estimates[token_class]) + depth[successor], order, successor))
            if kept == _WIDTH:
                break
    return Completion(None, expansions)


def least_budget(space: ProductSpace, start: State, expansions_max: int, check: Check) -> LeastBudget:
    """The interval of the least budget, by A* search. Both ends are equal where it is closed."""
    bound = int(space.bounds(np.array([start]))[0][0])
    if bound == UNREACHABLE:
        return LeastBudget(UNREACHABLE, None)
    witness = _descent(space, start, check)
    if witness is None or len(witness) > bound:
        found = complete(space, start, expansions_max, check).witness
        witness = min((each for each in (witness, found) if each is not None), key=len, default=None)
    most = UNREACHABLE if witness is None else len(witness)
    waiting, order, expansions = [(bound, 0, 0, start)], 0, 0
    depth, paths = {start: 0}, dict[State, tuple[State, int]]()
    reached_max = _REACHED_PER_EXPANSION * expansions_max
    while waiting and waiting[0][0] < most and expansions < expansions_max and len(depth) < reached_max:
        check()
        _, behind, _, state = heappop(waiting)
        if depth[state] != -behind:  # a shorter way was found since
            continue
        further, expansions = depth[state] + 1, expansions + 1
        bounds = space.class_bounds(state)[0]
        if bounds[space.eos_class] == 0:
            most, witness = further, (*_path(paths, state), space.eos_class)
            continue
        classes = np.flatnonzero(is_alive(bounds) & (bounds < most - further))
        after = space.after(np.repeat([state], len(classes), axis=0), classes)
        for place in unique_rows(after)[0].tolist() if len(classes) else ():
            successor = tuple(after[place].tolist())
            if further >= depth.get(successor, UNREACHABLE):
                continue
            depth[successor], paths[successor] = further, (state, int(classes[place]))
            order += 1
            heappush(waiting, (further + int(bounds[classes[place]]), -further, order, successor))
    # Readings that a part dropped on the way may be nearer to acceptance: then only the start's bound is one.
    proven = bound if space.dropped_readings else min(most, waiting[0][0]) if waiting else most
    return LeastBudget(proven, witness)


def _descent(space: ProductSpace, start: State, check: Check) -> Witness | None:
    """A witness that upper bounds lead along. None where there are none."""
    state, found = start, list[int]()
    if space.uppers(np.array([start]))[0] == UNREACHABLE:
        return None
    while True:
        check()
        bounds = space.class_bounds(state)[0]
        if bounds[space.eos_class] == 0:
            return (*found, space.eos_class)
        classes = np.flatnonzero(is_alive(bounds))
        after = space.after(np.repeat([state], len(classes), axis=0), classes)
        best = int(np.argmin(space.uppers(after)))
        found.append(int(classes[best]))
        state = tuple(after[best].tolist())


def _path(paths: dict[State, tuple[State, int]], state: State) -> Witness:
    """The classes from the start to a state."""
    found = list[int]()
    while state in paths:
        state, token_class = paths[state]
        found.append(token_class)
    return tuple(reversed(found))
