"""The agent's page in a browser: wanted, allowed and written events."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.app.playground.chromium import (
    PHONE,
    WIDE,
    Scheme,
    WatchedPage,
    accessibility_violations,
    open_page,
    take_picture,
)
from tests.app.playground.shell import RUN_MS, ignore_rejections, reject, run_agent, visit_agent
from tests.servers.service_process import ServiceProcess

AMOUNT = {
    "type": "object", "properties": {"amount": {"enum": [50, 5000]}}, "required": ["amount"],
    "additionalProperties": False,
}  # fmt: skip
OBLIGATION = ["init(refund)", "response(refund, notify)", "G(!call(refund, amount > 100))"]


@pytest.fixture
def page(page: Page) -> Page:
    """The page of the agent at a desktop's width."""
    return visit_agent(page)


def write(page: Page, rules: list[str], tools: dict[str, Any], max_calls: int) -> None:
    """Fill in a policy, and tools by name with their parameters."""
    functions = [{"type": "function", "function": {"name": name, "parameters": tools[name]}} for name in tools]
    page.get_by_label("Tools, as JSON").fill(json.dumps(functions))
    page.get_by_label("max_calls").fill(str(max_calls))
    page.get_by_label("Rules, one a line").fill("\n".join(rules))
    expect(page.locator("#live")).to_contain_text("Compiles")


def fact(page: Page, event: int, name: str) -> Locator:
    """What the card of an event says after a name."""
    card = page.get_by_role("list", name="Events of the conversation").locator("> li").nth(event - 1)
    return card.locator(f"dt:text-is('{name}') + dd")


@pytest.mark.long
def test_a_wanted_call_that_breaks_a_rule_is_not_written(page: Page) -> None:
    write(page, ["absence(delete)"], {"delete": None}, 1)
    run_agent(page)
    expect(fact(page, 1, "Wanted")).to_contain_text("call delete")
    expect(fact(page, 1, "Wanted")).to_contain_text("✗ not allowed: absence(delete) would be broken")
    assert fact(page, 1, "Allowed").locator("li").all_text_contents() == ["✗ delete", "✓ reply"]
    expect(fact(page, 1, "Written")).to_contain_text("reply")
    expect(page.locator("#verdict")).to_have_text("✓ All rules hold, after 0 calls and a reply.")


@pytest.mark.long
def test_an_obligation_is_met_before_the_budget_ends(page: Page) -> None:
    write(page, OBLIGATION, {"refund": AMOUNT, "notify": None}, 2)
    run_agent(page)
    expect(page.locator(".event h3")).to_have_text(
        ["Event 1 · 2 calls left, 2 needed before a reply", "Event 2 · 1 call left, 1 needed before a reply",
         "Event 3 · 0 calls left"]
    )  # fmt: skip
    assert fact(page, 1, "Allowed").locator("li").all_text_contents() == ["✓ refund", "✗ notify", "✗ reply"]
    expect(fact(page, 1, "To be met")).to_have_text("init(refund) within 2 calls")
    expect(fact(page, 2, "To be met")).to_have_text("response(refund, notify) within 1 call")
    expect(fact(page, 3, "To be met")).to_have_text("nothing: a reply may end the conversation")
    fact(page, 1, "Allowed").get_by_text("Arguments of refund").click()
    expect(fact(page, 1, "Allowed").locator("pre")).to_contain_text("100")
    expect(fact(page, 1, "Written")).to_have_text(re.compile(r'^call refund \{"amount": 50\}$'))
    assert fact(page, 2, "Allowed").locator("li").all_text_contents() == ["✗ refund", "✓ notify", "✗ reply"]
    expect(fact(page, 2, "Written")).to_have_text("call notify")
    expect(fact(page, 3, "Wanted")).to_contain_text("no call is left")
    expect(page.locator("#verdict")).to_have_text("✓ All rules hold, after 2 calls and a reply.")


def test_examples_say_what_their_rules_mean(page: Page) -> None:
    expect(page.locator("#meaning")).to_contain_text("Send a notice after each refund")
    page.get_by_label("Rules, one a line").fill("existence(notify)")
    expect(page.locator("#meaning")).to_be_hidden()


def test_rules_that_conflict_are_named(page: Page) -> None:
    write(page, ["existence(delete)", "absence(delete)", "existence(notify)"], {"delete": None, "notify": None}, 3)
    run_agent(page)
    conflict = "existence(delete); absence(delete)"
    expect(page.locator("#verdict")).to_have_text(f"✗ No next event keeps the rules: {conflict}.")
    expect(page.locator(".event")).to_have_count(0)


@pytest.mark.long
def test_every_example_shows_a_wish_that_the_rules_forbid(page: Page) -> None:
    choices = page.locator("#preset option")
    for number in range(1, choices.count()):
        page.get_by_label("Start from an example").select_option(index=number)
        expect(page.locator("#live")).to_contain_text("Compiles")
        run_agent(page)
        expect(page.locator("#verdict")).to_contain_text("✓ All rules hold")
        expect(page.locator(".event .bad").first).to_contain_text("✗ not allowed: ")
        assert page.locator(".event").count() <= int(page.get_by_label("max_calls").input_value()) + 1


def test_states_are_listed_and_a_faulty_rule_is_shown(page: Page) -> None:
    write(page, ["response(refund, notify)"], {"refund": None, "notify": None}, 2)
    expect(page.get_by_role("row")).to_have_count(4)
    expect(page.get_by_role("row").last).to_have_text(re.compile(r"call\(refund\), result\(refund\).*no.*1"))
    page.get_by_label("Rules, one a line").fill("response(refund, notify")
    expect(page.locator("#live")).to_have_class(re.compile("bad"))
    expect(page.get_by_label("Rules, one a line")).to_have_attribute("aria-invalid", "true")
    page.get_by_label("Tools, as JSON").fill("[")
    expect(page.locator("#live")).to_contain_text("The tools are no JSON")
    page.get_by_role("button", name="Run").click()
    expect(page.get_by_role("alert")).to_contain_text("The tools are no JSON")


@pytest.mark.long
def test_an_agent_is_run_by_keyboard_alone(page: Page) -> None:
    page.keyboard.press("Tab")
    expect(page.get_by_text("Skip to the message")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_label("Message of the user")).to_be_focused()
    page.keyboard.press("Control+Enter")
    expect(page.locator("#status")).to_have_text("Done.", timeout=RUN_MS)
    outline = "[getComputedStyle(document.activeElement)].map((one) => `${one.outlineStyle} ${one.outlineWidth}`)[0]"
    for _ in range(10):
        page.keyboard.press("Tab")
        assert page.evaluate(outline) == "solid 2px", page.evaluate("document.activeElement.outerHTML")


def test_a_refused_request_ends_the_run_with_its_reason(web_page: WatchedPage, page: Page) -> None:
    reject(page, "/v1/chat/completions", {"code": "queue_full", "status": 429})
    page.get_by_role("button", name="Run").click()
    expect(page.get_by_role("alert")).to_contain_text("The queue is full")
    expect(page.get_by_role("button", name="Run")).to_be_enabled()
    ignore_rejections(web_page)


@pytest.mark.parametrize(("size", "scheme"), [(WIDE, "dark"), (PHONE, "light")], ids=["wide", "phone"])
@pytest.mark.long
def test_axe_finds_nothing_serious_in_the_page_of_the_agent(
    size: tuple[int, int], scheme: Scheme, browser: Browser, service: ServiceProcess
) -> None:
    with open_page(browser, service.url, size, scheme) as web_page:
        page = visit_agent(web_page.page)
        assert accessibility_violations(page) == []
        write(page, OBLIGATION, {"refund": AMOUNT, "notify": None}, 2)
        run_agent(page)
        for summary in page.locator(".event summary").all():
            summary.click()
        assert accessibility_violations(page) == []
        take_picture(page, "agent", whole=True)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        page.get_by_label("Rules, one a line").fill("(")
        expect(page.locator("#live")).to_have_class(re.compile("bad"))
        assert accessibility_violations(page) == []


def test_the_pages_link_to_each_other(page: Page) -> None:
    page.get_by_role("link", name="Constraints").click()
    expect(page.locator("html")).to_have_attribute("data-ready", "yes")
    page.get_by_role("link", name="Agent").click()
    expect(page.get_by_label("Message of the user")).to_be_visible()
