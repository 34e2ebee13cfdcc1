"""The builder of formulas, readings in words, accepted and rejected texts."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from compiler.limits import DEFAULT_LIMITS, ResourceGuard
from compiler.ltlf import Op, parse_formula
from compiler.ltlf.dialects import INFIX_WORDS, OTHER_CONSTANTS, PREFIX_WORDS, REWRITTEN_WORDS, STEP_WORDS
from compiler.ltlf.syntax import CONSTANTS
from compiler.spec import spec_from_json
from tests.app.playground.chromium import accessibility_violations, take_picture
from tests.app.playground.shell import VERDICT, generate, tab, visit, wait_for_compilation
from tests.references.text import satisfies

pytestmark = pytest.mark.usefixtures("no_graphviz")
BUILD = """async ([kind, words, later, count]) => {
    const { BuilderForm } = await import('/static/forms/builder.js');
    const form = new BuilderForm(() => {});
    const [first, ...others] = [...form.rules];
    others.forEach((rule) => form.remove(rule));
    Object.assign(first.kind, { value: kind });
    Object.assign(first.words, { value: words });
    Object.assign(first.later, { value: later });
    Object.assign(first.count, { value: count });
    return form.read().ltlf;
}"""
Words = list[str]


def in_order(words: Words, *wanted: str) -> bool:
    rest = iter(words)
    return all(word in rest for word in wanted)


RULES: dict[str, tuple[tuple[str, str, str, str], Callable[[Words], bool]]] = {
    "contains": (("contains", "a, b/c", "", ""), lambda words: "a" in words and ("b" in words or "c" in words)),
    "order": (("order", "a, b, a", "", ""), lambda words: in_order(words, "a", "b", "a")),
    "never": (("never", "a/b, c", "", ""), lambda words: bool(words) and not set(words) & {"a", "b", "c"}),
    "at most twice": (("most", "a", "", "2"), lambda words: bool(words) and words.count("a") <= 2),
    "at most zero times": (("most", "a, b", "", "0"), lambda words: bool(words) and not set(words) & {"a", "b"}),
    "exactly once": (("once", "a, b", "", ""), lambda words: words.count("a") == words.count("b") == 1),
    "then": (
        ("then", "a", "b, c", ""),
        lambda words: bool(words) and all(
            {"b", "c"} <= set(words[place + 1 :]) for place, word in enumerate(words) if word == "a"
        ),
    ),
}  # fmt: skip


def test_a_rule_means_what_it_says(page: Page) -> None:
    visit(page)
    for name, (arguments, expected) in RULES.items():
        spec = spec_from_json({"ltlf": page.evaluate(BUILD, list(arguments))})
        for length in range(5):
            for words in itertools.product("abcx", repeat=length):
                assert satisfies(spec, " ".join(words)) is expected(list(words)), (name, words)


def test_words_of_operators_stay_words(page: Page) -> None:
    visit(page)
    operators = {*PREFIX_WORDS, *INFIX_WORDS, *REWRITTEN_WORDS}
    reserved = operators | {*OTHER_CONSTANTS, *CONSTANTS, *STEP_WORDS, "Dog", "hot dog", 'a"\\b'}
    for word in sorted(reserved):
        built = page.evaluate(BUILD, ["contains", word, "", ""])
        formula = parse_formula(built, ResourceGuard(DEFAULT_LIMITS), declared=())
        assert [node.op for node in formula.nodes] == [Op.NAME, Op.FINALLY], word
        assert formula.nodes[0].name == word


@pytest.mark.long
def test_rules_grow_into_a_formula_that_is_read_back(page: Page) -> None:
    visit(page)
    tab(page, "Build")
    wait_for_compilation(page)
    built = page.locator(".built")
    expect(built).to_have_text("F(dog & X(F(ball))) & G(!man)")
    expect(page.locator(".read-back")).to_contain_text("dog occurs and later ball occurs, and man never occurs")
    page.get_by_role("button", name="+ rule").click()
    rule = page.locator(".rule").last
    rule.get_by_label("Rule", exact=True).select_option(label="has exactly once")
    rule.get_by_label("Words", exact=True).fill("frisbee")
    expect(built).to_have_text(re.compile(r"& F\(frisbee\) & !F\(frisbee & X\(F\(frisbee\)\)\)$"))
    expect(page.locator(".read-back")).to_contain_text("frisbee occurs exactly once")
    assert accessibility_violations(page) == []
    generate(page)
    expect(page.locator(".constrained .result-verdict")).to_have_text(VERDICT)
    take_picture(page, "form-build")
    formula = str(built.text_content())
    tab(page, "Formula")
    expect(page.get_by_label("Formula — ")).to_have_value(formula)


REJECTED = (  # a form, its field, a constraint, and a text that it rejects
    ("Formula", "Formula — ", "F(dog & X(F(ball))) & G(!man)", "dog ball man"),
    ("Formula", "Formula — ", "F(dog & X(F(ball)))", "ball dog"),
    ("Regex", "Pattern", "[a-c]{3}x", "aaa"),
    ("Choice", "Choices", "yes\nno", "n"),
    ("Regex", "Pattern", "[^oO]*", "The quick brown fox jumps over the lazy dog, twice: 1 2 3 4 5 6 7 8 9 0!"),
)


@pytest.mark.long
def test_a_rejected_text_stands_beside_the_shortest(page: Page) -> None:
    visit(page)
    for kind, label, text, rejected in REJECTED:
        tab(page, kind)
        page.get_by_label(label).fill(text)
        sample = page.locator(".sample", has_text="rejected")
        expect(sample).to_have_text(f"rejected {rejected}")
        sample.click()
        expect(page.get_by_label("Text to check")).to_have_value(rejected)
        expect(page.locator(".verdict")).to_contain_text("✗")
