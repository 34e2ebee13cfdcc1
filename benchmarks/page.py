"""The way of a new user, but for what he reads: from a clone to an answer in the page.

python -m benchmarks.page [--loads 9]

A clone of this repository and `make demo` in it, with an empty home; then `abs serve` from there, the page in a real
Chromium with an empty cache, and a constraint of one's own, compiled, drawn and answered. What is typed, the commands
and the page's address by copying them and the constraint by thinking it up, takes as long as people of average skill
took over it in Karat et al. (1999): 32.5 and 19 words a minute, a word being five characters. Then the first picture
of the page, loaded anew some times. Writes results/page.json.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
from playwright.sync_api import Browser, Page, expect

from benchmarks.compile import about
from benchmarks.places import RESULTS_DIRECTORY
from benchmarks.report import write_report
from tests.app.playground.chromium import WIDE, chromium_path, open_page, running_chromium

ROOT = Path(__file__).resolve().parents[1]
COMMANDS = {  # as docs/tutorial.md has them
    "clone": "git clone <this repository> abs-server && cd abs-server", "make demo": "make demo", "serve": "make serve",
    "page": "http://127.0.0.1:8000",
}
FORMULA = "F(dog & X(F(ball))) & G(!man)"
COPIED_S, THOUGHT_UP_S = 60 / (32.5 * 5), 60 / (19 * 5)  # for a character
READY_S_MAX = 300.0
PAINT = "performance.getEntriesByName('first-contentful-paint')[0].startTime"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loads", type=int, default=9, help="how often the page is loaded anew")
    args = parser.parse_args()
    path = chromium_path()
    if path is None:
        raise SystemExit("no Chromium on the path: install chromium, or set ABS_CHROMIUM to one")
    took: dict[str, float] = {}
    typed: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="abs-page-") as folder:
        clone, home = Path(folder) / "clone", Path(folder) / "home"
        home.mkdir()
        type_command("clone", typed)
        with timed(took, "clone"):
            subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        type_command("make demo", typed)
        with timed(took, "make demo"):
            subprocess.run(["make", "demo"], cwd=clone, env=plain_environment(home), check=True)
        type_command("serve", typed)
        with running_chromium(path) as browser, served(clone, home, took) as url:
            type_command("page", typed)
            one_answer(browser, url, took, typed)
            loads = [one_load(browser, url) for _ in range(args.loads)]
    found = about("benchmarks.page") | {
        "seconds": took, "typing_seconds": typed,
        "first_paint_ms": [load[0] for load in loads], "drawn_ms": [load[1] for load in loads],
        "bytes": statistics.median(load[2] for load in loads),
        "typed": sum(map(len, COMMANDS.values())) + len(FORMULA),
    }
    (RESULTS_DIRECTORY / "page.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    write_report()
    print(json.dumps(found, indent=1))


@contextmanager
def timed(took: dict[str, float], name: str) -> Iterator[None]:
    """Notes the seconds of its body."""
    started = time.perf_counter()
    yield
    took[name] = time.perf_counter() - started


def type_command(name: str, typed: dict[str, float]) -> None:
    """Takes as long as to copy a command."""
    with timed(typed, name):
        time.sleep(len(COMMANDS[name]) * COPIED_S)


def plain_environment(home: Path) -> dict[str, str]:
    """As of someone who has set nothing, but for where packages come from."""
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "LANG") or name.startswith("PIP_")}
    return kept | {"HOME": str(home)}


@contextmanager
def served(clone: Path, home: Path, took: dict[str, float]) -> Iterator[str]:
    """The URL of a service from the clone, once it is ready."""
    command = [str(clone / ".venv" / "bin" / "abs"), "serve", "--port", "0", "--log-level", "warning"]
    started = time.perf_counter()
    clean = plain_environment(home)
    with subprocess.Popen(command, cwd=clone, env=clean, stdout=subprocess.PIPE, text=True) as service:
        try:
            assert service.stdout is not None
            url = service.stdout.readline().partition("listening on ")[2].strip()
            while not is_ready(url):
                if time.perf_counter() - started > READY_S_MAX:
                    raise SystemExit("the service does not become ready")
                time.sleep(0.05)
            took["serve"] = time.perf_counter() - started
            yield url
        finally:
            service.terminate()


def is_ready(url: str) -> bool:
    try:
        return httpx2.get(f"{url}/ready").is_success
    except httpx2.TransportError:
        return False


def one_answer(browser: Browser, url: str, took: dict[str, float], typed: dict[str, float]) -> None:
    """Notes the seconds until the page can be typed into, until what was typed is drawn, and until it is answered."""
    with open_page(browser, url, WIDE) as watched:
        page = watched.page
        with timed(took, "page"):
            page.goto("/")
            expect(page.locator("html")).to_have_attribute("data-ready", "yes")
        formula = page.get_by_role("textbox", name=re.compile("^Formula"))
        formula.fill("")
        with timed(typed, "constraint"):
            formula.press_sequentially(FORMULA, delay=THOUGHT_UP_S * 1000)
        with timed(took, "drawn"):
            expect(page.locator(".automaton-picture .edge", has_text="ball").first).to_be_visible()
        with timed(took, "answered"):
            page.get_by_role("button", name="Generate").click()
            expect(page.locator("#lattice")).to_have_class(re.compile("is-done"))
        require_satisfied(page)


def require_satisfied(page: Page) -> None:
    written = page.locator(".tokens-text").text_content() or ""
    if not re.search(r"\bdog\b.*\bball\b", written) or re.search(r"\bman\b", written):
        raise SystemExit(f"the page shows an answer that does not satisfy: {written}")


def one_load(browser: Browser, url: str) -> tuple[float, float, int]:
    """Milliseconds to the first paint and to the drawn automaton, and the bytes that were loaded for both."""
    with open_page(browser, url, WIDE) as watched:
        page = watched.page
        page.goto("/")
        expect(page.locator(".automaton-picture")).to_be_visible()
        drawn = page.evaluate("performance.now()")
        page.wait_for_load_state("networkidle")
        return page.evaluate(PAINT), drawn, watched.bytes_loaded()


if __name__ == "__main__":
    main()
