"""Machines of grammars: their languages, determinism, and what is refused."""

from __future__ import annotations

import itertools
import json
import random
import re
from dataclasses import replace

import pytest

from compiler.errors import LimitExceeded, SpecUnsatisfiable, SpecUnsupported
from compiler.limits import Limits, ResourceGuard
from compiler.pushdown import BOTTOM, END, Grammar, PushdownMachine, StackNodes, build_machine, call
from compiler.regex import Alternation, Anchor, Concat, literal_node
from tests.compiler.pushdown.grammars import GRAMMARS, GrammarCase
from tests.references.context_free import derives, grammar_of, mutated, random_text


def machine_of(grammar: Grammar, inline: int = 2_000) -> PushdownMachine:
    patient = Limits(compile_s_max=100)  # the machine may be busy
    return build_machine(grammar, ResourceGuard(patient), inline_growth_max=inline)


@pytest.mark.parametrize("inline", [2_000, 0])
@pytest.mark.parametrize("case", GRAMMARS.values(), ids=GRAMMARS)
@pytest.mark.sample(4)
def test_machines_accept_what_their_grammars_derive(case: GrammarCase, inline: int) -> None:
    machine, draw, accepted = machine_of(case.grammar, inline), random.Random(inline), 0
    for _ in range(50):
        text = random_text(case.grammar, draw)[:120]
        for each in (text, mutated(text, draw, case.alphabet)):
            accepted += machine.accepts(each.encode())
            assert machine.accepts(each.encode()) == derives(case.grammar, each), each
    assert accepted > 25


def loads(text: bytes) -> bool:
    try:
        value = json.loads(text.decode(), parse_constant=lambda name: float("nan"))
        return "NaN" not in json.dumps(value)
    except ValueError:
        return False


def test_the_json_machine_agrees_with_the_standard_library() -> None:
    case, draw, valid = GRAMMARS["json"], random.Random(1), 0
    machine = machine_of(case.grammar)
    for _ in range(500):
        text = random_text(case.grammar, draw)[:200]
        for each in (text, mutated(text, draw, '{}[]",:\\u0e-1 é\n')):
            encoded = each.encode("utf-8", "surrogatepass")
            valid += loads(encoded)
            assert machine.accepts(encoded) == loads(encoded), each
    assert 300 < valid < 900


@pytest.mark.parametrize("case", GRAMMARS.values(), ids=GRAMMARS)
def test_conflicts_tell_deterministic_machines_from_others(case: GrammarCase) -> None:
    machine = machine_of(case.grammar)
    assert (not machine.conflicts()) == case.deterministic
    if case.deterministic:
        draw = random.Random(4)
        for _ in range(20):
            stacks, configurations = StackNodes(), {(machine.start, 0)}
            for byte in random_text(case.grammar, draw).encode():
                configurations = machine.after(configurations, byte, stacks)
                assert len(configurations) == 1


def test_conflicts_name_the_state_and_the_byte() -> None:
    machine = machine_of(grammar_of(s="a<s>?a|b"))
    ((state, byte),) = set(machine.conflicts())
    assert (machine.rules[machine.code[state]], chr(byte)) == ("s", "a")


@pytest.mark.parametrize("inline", [2_000, 0])
@pytest.mark.parametrize("name", ["palindromes", "dangling else", "sql"])
@pytest.mark.sample(3)
def test_merged_stacks_reach_what_single_stacks_reach(name: str, inline: int) -> None:
    case, draw, accepted = GRAMMARS[name], random.Random(7), 0
    machine = machine_of(case.grammar, inline)
    for turn in range(80):
        text = random_text(case.grammar, draw)[:60]
        text = mutated(text, draw, case.alphabet) if turn % 2 else text
        stacks, configurations = StackNodes(), {(machine.start, BOTTOM)}
        for byte in (*text.encode(), END):
            configurations = machine.after(configurations, byte, stacks)
        accepted += machine.accepts(text.encode())
        assert machine.accepts(text.encode()) == bool(configurations), text
    assert accepted > 10


def test_very_ambiguous_texts_are_recognized_soon() -> None:
    machine = machine_of(grammar_of(s="a<s><s>b|a<s>b|a<s>|<s>a|<s><s>|a|"), inline=0)
    assert machine.accepts(b"a" * 100 + b"b" * 40) and not machine.accepts(b"a" * 40 + b"b" * 100)


def test_right_recursion_needs_no_stack() -> None:
    machine, stacks = machine_of(grammar_of(s="a<s>|b")), StackNodes()
    configurations = {(machine.start, 0)}
    for byte in b"a" * 50:
        configurations = machine.after(configurations, byte, stacks)
    assert len(stacks) <= 2  # the empty stack, and the state that reads END
    assert machine.accepts(b"aaab") and not machine.accepts(b"aaa")


def test_regular_grammars_become_machines_without_stack() -> None:
    machine = machine_of(grammar_of(s="<word>(?: <word>)*", word="[a-z]+"))
    assert not len(machine.resume) and machine.rules == ("the text",)
    assert machine.accepts(b"ab cd") and not machine.accepts(b"ab  cd")


LEFT_RECURSIVE = {
    "direct": {"s": "<s>a|b"},
    "behind an empty rule": {"s": "x<a>", "a": "<b>y|z", "b": "<c>?<a>", "c": "c"},
    "in a repeat": {"s": "(?:<s>)*b"},
    "ambiguous": {"s": "<s><s>|a|"},
    "indirect": {"s": "<a>", "a": "a|<b>b", "b": "c|<a>d|e"},
    "of rules that are each other": {"s": "<a>|a", "a": "<s>|b"},
    "twice": {"s": "<s>?<s>{2}b|c"},
    "of three rules": {"s": "<a>c|b", "a": "<b>d|<s>?", "b": "<s>|<a><b>a"},
    "of operators": {"s": "<s>a<b>|<b>", "b": "<b>c<d>|<d>", "d": "d|b<s>e"},
}


@pytest.mark.parametrize("inline", [0, 2_000])
@pytest.mark.parametrize("rules", LEFT_RECURSIVE.values(), ids=LEFT_RECURSIVE)
def test_left_recursive_rules_keep_their_texts(rules: dict[str, str], inline: int) -> None:
    grammar = grammar_of(**rules)
    machine = machine_of(grammar, inline=inline)
    letters = sorted({char for text in rules.values() for char in re.sub("<.>", "", text) if char.isalpha()})
    for length in range(5):
        for chars in itertools.product(letters, repeat=length):
            text = "".join(chars)
            assert machine.accepts(text.encode()) == derives(grammar, text), text


def test_large_left_recursion_is_refused_with_its_cycle() -> None:
    names = [f"r{chr(97 + number % 26)}{chr(97 + number // 26)}" for number in range(60)]
    rules = {name: f"<{after}>a{{5}}|b{{5}}" for name, after in zip(names, [*names[1:], names[0]], strict=True)}
    with pytest.raises(SpecUnsupported, match="raa -> rba -> ") as caught:
        machine_of(grammar_of(**rules), inline=0)
    assert caught.value.construct == "left recursion"


def test_grammars_without_texts_are_unsatisfiable() -> None:
    with pytest.raises(SpecUnsatisfiable):
        machine_of(grammar_of(s="a<s>"))


def test_rules_without_texts_are_left_out() -> None:
    machine = machine_of(grammar_of(s="a|b<never>", never="c<never>|<never>d"))
    assert machine.accepts(b"a") and not machine.accepts(b"b")


def test_rules_that_derive_the_empty_text_are_called_anywhere() -> None:
    grammar = grammar_of(s="<a><a>b<a>", a="(?:x<s>y)?")
    machine = machine_of(grammar, inline=0)
    for text in ("b", "xbyb", "xbyxbyb", "bxby", "xb", "by"):
        assert machine.accepts(text.encode()) == derives(grammar, text), text


def test_the_empty_text_may_be_the_only_one() -> None:
    machine = machine_of(grammar_of(s=""))
    assert machine.accepts(b"") and not machine.accepts(b"a") and machine.action[machine.start, machine.byte_class[END]]


def test_grammars_check_their_rules() -> None:
    with pytest.raises(ValueError, match="names no rule"):
        Grammar(("s",), (call(1),))
    with pytest.raises(ValueError, match="anchors"):
        Grammar(("s",), (Concat((Anchor("start"), literal_node("a", False))),))
    with pytest.raises(ValueError, match="name"):
        Grammar(("s", "t"), (Alternation(()),))


def test_the_limit_of_states_holds_for_all_rules_together() -> None:
    guard = ResourceGuard(Limits(dfa_states_max=30))
    with pytest.raises(LimitExceeded, check=lambda error: error.limit == "dfa_states_max"):
        build_machine(GRAMMARS["json"].grammar, guard)


def test_large_grammars_become_machines_of_their_own_size() -> None:
    draw, rules = random.Random(0), {}
    names = [f"r_{chr(97 + number // 26)}{chr(97 + number % 26)}" for number in range(300)]
    for name in names:
        calls = [f"{draw.choice('abc')}{draw.choice('def')}<{draw.choice(names)}>x" for _ in range(3)]
        rules[name] = "|".join((*calls, "z"))
    assert machine_of(grammar_of(**rules)).states < 5_000


def chain_of_rules(count: int) -> Grammar:
    """Rules that each begin with the next one."""
    x = literal_node("x", False)
    rules = [Alternation((Concat((call(number + 1), x)), call(0))) for number in range(count)]
    rules[0] = Concat((literal_node("(", False), call(1), literal_node(")", False)))
    return Grammar(tuple(map(str, range(count + 1))), (*rules, literal_node("y", False)))


def test_long_chains_of_rules_are_followed_or_refused_by_name() -> None:
    machine = machine_of(chain_of_rules(300))
    assert machine.accepts(b"((yxx" + b"x" * 297 + b")xx)") and not machine.accepts(b"((y))")
    with pytest.raises(LimitExceeded, check=lambda error: error.limit == "nesting_depth_max"):
        machine_of(chain_of_rules(1_500), inline=0)


def test_terminals_end_where_nothing_makes_them_longer() -> None:
    grammar = grammar_of(s=r"(?:<a>|<b>|<c>|[bé\n])*", a="[a-cè]+", b=r"[0-9]+(?:\.[0-9]+)?", c="#[^\n]*")
    terminals, draw, accepted = replace(grammar, terminals=frozenset({1, 2, 3})), random.Random(5), 0
    for inline in (2_000, 0):
        machine = machine_of(terminals, inline)
        for _ in range(150):
            text = "".join(draw.choice("abcé12.#\n") for _ in range(draw.randint(1, 7)))
            accepted += machine.accepts(text.encode())
            assert machine.accepts(text.encode()) == derives(terminals, text), text
    assert 50 < accepted < 250
    pair = replace(grammar_of(s="<a><a>", a="[a-z]+"), terminals=frozenset({1}))
    assert machine_of(grammar_of(s="<a><a>", a="[a-z]+")).accepts(b"ab") and not machine_of(pair).accepts(b"ab")
