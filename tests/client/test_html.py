"""What notebooks show of a result: all of it, escaped, and nothing that runs."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest

from abs_client import AsyncClient, Client, ConnectionFailedError, F, GenerateResult, TokenStep, TracedWord
from abs_client._json import read
from abs_client._notebook import ROWS_MAX
from tests.client.scripted_server import ANSWER, answer, scripted_server

EVIL = "<script>alert(1)</script><img src=x onerror=alert(1)>\"'&"
SVG = "<svg xmlns='http://www.w3.org/2000/svg'><script>alert(2)</script></svg>"
TAGS = {"div", "p", "span", "table", "thead", "tbody", "tr", "th", "td", "details", "summary", "img", "ul", "li",
        "code"}  # fmt: skip


class Reader(HTMLParser):
    """Tags that are used, and that all are closed where they should be."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.used: set[str] = set()
        self.attributes: list[tuple[str, str | None]] = []
        self.text, self._open = "", list[str]()
        self.feed(page)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.used.add(tag)
        self.attributes += attrs
        if tag != "img":
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def harmless(page: str) -> Reader:
    reader = Reader(page)
    assert reader.used <= TAGS
    assert {name for name, _ in reader.attributes} <= {"style", "class", "title", "alt", "src", "open"}
    sources = [value or "" for name, value in reader.attributes if name == "src"]
    assert all(source.startswith("data:image/svg+xml;base64,") for source in sources)
    return reader


def picture(page: str) -> str:
    found = re.search(r'src="data:image/svg\+xml;base64,([^"]*)"', page)
    assert found
    return base64.b64decode(found[1]).decode()


def evil_result(svg: Callable[[], str] | None) -> GenerateResult:
    result = read(GenerateResult, ANSWER)
    step = TokenStep(1, EVIL, 0, 0, 0.5, -0.1, -0.1, ((EVIL,),))
    word = TracedWord(EVIL, (EVIL,), 0)
    choice = replace(result.choices[0], text=EVIL + "\n", words=(word,) * 300, trace=(step,) * 300)
    return replace(result, choices=(choice, choice), model=EVIL, svg=svg)


def test_everything_is_escaped_and_long_tables_are_cut() -> None:
    reader = harmless(evil_result(lambda: SVG)._repr_html_())
    assert reader.text.count(EVIL) >= 2 * 2 * ROWS_MAX and "and 100 more" in reader.text
    assert "<script" not in evil_result(lambda: SVG)._repr_html_()
    assert picture(evil_result(lambda: SVG)._repr_html_()) == SVG  # as an image it runs nothing


def failing() -> str:
    raise ConnectionFailedError(EVIL)


@pytest.mark.parametrize(("svg", "says"), [(None, ""), (failing, "no picture"), (lambda: "x" * 2**22, "too large")])
def test_results_are_shown_without_the_automaton_image(svg: Any, says: str) -> None:
    reader = harmless(evil_result(svg)._repr_html_())
    assert "img" not in reader.used and says in reader.text and "a" * 64 in reader.text


def test_a_real_result_shows_text_trace_and_automaton(url: str) -> None:
    with Client(url) as client:
        result = client.generate("sentence:", F("dog"), max_tokens=12, trace=True)
        compiled = client.compile(F("dog"))
        shown = client.automaton(compiled)
    page = result._repr_html_()  # the client is closed: it asks by itself
    reader = harmless(page)
    assert result.text.strip() in reader.text and "token trace" in reader.text and "word trace" in reader.text
    assert picture(page).startswith("<svg") and "q0" in picture(page)
    page_text = harmless(compiled._repr_html_())
    assert (
        compiled.explanation is not None
        and compiled.explanation.sentences[0] in page_text.text
        and "img" in page_text.used
    )
    assert "img" in harmless(shown._repr_html_()).used


def test_the_automaton_image_is_fetched_once_on_display() -> None:
    with scripted_server(answer(), answer(), answer()) as server, Client(server.url, api_key="k") as client:
        result = client.generate("p", F("dog"))
        assert len(server.requests) == 1
        first, again = result._repr_html_(), result._repr_html_()
    assert first == again and len(server.requests) == 2
    asked = server.requests[1]
    assert asked.path == f"/automata/{'a' * 64}.svg" and asked.headers["authorization"] == "Bearer k"
    uncached = client._endpoint.with_picture(result)  # the server has stopped
    assert "no picture" in uncached._repr_html_()


async def test_asynchronous_results_have_html(url: str) -> None:
    async with AsyncClient(url) as client:
        page = (await client.generate("sentence:", F("dog"), max_tokens=12))._repr_html_()
    assert picture(page).startswith("<svg")
