"""A real Chromium beside the service, and pages in it that count every fault against the test."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urlsplit

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, expect, sync_playwright

Scheme = Literal["light", "dark"]
WIDE, PHONE = (1440, 900), (390, 844)
# The first is the same browser without its own window, whose toolbars cost more than the page.
NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
ASKED_FOR = "Failed to load resource: the server responded with a status of 4"  # what a refusal of the API looks like
SERIOUS = ("serious", "critical")
_FAULTS_ALONE: dict[str, Any] = {"resultTypes": ["violations"]}  # to tell what is well takes long
WAIT_MS = 30_000
expect.set_options(timeout=WAIT_MS)  # a machine may be busy


def chromium_path() -> str | None:
    """Where a Chromium is: ABS_CHROMIUM, else the first on the path."""
    given = os.environ.get("ABS_CHROMIUM")
    return given or next(filter(None, map(shutil.which, NAMES)), None)


@contextlib.contextmanager
def running_chromium(path: str) -> Iterator[Browser]:
    """A browser. It is ended before other tests run: playwright's loop would stand in the way of theirs."""
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    arguments = [*sandbox, "--disable-dev-shm-usage", "--disable-gpu", "--font-render-hinting=none"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=arguments)
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Watched:
    """A page, and what went wrong in it: errors of scripts, of the content security policy, requests to other hosts."""

    page: Page
    url: str
    faults: list[str] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)

    def watch(self) -> None:
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self.faults.append(f"uncaught: {error}"))
        self.page.context.on("request", self._asked)

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not message.text.startswith(ASKED_FOR):
            self.faults.append(f"{message.type}: {message.text}")

    def _asked(self, request: Request) -> None:
        self.requests.append(request)
        parts = urlsplit(request.url)
        if parts.scheme in ("http", "https", "ws", "wss") and parts.netloc != urlsplit(self.url).netloc:
            self.faults.append(f"request to another host: {request.url}")

    def bytes_loaded(self) -> int:
        """Of all answers so far, as they came over the line."""
        return sum(request.sizes()["responseBodySize"] for request in self.requests if request.response())


@contextlib.contextmanager
def opened(
    browser: Browser, url: str, size: tuple[int, int], scheme: Scheme = "light", **more: Any
) -> Iterator[Watched]:
    """A page in a profile of its own, still empty. The body of the statement fails at its end for any of its faults."""
    width, height = size
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme=scheme, base_url=url, has_touch=size == PHONE,
        is_mobile=size == PHONE, service_workers="block", **more,
    )
    context.set_default_timeout(WAIT_MS)
    watched = Watched(context.new_page(), url)
    watched.watch()
    try:
        yield watched
        assert not watched.faults, "\n".join(watched.faults)
    finally:
        context.close()


def complaints(page: Page) -> list[str]:
    """What axe finds serious or critical in a page as it is now."""
    found = Axe().run(page, options=_FAULTS_ALONE).response["violations"]
    return [
        f"{one['id']} ({one['impact']}): {node['target']} {node['failureSummary']}"
        for one in found if one["impact"] in SERIOUS
        for node in one["nodes"]
    ]
