"""The formulas on which both engines have to agree: (family, formula, letters), the same ones on every run.

The families are those of the literature: Declare's templates alone and in conjunctions, the paper's specifications,
chains of X and of U, keywords in any order, the conjunctions that LTLf translators are measured with, and random
formulas. Letters are the sets of propositions that may hold at a step: one at a time and none, or all subsets.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

from tests.references.random_formulas import NAMES, random_formula
from tests.tables import table

Letters: TypeAlias = tuple[frozenset[str], ...]
_WORDS = ("first", "second", "third", "fourth", "fifth", "sixth")


class Case(NamedTuple):
    """One formula, as text, over letters."""

    family: str
    source: str
    letters: Letters


def singletons(names: Sequence[str], empty: bool = True) -> Letters:
    return tuple(frozenset({name}) for name in names) + (frozenset(),) * empty


def all_subsets(names: Sequence[str]) -> Letters:
    return tuple(frozenset(subset) for size in range(len(names) + 1) for subset in itertools.combinations(names, size))


def suite() -> list[Case]:
    """All cases, more than 500, in the order of the families. Each occurs once."""
    return list(dict.fromkeys(case for family in _FAMILIES for case in family()))


def larger() -> list[Case]:
    """More cases for measurements, too slow for a test. One of the engines takes up to two seconds."""
    cases = [Case("chains of X", f"F(a & {'X ' * count}b)", singletons("ab")) for count in (9, 10, 11)]
    clothing = max((case.source for case in _clothes()), key=len)
    cases.append(Case("clothing", clothing, all_subsets(CLOTHES)))
    for count in (14, 15):
        names = [f"p{number}" for number in range(count)]
        cases.append(Case("chains of U", " U ".join(names), singletons(names)))
    for count in (9, 10):
        names = [f"w{number}" for number in range(count)]
        cases.append(Case("keywords in any order", " & ".join(f"F {name}" for name in names), singletons(names)))
    rng = random.Random(8)
    for count in (8, 10, 12):
        for _ in range(4):
            names = [f"v{number}" for number in range(count)]
            cases.append(_conjunction("random conjunctions", rng, _BLOCKS, names, count))
            cases.append(_conjunction("Declare conjunctions", rng, list(DECLARE.values()), names, count))
    return cases


def _conjunction(family: str, rng: random.Random, patterns: Sequence[str], names: Sequence[str], count: int) -> Case:
    """The first patterns over a, b and c, name by name."""
    formulas = []
    for _ in range(count):
        letters = rng.sample(names, 3)
        formulas.append(rng.choice(patterns).format(a=letters[0], b=letters[1], c=letters[2]))
    return Case(family, " & ".join(f"({part})" for part in formulas), singletons(names))


# --- Declare --------------------------------------------------------------------------------------------------------

DECLARE: dict[str, str] = table("declare")  # in LTLf, by name; {a} and {b} are activities


def _declare_templates() -> Iterator[Case]:
    for template in DECLARE.values():
        source = template.format(a="a", b="b")
        yield Case("Declare templates", source, all_subsets("ab"))
        yield Case("Declare templates", source, singletons("abc"))
        yield Case("Declare templates", f"!({source})", singletons("ab", empty=False))


def _declare_conjunctions() -> Iterator[Case]:
    rng = random.Random(21)
    for count in (2, 3, 4, 5, 6, 8, 10):
        activities = [f"act{number}" for number in range(max(3, count * 3 // 4))]
        for _ in range(8):
            yield _conjunction("Declare conjunctions", rng, list(DECLARE.values()), activities, count)


# --- the paper ------------------------------------------------------------------------------------------------------

CLOTHES = ("Top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")
# What may not be worn after what: the paper's thirteen formulas for Ordered Fashion-MNIST, its last three below.
_NEVER_AFTER = {
    "Top": ("Shirt", "Dress", "Top"),
    "Trouser": ("Dress", "Trouser"),
    "Pullover": ("Dress", "Top", "Shirt", "Pullover"),
    "Dress": ("Top", "Shirt", "Trouser", "Pullover", "Dress"),
    "Coat": ("Top", "Shirt", "Pullover", "Dress", "Coat"),
    "Sandal": ("Sneaker", "Trouser", "Ankle boot", "Sandal"),
    "Shirt": ("Top", "Dress", "Shirt"),
    "Sneaker": ("Sandal", "Trouser", "Ankle boot", "Sneaker"),
    "Bag": ("Top", "Shirt", "Dress", "Pullover", "Coat", "Bag"),
    "Ankle boot": ("Sandal", "Trouser", "Sneaker", "Ankle boot"),
}
_WORN = ("F(Top | Pullover | Shirt | Dress)", "F(Trouser | Dress)", 'F(Sandal | Sneaker | "Ankle boot")')


def clothing() -> list[str]:
    """The thirteen formulas, whose conjunction is the paper's constraint."""
    formulas = []
    for outfit, forbidden in _NEVER_AFTER.items():
        prefixes = {item: "WX G !" if item == outfit else "!F " for item in forbidden}
        formulas.append(" & ".join(f'G("{outfit}" -> {prefix}"{item}")' for item, prefix in prefixes.items()))
    return [*formulas, *_WORN]


def _clothes() -> Iterator[Case]:
    formulas = clothing()
    letters = singletons(CLOTHES)
    for formula in formulas:
        yield Case("clothing", formula, letters)
    for count in (5, 10, 12, 13):
        yield Case("clothing", " & ".join(f"({formula})" for formula in formulas[:count]), letters)
    yield Case("clothing", " & ".join(f"({formula})" for formula in formulas), singletons(CLOTHES, empty=False))
    yield Case("clothing", " & ".join(f"({formula})" for formula in formulas[3:]), letters)


def _ordered_keywords() -> Iterator[Case]:
    """Ordered CommonGen as in the paper's appendix and its Figure 1. The end of sentence is optional."""
    for count in range(2, 7):
        words = _WORDS[:count]
        precedences = [
            f"((!({successor} | dot) U {word}) & F {successor})" for word, successor in itertools.pairwise(words)
        ]
        closed = [*precedences, f"((!(eos | dot) U {words[-1]}) & F eos)", "G(dot -> X eos)"]
        any_letter = f"G({' | '.join([*words, 'dot', 'eos', 'nomatch'])})"
        names = [*words, "dot", "eos", "nomatch"]
        yield Case("Ordered CommonGen", " & ".join([*closed, any_letter]), singletons(names, empty=False))
        yield Case("Ordered CommonGen", " & ".join([*closed, any_letter]), singletons(names))
        yield Case("Ordered CommonGen", " & ".join(precedences), singletons([*words, "dot"]))
        figure = "(!eos) U (eos & last)"
        for position in range(count - 1, -1, -1):
            missing = " & ".join(f"!{name}" for name in [*words[position + 1 :], "eos"])
            figure = f"({missing}) U ({words[position]} & X({figure}))"
        yield Case("Ordered CommonGen", figure, singletons([*words, "eos", "nomatch"], empty=False))


def _unordered_keywords() -> Iterator[Case]:
    for count in range(1, 9):
        names = [f"w{number}" for number in range(count)]
        every = " & ".join(f"F {name}" for name in names)
        yield Case("keywords in any order", every, singletons(names))
        yield Case("keywords in any order", f"({every}) & G(dot -> last)", singletons([*names, "dot"]))
        if count <= 4:
            yield Case("keywords in any order", every, all_subsets(names))
        if count <= 6:
            at_most_once = " & ".join(f"!F({name} & X F {name})" for name in names)
            yield Case("keywords in any order", f"{every} & {at_most_once}", singletons(names))


# --- chains ---------------------------------------------------------------------------------------------------------


def _next_chains() -> Iterator[Case]:
    for count in range(1, 9):
        steps = "X " * count
        yield Case("chains of X", f"{steps}a", all_subsets("a"))
        yield Case("chains of X", f"{'WX ' * count}a", all_subsets("a"))
        yield Case("chains of X", f"F(a & {steps}b)", singletons("ab"))
        deep = "".join(f"a & X({'ab'[step % 2]} & " for step in range(count)) + "last" + ")" * count
        yield Case("chains of X", deep, singletons("ab"))
    for count in (12, 20, 30, 40):
        yield Case("chains of X", f"{'X ' * count}a", all_subsets("a"))
        yield Case("chains of X", f"{'WX ' * count}last", all_subsets("a"))
    for count in range(2, 9):
        both = " & ".join(f"(X p{number} | X q{number})" for number in range(count))
        names = [f"{kind}{number}" for number in range(count) for kind in "pq"]
        yield Case("chains of X", f"F({both})", singletons(names))


def _until_chains() -> Iterator[Case]:
    for count in range(2, 14):
        names = [f"p{number}" for number in range(count)]
        yield Case("chains of U", " U ".join(names), singletons(names))
        yield Case("chains of U", " R ".join(names[:6]), singletons(names[:6]))
        if count <= 8:
            formula = names[0]
            for name in names[1:]:
                formula = f"({formula}) U {name}"
            yield Case("chains of U", formula, singletons(names))
            yield Case("chains of U", f"!({formula})", singletons(names))
        if count <= 6:
            yield Case("chains of U", " U ".join(names), all_subsets(names))
            yield Case("chains of U", " U ".join(f"(X {name})" for name in names), singletons(names))


# --- random ---------------------------------------------------------------------------------------------------------

# The building blocks of the random conjunctions that LTLf satisfiability checkers and Lisa are measured with
# (Li and others, "LTLf satisfiability checking", 2014; Bansal and others, 2020).
_BLOCKS = (
    "G({a} -> F {b})", "F({a} & X F {b})", "G(!{a} | X {b})", "{a} U ({b} | {c})", "({a} R {b}) | F {c}",
    "G({a} -> (!{b} U {c}))", "F G {a} | F {b}", "G F {a}", "X X {a} | {b}", "F {a} -> ({b} U {c})",
    "G({a} -> WX({b} | X {c}))", "!(F {a} & G !{b})",
)  # fmt: skip


def _random_conjunctions() -> Iterator[Case]:
    rng = random.Random(3377)
    for count in (2, 3, 4, 5, 6):
        for _ in range(12):
            names = [f"v{number}" for number in range(count + 2)]
            yield _conjunction("random conjunctions", rng, _BLOCKS, names, count)


def _random_formulas() -> Iterator[Case]:
    rng = random.Random(1_919)
    letters = all_subsets(NAMES)
    for _ in range(110):
        yield Case("random formulas", random_formula(rng), letters)
    for _ in range(50):
        yield Case("random formulas", random_formula(rng), tuple(rng.sample(letters, rng.randint(1, 5))))
    names = [f"n{number}" for number in range(6)]
    for _ in range(40):
        yield Case("random formulas", random_formula(rng, names), singletons(names))


_FAMILIES: tuple[Callable[[], Iterator[Case]], ...] = (
    _declare_templates, _declare_conjunctions, _clothes, _ordered_keywords, _unordered_keywords, _next_chains,
    _until_chains, _random_conjunctions, _random_formulas,
)  # fmt: skip
