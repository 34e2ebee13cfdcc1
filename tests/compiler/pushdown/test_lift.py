"""Compares the lift with a slow one, and combined machines with parts."""

from __future__ import annotations

import random
from collections.abc import Hashable, Iterable
from typing import TypeAlias

import numpy as np
import pytest

from compiler.automata import CharDfa, everything
from compiler.json_schema import schema_texts
from compiler.json_schema.rules import SchemaRules
from compiler.limits import DEFAULT_LIMITS, ResourceGuard
from compiler.pushdown import (
    PushdownMachine,
    PushdownTables,
    build_machine,
    complement,
    intersect,
    network_machine,
    regular_machine,
    unite,
)
from compiler.pushdown.arrivals import Arrivals
from compiler.pushdown.lift import _plain, lift_machine
from compiler.pushdown.machine import NO_ACTION
from compiler.pushdown.near_states import UNLIKE_DEAD, near_states
from compiler.regex import pattern_dfa
from compiler.vocab import Vocabulary
from tests.compiler.pushdown.grammars import GRAMMARS, GrammarCase
from tests.compiler.pushdown.test_distances import compared
from tests.compiler.pushdown.test_tokens import guard
from tests.references.context_free import derives, mutated, random_text
from tests.references.pushdown import toy_vocabulary
from tests.references.pushdown_lift import ByteReader, Exit, Landing, lifted

Does: TypeAlias = dict[Hashable, dict[int, frozenset[Hashable]]]  # by pending and symbol, landings and pendings


def landings_of(tables: PushdownTables) -> list[Landing]:
    found = [Landing((), state) for state in range(tables.states)]
    for landing in range(tables.states, len(tables.landing_state)):
        below = found[tables.landing_below[landing]]
        found.append(Landing((*below.pushed, int(tables.landing_symbol[landing])), int(tables.landing_state[landing])))
    return found


def blocks_of(does: Does, accepted: set[Hashable]) -> dict[Hashable, int]:
    """The pendings that do the same have one number."""
    block = {pending: int(pending not in accepted) for pending in does}
    count = 0
    while len(set(block.values())) > count:
        count, numbers = len(set(block.values())), dict[Hashable, int]()
        acts = {
            pending: frozenset((symbol, renamed(items, block)) for symbol, items in behind.items())
            for pending, behind in does.items()
        }
        block = {pending: numbers.setdefault((block[pending], acts[pending]), len(numbers)) for pending in does}
    return block


def renamed(items: Iterable[Hashable], block: dict[Hashable, int]) -> frozenset[Hashable]:
    return frozenset(block.get(item, item) for item in items)


def compare(machine: PushdownMachine, vocabulary: Vocabulary) -> int:
    """Compares all tokens in all states. How many of them can be read is returned."""
    tables = lift_machine(machine, vocabulary, ResourceGuard(DEFAULT_LIMITS))
    landings = landings_of(tables)
    assert len(set(landings)) == len(landings)

    def items_of(arrival: int) -> frozenset[Hashable]:
        return frozenset(landings[item] if item >= 0 else ("pending", ~item) for item in tables.items(arrival).tolist())

    does: Does = {("pending", pending): {} for pending in range(tables.pendings)}
    for symbol, pending, arrival in zip(tables.entry_symbol, tables.entry_pending, tables.entry_arrival, strict=True):
        does["pending", int(pending)][int(symbol)] = items_of(int(arrival))
    reader, accepted = ByteReader(machine), Exit(machine.start_code, ())
    expected = lifted(machine, vocabulary, reader)
    waiting = [accepted, *(item for items in expected.values() for item in items if isinstance(item, Exit))]
    while waiting:
        exit_ = waiting.pop()
        if exit_ not in does:
            does[exit_] = dict(reader.entries(exit_))
            waiting += [item for items in does[exit_].values() for item in items if isinstance(item, Exit)]
    block = blocks_of(does, {accepted, ("pending", 0)})
    # Pendings that do the same are one, and all are needed.
    ours = {block["pending", pending] for pending in range(tables.pendings)}
    assert len(ours) == tables.pendings and ours == set(block.values())
    table = dense(tables)
    states = sorted({state for state, _ in expected})
    for token in range(vocabulary.size):
        for state in states:
            arrival = int(table[state, tables.token_class[token]])
            assert renamed(items_of(arrival), block) == renamed(expected[state, token], block), (state, token)
    # Tokens that act alike share a class.
    assert len(np.unique(table[:, tables.token_class], axis=1).T) == len(np.unique(tables.token_class))
    return np.count_nonzero(table[:, tables.token_class])


def dense(tables: PushdownTables) -> np.ndarray:
    """The arrivals by state and class, 0 for those without an edge."""
    table = np.zeros((tables.states, tables.classes), dtype=np.int32)
    state, edge_class, arrival = tables.edges_of(np.arange(tables.states))
    table[state, edge_class] = arrival
    return table


@pytest.mark.parametrize("case", GRAMMARS.values(), ids=GRAMMARS)
@pytest.mark.parametrize("inline", [2_000, 0])
@pytest.mark.sample(9)
def test_tables_are_those_of_tokens_read_byte_by_byte(case: GrammarCase, inline: int) -> None:
    machine = build_machine(case.grammar, ResourceGuard(DEFAULT_LIMITS), inline_growth_max=inline)
    assert compare(machine, toy_vocabulary(case, random.Random(1))) > 0


def test_plain_tokens_are_those_of_all_tokens() -> None:
    strings = ("a", "ab", " the", "é", "aé", 'a"', 'the"}', "日本", '日"]', "\\u00", "a\\n", '"')
    words = (*strings, "{", "}", ":", "[", "]", ",", "1")
    parts = (b"\xe6", b"\x97\xa5", b"\xa5a", b"\xc3", b"\xa9 ")
    vocabulary = Vocabulary((None, *(word.encode() for word in words), *parts), (0,))
    for name in ("json", "tree"):
        assert compare(build_machine(GRAMMARS[name].grammar, ResourceGuard(DEFAULT_LIMITS)), vocabulary) > 0


WORDS = ("n", "na", "name", "ne", "nest", "a", "xy", " the", "é", 'e"', 'name":', 'st":{', '":{"', '":1', '{"n', "1")
MARKS = ("{", "}", '"', ":", ",", "[", "]", '{"', '","', "\\", "\\n", "u006", "e1", '":', '"}', "x", "xn", "-")
KEY_VOCABULARY = Vocabulary((None, *(word.encode() for word in WORDS + MARKS), b"\xc3", b"\xa9a", b"n\xc3"), (0,))


def machine_with_keys() -> PushdownMachine:
    guard = ResourceGuard(DEFAULT_LIMITS)
    properties = {"name": {"type": "integer"}, "nest": {"type": "object"}}
    schema = {"type": "object", "properties": properties, "patternProperties": {"^x": False}, "required": ["nest"]}
    rules = schema_texts(schema, "compact", None, lambda *_: everything(), guard=guard)
    assert isinstance(rules, SchemaRules)
    return network_machine(rules.names, rules.rules, guard)


def test_tokens_within_keys_are_those_of_all_tokens() -> None:
    machine, guard = machine_with_keys(), ResourceGuard(DEFAULT_LIMITS)
    between = (machine.action[:, machine.byte_class[:0x80]] != NO_ACTION).any(axis=1)
    plain, trie = _plain(machine, between)[0], KEY_VOCABULARY.boundary_trie
    near = near_states(machine, Arrivals(machine, guard), trie, plain=plain, others=between & ~plain, guard=guard)
    assert np.count_nonzero(near.base != np.arange(machine.states)) > 5
    assert UNLIKE_DEAD in near.found.effects.effect
    assert compare(machine, KEY_VOCABULARY) > 0


@pytest.mark.parametrize(("name", "most"), [("_TOKENS_MAX", 2), ("_NODES_MAX", 1), ("_BLOCK", 1)])
def test_limits_of_near_states_change_no_token(monkeypatch: pytest.MonkeyPatch, name: str, most: int) -> None:
    monkeypatch.setattr(f"compiler.pushdown.near_states.{name}", most)
    assert compare(machine_with_keys(), KEY_VOCABULARY) > 0


def test_rows_that_share_a_hash_stay_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("compiler.lifting.rows.hash_sparse_rows", lambda *given: np.zeros(given[2], dtype=np.uint64))
    case = GRAMMARS["arithmetic"]
    machine = build_machine(case.grammar, ResourceGuard(DEFAULT_LIMITS))
    assert compare(machine, toy_vocabulary(case, random.Random(1))) > 0


PATTERNS = {"brackets": r"[^\]]*\(\)[^\]]*", "arithmetic": r"[^-]*1[^-]*|-1", "right recursion": "(?s:.{0,5})"}
CHARS_MAX = 12


def machine_of(case: GrammarCase) -> PushdownMachine:
    return build_machine(case.grammar, guard())


def regular(pattern: str) -> tuple[CharDfa, PushdownMachine]:
    dfa = CharDfa(*pattern_dfa(pattern, guard()))
    return dfa, regular_machine(dfa, guard())


def texts(case: GrammarCase, draw: random.Random) -> list[str]:
    drawn = [random_text(case.grammar, draw)[:CHARS_MAX] for _ in range(60)]
    return [*drawn, *(mutated(text, draw, case.alphabet) for text in drawn), "", "é"]


@pytest.mark.parametrize("name", PATTERNS)
def test_a_product_has_the_common_texts_and_exact_distances(name: str) -> None:
    case, draw = GRAMMARS[name], random.Random(name)
    dfa, beside = regular(PATTERNS[name])
    both = intersect(machine_of(case), beside, guard())
    verdicts = {text: derives(case.grammar, text) and dfa.accepts(text) for text in texts(case, draw)}
    assert {text: both.accepts(text.encode()) for text in verdicts} == verdicts
    assert 1 < sum(verdicts.values()) < len(verdicts)
    for _ in range(2):
        count, wrong = compared(both, toy_vocabulary(case, draw), case.heights)
        assert wrong == [] and count > 5


@pytest.mark.parametrize("name", ["brackets", "arithmetic"])
def test_a_complement_has_the_other_texts(name: str) -> None:
    case, draw = GRAMMARS[name], random.Random(name)
    other = complement(machine_of(case))
    everything = regular("(?s:.*)")[1]
    texts_only = intersect(other, everything, guard())
    for text in texts(case, draw):
        assert other.accepts(text.encode()) == texts_only.accepts(text.encode()) == (not derives(case.grammar, text))
    assert other.accepts(b"\xff") and not texts_only.accepts(b"\xff")
    short = regular("(?s:.{0,4})")[1]
    assert compared(intersect(other, short, guard()), toy_vocabulary(case, draw), case.heights)[1] == []


def test_only_deterministic_machines_have_a_complement() -> None:
    with pytest.raises(ValueError, match="several readings"):
        complement(machine_of(GRAMMARS["dangling else"]))


def test_a_union_has_the_texts_of_all_machines() -> None:
    cases, draw = [GRAMMARS[name] for name in ("brackets", "arithmetic", "dangling else")], random.Random(2)
    any_of = unite([*map(machine_of, cases), regular("a[bc]*")[1]], guard())
    for text in [each for case in cases for each in texts(case, draw)]:
        expected = any(derives(case.grammar, text) for case in cases)
        assert any_of.accepts(text.encode()) == expected, text
    assert any_of.accepts(b"abcb") and not any_of.accepts(b"abcd")
    both = unite([machine_of(cases[0]), regular(r"\(\)\(\[")[1]], guard())
    assert compared(both, toy_vocabulary(cases[0], draw), cases[0].heights)[1] == []
