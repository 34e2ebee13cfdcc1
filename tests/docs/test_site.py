"""The site builds without warnings, uses no other host, documents the API."""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from docs.tools import errors_page, settings_page
from docs.tools.pages import DOCS, pages
from docs.tools.reference import CODES, reference
from tests.app.playground.chromium import chromium_path
from tests.servers.processes import served_by_thread

ROOT = DOCS.parent
FETCHED = {  # the attributes by which a page has a browser fetch something at once
    "script": ("src",), "img": ("src", "srcset"), "iframe": ("src",), "source": ("src", "srcset"), "audio": ("src",),
    "video": ("src", "poster"), "embed": ("src",), "object": ("data",), "link": ("href",), "use": ("href",),
}
NOT_FETCHED = {"canonical", "prev", "next", "alternate", "author", "license"}  # links that only tell
CHROMIUM = chromium_path()


class Fetches(HTMLParser):
    """What a page has a browser fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.urls: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        if tag == "link" and attributes.get("rel") in NOT_FETCHED:
            return
        self.urls += [attributes[name] or "" for name in FETCHED.get(tag, ()) if name in attributes]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    quiet = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=quiet, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stderr, done.stderr
    return folder


def test_every_page_is_built_and_in_the_navigation(site: Path) -> None:
    home_page = (site / "index.html").read_text(encoding="utf-8")
    for page in pages():
        name = page.relative_to(DOCS).with_suffix("").as_posix()
        if name != "index":
            assert (site / name / "index.html").is_file(), name
            assert f'href="{name}/"' in home_page, f"{name} is not in the navigation"


def test_table_cells_show_bars_without_backslashes(site: Path) -> None:
    for page in site.rglob("*.html"):
        cells = re.findall(r"<td>.*?</td>", page.read_text(encoding="utf-8"))
        assert not [cell for cell in cells if r"\|" in cell], page
    assert "<code>a | b</code>" in (site / "constraints" / "ltlf" / "index.html").read_text(encoding="utf-8")


def test_no_page_asks_another_host_for_anything(site: Path) -> None:
    for page in site.rglob("*.html"):
        fetches = Fetches()
        fetches.feed(page.read_text(encoding="utf-8"))
        assert fetches.urls
        for url in fetches.urls:
            parts = urlsplit(url)
            assert not parts.netloc and parts.scheme in ("", "data"), f"{page.relative_to(site)}: {url}"
    for sheet in site.rglob("*.css"):
        for url in re.findall(r"url\(([^)]*)\)|@import\s+([^;]*)", sheet.read_text(encoding="utf-8")):
            assert not re.match(r"[\"']?(https?:)?//", "".join(url)), f"{sheet.name}: {url}"


def test_the_reference_has_every_path_and_request_field(site: Path) -> None:
    document = json.loads((ROOT / "openapi.json").read_text(encoding="utf-8"))
    text = reference(document)
    for path, operations in document["paths"].items():
        for method in operations:
            assert f"### {method.upper()} {path}\n" in text
    for name, schema in document["components"]["schemas"].items():
        for field in schema.get("properties", {}):
            assert f"| `{field}` |" in text, f"{name}.{field}"
    built = (site / "api" / "index.html").read_text(encoding="utf-8")
    assert 'id="post-generate"' in built and 'href="../errors/#budget_too_small"' in built


def test_each_error_has_a_section_matching_the_table(site: Path) -> None:
    built = (site / "errors" / "index.html").read_text(encoding="utf-8")
    for code in CODES:
        assert f'id="{code}"' in built
    assert re.search(r'id="budget_too_small".*?<strong>422</strong>.*?<code>min_tokens</code>', built, re.DOTALL)


def test_names_in_the_pages_exist() -> None:
    of_ours = r"`((?:abs_client|app|compiler|decoding|tests|docs|deploy|benchmarks)/[\w./-]*)`"
    for page in pages():
        for path in re.findall(of_ours, page.read_text(encoding="utf-8")):
            assert (ROOT / path).exists(), f"{page.name} names {path}"


def test_the_page_of_settings_is_fresh() -> None:
    text = settings_page.PAGE.read_text(encoding="utf-8")
    assert text == settings_page.page(), "run python -m docs.tools.settings_page"
    assert "| `ABS_BODY_BYTES_MAX` | `2097152` (2 MiB) | bytes |" in text


def test_the_table_of_errors_is_fresh() -> None:
    text = errors_page.PAGE.read_text(encoding="utf-8")
    assert text == errors_page.page(), "run python -m docs.tools.errors_page"
    assert "| 422 | [`budget_too_small`](#budget_too_small) | " in text


NOT_OF_THE_SERVICE = {
    "ABS_ADDRESS", "ABS_BASE_URL", "ABS_CHROMIUM", "ABS_KEY", "ABS_MODEL_DIR", "ABS_MODEL_NAME", "ABS_TESTS_FULL",
}  # fmt: skip


def test_settings_that_the_pages_name_exist() -> None:
    settings = set(re.findall(r"`(ABS_[A-Z0-9_]+)`", settings_page.PAGE.read_text(encoding="utf-8")))
    for page in pages():
        for name in re.findall(r"\bABS_[A-Z0-9_]*[A-Z0-9]\b(?!_)", page.read_text(encoding="utf-8")):
            setting = name.removesuffix("_FILE") if name not in settings else name
            assert setting in settings | NOT_OF_THE_SERVICE, (page.name, name)


@pytest.fixture(scope="module")
def site_url(site: Path) -> Iterator[str]:
    handler = functools.partial(SimpleHTTPRequestHandler, directory=str(site))
    with served_by_thread(ThreadingHTTPServer(("127.0.0.1", 0), handler)) as url:
        yield url


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine: .ci/run installs one")
def test_a_browser_finds_by_search_and_reaches_no_other_host(site_url: str) -> None:
    from playwright.sync_api import sync_playwright

    urls: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.on("request", lambda request: urls.append(request.url))
        page.goto(f"{site_url}/constraints/ltlf/")
        assert page.locator("img[src$='ltlf-order.svg']").evaluate("image => image.naturalWidth") > 300
        page.locator(".md-search__input").click()
        page.keyboard.type("leading space")
        page.locator(".md-search-result__link").first.wait_for()
        browser.close()
    hosts = {urlsplit(url).netloc for url in urls if not url.startswith(("data:", "blob:"))}
    assert hosts == {urlsplit(site_url).netloc}, hosts
