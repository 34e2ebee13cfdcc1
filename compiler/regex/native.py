"""Our own engine for patterns."""

from __future__ import annotations

from compiler.automata import CharSet, Dfa, Minterms, live_states
from compiler.limits import ResourceGuard
from compiler.regex.counted import counted_dfa
from compiler.regex.glushkov import CharNfa, PositionBuilder
from compiler.regex.lookaround import conditional_dfa
from compiler.regex.nodes import Node
from compiler.regex.powerset import determinize
from compiler.regex.syntax import parse_pattern


def pattern_dfa(pattern: str, guard: ResourceGuard) -> tuple[Dfa, Minterms]:
    """The minimal DFA of the texts that `re.fullmatch(pattern, text)` accepts.

    Its symbols are the minterms of the pattern.

    Raises what `parse_pattern` raises, and LimitExceeded over `nfa_positions_max` or `dfa_states_max`.

    >>> from compiler.limits import DEFAULT_LIMITS
    >>> dfa, parts = pattern_dfa("[0-9]+", ResourceGuard(DEFAULT_LIMITS))
    >>> dfa.accepts(parts.word("2024")), dfa.accepts(parts.word("20x4"))
    (True, False)
    """
    return node_to_dfa(parse_pattern(pattern, guard), guard)


def node_to_dfa(node: Node, guard: ResourceGuard) -> tuple[Dfa, Minterms]:
    """The minimal DFA of a tree. Raises as `counted_dfa`, `node_nfa` and `determinize` do."""
    with guard.recursion():
        counted = counted_dfa(node, guard)
    if counted is not None:
        return counted
    # Glushkov's construction, then the powerset construction.
    built = _positions(node, guard)
    return determinize(built, guard) if isinstance(built, CharNfa) else built


def node_nfa(node: Node, guard: ResourceGuard) -> CharNfa:
    """A position automaton of a tree. Anchors and look-arounds speak of the whole text.

    Raises LimitExceeded over `nfa_positions_max`, before anything is built.
    """
    built = _positions(node, guard)
    return built if isinstance(built, CharNfa) else _position_automaton(*built)


def _positions(node: Node, guard: ResourceGuard) -> CharNfa | tuple[Dfa, Minterms]:
    """The position automaton of a tree, or its DFA.

    It is the DFA where conditions stand between positions.
    """
    with guard.recursion():
        builder = PositionBuilder(guard)
        fragment = builder.build_all(node)
    return builder.finish(fragment) or conditional_dfa(builder, fragment, guard)


def _position_automaton(dfa: Dfa, parts: Minterms) -> CharNfa:
    """A DFA as a position automaton. A position is a set of characters and the state behind it."""
    live, sets = live_states(dfa), dict[CharSet, int]()
    positions: dict[tuple[int, int], int] = {}
    leaving: list[int] = []  # for each state, the positions that leave it
    for row in dfa.next_state[:, dfa.symbol_class].tolist():
        targets: dict[int, list[int]] = {}
        for symbol, target in enumerate(row):
            targets.setdefault(target, []).append(symbol)
        numbers = [
            positions.setdefault((sets.setdefault(parts.charset(symbols), len(sets)), target), len(positions))
            for target, symbols in targets.items()
            if live[target]
        ]
        leaving.append(sum(1 << number for number in numbers))
    return CharNfa(
        sets=tuple(sets), position_set=tuple(which for which, _ in positions), first=leaving[dfa.start],
        last=sum(1 << number for number, (_, target) in enumerate(positions) if dfa.accepting[target]),
        follow=tuple(leaving[target] for _, target in positions), nullable=bool(dfa.accepting[dfa.start]),
    )  # fmt: skip
