"""Distances of pushdown machines by search over explicit configurations.

The height of the stack is bounded.

Shares the machine and its run over bytes with the compiler, not the lift, the pendings or the saturation.
"""

from __future__ import annotations

import heapq
import random
from collections import defaultdict
from collections.abc import Sequence

from compiler.pushdown import ACCEPTED, BOTTOM, END, PushdownMachine, StackNodes
from compiler.pushdown.machine import Configuration
from compiler.vocab import Vocabulary
from tests.compiler.pushdown.grammars import GrammarCase
from tests.references.context_free import random_text

CONFIGURATIONS_MAX = 60_000


class TooManyConfigurations(Exception):
    """The search would take minutes."""


def explicit_distances(
    machine: PushdownMachine, vocabulary: Vocabulary, height: int, costs: Sequence[float] | None = None
) -> tuple[StackNodes, dict[Configuration, float]]:
    """The least cost from each reachable configuration to acceptance.

    Stacks have at most `height` symbols.

    costs  of each id; one each without it
    A configuration without a way to acceptance has no entry. Where the best way climbs higher, the result is too large.
    Raises TooManyConfigurations for more than CONFIGURATIONS_MAX.
    """
    stacks, texts = StackNodes(), dict[tuple[int, ...], float]()
    for number, token in enumerate(vocabulary.tokens):
        text = (END,) if number in vocabulary.eos_ids else tuple(token or ())
        if text:
            cost = costs[number] if costs else 1
            texts[text] = min(cost, texts.get(text, cost))
    heights, order = {BOTTOM: 0}, [(machine.start, BOTTOM)]
    met, into = set(order), defaultdict[Configuration, list[tuple[Configuration, float]]](list)
    for configuration in order:  # grows while it is walked
        if len(order) > CONFIGURATIONS_MAX:
            raise TooManyConfigurations
        prefixes = {(): {configuration}}
        for text in sorted(texts):
            known = next(length for length in range(len(text), -1, -1) if text[:length] in prefixes)
            for length in range(known, len(text)):
                reached = prefixes[text[:length]]
                prefixes[text[: length + 1]] = machine.after(reached, text[length], stacks) if reached else set()
            for after in prefixes[text]:
                if _height(after[1], stacks, heights) <= height:
                    into[after].append((configuration, texts[text]))
                    if after not in met:
                        met.add(after)
                        order.append(after)
    return stacks, _dijkstra(into)


def _height(node: int, stacks: StackNodes, heights: dict[int, int]) -> int:
    if node not in heights:
        heights[node] = 1 + _height(stacks.below[node], stacks, heights)
    return heights[node]


def _dijkstra(
    into: dict[Configuration, list[tuple[Configuration, float]]],
) -> dict[Configuration, float]:
    distances, heap = dict[Configuration, float](), [(0.0, (ACCEPTED, BOTTOM))]
    while heap:
        distance, at = heapq.heappop(heap)
        if at not in distances:
            distances[at] = distance
            for before, cost in into.get(at, ()):
                heapq.heappush(heap, (distance + cost, before))
    return distances


def toy_vocabulary(case: GrammarCase, draw: random.Random) -> Vocabulary:
    """Few tokens, many of them across the borders of rules. In some vocabularies characters are missing."""
    missing = draw.choice((0, 0, 0.15, 0.3))
    tokens = {char.encode() for char in case.alphabet if draw.random() >= missing}
    tokens |= {token.encode() for token in case.tokens if draw.random() < 0.6}
    for _ in range(60):
        text = random_text(case.grammar, draw)
        if set(text) <= set(case.alphabet) and len(text) > 1 and len(tokens) < 30:
            begin, encoded = draw.randrange(len(text.encode()) - 1), text.encode()
            tokens.add(encoded[begin : begin + draw.randint(2, draw.choice((2, 4, 7)))])
    shuffled = sorted(tokens)
    draw.shuffle(shuffled)
    return Vocabulary((None, *shuffled), (0,))
