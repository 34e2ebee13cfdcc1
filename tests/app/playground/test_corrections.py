"""Corrections that the service suggests, applied by the page."""

from __future__ import annotations

import json
import re

import httpx2
import pytest
from playwright.sync_api import Page, expect

from tests.app.playground.chromium import WatchedPage, accessibility_violations, take_picture
from tests.app.playground.shell import fault, formula, ignore_rejections, reject, tab, visit, wait_for_compilation
from tests.servers.service_process import ServiceProcess
from tests.tables import table

pytestmark = pytest.mark.usefixtures("no_graphviz")
APPLY = """async ([request, edits]) => (await import('/static/suggestions.js')).applySuggestion(request, edits)"""


@pytest.mark.long
def test_the_page_applies_every_suggestion_as_the_client_does(page: Page, service: ServiceProcess) -> None:
    visit(page)
    corrected = [mistake for mistake in table("mistakes")["mistake"] if "corrected" in mistake]
    assert len(corrected) > 20
    for mistake in corrected:
        request = json.loads(mistake["json"])
        path = mistake.get("path", "/generate")
        problem = httpx2.request(mistake.get("method", "POST"), service.url + path, json=request).json()
        problem = problem.get("error", problem)  # below /v1 in OpenAI's format
        edited = page.evaluate(APPLY, [request, problem["suggestion"]])
        assert edited == json.loads(mistake["corrected"]), mistake["name"]


EDITS = (  # a request, edits, and the edited request, which is null where the edits do not fit
    ('{"a": "x😀y"}', '[{"op": "splice", "path": "/a", "start": 2, "end": 3, "value": "z"}]', '{"a": "x😀z"}'),
    ('{"a": "{\\"b\\": 1}"}', '[{"op": "parse", "path": "/a"}]', '{"a": {"b": 1}}'),
    ('{"a": [1, 2]}', '[{"op": "replace", "path": "/a/0", "value": 3}, {"op": "remove", "path": "/a/1"}]',
     '{"a": [3]}'),
    ('{"a~/": 1}', '[{"op": "move", "from": "/a~0~1", "path": "/b"}]', '{"b": 1}'),
    ('{"a": 1}', '[{"op": "remove", "path": "/b"}]', "null"),
    ('{"a": 1}', '[{"op": "test", "path": "/a", "value": 1}]', "null"),
)  # fmt: skip


def test_edits_fit_or_change_nothing(page: Page) -> None:
    visit(page)
    for request_text, edits, result in EDITS:
        assert page.evaluate(APPLY, [json.loads(request_text), json.loads(edits)]) == json.loads(result), edits


def correct(page: Page) -> None:
    page.get_by_role("button", name="Correct it to").click()
    wait_for_compilation(page)
    expect(page.get_by_role("button", name="Correct it to")).to_have_count(0)


def test_a_fault_in_a_formula_is_corrected_by_a_button(page: Page) -> None:
    visit(page)
    formula(page, "F(dog) & tt")
    sentence, column = fault(page)
    assert "true" in sentence and column == 9
    assert accessibility_violations(page) == []
    take_picture(page, "correction")
    correct(page)
    expect(page.get_by_label("Formula — ")).to_have_value("F(dog) & true")


def test_a_formula_written_as_json_moves_into_its_form(page: Page) -> None:
    visit(page)
    tab(page, "Raw")
    page.get_by_label("Constraint as JSON").fill('"F(dog) & G(!cat)"')
    expect(page.locator(".live-line")).to_contain_text("did you mean")
    correct(page)
    expect(page.get_by_role("tab", name="Formula")).to_have_attribute("aria-selected", "true")
    expect(page.get_by_label("Formula — ")).to_have_value("F(dog) & G(!cat)")


def test_a_probable_mistake_is_warned_of_and_corrected(page: Page) -> None:
    visit(page)
    tab(page, "Raw")
    page.get_by_label("Constraint as JSON").fill('{"not": {"keywords": ["dog", "cat"]}}')
    expect(page.locator(".warning")).to_contain_text("Not all of the keywords")
    correct(page)
    expect(page.get_by_role("tab", name="Keywords")).to_have_attribute("aria-selected", "true")
    expect(page.get_by_label("none of these")).to_be_checked()
    expect(page.locator(".warning")).to_have_count(0)


def test_a_rejected_generation_offers_its_correction(web_page: WatchedPage, page: Page) -> None:
    visit(page)
    wait_for_compilation(page)
    edits = [{"op": "replace", "path": "/max_tokens", "value": 30}]
    reject(page, "/generate", {"code": "invalid_request", "detail": "too many", "suggestion": edits})
    page.get_by_role("button", name="Generate").click()
    expect(page.locator("#problem")).to_contain_text("Too many.")
    page.locator("#problem").get_by_role("button", name=re.compile("Correct it")).click()
    expect(page.get_by_label("max_tokens")).to_have_value("30")
    ignore_rejections(web_page)
