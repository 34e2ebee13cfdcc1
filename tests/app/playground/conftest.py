"""The service with its built-in model, and a Chromium."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, Page

from tests.app.playground.chromium import WIDE, WatchedPage, chromium_path, open_profile, page_of, running_chromium
from tests.servers.service_process import ServiceProcess


@pytest.fixture(scope="session")
def service(request: pytest.FixtureRequest) -> ServiceProcess:
    """A process of `abs serve`; none without a browser."""
    _chromium()
    running_process: ServiceProcess = request.getfixturevalue("running_service")
    return running_process


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with running_chromium(_chromium()) as browser:
        yield browser


def _chromium() -> str:
    """The path of a Chromium. Skips where there is none, but in CI that is an error: nothing is skipped there."""
    path = chromium_path()
    if path is None and os.environ.get("CI"):
        pytest.fail("no Chromium: .ci/run installs one from the system's packages")
    if path is None:
        pytest.skip("no Chromium on the path: install chromium, or set ABS_CHROMIUM to one")
    return path


@pytest.fixture(scope="package")
def profile(browser: Browser, service: ServiceProcess) -> Iterator[BrowserContext]:
    """The profile of all pages of a desktop's width. Its first page keeps their process and its compiled code."""
    with open_profile(browser, service.url, WIDE) as profile:
        profile.new_page().goto("/static/icon.svg")
        yield profile


@pytest.fixture
def web_page(profile: BrowserContext, service: ServiceProcess) -> Iterator[WatchedPage]:
    """An empty page of a desktop's width, with its faults."""
    profile.pages[0].evaluate("localStorage.clear()")
    profile.clear_cookies()
    with page_of(profile, service.url) as web_page:
        yield web_page


@pytest.fixture
def no_graphviz(web_page: WatchedPage) -> None:
    """Leaves out pictures of automata, as where Graphviz cannot be loaded.

    Graphviz takes four tenths of the processor time of opening the page.
    """
    web_page.page.add_init_script(
        """window.Worker = class extends EventTarget {
            constructor() { super(); setTimeout(() => this.dispatchEvent(new Event("error"))); }
            postMessage() {}
            terminate() {}
        };"""
    )


@pytest.fixture
def page(web_page: WatchedPage) -> Page:
    """An empty page of a desktop's width."""
    return web_page.page
