"""The playground's shell in a real browser: generation and errors."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import Page, Route, expect

from tests.app.playground.chromium import WatchedPage, take_picture
from tests.app.playground.shell import (
    FORMULA,
    choose,
    formula,
    generate,
    ignore_rejections,
    reject,
    snippet,
    tab,
    visit,
    wait_for_compilation,
)
from tests.tables import table

pytestmark = pytest.mark.usefixtures("no_graphviz")
ROOT = Path(__file__).parents[3]


@pytest.fixture
def page(page: Page) -> Page:
    """The playground in a page of a desktop's width."""
    return visit(page)


@pytest.mark.long
def test_copied_code_runs_with_curl_and_both_clients(page: Page) -> None:
    tab(page, "Choice")
    page.get_by_label("Choices").fill("it's “\"$HOME\"” `x` \\n 😀\nyes")
    page.locator("#prompt").fill("it's \"so\" \\ $HOME \u202e\n")
    page.get_by_role("button", name="Copy as code").click()
    assert "\u202e" not in snippet(page, "curl") + snippet(page, "Python") + snippet(page, "OpenAI client")
    python = [sys.executable, "-c"]
    for name, command in (("curl", ["bash", "-c"]), ("Python", python), ("OpenAI client", python)):
        script = subprocess.run([*command, snippet(page, name)], capture_output=True, text=True, cwd=ROOT, timeout=120)
        assert script.returncode == 0, script.stderr
        answer = json.loads(script.stdout)["choices"][0]["text"] if name == "curl" else script.stdout.removesuffix("\n")
        assert answer.strip() in ("it's “\"$HOME\"” `x` \\n 😀", "yes"), name


def test_answers_are_generated_selected_and_checked(page: Page) -> None:
    formula(page, FORMULA)
    wait_for_compilation(page)
    generate(page)
    answers = page.locator(".choices li")
    expect(answers).to_have_count(3)
    expect(page.locator("#tokens")).to_contain_text("dog")
    checker = page.get_by_label("Text to check")
    first_text = checker.input_value()
    assert re.search(r"\bdog\b", first_text) and not re.search(r"\bcat\b", first_text)
    expect(page.locator(".verdict")).to_contain_text("satisfies the constraint")
    answers.nth(1).get_by_role("radio").check()
    expect(checker).not_to_have_value(first_text)
    assert page.url.partition("#")[2].startswith("v1.z."), "the address has the link of the request"


def test_a_grammar_shows_its_stack_and_where_it_closes(page: Page) -> None:
    page.get_by_label("Start from an example").select_option(label="Grammar: brackets of any depth, closed in time")
    expect(page.get_by_role("tab", name="Grammar")).to_have_attribute("aria-selected", "true")
    wait_for_compilation(page)
    expect(page.locator("#automaton-hint")).to_contain_text("A grammar has no picture")
    generate(page)
    stack = page.locator(".stack-table")
    expect(stack).to_contain_text("from there on the text has to close")
    rows = stack.locator("tbody tr")
    depths, spare = [], []
    for cells in (row.locator("td").all_text_contents() for row in rows.all()):
        depths.append(0 if cells[1] == "–" else cells[1].count("›") + 1)
        spare.append(int(cells[3]) - int(cells[2]))
    closing = spare.index(0)
    assert max(depths) > 0 and depths[-1] == 0 and all(left >= 0 for left in spare)
    assert stack.locator("tr.closing").count() == len(spare) - closing
    expect(page.locator(".verdict")).to_contain_text("satisfies the constraint")


def test_the_checker_marks_the_violation_and_the_violated_part(page: Page) -> None:
    formula(page, FORMULA)
    wait_for_compilation(page)
    tab(page, "Checker")
    checker, mark = page.get_by_label("Text to check"), page.locator("#checker .code-back mark")
    checker.fill("A 😀 dog and a cat run")
    expect(page.locator(".verdict")).to_contain_text("breaks the constraint at character 18, after “cat”")
    expect(mark).to_have_text(" run")
    parts = page.locator(".conjuncts li")
    expect(parts).to_have_count(2)
    expect(parts.nth(0)).to_contain_text("holds")
    expect(parts.nth(1)).to_contain_text("breaks at")
    expect(page.locator(".checker-words li").filter(has_text="cat")).to_contain_text("cat")
    checker.fill("A bird")
    expect(page.locator(".verdict")).to_contain_text("ends too early")
    expect(mark).to_have_text("…")
    checker.fill("A dog")
    expect(page.locator(".verdict")).to_contain_text("✓")
    expect(mark).to_have_count(0)
    formula(page, "F(bird)")
    expect(page.locator(".verdict")).to_contain_text("ends too early")


@pytest.mark.long
def test_an_explanation_sample_can_be_sent_to_the_checker(page: Page) -> None:
    formula(page, FORMULA)
    sample = page.locator(".sample").first
    expect(sample).to_have_text("shortest dog")  # until then it is a sample of the previous constraint
    sample.click()
    expect(page.get_by_label("Text to check")).to_have_value("dog")
    expect(page.locator(".verdict")).to_contain_text("✓")


@pytest.mark.long
def test_compare_shows_a_verdict_per_algorithm(page: Page) -> None:
    tab(page, "Side by side")
    page.get_by_role("button", name="Compare").click()
    columns = page.locator(".comparison-column")
    expect(page.locator(".comparison-text")).to_have_count(4)
    expect(columns.nth(0)).to_contain_text("✗")
    for place, name in ((1, "abs — the paper's search"), (2, "banked — best score")):
        expect(columns.nth(place)).to_contain_text(name)
        expect(columns.nth(place)).to_contain_text("✓ satisfies the constraint")
        expect(columns.nth(place)).to_contain_text(re.compile(r"log-prob −\d+\.\d+ · \d+ tokens · \d+\.\d+ s"))


def test_a_too_small_budget_is_reported_and_fixed_by_button(page: Page) -> None:
    wait_for_compilation(page)
    page.get_by_label("max_tokens").fill("2")
    expect(page.locator("#problem")).to_contain_text("Set max_tokens to at least 6")
    page.get_by_role("button", name="Use 6").click()
    expect(page.locator("#problem")).to_be_hidden()
    expect(page.get_by_label("max_tokens")).to_have_value("6")
    generate(page)


@pytest.mark.long
def test_options_follow_the_algorithm_and_samples_repeat_by_seed(page: Page) -> None:
    page.get_by_text("Options").click()
    expect(page.get_by_label("length_penalty")).to_be_visible()
    page.get_by_label("algorithm").select_option("sample")
    expect(page.get_by_label("length_penalty")).to_be_hidden()
    expect(page.get_by_label("beams", exact=True)).to_be_hidden()
    page.get_by_label("seed").fill("7")
    texts = []
    for _ in range(2):
        generate(page)
        texts.append(page.locator(".answer-text").all_text_contents())
    assert texts[0] == texts[1]
    expect(page.locator("#figures")).to_contain_text("seed 7")


def test_a_generation_can_be_stopped(page: Page) -> None:
    wait_for_compilation(page)
    page.get_by_text("Options").click()
    page.get_by_label("max_tokens").fill("200")
    page.get_by_label("beams", exact=True).fill("64")
    with page.expect_response(re.compile("/jobs/")) as cancellation:
        page.get_by_role("button", name="Generate").click()
        expect(page.locator("#steps")).to_contain_text("step")
        page.get_by_role("button", name="Stop").click()
    assert (cancellation.value.request.method, cancellation.value.status) == ("DELETE", 202)
    expect(page.locator("#status")).to_have_text("Stopped.")
    expect(page.get_by_role("button", name="Generate")).to_be_enabled()


@pytest.mark.long
def test_stop_ends_the_plain_answer_too(page: Page) -> None:
    wait_for_compilation(page)
    page.route(re.compile("/generate$|/v1/completions$"), lambda route: None)  # neither is answered
    with page.expect_request("**/v1/completions"):
        page.get_by_role("button", name="Generate").click()
    with page.expect_event("requestfailed", lambda failed: failed.url.endswith("/v1/completions")):
        page.get_by_role("button", name="Stop").click()
    expect(page.locator(".constrained .result-text")).to_have_text("(stopped)")
    expect(page.locator(".unconstrained .result-text")).to_have_text("(stopped)")
    page.unroute_all()
    choose(page, "Caption")


def test_an_unready_service_is_not_shown_as_constraint_error(web_page: WatchedPage, page: Page) -> None:
    problem = {"status": 503, "code": "not_ready", "reasons": ["loading"], "retry_after_s": 30}
    wait_for_compilation(page)
    reject(page, "/compile", problem)
    page.get_by_role("button", name="Generate").click()
    expect(page.locator("#problem")).to_contain_text("is not ready")
    expect(page.locator("#status")).to_have_text("")
    page.unroute("**/compile")
    generate(page)
    expect(page.locator("#problem")).to_be_hidden()
    ignore_rejections(web_page)


def test_a_broken_stream_resumes_where_it_stopped(page: Page) -> None:
    resumed_after: list[str] = []

    def cut_stream(route: Route) -> None:
        full_response = route.fetch()
        events = full_response.body().split(b"\n\n")
        route.fulfill(response=full_response, body=b"\n\n".join(events[:5]) + b"\n\nevent: st")

    wait_for_compilation(page)
    page.on("request", lambda req: req.url.endswith("/events") and resumed_after.append(req.headers["last-event-id"]))
    page.route("**/generate", cut_stream)
    generate(page)
    assert resumed_after == ["4"]
    expect(page.locator(".choices li")).to_have_count(3)


def test_a_stream_may_break_after_each_event(page: Page) -> None:
    resumed = 0

    def first_event(route: Route) -> None:
        nonlocal resumed
        resumed += route.request.url.endswith("/events")
        full_response = route.fetch()
        events = [event for event in full_response.body().split(b"\n\n") if b"data:" in event]
        route.fulfill(response=full_response, body=b"retry: 1\n\n" + b"\n\n".join(events[:1]) + b"\n\n")

    wait_for_compilation(page)
    page.route("**/generate", first_event)
    page.route("**/events", first_event)
    generate(page)
    assert resumed > 8  # as many consecutive ones without an event would end the stream
    page.unroute_all()


def test_positions_of_the_service_are_offsets_in_a_text(page: Page) -> None:
    offsets = page.evaluate(
        """async () => {
          const { utf16Offset } = await import('/static/dom.js');
          return [0, 1, 2, 3, 9].map((position) => utf16Offset('a😀b', position));
        }"""
    )
    assert offsets == [0, 1, 3, 4, 4]


@pytest.mark.long
def test_a_restart_discards_earlier_events(page: Page) -> None:
    def restarted_stream(route: Route) -> None:
        full_response = route.fetch()
        events = full_response.body().split(b"\n\n")
        restart_event = b'event: restarted\ndata: {"attempt": 2}\nid: 5'
        route.fulfill(response=full_response, body=b"\n\n".join([*events[:5], restart_event, *events[1:]]))

    wait_for_compilation(page)
    page.route("**/generate", restarted_stream)
    generate(page)
    expect(page.locator("#lattice").get_by_text("t 1", exact=True)).to_have_count(1)


@pytest.mark.long
def test_every_rejection_is_shown_as_a_helpful_sentence(web_page: WatchedPage, page: Page) -> None:
    previous = None
    for case in table("page_rejections")["case"]:
        path = case["path"]
        reject(page, path, case["problem"])
        if path != previous or path != "/generate":  # the page asks for the others when it opens
            visit(page)
            tab(page, "Checker")
        previous = path
        if path == "/generate":
            page.get_by_role("button", name="Generate").click()
        page.get_by_label("Text to check").fill("A dog")
        expect(page.locator("main")).to_contain_text(case["sentence"])
        expect(page.get_by_role("button", name="Generate")).to_be_enabled()
        page.unroute_all()
    ignore_rejections(web_page)


@pytest.mark.long
def test_every_error_code_has_a_sentence_without_its_fields(page: Page) -> None:
    sentence_pairs = page.evaluate(
        """async () => {
          const { SENTENCES, sentence } = await import('/static/problems.js');
          const full = { min_tokens: 12, limit: 'x_max', cap: 34, retry_after_s: 5, conflict: ['a', 'b'], timeout_s: 60,
            scope: 'compile', needed_bytes: 5e9, memory_bytes: 1e9, prompt_tokens: 300, max_tokens: 64, position: 8,
            context_length: 256, attempts: 3, construct: 'look-ahead', expected: "')'", detail: 'it is wrong',
            reasons: ['loading'], served: 'captions', request_id: 'abs-1', wait_s: 90 };
          return Object.keys(SENTENCES).map((code) => [code, sentence({ code, ...full }), sentence({ code })]);
        }"""
    )
    for code, sentence, bare in sentence_pairs:
        for text in (sentence, bare):
            assert re.fullmatch(r"[A-Z“].*[.]", text), (code, text)
        assert "undefined" not in sentence and "NaN" not in sentence, (code, sentence)
    sentences = {code: sentence for code, sentence, _ in sentence_pairs}
    figures = {
        "budget_too_small": "12", "context_length_exceeded": "256", "out_of_memory": "4.7 GiB", "forbidden": "compile",
        "storage_down": "5 seconds", "rate_limited": "34", "prompt_violates": "9", "worker_lost": "3",
    }
    assert {code: figure for code, figure in figures.items() if figure not in sentences[code]} == {}


def test_an_unreachable_service_is_reported(web_page: WatchedPage, page: Page) -> None:
    wait_for_compilation(page)
    page.route("**/generate", lambda route: route.abort())
    page.get_by_role("button", name="Generate").click()
    expect(page.locator("#problem")).to_contain_text("The service cannot be reached.")
    ignore_rejections(web_page)


@pytest.mark.long
def test_the_page_recovers_when_the_service_comes_back(web_page: WatchedPage, page: Page) -> None:
    for path in ("**/compile", "**/v1/models"):
        page.route(path, lambda route: route.abort())
    visit(page)
    expect(page.locator(".live-line")).to_contain_text("The service cannot be reached.")
    take_picture(page, "service-away")
    page.unroute_all()
    wait_for_compilation(page)
    expect(page.locator("#served")).to_contain_text("captions")
    expect(page.locator("#problem")).to_be_hidden()
    generate(page)
    ignore_rejections(web_page)


@pytest.mark.long
def test_a_stream_that_stays_broken_is_reported(web_page: WatchedPage, page: Page) -> None:
    wait_for_compilation(page)
    page.route("**/events", lambda route: route.abort())

    def cut_stream(route: Route) -> None:
        events = route.fetch().body().split(b"\n\n")
        body = b"retry: 10\n\n" + b"\n\n".join(events[:4]) + b"\n\n"
        route.fulfill(status=200, content_type="text/event-stream", headers={"x-job-id": "0" * 32}, body=body)

    page.route("**/generate", cut_stream)
    page.get_by_role("button", name="Generate").click()
    expect(page.locator("#problem")).to_contain_text("The connection to the service broke")
    expect(page.locator(".constrained .result-text")).to_have_text("(no answer)")
    expect(page.get_by_role("button", name="Generate")).to_be_enabled()
    take_picture(page, "stream-lost")
    ignore_rejections(web_page)
