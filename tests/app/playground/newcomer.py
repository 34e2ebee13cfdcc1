"""A newcomer in the page, from its address to an own constraint."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from playwright.sync_api import Page, expect

from tests.app.playground.shell import choose, expect_answers, generate, tab

FORMULA = "F(dog & X(F(ball))) & G(!man)"
REQUEST = ("#prompt", "#constraint", ".budget-slider", "#generate")
ANSWERS = (".constrained .result-text", ".constrained .result-verdict", ".unconstrained .result-text")


@dataclass
class Newcomer:
    """The steps in the page, with their seconds and screenshots.

    folder    where screenshots go, one for each step
    seconds   of each step but typing
    typing    seconds of typing
    pause_s   after each character of the constraint
    """

    page: Page
    folder: Path
    seconds: dict[str, float] = field(default_factory=dict)
    typing: dict[str, float] = field(default_factory=dict)
    pause_s: float = 0.0
    _number: int = field(default=0, init=False)

    def walk(self) -> None:
        """Click an example, write a constraint, lower the budget, copy the request."""
        page = self.page
        with self._step("page", *REQUEST):
            page.goto("/")
            expect(page.locator("html")).to_have_attribute("data-ready", "yes")
        with self._step("example", *REQUEST, *ANSWERS):
            choose(page, "Poem")
        tab(page, "Formula")
        formula = page.get_by_role("textbox", name=re.compile("^Formula"))
        formula.fill("")
        start = time.perf_counter()
        formula.press_sequentially(FORMULA, delay=self.pause_s * 1000)
        self.typing["constraint"] = time.perf_counter() - start
        with self._step("drawn", *REQUEST, ".budget-words", ".budget-key"):
            expect(page.locator(".automaton-picture .edge", has_text="ball").first).to_be_attached()
        with self._step("answered", *REQUEST, *ANSWERS):
            generate(page)
            expect_answers(page)
        text = page.locator(".constrained .result-text").text_content() or ""
        assert re.search(r"\bdog\b.*\bball\b", text) and not re.search(r"\bman\b", text), text
        with self._step("refused", "#problem", ".budget-slider"):
            page.get_by_label("Budget", exact=True).press("Home")
            expect(page.locator("#problem")).to_contain_text("no answer of fewer than 3 tokens")
        page.get_by_role("button", name="Use 3").click()
        with self._step("copied", '[data-snippet="curl"] button'):
            page.get_by_role("button", name="Copy as code").click()
            expect(page.locator('[data-snippet="curl"]')).to_be_visible()

    @contextmanager
    def _step(self, name: str, *selectors: str) -> Iterator[None]:
        """Time a step, take a screenshot, require its elements in view."""
        start = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - start
        print(f"{name}: {self.seconds[name]:.1f} s", flush=True)
        self._number += 1
        self.folder.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=self.folder / f"{self._number:02}-{name.replace(' ', '-')}.png")
        height = self.page.evaluate("innerHeight")
        for selector in selectors:
            box = self.page.locator(selector).bounding_box()
            assert box and 0 <= box["y"] <= height - box["height"], f"{name}: {selector} is out of view"
