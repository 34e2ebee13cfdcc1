"""The chooser of the page's model."""

from __future__ import annotations

import json
import re

import pytest
from playwright.sync_api import Page, Request, Route, expect

from tests.app.playground.chromium import WatchedPage
from tests.app.playground.shell import generate, ignore_rejections, link_of, snippet, tab, visit, wait_for_compilation

pytestmark = pytest.mark.usefixtures("no_graphviz")


def model_of(request: Request) -> str | None:
    model: str | None = json.loads(request.post_data or "{}").get("model")
    return model


def test_a_chosen_model_compiles_and_answers(page: Page) -> None:
    visit(page)
    wait_for_compilation(page)
    chooser = page.get_by_label("Model", exact=True)
    expect(chooser.locator("option")).to_have_text(["captions", "stories"])
    with page.expect_request("**/generate") as generation:
        generate(page)
    assert model_of(generation.value) is None  # the default needs no name
    with page.expect_request("**/compile") as compilation:
        chooser.select_option("stories")
    assert model_of(compilation.value) == "stories"
    wait_for_compilation(page)
    expect(page.locator("#served")).to_contain_text("reads 512 tokens")
    with page.expect_request("**/generate") as generation:
        generate(page)
    assert model_of(generation.value) == "stories"
    page.get_by_role("button", name="Copy as code").click()
    for name in ("curl", "Python", "OpenAI client"):
        code = snippet(page, name)
        assert re.search('model"?[=:]"stories"', code) and code.count("model") == 1, name


@pytest.mark.long
def test_the_plain_answer_is_of_the_chosen_model(web_page: WatchedPage, page: Page) -> None:
    page.route("**/v1/models", lambda route: route.abort())  # the page knows the model from its link alone
    visit(page)
    link = link_of(page, {"prompt": "A", "constraint": {"ltlf": "F(dog)"}, "options": {}, "model": "stories"})
    page.goto("about:blank")
    visit(page, link)
    wait_for_compilation(page)
    with page.expect_request("**/v1/completions") as completion:
        generate(page)
    assert model_of(completion.value) == "stories"
    ignore_rejections(web_page)


@pytest.mark.long
def test_a_link_names_its_model(page: Page) -> None:
    visit(page)
    page.get_by_label("Model", exact=True).select_option("stories")
    wait_for_compilation(page)
    generate(page)
    link = page.url.partition("#")[2]
    page.goto("about:blank")
    visit(page, f"#{link}")
    expect(page.get_by_label("Model", exact=True)).to_have_value("stories")
    wait_for_compilation(page)
    named = link_of(page, {"prompt": "A", "constraint": {"ltlf": "F(dog)"}, "options": {}, "model": "captions"})
    page.goto("about:blank")
    visit(page, named)
    wait_for_compilation(page)
    expect(page.locator("#notice")).to_be_hidden()


def test_a_link_of_an_unserved_model_says_so(page: Page) -> None:
    visit(page)
    link = link_of(page, {"prompt": "A", "constraint": {"ltlf": "F(dog)"}, "options": {}, "model": "gone"})
    named = link_of(page, {"prompt": "A", "constraint": {"ltlf": "F(dog)"}, "options": {}, "model": "stories"})
    sentence = "This service does not serve “gone”, the model of the link: “captions” is used instead."
    page.goto("about:blank")
    visit(page, link)
    expect(page.locator("#notice")).to_contain_text(sentence)
    expect(page.get_by_label("Model", exact=True)).to_have_value("captions")
    wait_for_compilation(page)
    page.get_by_role("button", name="Dismiss").click()
    expect(page.locator("#notice")).to_be_hidden()
    page.evaluate("fragment => { location.hash = fragment; }", named)
    expect(page.get_by_label("Model", exact=True)).to_have_value("stories")
    page.evaluate("fragment => { location.hash = fragment; }", link)
    expect(page.locator("#notice")).to_contain_text(sentence)
    page.evaluate("fragment => { location.hash = fragment; }", named)
    expect(page.locator("#notice")).to_be_hidden()


def test_other_models_stand_in_the_comparison(page: Page) -> None:
    visit(page)
    wait_for_compilation(page)
    tab(page, "Side by side")
    page.get_by_role("button", name="Compare").click()
    other = page.locator(".comparison-column").last
    expect(other).to_contain_text("stories — another model")
    expect(other).to_contain_text("✓ satisfies the constraint")


def test_a_single_model_has_no_chooser(page: Page) -> None:
    def serve_one(route: Route) -> None:
        cards = route.fetch().json()
        route.fulfill(json=cards | {"data": cards["data"][:1]})

    page.route("**/v1/models", serve_one)
    visit(page)
    expect(page.locator("#served")).to_have_text("model captions, reads 256 tokens")
    expect(page.locator("#model")).to_have_count(0)
