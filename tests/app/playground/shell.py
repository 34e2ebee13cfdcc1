"""Common actions in a page of the playground."""

from __future__ import annotations

import json
import re
from typing import Any

from playwright.sync_api import Page, Route, expect

from tests.app.playground.chromium import WatchedPage

RUN_MS = 120_000  # a conversation takes several generations
VERDICT = re.compile(r"^✓ satisfied, \d+ of \d+ tokens · least budget \d+$")
FORMULA = "F(dog) & G(!cat)"


def visit(page: Page, target: str = "") -> Page:
    """Open the playground or another page, and await its listeners."""
    page.goto(f"/{target}")
    expect(page.locator("html")).to_have_attribute("data-ready", "yes")
    return page


def visit_agent(page: Page) -> Page:
    """Open the page of the agent with its policy compiled."""
    return visit(page, "static/agent.html")


def run_agent(page: Page) -> None:
    page.get_by_role("button", name="Run").click()
    expect(page.locator("#status")).to_have_text("Done.", timeout=RUN_MS)


def tab(page: Page, name: str) -> None:
    page.get_by_role("tab", name=name, exact=True).click()


def choose(page: Page, example: str) -> None:
    """Click an example of the gallery and wait for both answers."""
    page.locator("#status").evaluate("status => { status.textContent = ''; }")  # the status of the previous run
    page.locator("#gallery").get_by_role("button", name=example, exact=True).click()
    expect(page.locator("#status")).to_have_text(re.compile("^Done: "))
    expect_answers(page)


def expect_answers(page: Page) -> None:
    """Wait for the verdicts of both answers."""
    expect(page.locator(".constrained .result-verdict")).to_have_text(VERDICT)
    expect(page.locator(".unconstrained .result-verdict")).to_have_text(re.compile(r"^[✓✗] .* (cut|ended) after \d+"))


def formula(page: Page, text: str) -> None:
    tab(page, "Formula")
    page.get_by_label("Formula — ").fill(text)


def wait_for_compilation(page: Page) -> None:
    expect(page.locator(".live-line")).to_contain_text("Compiles")


def fault(page: Page) -> tuple[str, int]:
    """The sentence of the shown fault, and its caret's column."""
    visible_faults = page.locator(".fault:visible")
    expect(visible_faults).to_have_count(1)
    line, caret = str(visible_faults.locator(".caret").text_content()).split("\n")
    assert caret.strip() == "^" and len(caret) <= len(line) + 1
    return str(visible_faults.locator("p").text_content()), caret.index("^")


def generate(page: Page) -> None:
    page.locator("#status").evaluate("status => { status.textContent = ''; }")  # the status of the previous run
    page.get_by_role("button", name="Generate").click()
    expect(page.locator("#status")).to_have_text(re.compile("^Done: "))


def link_of(page: Page, state: dict[str, Any]) -> str:
    """The fragment of a request, made by a page of the service."""
    link: str = page.evaluate("async (state) => (await import('/static/permalink.js')).linkOf(state)", state)
    return link


def snippet(page: Page, name: str) -> str:
    """The request as code, once it is shown."""
    return str(page.locator(f'[data-snippet="{name}"] pre').text_content())


def reject(page: Page, path: str, problem: dict[str, Any]) -> None:
    """Make the service reject all requests to a path."""

    def answer(route: Route) -> None:
        body = json.dumps(problem)
        route.fulfill(status=int(problem.get("status", 422)), content_type="application/problem+json", body=body)

    page.route(f"**{path}", answer)


def ignore_rejections(web_page: WatchedPage) -> None:
    """Ignore the browser's errors about rejected requests, which the test expects."""
    web_page.faults[:] = [fault for fault in web_page.faults if not fault.startswith("error: Failed to load resource")]
