"""Compares tokens with their bytes, and distances with the next distances."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from compiler.automata import CharDfa
from compiler.lifting import UNREACHABLE, TokenAutomaton, lift
from compiler.limits import DEFAULT_LIMITS, ResourceGuard
from compiler.pushdown import (
    END,
    MEMBERS_MAX,
    Configurations,
    Grammar,
    PushdownAutomaton,
    PushdownMachine,
    build_machine,
    call,
    lift_to_tokens,
)
from compiler.regex import Alternation, Chars, Concat, Node, Repeat, parse_pattern, pattern_dfa
from compiler.text import CharLeaf, to_text_automaton
from compiler.vocab import Vocabulary
from tests.compiler.pushdown.grammars import GRAMMARS, NUMBER, STRING, GrammarCase
from tests.references.context_free import derives
from tests.references.pushdown import toy_vocabulary
from tests.references.random_constraints import real_vocabulary

TEXT_MAX = 120  # characters up to which the slow reference reads a text


@pytest.fixture(scope="module")
def gpt2(shared: Path) -> Vocabulary:
    vocabulary = real_vocabulary("gpt2", 50_257, 50_256)
    assert vocabulary is not None
    return vocabulary


def guard() -> ResourceGuard:
    return ResourceGuard(DEFAULT_LIMITS)


def random_walk(machine: PushdownMachine, vocabulary: Vocabulary, draw: random.Random, slack: int) -> bytes:
    """A finished text within a random budget. Each state on the way is checked, and tokens are compared with bytes."""
    states = Configurations(lift_to_tokens(machine, vocabulary, guard()))
    token_class = states.tables.token_class
    state, text = states.start, b""
    left = int(states.distance_of(state)) + slack
    assert left < UNREACHABLE
    while not states.is_accepting(state):
        distances = states.distances_after(state)
        # Bellman's equation over all tokens of the vocabulary.
        assert distances[token_class].min() == states.distance_of(state) - 1
        allowed = np.flatnonzero(distances[token_class] <= left - 1)
        for token in {*some(allowed.tolist(), draw), *some(range(len(token_class)), draw)}:
            check_token(machine, states, vocabulary, state, token=token)
        best = np.flatnonzero(distances[token_class] == distances[token_class].min())
        classes = np.unique(token_class[allowed if draw.random() < 0.9 else best])
        chosen = int(draw.choice(np.flatnonzero(token_class == draw.choice(classes.tolist())).tolist()))
        state = states.advance(state, chosen)
        text, left = text + (vocabulary.tokens[chosen] or b""), left - 1
        assert states.distance_of(state) == distances[token_class[chosen]]
    assert left >= 0
    return text


def finished_text(automaton: PushdownAutomaton, vocabulary: Vocabulary, draw: random.Random, slack: int) -> str:
    """A random text within the least budget and some tokens more. All classes of tokens are equally likely."""
    states = Configurations(automaton)
    state, text, left = states.start, b"", automaton.min_tokens + slack
    while not states.is_accepting(state):
        token_class = draw.choice(np.flatnonzero(states.distances_after(state) < left).tolist())
        token = draw.choice(np.flatnonzero(automaton.token_class == token_class).tolist())
        state, text, left = states.advance(state, token), text + (vocabulary.tokens[token] or b""), left - 1
    return text.decode()


def some(ids: Sequence[int], draw: random.Random) -> list[int]:
    return draw.sample(ids, min(8, len(ids)))


def check_token(
    machine: PushdownMachine, states: Configurations, vocabulary: Vocabulary, state: int, *, token: int
) -> None:
    """A token does what its bytes do in the machine. Dead configurations are dropped."""
    reached = set(states.members(state))
    for byte in (END,) if token in vocabulary.eos_ids else vocabulary.tokens[token] or ():
        reached = machine.after(reached, byte, states.stacks)
    alive = {each for each in reached if states.distance_of(states.state_of([each])) < UNREACHABLE}
    alive = set() if vocabulary.tokens[token] is None and token not in vocabulary.eos_ids else alive
    after = states.advance(state, token)
    members = set(states.members(after))
    if len(alive) > MEMBERS_MAX:  # of very ambiguous texts some readings are dropped, the nearest never
        assert members < alive
        assert states.distance_of(after) == min(states.distance_of(states.state_of([each])) for each in alive)
    else:
        assert members == alive


def check_text(case: GrammarCase, machine: PushdownMachine, text: bytes) -> None:
    assert machine.accepts(text)
    if case is GRAMMARS["json"]:
        json.loads(text)
    if len(text) <= TEXT_MAX:
        assert derives(case.grammar, text.decode())


@pytest.mark.parametrize("case", GRAMMARS.values(), ids=GRAMMARS)
def test_walks_over_gpt2_are_exact_and_end_in_time(case: GrammarCase, gpt2: Vocabulary) -> None:
    machine, draw = build_machine(case.grammar, guard()), random.Random(1)
    for slack in (0, 12):
        check_text(case, machine, random_walk(machine, gpt2, draw, slack))


@pytest.mark.parametrize("case", GRAMMARS.values(), ids=GRAMMARS)
@pytest.mark.sample(6)
def test_walks_over_small_vocabularies_are_exact(case: GrammarCase) -> None:
    draw, texts = random.Random(2), 0
    for inline in (2_000, 0) * 2:
        machine = build_machine(case.grammar, guard(), inline_growth_max=inline)
        vocabulary = toy_vocabulary(case, draw)
        if lift_to_tokens(machine, vocabulary, guard()).min_tokens < UNREACHABLE:
            check_text(case, machine, random_walk(machine, vocabulary, draw, draw.randint(0, 20)))
            texts += 1
    assert texts >= 2


def explicit_automaton(pattern: str, vocabulary: Vocabulary) -> TokenAutomaton:
    """The explicit automaton of exactly the texts of a pattern."""
    text = to_text_automaton(CharLeaf(CharDfa(*pattern_dfa(pattern, guard())), None), guard())
    return lift(text.transducer, text.letters, vocabulary, guard())


def check_same_distances(automaton: PushdownAutomaton, explicit: TokenAutomaton, draw: random.Random) -> None:
    """Both have the same distances after all tokens of a random text."""
    states = Configurations(automaton)
    state, at, left = states.start, explicit.start, automaton.min_tokens + draw.randint(0, 20)
    while not states.is_accepting(state):
        assert states.distance_of(state) == explicit.distance[at]
        found = states.distances_after(state)[automaton.token_class]
        assert np.array_equal(found, explicit.distance[explicit.successors(at)][explicit.token_class])
        token, left = draw.choice(np.flatnonzero(found < left).tolist()), left - 1
        state, at = states.advance(state, token), explicit.advance(at, token)


@pytest.mark.parametrize("pattern", [STRING, NUMBER, "(?:[a-c]é?)*(?:dog|日)", "[a-z]+(?: [a-z]+){2,5}"])
def test_regular_grammars_have_the_distances_of_explicit_automata(pattern: str, gpt2: Vocabulary) -> None:
    grammar = Grammar(("s",), (parse_pattern(pattern, guard()),))
    automaton = lift_to_tokens(build_machine(grammar, guard()), gpt2, guard())
    check_same_distances(automaton, explicit_automaton(pattern, gpt2), random.Random(3))


def assert_same_steps(machines: Sequence[PushdownMachine], vocabulary: Vocabulary, draw: random.Random) -> None:
    """Both machines have the same distances along a random beginning."""
    one, other = (Configurations(lift_to_tokens(machine, vocabulary, guard())) for machine in machines)
    here, there = one.start, other.start
    for _ in range(15):
        found, expected = (
            states.distances_after(state)[states.tables.token_class] for states, state in ((one, here), (other, there))
        )
        assert np.array_equal(found, expected)
        allowed = np.flatnonzero((found < UNREACHABLE) & (found > 0)).tolist()
        if not allowed:
            break
        token = draw.choice(allowed)
        here, there = one.advance(here, token), other.advance(there, token)


def test_calls_instead_of_copies_change_no_distance(gpt2: Vocabulary) -> None:
    for name in ("json", "arithmetic", "sql"):
        grammar, draw = GRAMMARS[name].grammar, random.Random(name)
        machines = [build_machine(grammar, guard(), inline_growth_max=most) for most in (2_000, 0)]
        assert len(machines[0].rules) < len(machines[1].rules)
        assert_same_steps(machines, gpt2, draw)


def split(grammar: Grammar) -> Grammar:
    """The same texts, with a rule for each part of a pattern."""
    rules = list(grammar.rules)

    def without_parts(node: Node) -> Node:
        if isinstance(node, Repeat):
            return Repeat(as_call(node.item), node.minimum, node.maximum)
        return type(node)(tuple(map(as_call, node.items))) if isinstance(node, Concat | Alternation) else node

    def as_call(node: Node) -> Node:
        if isinstance(node, Chars):
            return node
        number = len(rules)
        rules.append(node)
        rules[number] = without_parts(node)
        return call(number)

    for number, rule in enumerate(grammar.rules):
        if number not in grammar.terminals:
            rules[number] = without_parts(rule)
    return Grammar(tuple(map(str, range(len(rules)))), tuple(rules), grammar.start, grammar.terminals)


@pytest.mark.parametrize("name", GRAMMARS)
@pytest.mark.sample(6)
def test_components_split_into_rules_change_no_distance(name: str) -> None:
    case, draw = GRAMMARS[name], random.Random(name)
    grammars = case.grammar, split(case.grammar)
    machines = [build_machine(grammar, guard(), inline_growth_max=0) for grammar in grammars]
    assert len(machines[0].rules) < len(machines[1].rules)
    for _ in range(2):
        assert_same_steps(machines, toy_vocabulary(case, draw), draw)


def test_states_after_the_end_take_only_eos() -> None:
    case = GRAMMARS["brackets"]
    vocabulary = Vocabulary((None, b"(", b")", b"[", b"]", None, None), (0, 5))
    states = Configurations(lift_to_tokens(build_machine(case.grammar, guard()), vocabulary, guard()))
    end = states.run([1, 2, 5])
    assert states.is_accepting(end) and states.distance_of(end) == 0
    assert states.run([1, 2, 0, 5]) == end
    assert np.flatnonzero(states.distances_after(end) < UNREACHABLE) == [states.tables.token_class[0]]
    dead = states.run([1, 2, 0, 1])
    assert states.distance_of(dead) == UNREACHABLE and dead == states.run([2]) == states.run([6])
    assert (states.distances_after(dead) == UNREACHABLE).all()


def test_vocabularies_without_a_bracket_have_no_text() -> None:
    grammar = GRAMMARS["right recursion"].grammar
    automaton = lift_to_tokens(build_machine(grammar, guard()), Vocabulary((None, b"(", b"a"), (0,)), guard())
    assert automaton.min_tokens == 1  # the empty text
    nested = lift_to_tokens(
        build_machine(GRAMMARS["tree"].grammar, guard()), Vocabulary((None, b"[", b"{"), (0,)), guard()
    )
    assert nested.min_tokens == UNREACHABLE
