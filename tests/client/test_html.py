"""The HTML of results in notebooks is complete, escaped and inert."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest

from abs_client import (
    AsyncClient,
    Client,
    ConnectionFailedError,
    F,
    GenerateResult,
    JsonSchema,
    Keywords,
    TokenStep,
    TracedWord,
)
from abs_client._json import read
from abs_client._notebook import ROWS_MAX
from abs_client._transport import Endpoint
from tests.client.scripted_server import ANSWER, answer, scripted_server

EVIL = "<script>alert(1)</script><img src=x onerror=alert(1)>\"'&"
SVG = "<svg xmlns='http://www.w3.org/2000/svg'><script>alert(2)</script></svg>"
TAGS = {"div", "p", "span", "table", "thead", "tbody", "tr", "th", "td", "details", "summary", "img", "ul", "li",
        "code"}  # fmt: skip


class PageReader(HTMLParser):
    """Collects the tags of a page and requires balanced tags."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str | None]] = []
        self.text, self._open_tags = "", list[str]()
        self.feed(page)
        self.close()
        assert not self._open_tags

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += attrs
        if tag != "img":
            self._open_tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open_tags.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def read_inert(page: str) -> PageReader:
    reader = PageReader(page)
    assert reader.tags <= TAGS
    assert {name for name, _ in reader.attributes} <= {"style", "class", "title", "alt", "src", "open"}
    sources = [value or "" for name, value in reader.attributes if name == "src"]
    assert all(source.startswith("data:image/svg+xml;base64,") for source in sources)
    return reader


def picture(page: str) -> str:
    match = re.search(r'src="data:image/svg\+xml;base64,([^"]*)"', page)
    assert match
    return base64.b64decode(match[1]).decode()


def evil_result(svg: Callable[[], str] | None) -> GenerateResult:
    result = read(GenerateResult, ANSWER)
    step = TokenStep(1, EVIL, 0, 0, 0.5, -0.1, -0.1, ((EVIL,),))
    word = TracedWord(EVIL, (EVIL,), 0)
    choice = replace(result.choices[0], text=EVIL + "\n", words=(word,) * 300, trace=(step,) * 300)
    return replace(result, choices=(choice, choice), model=EVIL, svg=svg)


def test_everything_is_escaped_and_long_tables_are_cut() -> None:
    reader = read_inert(evil_result(lambda: SVG)._repr_html_())
    assert reader.text.count(EVIL) >= 2 * 2 * ROWS_MAX and "and 100 more" in reader.text
    assert "<script" not in evil_result(lambda: SVG)._repr_html_()
    assert picture(evil_result(lambda: SVG)._repr_html_()) == SVG  # an image runs no script


def raise_failure() -> str:
    raise ConnectionFailedError(EVIL)


@pytest.mark.parametrize(
    ("svg", "message"), [(None, ""), (raise_failure, "no picture"), (lambda: "x" * 2**22, "too large")]
)
def test_results_are_shown_without_the_automaton_image(svg: Any, message: str) -> None:
    reader = read_inert(evil_result(svg)._repr_html_())
    assert "img" not in reader.tags and message in reader.text and "a" * 64 in reader.text


def test_a_real_result_shows_text_trace_and_automaton(url: str) -> None:
    with Client(url) as client:
        result = client.generate("sentence:", F("dog"), max_tokens=12, trace=True)
        compilation = client.compile(F("dog"))
        automaton = client.automaton(compilation)
    page = result._repr_html_()  # the client is closed, so the result opens a connection
    reader = read_inert(page)
    assert result.text.strip() in reader.text and "token trace" in reader.text and "word trace" in reader.text
    assert picture(page).startswith("<svg") and "q0" in picture(page)
    compilation_page = read_inert(compilation._repr_html_())
    assert compilation.explanation is not None and "img" in compilation_page.tags
    assert compilation.explanation.sentences[0] in compilation_page.text
    assert "img" in read_inert(automaton._repr_html_()).tags


def test_checks_and_decodings_are_shown(url: str) -> None:
    with Client(url) as client:
        failed = client.check(F("dog") & Keywords("ball"), "A dog sleeps.", conjuncts=True)
        passed = client.check(F("dog"), "A dog sleeps.")
        invalid = client.check(JsonSchema({"type": "array", "items": {"type": "integer"}}), '[1, "<b>"]')
        decoded = client.decode([[-0.1, -3.0], [-0.1, -2.0]], F("b"), ["a", "b"])
    text = read_inert(failed._repr_html_()).text
    assert "not satisfied, violated at character or label 13" in text and "parts of the constraint" in text
    assert read_inert(passed._repr_html_()).text.startswith("satisfied") and "sleeps" in text
    assert "$[1]" in read_inert(invalid._repr_html_()).text
    reader = read_inert(decoded._repr_html_())
    assert "a b" in reader.text and "label trace" in reader.text and "img" in reader.tags
    evil = replace(decoded, labels=(EVIL,), svg=None)
    assert EVIL in read_inert(evil._repr_html_()).text


def test_the_automaton_image_is_fetched_once_on_display() -> None:
    with scripted_server(answer(), answer(), answer()) as server, Client(server.url, api_key="k") as client:
        result = client.generate("p", F("dog"))
        assert len(server.requests) == 1
        page, second_page = result._repr_html_(), result._repr_html_()
    assert page == second_page and len(server.requests) == 2
    request = server.requests[1]
    assert request.path == f"/automata/{'a' * 64}.svg" and request.headers["authorization"] == "Bearer k"
    copy = Endpoint(server.url).with_picture(result)  # the server has stopped
    assert "no picture" in copy._repr_html_()


async def test_asynchronous_results_have_html(url: str) -> None:
    async with AsyncClient(url) as client:
        page = (await client.generate("sentence:", F("dog"), max_tokens=12))._repr_html_()
    assert picture(page).startswith("<svg")
