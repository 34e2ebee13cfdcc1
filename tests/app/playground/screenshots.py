"""Makes the playground's pictures in docs/images. Look at them each time.

    python -m tests.app.playground.screenshots
"""

from __future__ import annotations

import io
import re
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page, expect

from tests.app.playground.chromium import LAPTOP, PHONE, WIDE, Scheme, chromium_path, open_page, running_chromium
from tests.app.playground.shell import choose, run_agent, tab, visit, visit_agent
from tests.servers.service_process import serving

FOLDER = Path(__file__).resolve().parents[3] / "docs" / "images"
BYTES_MAX = 200_000
PAPER, COMBINED = "Coffee, cat, toy: by the paper's search", "Combination: shape, order, absence and length"


def main() -> int:
    """Makes all pictures. Ends with 1 where there is no Chromium or a picture is too large."""
    path = chromium_path()
    if path is None:
        print("no Chromium on the path: install chromium, or set ABS_CHROMIUM to one", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder)) as service, running_chromium(path) as browser:
        service.wait_until_ready()
        for scheme in ("light", "dark"):
            _first_screen(browser, service.url, LAPTOP, scheme, f"playground-{scheme}.png")
        _first_screen(browser, service.url, PHONE, "light", "playground-phone.png")
        _parts(browser, service.url)
        _agent(browser, service.url)
    sizes = {path.name: path.stat().st_size for path in sorted(FOLDER.glob("playground-*.png"))}
    for name, size in sizes.items():
        print(f"{name}  {size:,} bytes")
    return int(any(size > BYTES_MAX for size in sizes.values()))


def _first_screen(browser: Browser, url: str, size: tuple[int, int], scheme: Scheme, name: str) -> None:
    with open_page(browser, url, size, scheme, reduced_motion="reduce") as web_page:
        visit(web_page.page)
        choose(web_page.page, "Caption")
        web_page.page.mouse.move(0, 0)
        web_page.page.wait_for_timeout(500)
        _save(web_page.page.screenshot(), name)


def _parts(browser: Browser, url: str) -> None:
    """A formula with an error, a rejected token, a violating text."""
    with open_page(browser, url, WIDE, reduced_motion="reduce") as web_page:
        page = web_page.page
        _generate(page, COMBINED)
        tab(page, "Beams")
        page.get_by_label("Step", exact=True).press("Home")
        page.locator(".lattice-column.now .beam.rejected").first.evaluate("node => node.focus({ preventScroll: true })")
        expect(page.locator(".lattice-card")).to_contain_text("can no longer be met")
        _save(page.locator("#views").screenshot(), "playground-rejected.png")
        tab(page, "Checker")
        page.get_by_label("Text to check").fill("A dog and a man with a ball.")
        expect(page.locator("#checker mark.broken")).to_be_visible()
        _save(page.locator("#views").screenshot(), "playground-checker.png")
        page.get_by_label("Start from an example").select_option(label=PAPER)
        page.get_by_role("textbox", name=re.compile("^Formula")).fill("F(dog & X(F(ball))")
        expect(page.locator(".fault:visible")).to_be_visible()
        _save(page.locator("#ask").screenshot(), "playground-fault.png")


def _agent(browser: Browser, url: str) -> None:
    """The page of the agent after its first example."""
    with open_page(browser, url, WIDE, reduced_motion="reduce") as web_page:
        run_agent(visit_agent(web_page.page))
        _save(web_page.page.locator("#events-panel").screenshot(), "playground-agent.png")


def _generate(page: Page, preset: str) -> None:
    visit(page)
    page.get_by_label("Start from an example").select_option(label=preset)
    page.get_by_role("button", name="Generate").click()
    expect(page.locator(".beam.chosen").last).to_be_attached()
    expect(page.locator(".verdict")).to_contain_text("satisfies")
    page.wait_for_timeout(500)


def _save(picture: bytes, name: str) -> None:
    """Write a picture with 256 colours."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with Image.open(io.BytesIO(picture)) as image:
        palette_image = image.convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE)
    palette_image.save(FOLDER / name, optimize=True)


if __name__ == "__main__":
    sys.exit(main())
