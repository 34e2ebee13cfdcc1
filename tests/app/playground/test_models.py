"""The chooser of the page's model."""

from __future__ import annotations

import json

from playwright.sync_api import Page, Request, Route, expect

from tests.app.playground.shell import generate, tab, visit, wait_for_compilation


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
    make = "async (state) => (await import('/static/permalink.js')).linkOf(state)"
    state = {"prompt": "A", "constraint": {"ltlf": "F(dog)"}, "options": {}, "model": "gone"}
    unknown = page.evaluate(make, state)
    page.goto("about:blank")
    visit(page, unknown)
    expect(page.get_by_label("Model", exact=True)).to_have_value("captions")
    wait_for_compilation(page)


def test_other_models_stand_in_the_comparison(page: Page) -> None:
    visit(page)
    wait_for_compilation(page)
    tab(page, "Side by side")
    page.get_by_role("button", name="Compare").click()
    other = page.locator(".comparison-column").last
    expect(other).to_contain_text("stories — the other model")
    expect(other).to_contain_text("✓ satisfies the constraint")


def test_a_single_model_has_no_chooser(page: Page) -> None:
    def serve_one(route: Route) -> None:
        cards = route.fetch().json()
        route.fulfill(json=cards | {"data": cards["data"][:1]})

    page.route("**/v1/models", serve_one)
    visit(page)
    expect(page.locator("#served")).to_have_text("model captions, reads 256 tokens")
    expect(page.locator("#model")).to_have_count(0)
