"""The LTLf translation on examples, tables and laws, the past included.

A direct evaluator is the reference.
"""

from __future__ import annotations

import operator
import random
from collections.abc import Callable, Sequence

import pytest

from compiler.automata import Dfa, complement, steps_to
from compiler.errors import LimitExceeded
from compiler.limits import Limits, ResourceGuard
from compiler.ltlf import (
    LtlfFormula,
    formula_to_dfa,
    formula_to_dfa_mona,
    parse_formula,
    print_formula,
    propositions_of,
)
from tests.references.dfa import assert_same, equivalent, product
from tests.references.formula_suite import CLOTHES, all_subsets, clothing, singletons
from tests.references.ltlf import satisfies
from tests.references.mona_oracle import mona_binary
from tests.references.mona_program import mona_program
from tests.references.random_formulas import LETTERS, NAMES, random_formula, random_formula_with_past, traces
from tests.tables import rows, table

ROWS = table("ltlf")["row"]
ROOMY = Limits(formula_chars_max=100_000, propositions_max=100)


def parse(source: str) -> LtlfFormula:
    return parse_formula(source, ResourceGuard(ROOMY))


def translate(source: str, letters: Sequence[frozenset[str]], limits: Limits = ROOMY) -> Dfa:
    return formula_to_dfa(parse(source), letters, ResourceGuard(limits))


# --- the paper ------------------------------------------------------------------------------------------------------

FIGURE_1 = "(!cat & !toy & !eos) U (coffee & X((!toy & !eos) U (cat & X((!eos) U (toy & X((!eos) U (eos & last)))))))"
FIGURE_1_STATES = table("figure_1")["states"]


def test_the_formula_of_figure_1_gives_its_automaton() -> None:
    dfa = translate(FIGURE_1, singletons(["coffee", "cat", "toy", "eos", "nomatch"], empty=False))
    order = ("q0", "q2", "q1", "q3", "q4", "q5")  # the paper's states in canonical, that is breadth-first, order
    states = [[order[dfa.step(state, symbol)] for symbol in range(5)] for state in range(dfa.states)]
    assert dict(zip(order, states, strict=True)) == FIGURE_1_STATES
    assert [name for name, accepts in zip(order, dfa.accepting, strict=True) if accepts] == ["q5"]


ORDERED = """
((!(secondword | dot) U firstword) & F(secondword)) & ((!(thirdword | dot) U secondword) & F(thirdword))
& ((!(eos | dot) U thirdword) & F(eos)) & G(dot -> X eos)
& G(firstword | secondword | thirdword | dot | eos | nomatch)
"""
ORDERED_LETTERS = singletons(["firstword", "secondword", "thirdword", "dot", "eos", "nomatch"], empty=False)


def test_the_clothing_specification_of_the_paper_has_17_states() -> None:
    dfa = translate(" & ".join(clothing()), singletons(CLOTHES))
    assert dfa.states == 17
    outfit = [
        ["Trouser", "Shirt", "Sneaker"],
        ["Dress", "Sandal"],
        ["Sandal", "Shirt"],
        ["Shirt", "Trouser", "Trouser"],
    ]
    assert [dfa.accepts(CLOTHES.index(item) for item in items) for items in outfit] == [True, True, False, False]


def test_the_ordered_specification_of_the_paper_has_7_states() -> None:
    dfa = translate(ORDERED, ORDERED_LETTERS)
    assert dfa.states == 7
    assert steps_to(dfa.next_state, dfa.accepting)[dfa.start] == 4
    for text, verdict in (("12345", True), ("1621635", True), ("21345", False), ("12354", False), ("1235", True)):
        assert dfa.accepts(int(digit) - 1 for digit in text) is verdict, text


# --- tables and laws ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_evaluator_and_automaton_agree_with_the_table_of_traces(row: dict[str, object]) -> None:
    formula = parse(str(row["formula"]))
    dfa = formula_to_dfa(formula, LETTERS, ResourceGuard(ROOMY))
    for verdict in (True, False):
        for trace in row["accepts" if verdict else "rejects"]:  # type: ignore[attr-defined]
            steps = [frozenset(step) for step in trace]
            assert satisfies(formula, steps) is verdict, trace
            assert dfa.accepts(LETTERS.index(step) for step in steps) is verdict, trace


@pytest.mark.parametrize("source", ["true", "!a", "WX a", "G a", "a R b", "last", "!F a", "a W b", "F a | G b"])
def test_the_empty_trace_satisfies_nothing(source: str) -> None:
    assert not translate(source, LETTERS).accepts(())
    assert not satisfies(parse(source), ())


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("draw", [random_formula, random_formula_with_past])  # the short run takes a seed of each
@pytest.mark.sample(2)
def test_random_formulas_agree_with_the_evaluator_on_short_traces(
    draw: Callable[[random.Random], str], seed: int
) -> None:
    rng = random.Random(seed)
    for _ in range(12):
        source = draw(rng)
        letters = rng.sample(LETTERS, rng.choice((1, 2, 3, 4, 4, 5, 6)))
        formula, dfa = parse(source), translate(source, letters)
        for trace in traces(len(letters), 4):
            assert dfa.accepts(trace) is satisfies(formula, [letters[symbol] for symbol in trace]), (source, trace)


def test_formulas_over_many_propositions_agree_with_the_evaluator() -> None:
    rng = random.Random(5)
    names = [f"p{index}" for index in range(9)]
    letters = [*singletons(names), *(frozenset(rng.sample(names, 3)) for _ in range(6))]
    for _ in range(60):
        source = random_formula(rng, names)
        formula, dfa = parse(source), translate(source, letters)
        for _ in range(40):
            trace = [rng.randrange(len(letters)) for _ in range(rng.randint(1, 9))]
            assert dfa.accepts(trace) is satisfies(formula, [letters[symbol] for symbol in trace]), (source, trace)


@pytest.mark.parametrize(("left", "right"), rows("ltlf", "equivalent_formulas_give_the_same_automaton"))
def test_equivalent_formulas_give_the_same_automaton(left: str, right: str) -> None:
    assert_same(translate(left, LETTERS), translate(right, LETTERS))


def test_connectives_are_operations_on_automata() -> None:
    rng = random.Random(11)
    for _ in range(40):
        left, right = random_formula(rng), random_formula(rng)
        left_dfa, right_dfa = translate(left, LETTERS), translate(right, LETTERS)
        assert equivalent(translate(f"({left}) & ({right})", LETTERS), product(left_dfa, right_dfa, operator.and_))
        assert equivalent(translate(f"({left}) | ({right})", LETTERS), product(left_dfa, right_dfa, operator.or_))
        negation = product(complement(left_dfa), translate("true", LETTERS), operator.and_)
        assert equivalent(translate(f"!({left})", LETTERS), negation)


def test_renaming_propositions_renames_letters_and_nothing_else() -> None:
    new_names = ("Ankle_boot", "b", "A")
    letters = [frozenset(new_names[NAMES.index(name)] for name in letter) for letter in LETTERS]
    for seed in range(20):
        source, target = (random_formula(random.Random(seed), names) for names in (NAMES, new_names))
        assert_same(translate(source, LETTERS), translate(target, letters))


def test_names_that_no_letter_holds_are_false_throughout() -> None:
    assert_same(translate("F b | a", singletons("a")), translate("a", singletons("a")))


# --- sizes and limits -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "states"),
    [
        (" & ".join(f"F p{index}" for index in range(8)), 256),
        (" | ".join(f"F p{index}" for index in range(8)), 2),
        (" U ".join(f"p{index}" for index in range(18)), 19),
        ("F(a & " + "X " * 10 + "b)", 1_025),
        ("X " * 40 + "a", 43),
        ("F(" + " & ".join(f"(X p{index} | X q{index})" for index in range(20)) + ")", 1),
        (" | ".join(f"(F a{index} & F b{index} & F c{index})" for index in range(4)), 2_402),
        # a product of disjuncts outgrows the cap where one diagram of all, in which they absorb one another, does not
        (" | ".join(f"(F a & {'X ' * (index % 20)} b)" for index in range(60)), 42),
        # one conjunct deeper than Python's stack, and more parts than one code word holds
        (" U ".join("abcdefghijklmnopqrstuvwxyz"[index % 26] for index in range(1_000)), 963),
        (" & ".join(f"G(p{index} -> WX G !p{index})" for index in range(40)) + " & last", 3),
        (" & ".join(f"G !p{index} & (X !p{index} | a)" for index in range(70)), 4),
    ],
)
def test_large_formulas_have_their_minimal_size(source: str, states: int) -> None:
    assert translate(source, singletons(propositions_of(parse(source)))).states == states


def test_a_tight_cap_refuses_or_gives_the_same_automaton() -> None:
    rng, refused = random.Random(9), 0
    for _ in range(150):
        source = random_formula(rng)
        try:
            capped = translate(source, LETTERS, Limits(dfa_states_max=rng.randint(3, 12)))
        except LimitExceeded as error:
            assert error.limit == "dfa_states_max"
            refused += 1
        else:
            assert_same(capped, translate(source, LETTERS))
    assert 0 < refused < 150


def test_all_subsets_of_many_propositions_may_be_letters() -> None:
    names = [f"p{index}" for index in range(8)]
    source = "(" * 7 + "p0" + "".join(f" U {name})" for name in names[1:])
    assert translate(source, all_subsets(names)).states == 129


@pytest.mark.parametrize(
    ("source", "limits", "limit"),
    [
        (" & ".join(f"F p{index}" for index in range(10)), Limits(dfa_states_max=1_000), "dfa_states_max"),
        ("F(a & " + "X " * 12 + "b)", Limits(dfa_states_max=1_000), "dfa_states_max"),
        ("F(a & " + "X " * 12 + "b)", Limits(bdd_nodes_max=5_000), "bdd_nodes_max"),
        ("F(a & " + "X " * 12 + "b)", Limits(compile_s_max=0.0), "compile_s_max"),
    ],
)
def test_a_translation_over_a_limit_stops_and_names_the_limit(source: str, limits: Limits, limit: str) -> None:
    with pytest.raises(LimitExceeded, check=lambda error: error.limit == limit):
        translate(source, singletons(propositions_of(parse(source))), limits)


@pytest.mark.parametrize(
    ("source", "trace", "verdict"), rows("ltlf", "past_operators_agree_with_hand_written_verdicts")
)
def test_past_operators_agree_with_hand_written_verdicts(source: str, trace: str, verdict: bool) -> None:
    steps = [frozenset(step) for step in trace]
    assert satisfies(parse(source), steps) is verdict
    assert translate(source, LETTERS).accepts(LETTERS.index(step) for step in steps) is verdict


def test_random_past_formulas_give_the_automata_of_mona() -> None:
    rng, binary = random.Random(3), mona_binary()
    for _ in range(40):
        formula = parse(random_formula_with_past(rng))
        theirs = formula_to_dfa_mona(formula, LETTERS, ResourceGuard(Limits()), binary=binary, program=mona_program)
        assert_same(formula_to_dfa(formula, LETTERS, ResourceGuard(Limits())), theirs)


@pytest.mark.parametrize("source", ["G(b -> O a)", "F(a S b)", "G((Y a) S (H b))", "X Y Y !a", "F(a & (O b U c))"])
def test_past_formulas_parse_from_their_printed_text(source: str) -> None:
    assert parse(print_formula(parse(source))) == parse(source)


def test_names_of_the_caller_may_look_like_ours() -> None:
    dfa = translate('G("past 0" -> O a)', [frozenset({"past 0"}), frozenset({"a"})])
    assert dfa.accepts([1, 0]) and not dfa.accepts([0, 1])


def test_the_letters_with_the_past_have_their_limit() -> None:
    source = " & ".join(f"F(c & {'Y ' * depth}a)" for depth in range(1, 7))
    with pytest.raises(LimitExceeded, match="letters_max"):
        translate(source, LETTERS, Limits(letters_max=40))
