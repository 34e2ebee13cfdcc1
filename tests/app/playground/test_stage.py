"""The first screen: request, budget, answer and answer without the constraint."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
from PIL import Image
from playwright.sync_api import Browser, Locator, Page, expect

from tests.app.playground.chromium import LAPTOP, PHONE, Scheme, accessibility_violations, open_page, take_picture
from tests.app.playground.shell import VERDICT, choose, formula, generate, reject, tab, visit, wait_for_compilation
from tests.servers.cluster import FULL
from tests.servers.service_process import ServiceProcess

pytestmark = pytest.mark.usefixtures("no_graphviz")
STAGE = {  # what has to be seen without scrolling, by name
    "prompt": "#prompt", "constraint": "#constraint", "budget": ".budget-slider", "button": "#generate",
    "answer": ".constrained .result-text", "verdict": ".constrained .result-verdict",
    "without": ".unconstrained .result-text", "verdict without": ".unconstrained .result-verdict",
}  # fmt: skip


@pytest.mark.parametrize(("size", "scheme"), [(LAPTOP, "light"), (PHONE, "dark")], ids=["laptop", "phone"])
@pytest.mark.parametrize("example", ["Caption", "JSON", "Poem"])
@pytest.mark.sample(2)
@pytest.mark.long
def test_request_and_both_answers_stand_above_the_fold(
    size: tuple[int, int], scheme: Scheme, example: str, browser: Browser, service: ServiceProcess
) -> None:
    with open_page(browser, service.url, size, scheme, reduced_motion="reduce") as web_page:
        page = visit(web_page.page)
        choose(page, example)
        for name, selector in STAGE.items():
            box = page.locator(selector).bounding_box()
            assert box and box["y"] >= 0 and box["y"] + box["height"] <= size[1], (name, box)
        assert page.evaluate("[scrollX, scrollY]") == [0, 0]
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert accessibility_violations(page) == []
        take_picture(page, f"stage-{example}")


def test_each_of_ten_examples_is_satisfied_by_one_click(page: Page) -> None:
    visit(page)
    names = page.locator("#gallery button").all_text_contents()
    assert len(names) == 10
    for name in names if FULL else names[::5]:
        choose(page, name)
        expect(page.locator(f"#gallery button:text-is('{name}')")).to_have_attribute("aria-pressed", "true")
        take_picture(page, f"example-{name}")
    page.locator("#prompt").fill("sentence:")
    formula(page, "F(dog)")
    expect(page.locator('#gallery [aria-pressed="true"]')).to_have_count(0)


@pytest.mark.long
def test_a_change_of_the_request_outdates_its_answer(page: Page) -> None:
    note = page.get_by_text("The answer to the request before your change.")
    visit(page)
    choose(page, "Caption")
    expect(note).to_be_hidden()
    expect(page.locator(".choices")).to_contain_text("a longer text may be ahead")  # the second is more probable
    page.locator("#prompt").fill("concepts: dog\nsentence:")
    expect(note).to_be_visible()
    take_picture(page, "outdated")
    generate(page)
    expect(note).to_be_hidden()
    page.get_by_label("max_tokens").fill("20")
    expect(note).to_be_visible()
    generate(page)
    formula(page, "F(dog)")
    expect(note).to_be_visible()
    choose(page, "Infill")
    expect(note).to_be_hidden()
    page.get_by_label("Model", exact=True).select_option("stories")
    expect(note).to_be_visible()


def test_a_clicked_example_replaces_the_one_that_runs(page: Page) -> None:
    visit(page)
    wait_for_compilation(page)
    page.route("**/generate", lambda route: None)  # never answered
    with page.expect_request("**/generate"):
        page.locator("#gallery").get_by_role("button", name="Caption", exact=True).click()
    page.unroute_all()
    choose(page, "Infill")
    expect(page.locator(".constrained .result-text")).to_contain_text("on the street.")
    expect(page.get_by_text("The answer to the request before your change.")).to_be_hidden()


@pytest.mark.parametrize("size", [LAPTOP, PHONE], ids=["laptop", "phone"])
@pytest.mark.long
def test_a_long_constraint_shows_that_it_scrolls(
    size: tuple[int, int], browser: Browser, service: ServiceProcess
) -> None:
    with open_page(browser, service.url, size) as web_page:
        page = visit(web_page.page)
        choose(page, "Poem")
        area = page.locator("#constraint")
        assert area.evaluate("area => area.scrollHeight > area.clientHeight + 10")
        shaded = _lower_edge(area)
        take_picture(page, "constraint-scrolls")
        area.evaluate("area => { area.scrollTop = area.scrollHeight; }")
        plain = _lower_edge(area)
        assert len(plain) == 1 and not shaded & plain


def _lower_edge(area: Locator) -> set[Any]:
    """The colours near an element's lower edge, beside its scroll bar."""
    with Image.open(io.BytesIO(area.screenshot())) as picture:
        row = picture.convert("RGB").crop((4, picture.height - 4, picture.width - 24, picture.height - 3))
        return {colour for _, colour in row.getcolors() or ()}


def test_words_that_satisfy_are_marked(page: Page) -> None:
    visit(page)
    choose(page, "Caption")
    marks = page.locator(".constrained mark")
    assert marks.all_text_contents() == ["dog", "caught", "frisbee"]
    expect(marks.nth(1)).to_have_attribute("title", "catch")


@pytest.mark.long
def test_distances_are_drawn_along_the_answer(page: Page) -> None:
    visit(page)
    choose(page, "Caption")
    facts = page.locator(".distance-chart li .out-of-sight").all_text_contents()
    needed = [int(re.sub(r".*at least (\d+) more.*", r"\1", fact)) for fact in facts]
    left = [int(re.sub(r".*, (\d+) left$", r"\1", fact)) for fact in facts]
    assert needed[0] == 6 and needed[-1] == 0 and left == list(range(24, 24 - len(left), -1))
    assert all(here <= there for here, there in zip(needed, left, strict=True))


SHOW_BUDGET = """async (figures) => {
    const { Budget } = await import('/static/budget.js');
    const place = document.getElementById('budget');
    place.replaceChildren();
    new Budget(place, { read: () => ({ max_tokens: 8 }) }).show(figures);
}"""
REGIONS: tuple[tuple[dict[str, int], str], ...] = (
    ({"min_tokens": 6}, "1–5 impossible (proven), 6–11 tight, from 12 free"),
    ({"min_tokens": 1}, "1 tight, from 2 free"),
    ({"min_tokens": 9, "min_tokens_at_least": 4},
     "1–3 impossible (proven), 4–8 undecided, 9–17 tight, from 18 free"),
)  # fmt: skip


def test_the_budget_has_its_regions(page: Page) -> None:
    visit(page)
    for figures, regions in REGIONS:
        page.evaluate(SHOW_BUDGET, figures)
        assert ", ".join(page.locator(".budget-key li").all_text_contents()) == regions


@pytest.mark.long
def test_the_budget_slider_sets_the_tokens_and_names_their_region(page: Page) -> None:
    visit(page)
    wait_for_compilation(page)
    slider = page.get_by_label("Budget", exact=True)
    expect(slider).to_have_value("24")
    expect(page.locator(".budget-words")).to_have_text("24 tokens: free")
    slider.fill("8")
    expect(page.get_by_label("max_tokens")).to_have_value("8")
    expect(page.locator(".budget-words")).to_have_text("8 tokens: tight")
    expect(page.locator(".budget-words")).to_have_attribute("title", re.compile("less than twice the least budget"))
    expect(page.locator(".budget-key li").last).to_have_attribute("title", re.compile("at least twice the least"))
    slider.press("Home")
    expect(slider).to_have_attribute("aria-valuetext", "1 token: impossible")
    expect(page.locator("#problem")).to_contain_text("no answer of fewer than 6 tokens")
    page.get_by_label("max_tokens").fill("120")
    expect(slider).to_have_value("120")
    generate(page)


def test_a_failure_of_the_plain_answer_leaves_the_other(page: Page) -> None:
    visit(page)
    formula(page, "F(dog)")
    reject(page, "/v1/completions", {"status": 403, "code": "forbidden", "scope": "generate"})
    generate(page)
    expect(page.locator(".constrained .result-verdict")).to_have_text(VERDICT)
    expect(page.locator(".unconstrained")).to_contain_text("Your key lacks the scope “generate”.")


def test_tabs_below_work_by_keyboard(page: Page) -> None:
    visit(page)
    tab(page, "Automaton")
    for name in ("Beams", "Trace", "Checker", "Side by side", "Request", "Automaton"):
        page.keyboard.press("ArrowRight")
        chosen = page.get_by_role("tab", name=name, exact=True)
        expect(chosen).to_be_focused()
        panel = page.locator(f"#{chosen.get_attribute('aria-controls')}")
        expect(panel).to_be_visible()
        expect(page.locator(".view-panel:visible")).to_have_count(1)
