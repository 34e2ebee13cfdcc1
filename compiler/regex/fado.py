"""FAdo as a second engine for patterns. It takes the same trees, and gives the same canonical DFA. Never the only path.

Owns the way to FAdo's regular expressions, over symbols that are minterms, and back from its minimal DFA. What FAdo
needs is in its modules `reex` and `fa`; they take lark and deprecation, none of the notebook's packages that its wheel
asks for. It is under the GPL: imported when it is first asked for, and only where a deployment or a test asks.

FAdo knows no anchors, look-arounds and atomic groups. The last two are refused. A tree with anchors is read over three
more symbols, one for each kind; the texts in which they stand in their places are kept by an intersection, and the
three are then erased.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from compiler.automata import CharSet, Dfa, Minterms, minimize, minterms, single
from compiler.errors import EngineFailure, SpecUnsupported
from compiler.limits import ResourceGuard
from compiler.regex.nodes import Anchor, AtomicGroup, Chars, Concat, Look, Node, Repeat, Words, has_anchor, leaves_of

_NEWLINE = single(ord("\n"))
# Where anchors may stand: state -> {what is read: the next state}. No character has been read before `fresh` and
# `ended` states with an f; "newline" is the last character where `final` promised it; all the states accept.
_PLACES = {
    "fresh": {"start": "fresh", "end": "f-ended", "final": "f-final", "newline": "inside", "other": "inside"},
    "f-final": {"start": "f-final", "end": "f-ended", "final": "f-final", "newline": "ended"},
    "f-ended": {"start": "f-ended", "end": "f-ended", "final": "f-ended"},
    "inside": {"end": "ended", "final": "final", "newline": "inside", "other": "inside"},
    "final": {"end": "ended", "final": "final", "newline": "ended"},
    "ended": {"end": "ended", "final": "ended"},
}
_ANCHORS = ("start", "end", "final")


class _Package(NamedTuple):
    """FAdo's two modules."""

    reex: Any
    fa: Any


def node_to_dfa_fado(node: Node, guard: ResourceGuard) -> tuple[Dfa, Minterms]:
    """What `engines.node_to_dfa` returns, computed by FAdo.

    FAdo builds a position automaton, determinizes it by the powerset construction and minimizes it.

    Raises EngineFailure where FAdo is not installed, SpecUnsupported for a look-around or an atomic group, and
    LimitExceeded over nfa_positions_max, or dfa_states_max once FAdo is done. Inside FAdo nothing is counted: the
    process it runs in is what bounds its time and its memory.
    """
    package = require_fado()
    with guard.recursion():
        minimal, parts = _minimal_dfa(package, node, guard)
    guard.check("dfa_states_max", len(minimal.States))
    guard.check_time()
    return minimize(_to_dfa(minimal, parts.count), guard), parts


@functools.cache
def require_fado() -> _Package:
    """FAdo's modules. Raises EngineFailure, with the way to install it, where they cannot be imported."""
    try:
        from FAdo import fa, reex
    except ImportError as error:
        reason = f"the package {error.name or 'FAdo'} is missing"
        advice = "pip install lark deprecation && pip install --no-deps FAdo==2.2.0, or choose the engine native"
        raise EngineFailure(f"{reason}: {advice}") from error
    return _Package(reex, fa)


def _minimal_dfa(package: _Package, node: Node, guard: ResourceGuard) -> tuple[Any, Minterms]:
    """FAdo's minimal DFA of a tree, and the minterms. Its symbols are the numbers of minterms as text."""
    anchored = has_anchor(node)
    # FAdo's symbols are the minterms: an alphabet of all characters would be a million symbols.
    sets = list(dict.fromkeys([*_sets(node), *[_NEWLINE] * anchored]))
    parts = minterms(sets)
    members = dict(zip(sets, parts.members, strict=True))
    expression = _Writer(package.reex, members, guard).write(node)
    expression.setSigma({str(symbol) for symbol in range(parts.count)} | set(_ANCHORS if anchored else ()))
    guard.check_time()
    automaton = expression.nfaPosition()
    if anchored:
        # Anchors have been symbols so far; here they are checked and erased.
        automaton = _erase_anchors(package.fa, automaton, members[_NEWLINE][0], parts.count)
    guard.check_time()
    return automaton.toDFA().minimal(), parts


def _sets(node: Node) -> Iterator[CharSet]:
    """The character sets in a tree, from left to right."""
    for leaf in leaves_of(node):
        if not isinstance(leaf, Anchor):
            yield from (leaf.charset,) if isinstance(leaf, Chars) else leaf.letters


class _Writer:
    """Writes trees as FAdo's expressions. Every character is written out once for each minterm it may be."""

    def __init__(self, reex: Any, members: dict[CharSet, tuple[int, ...]], guard: ResourceGuard) -> None:
        self._reex, self._members, self._guard = reex, members, guard
        self._atoms = 0

    def write(self, node: Node) -> Any:
        if isinstance(node, Chars):
            # A set of characters is the disjunction of its minterms.
            return self._reduce(self._reex.CDisj, [self._atom(str(symbol)) for symbol in self._members[node.charset]])
        if isinstance(node, Anchor):
            return self._atom(node.position)
        if isinstance(node, Repeat):
            return self._repeat(node)
        if isinstance(node, Look):
            message = "the engine fado reads no look-around, word boundary or anchor of lines: choose the engine native"
            raise SpecUnsupported(message, construct="look-around")
        if isinstance(node, AtomicGroup):
            message = "the engine fado reads no atomic group and no possessive repeat: choose the engine native"
            raise SpecUnsupported(message, construct="atomic group")
        if isinstance(node, Words):
            return self.write(node.spelled())
        join = self._reex.CConcat if isinstance(node, Concat) else self._reex.CDisj
        return self._reduce(join, [self.write(item) for item in node.items])

    def _atom(self, symbol: str) -> Any:
        self._atoms += 1
        self._guard.check("nfa_positions_max", self._atoms)
        return self._reex.CAtom(symbol)

    def _repeat(self, node: Repeat) -> Any:
        """x{2,4} is x x (x (x)?)?, and x{2,} is x x x*."""
        self._guard.check("nfa_positions_max", node.minimum if node.maximum is None else node.maximum)
        epsilon = self._reex.CEpsilon()
        copies = []
        for _ in range(node.minimum):
            self._guard.check_time()
            copies.append(self.write(node.item))
        if node.maximum is None:
            return self._reduce(self._reex.CConcat, [*copies, self._reex.CStar(self.write(node.item))])
        options = epsilon
        # The optional copies nest from the inside out.
        for _ in range(node.maximum - node.minimum):
            self._guard.check_time()
            option = self._reex.CConcat(self.write(node.item), options)
            options = self._reex.CDisj(epsilon, option)
        return self._reduce(self._reex.CConcat, [*copies, options])

    def _reduce(self, join: Any, items: Sequence[Any]) -> Any:
        """Combine the items pairwise, as a tree of small depth. No items make the neutral expression."""
        level = list(items)
        while len(level) > 1:
            pairs = [join(left, right) for left, right in zip(level[::2], level[1::2], strict=False)]
            level = pairs + level[2 * len(pairs) :]
        # FAdo walks expressions by recursion: a balanced tree keeps them flat.
        neutral = self._reex.CEpsilon if join is self._reex.CConcat else self._reex.CEmptySet
        return level[0] if level else neutral()


def _erase_anchors(fa: Any, automaton: Any, newline: int, symbols: int) -> Any:
    """The automaton of texts that some word with anchors spells.

    Each anchor must hold at its position, and anchors are erased.
    """
    anchor_positions = fa.NFA()
    number = {name: anchor_positions.addState(name) for name in _PLACES}
    anchor_positions.addInitial(number["fresh"])
    for name, steps in _PLACES.items():
        anchor_positions.addFinal(number[name])
        for read, target in steps.items():
            texts = {
                "newline": [str(newline)],
                "other": [str(symbol_number) for symbol_number in range(symbols) if symbol_number != newline],
            }
            for symbol in texts.get(read, [read]):
                anchor_positions.addTransition(number[name], symbol, number[target])
    # The intersection keeps the words in which every anchor stands where it may.
    intersection = automaton.conjunction(anchor_positions)
    for edges in intersection.delta.values():
        targets: set[int] = set()
        for anchor in _ANCHORS:
            targets |= edges.pop(anchor, set())
        if targets:
            edges[fa.Epsilon] = targets
    intersection.setSigma({str(symbol) for symbol in range(symbols)})
    return intersection


def _to_dfa(minimal: Any, symbols: int) -> Dfa:
    """FAdo's automaton as ours. Where it has no transition the word is lost."""
    states = len(minimal.States)
    # FAdo's DFA is partial; the state behind its own is the dead one.
    table = np.full((states + 1, symbols), states, dtype=np.int32)
    for state, edges in minimal.delta.items():
        for symbol, target in edges.items():
            table[state, int(symbol)] = target
    accepting = np.zeros(states + 1, dtype=bool)
    accepting[list(minimal.Final)] = True
    return Dfa(np.arange(symbols, dtype=np.int32), table, accepting, minimal.Initial)
