"""A real Chromium beside the service, and pages that record faults."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request, expect, sync_playwright

Scheme = Literal["light", "dark"]
WIDE, LAPTOP, PHONE = (1440, 900), (1280, 720), (390, 844)
# The first is the same browser without a window, whose toolbars take more time than the page.
NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
REJECTION_MESSAGE = "Failed to load resource: the server responded with a status of 4"
SERIOUS = ("serious", "critical")
_VIOLATIONS_ONLY: dict[str, Any] = {"resultTypes": ["violations"]}  # listing what passes takes long
WAIT_MS = 30_000
PICTURES = Path(__file__).resolve().parents[3] / ".cache" / "screenshots"  # of all views, written by the tests
expect.set_options(timeout=WAIT_MS)  # a machine may be busy


def chromium_path() -> str | None:
    """Where a Chromium is: ABS_CHROMIUM, else the first on the path."""
    return os.environ.get("ABS_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


@contextlib.contextmanager
def running_chromium(path: str) -> Iterator[Browser]:
    """A browser. It ends before other tests run, because playwright's event loop would block theirs."""
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    arguments = [
        *sandbox, "--disable-dev-shm-usage", "--disable-gpu", "--font-render-hinting=none",
        "--process-per-site",  # pages of a profile share a process, which has compiled their code already
    ]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=arguments)
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class WatchedPage:
    """A page and its faults, such as script errors."""

    page: Page
    url: str
    faults: list[str] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)

    def watch(self) -> None:
        self.page.on("console", self._note_message)
        self.page.on("pageerror", lambda error: self.faults.append(f"uncaught: {error}"))
        self.page.on("request", self._note_request)

    def _note_message(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not message.text.startswith(REJECTION_MESSAGE):
            self.faults.append(f"{message.type}: {message.text}")

    def _note_request(self, request: Request) -> None:
        self.requests.append(request)
        parts = urlsplit(request.url)
        if parts.scheme in ("http", "https", "ws", "wss") and parts.netloc != urlsplit(self.url).netloc:
            self.faults.append(f"request to another host: {request.url}")

    def bytes_loaded(self) -> int:
        """Bytes of all response bodies so far, as transferred."""
        return sum(request.sizes()["responseBodySize"] for request in self.requests if request.response())


@contextlib.contextmanager
def open_page(
    browser: Browser, url: str, size: tuple[int, int], scheme: Scheme = "light", **more: Any
) -> Iterator[WatchedPage]:
    """An empty page in a new profile. The statement fails at its end if the page has faults."""
    with open_profile(browser, url, size, scheme, **more) as profile, page_of(profile, url) as web_page:
        yield web_page


@contextlib.contextmanager
def open_profile(
    browser: Browser, url: str, size: tuple[int, int], scheme: Scheme = "light", **more: Any
) -> Iterator[BrowserContext]:
    """A new profile of the browser, without pages."""
    width, height = size
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme=scheme, base_url=url, has_touch=size == PHONE,
        is_mobile=size == PHONE, service_workers="block", **more,
    )
    context.set_default_timeout(WAIT_MS)
    try:
        yield context
    finally:
        context.close()


@contextlib.contextmanager
def page_of(profile: BrowserContext, url: str) -> Iterator[WatchedPage]:
    """An empty page of a profile. The statement fails at its end if the page has faults."""
    web_page = WatchedPage(profile.new_page(), url)
    web_page.watch()
    try:
        yield web_page
        assert not web_page.faults, "\n".join(web_page.faults)
    finally:
        web_page.page.close()


def accessibility_violations(page: Page) -> list[str]:
    """The serious and critical violations that axe finds in a page."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(Axe().axe_script)
    violations = page.evaluate("options => axe.run(options).then(results => results.violations)", _VIOLATIONS_ONLY)
    return [
        f"{violation['id']} ({violation['impact']}): {node['target']} {node['failureSummary']}"
        for violation in violations if violation["impact"] in SERIOUS
        for node in violation["nodes"]
    ]


def take_picture(page: Page, name: str, *, whole: bool = False) -> None:
    """Save a screenshot below .cache/screenshots, of what is in view or whole.

    The page's width and colours are part of the file's name.
    """
    scheme = "dark" if page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches") else "light"
    width = page.evaluate("innerWidth")
    PICTURES.mkdir(parents=True, exist_ok=True)
    file = PICTURES / f"{name.lower().replace(' ', '-')}-{width}-{scheme}.png"
    page.screenshot(path=file, full_page=whole)
