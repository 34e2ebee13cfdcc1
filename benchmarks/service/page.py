"""Measures a new user's time from clone to first answer. Reading time is excluded.

    python -m benchmarks.service.page [--loads 9]

It clones this repository, runs `make demo` with an empty home folder, then `abs serve`, opens the page in Chromium with
an empty cache, clicks an example, types a constraint, waits for its picture and its answer, asks for too small a budget
and copies the request as code. It prints the time of each step, requires that what the step shows is in view without
scrolling (`tests/app/playground/newcomer.py`), and writes a screenshot of it to .cache/newcomer. Typing takes as long
as in Karat et al. (1999) for people of average skill: 32.5 words a minute for copied text (the commands and the
address) and 19 for composed text (the constraint), with five characters a word. Then the page is loaded several times.
Writes results/page.json and RESULTS.md.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
from playwright.sync_api import Browser, expect

from benchmarks.report import write_run
from benchmarks.runs import parser_of
from tests.app.playground.chromium import LAPTOP, WIDE, chromium_path, open_page, running_chromium
from tests.app.playground.newcomer import FORMULA, Newcomer

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = {  # as in docs/tutorial.md
    "clone": "git clone <this repository> abs-server && cd abs-server",
    "make demo": "make demo",
    "serve": "make serve",
    "page": "http://127.0.0.1:8000",
}
SCREENSHOTS = ROOT / ".cache" / "newcomer"
COPYING_S, COMPOSING_S = 60 / (32.5 * 5), 60 / (19 * 5)  # for a character
READY_S_MAX = 300.0
FIRST_PAINT = "performance.getEntriesByName('first-contentful-paint')[0].startTime"


def main() -> None:
    parser = parser_of(__doc__, shared=False)
    parser.add_argument("--loads", type=int, default=9, help="how often the page is loaded")
    args = parser.parse_args()
    path = chromium_path()
    if path is None:
        raise SystemExit("no Chromium on the path: install chromium, or set ABS_CHROMIUM to one")
    wait_s: dict[str, float] = {}
    typing: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="abs-page-") as folder:
        clone, home = Path(folder) / "clone", Path(folder) / "home"
        home.mkdir()
        type_command("clone", typing)
        with timer(wait_s, "clone"):
            subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        type_command("make demo", typing)
        with timer(wait_s, "make demo"):
            subprocess.run(["make", "demo"], cwd=clone, env=default_environment(home), check=True)
        type_command("serve", typing)
        with running_chromium(path) as browser, running_server(clone, home, wait_s) as url:
            type_command("page", typing)
            with open_page(browser, url, LAPTOP) as watched:
                Newcomer(watched.page, SCREENSHOTS, wait_s, typing, COMPOSING_S).walk()
            loads = [load_page(browser, url) for _ in range(args.loads)]
    run = {
        "seconds": wait_s, "typing_seconds": typing,
        "first_paint_ms": [load[0] for load in loads], "drawn_ms": [load[1] for load in loads],
        "bytes": statistics.median(load[2] for load in loads),
        "typed": sum(map(len, COMMANDS.values())) + len(FORMULA),
    }  # fmt: skip
    write_run("page", run)
    print(json.dumps(run, indent=1))


@contextmanager
def timer(seconds: dict[str, float], name: str) -> Iterator[None]:
    """Stores the seconds of its body."""
    start = time.perf_counter()
    yield
    seconds[name] = time.perf_counter() - start
    print(f"{name}: {seconds[name]:.1f} s", flush=True)


def type_command(name: str, seconds: dict[str, float]) -> None:
    """Takes the time of copying a command."""
    seconds[name] = len(COMMANDS[name]) * COPYING_S
    time.sleep(seconds[name])


def default_environment(home: Path) -> dict[str, str]:
    """The environment of a user who configured only the package source."""
    variables = {name: text for name, text in os.environ.items() if name in ("PATH", "LANG") or name.startswith("PIP_")}
    return variables | {"HOME": str(home)}


@contextmanager
def running_server(clone: Path, home: Path, seconds: dict[str, float]) -> Iterator[str]:
    """The URL of a service from the clone, once it is ready."""
    command = [str(clone / ".venv" / "bin" / "abs"), "serve", "--port", "0", "--log-level", "warning"]
    start = time.perf_counter()
    environment = default_environment(home)
    with subprocess.Popen(command, cwd=clone, env=environment, stdout=subprocess.PIPE, text=True) as service:
        try:
            assert service.stdout is not None
            url = service.stdout.readline().partition("listening on ")[2].strip()
            while not is_ready(url):
                if time.perf_counter() - start > READY_S_MAX:
                    raise SystemExit("the service does not become ready")
                time.sleep(0.05)
            seconds["serve"] = time.perf_counter() - start
            yield url
        finally:
            service.terminate()


def is_ready(url: str) -> bool:
    """Whether the service answers, and is ready."""
    try:
        return httpx2.get(f"{url}/ready").is_success
    except httpx2.TransportError:
        return False


def load_page(browser: Browser, url: str) -> tuple[float, float, int]:
    """Milliseconds to first paint and drawn automaton, and their loaded bytes."""
    with open_page(browser, url, WIDE) as watched:
        page = watched.page
        page.goto("/")
        expect(page.locator(".automaton-picture")).to_be_visible()
        drawn_ms = page.evaluate("performance.now()")
        page.wait_for_load_state("networkidle")
        return page.evaluate(FIRST_PAINT), drawn_ms, watched.bytes_loaded()


if __name__ == "__main__":
    main()
