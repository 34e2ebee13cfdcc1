"""The automaton, lattice and tokens in a real browser."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from tests.app.playground.chromium import accessibility_violations
from tests.app.playground.views_page import automaton, choice, open_view, rejected_token, row, step

pytestmark = pytest.mark.long  # they need the page's files alone, with which `make page` is demanded

LATTICE = """{
    onSelect: (row, t) => window.calls.push(["select", row.text, t]),
    explain: async (prefix, token) => {
        window.calls.push(["explain", prefix, token]);
        return "After this “!cat” can no longer be met.";
    },
}"""
TOY, ON = rejected_token(" toy", 0, "violates"), rejected_token(" on", 0, "over_budget", 4)
GROWING = (
    step(1, 3, row(" the"), row(" a", alpha=0.6)),
    step(2, 2, row(" a dog", 1, state=1, distance=2, score=-4.0), row(" the cat"), rejected=(TOY,)),
    step(3, 1, row(" a dog ran", 0), row(" a dog sat", 0, distance=1), rejected=(ON,)),
    step(4, 0, row(" a dog sat", 1, state=2, distance=0, finished=True)),
)
ANSWER = {"choices": [choice((" a", 0, 3, -1.0), (" dog", 1, 2, -2.0), (" sat", 1, 1, -0.1), ("", 2, 0, -9.0))]}
COFFEE = automaton(
    [[], ["cat"], ["toy"], ["coffee"]], [4, None, 3, 2, 1],
    [(0, 0, [0]), (0, 1, [1, 2]), (0, 2, [3]), (1, 1, [0, 1, 2, 3]), (2, 2, [0, 3]), (2, 3, [1]), (2, 1, [2]),
     (3, 3, [0, 1, 3]), (3, 4, [2]), (4, 4, [0, 1, 2, 3])],
)  # fmt: skip


def lattice(page: Page, *events: dict[str, Any], algorithm: str = "abs", answer: dict[str, Any] | None = None) -> None:
    open_view(page, "lattice/lattice.js", "LatticeView", LATTICE)
    page.evaluate("algorithm => view.reset({ algorithm, maxTokens: 4 })", algorithm)
    page.evaluate("events => events.forEach(event => view.step(event))", events)
    if answer:
        page.evaluate("answer => view.done(answer)", answer)


def line_style(page: Page, *, text: str) -> Any:
    return page.locator(".beam", has=page.locator(".beam-token", has_text=re.compile(f"^{re.escape(text)}$")))


def show_automaton(page: Page, shown_automaton: dict[str, Any]) -> None:
    open_view(page, "automaton/automaton.js", "AutomatonView")
    page.evaluate("async automaton => await view.show(automaton)", shown_automaton)


def edge_texts(page: Page, source: int, target: int) -> str:
    return "".join(page.locator(f"#edge-{source}-{target} text").all_text_contents()).strip()


def test_a_lattice_has_step_columns_and_a_green_path(page: Page) -> None:
    lattice(page, *GROWING, answer=ANSWER)
    expect(page.locator(".lattice-column")).to_have_count(4)
    assert page.locator(".lattice-head strong").all_text_contents() == ["t 1", "t 2", "t 3", "t 4"]
    assert page.locator(".lattice-head .alpha").all_text_contents()[0] == "α 0.50–0.60"
    assert page.locator(".beam.chosen .beam-token").all_text_contents() == ["␣a", "␣dog", "␣sat", "■ end"]
    expect(page.locator(".line.chosen")).to_have_count(4)
    green = page.evaluate("getComputedStyle(document.querySelector('.beam.chosen')).borderTopColor")
    assert green == page.evaluate("getComputedStyle(document.querySelector('.line.chosen')).stroke")
    expect(line_style(page, text="␣the")).not_to_have_class(re.compile("pruned"))
    expect(line_style(page, text="␣cat")).to_have_class(re.compile("pruned"))


def test_a_node_shows_the_score_before_and_after_the_push(page: Page) -> None:
    lattice(page, *GROWING)
    scores = line_style(page, text="␣dog").locator(".beam-score")
    assert scores.text_content() == "−6.0 → −4.0"  # -2 of its parent, -4 its own
    assert line_style(page, text="␣dog").locator(".beam-state").text_content() == "q1 d2"
    line_style(page, text="␣dog").hover()
    card = page.locator(".lattice-card")
    expect(card).to_contain_text("α0.500")
    expect(card).to_contain_text("−4.00 (1.8 %), −6.00 in all")
    expect(card).to_contain_text("2 tokens left after it")
    expect(card).to_contain_text("rejected next␣on (37 %, d 4 > 1)")


def test_rejected_tokens_are_red_with_a_reason(page: Page) -> None:
    lattice(page, *GROWING)
    far, broken_line = line_style(page, text="␣on"), line_style(page, text="␣toy")
    assert far.locator(".beam-why").text_content() == "d 4 > 1"
    assert far.locator(".beam-score").text_content() == "−5.0 → −∞"
    expect(far).to_have_accessible_name(re.compile("too far from the end: 4 more tokens at least, and only 1 left"))
    red_stroke = page.evaluate("getComputedStyle(document.querySelector('.line.rejected')).stroke")
    assert broken_line.evaluate("node => getComputedStyle(node).borderTopColor") == red_stroke
    broken_line.hover()
    expect(page.locator(".lattice-card")).to_contain_text("After this “!cat” can no longer be met.")
    far.focus()
    expect(page.locator(".lattice-card")).to_contain_text("too far from the end")
    broken_line.focus()
    expect(broken_line).to_have_accessible_name(re.compile("After this “!cat” can no longer be met."))
    assert page.evaluate("calls") == [["explain", " the", " toy"]]  # once, however often it is looked at


def test_missed_steps_are_merged_into_one_lattice_column(page: Page) -> None:
    lattice(page, GROWING[0], GROWING[3], answer=ANSWER)
    assert page.locator(".lattice-head strong").all_text_contents() == ["t 1", "t 2–4"]
    assert page.locator(".beam.chosen .beam-token").all_text_contents() == ["␣a", "␣dog sat"]
    expect(page.locator(".line.stub")).to_have_count(0)


def test_an_answer_without_steps_is_drawn_from_its_trace(page: Page) -> None:
    lattice(page, answer=ANSWER)
    assert page.locator(".beam.chosen .beam-token").all_text_contents() == ["␣a", "␣dog", "␣sat", "■ end"]


def test_a_restart_begins_an_empty_lattice(page: Page) -> None:
    lattice(page, *GROWING)
    page.evaluate("view.reset({ algorithm: 'abs', maxTokens: 4 })")
    expect(page.locator(".beam")).to_have_count(0)
    page.evaluate("event => view.step(event)", GROWING[0])
    expect(page.locator(".lattice-column")).to_have_count(1)


def test_the_slider_selects_a_step_by_keyboard(page: Page) -> None:
    lattice(page, *GROWING, answer=ANSWER)
    slider = page.get_by_label("Step", exact=True)
    slider.focus()
    slider.press("ArrowLeft")
    slider.press("ArrowLeft")
    assert page.evaluate("calls") == [["select", " a dog sat", 3], ["select", " a dog", 2]]
    assert slider.get_attribute("aria-valuetext") == "step 2, 2 tokens left"
    expect(page.locator(".lattice-column.now .lattice-head")).to_contain_text("t 2")
    expect(page.locator(".lattice-column.future")).to_have_count(2)
    page.evaluate("view.show(3)")
    expect(page.locator(".lattice-column.now .lattice-head")).to_contain_text("t 3")


def test_arrow_keys_follow_the_tree_of_the_lattice(page: Page) -> None:
    lattice(page, *GROWING, answer=ANSWER)
    expect(page.locator('.beam[tabindex="0"]')).to_have_count(1)
    page.locator('.beam[tabindex="0"]').focus()
    page.keyboard.press("End")
    expect(line_style(page, text="■ end")).to_be_focused()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    expect(line_style(page, text="␣dog")).to_be_focused()
    page.keyboard.press("ArrowRight")
    expect(line_style(page, text="␣ran")).to_be_focused()
    page.keyboard.press("Enter")
    assert page.evaluate("calls.at(-1)") == ["select", " a dog ran", 3]
    assert page.locator(".beam.selected .beam-token").all_text_contents() == ["␣ran"]  # it leaves the green path there
    assert page.locator('.beam[aria-pressed="true"] .beam-token').all_text_contents() == ["␣a", "␣dog", "␣ran"]
    expect(page.locator('.beam[tabindex="0"]')).to_have_count(1)


def test_64_beams_over_128_steps_are_drawn_incrementally(page: Page) -> None:
    def text(beam: int, length: int) -> str:
        return " " + "".join(chr(97 + (beam * place) % 23) for place in range(1, length + 1))

    events = [step(n, 128 - n, *(row(text(beam, n), beam, distance=9) for beam in range(64))) for n in range(1, 129)]
    lattice(page)
    page.evaluate("view.rowsSelect.value = '64'")
    page.evaluate("event => { view.step(event); view.flush(Infinity); }", events[0])
    page.evaluate("window.first = document.querySelector('.beam')")
    touched = page.evaluate(
        """events => {
            const observer = new MutationObserver(() => {});
            observer.observe(document, {subtree: true, childList: true, attributes: true, characterData: true});
            const nodes = (node) => 1 + (node.querySelectorAll?.("*").length ?? 0);
            return events.map((event) => {
                view.step(event);
                view.flush(Infinity);
                const counts = observer.takeRecords().flatMap(({addedNodes, removedNodes}) => (
                    [1, ...[...addedNodes, ...removedNodes].map(nodes)]
                ));
                return counts.reduce((sum, count) => sum + count, 0);
            });
        }""",
        events[1:],
    )
    expect(page.locator(".beam")).to_have_count(64 * 128)
    assert page.evaluate("first.isConnected && first === document.querySelector('.beam')")
    assert touched == [touched[0]] * 127, "a step draws its own column alone"
    box = page.locator(".lattice-scroll").bounding_box()
    assert box and box["width"] <= 1440 and box["height"] <= 700, "it scrolls within itself"


def test_hidden_rows_on_the_chosen_path_are_drawn(page: Page) -> None:
    many = [row(f" {name}") for name in "abcdefghijklmnop"]
    answer = {"choices": [choice((" p", 0, 1, -1.0))]}
    lattice(page, step(1, 1, *many), step(2, 0, row(" p", 15, finished=True, distance=0)), answer=answer)
    expect(page.locator(".beam.chosen .beam-rank").first).to_have_text("#16")
    expect(page.locator(".lattice-more").first).to_have_text("+7 rows")
    page.get_by_label("Rows", exact=True).select_option("16")
    expect(page.locator(".lattice-column").first.locator(".beam")).to_have_count(16)
    expect(page.locator(".beam.chosen")).to_have_count(2)


def test_an_automaton_is_drawn_as_in_the_figure(page: Page) -> None:
    show_automaton(page, COFFEE)
    assert edge_texts(page, 0, 2) == "coffee"
    assert edge_texts(page, 2, 2) == "¬cat ∧ ¬toy"
    assert edge_texts(page, 0, 0) == "other"
    assert edge_texts(page, 4, 4) == "anything"
    expect(page.locator("#state-4 ellipse")).to_have_count(2)  # accepting: a double ring
    expect(page.locator("#state-1")).to_have_count(0)
    page.get_by_label("dead states").check()
    expect(page.locator("#state-1 text").last).to_have_text("dead")
    fill = "node => getComputedStyle(node).fill"
    fills = {page.locator(f"#state-{state} ellipse").first.evaluate(fill) for state in (0, 2, 3, 4)}
    assert len(fills) == 4, "a colour for each distance"


def test_live_states_and_the_path_are_marked(page: Page) -> None:
    show_automaton(page, COFFEE)
    page.evaluate("view.mark([2, 3])")
    assert page.evaluate("[...document.querySelectorAll('.node.live')].map(node => node.id)") == ["state-2", "state-3"]
    page.evaluate("view.path([0, 0, 2, 3, 4])")
    on = page.evaluate("[...document.querySelectorAll('.edge.on-path')].map(edge => edge.id).sort()")
    assert on == ["edge-0-0", "edge-0-2", "edge-2-3", "edge-3-4"]
    page.evaluate("view.clear()")
    expect(page.locator("svg")).to_have_count(0)


def test_names_of_callers_are_only_ever_text(page: Page) -> None:
    names = ['"><script>calls.push(1)</script>', "\\N\\l&amp;<b>", "a]; x -> y [label=", "‮\u0000\n"]
    hostile = automaton([[name] for name in names], [2, 1], [(0, 1, [0]), (1, 1, [1, 2]), (0, 0, [3])])
    show_automaton(page, hostile)
    assert edge_texts(page, 0, 1).replace(" ", "") == names[0].replace(" ", "")
    assert "\\N\\l&amp;<b>" in edge_texts(page, 1, 1) and "x->y[label=" in edge_texts(page, 1, 1).replace(" ", "")
    assert edge_texts(page, 0, 0).startswith("\\u202e\\u0000")
    expect(page.locator(".node[id^=state]")).to_have_count(2)
    expect(page.locator("#view script, #view b, #view [style]")).to_have_count(0)
    assert page.evaluate("calls") == []
    lattice(page, step(1, 1, row("<img src=x onerror=calls.push(1)>")))
    expect(page.locator(".beam-token")).to_have_text("<img src=x onerror=calls.push(1)>")


def test_many_letters_collapse_into_a_class_listing_them(page: Page) -> None:
    letters = [[f"'{sign}'"] for sign in "abcdefghijklmnopqrstuvwxyzABCDEFGHIJ"]
    edges = [(0, 1, list(range(0, 30, 2))), (0, 0, list(range(1, 30, 2)))]
    show_automaton(page, automaton(letters, [2, 1], edges, "characters"))
    assert re.fullmatch(r"a c … ?\(15 ?letters\)", edge_texts(page, 0, 1))
    page.locator("#edge-0-1").focus()
    expect(page.locator(".automaton-info")).to_have_text("q0 → q1: a c e g i k m o q s u w y A C")
    page.get_by_text("States and transitions as a table").click()
    expect(page.get_by_role("row", name=re.compile("^q0"))).to_contain_text("a c e g i k m o q s u w y A C → q1")


@pytest.mark.parametrize("states", [80, 1500])
def test_a_large_automaton_is_folded_to_the_path(page: Page, states: int) -> None:
    last_state = states - 1
    chain = [(place, place + 1, [0]) for place in range(last_state)]
    sevenfold = {place: (place * 7) % states for place in range(states)}
    aside = [(place, to, [1]) for place, to in sevenfold.items() if to not in (place, place + 1)]
    show_automaton(page, automaton([["a"], ["b"]], [states - place for place in range(states)], [*chain, *aside]))
    summary = page.locator(".automaton-summary")
    expect(summary).to_contain_text("Too many to read")
    assert page.locator(".node[id^=state]").count() < 80
    page.evaluate("view.path([0, 1, 2, 3])")
    expect(page.locator(".node.on-path")).to_have_count(4)
    expect(summary).to_contain_text("the path of the text and its neighbours")
    page.evaluate("id => view.mark([id])", last_state - 5)
    expect(summary).to_contain_text(f"Live, but not drawn: q{last_state - 5}")
    expect(page.get_by_label("all states")).to_be_visible(visible=states == 80)


def two_hundred_states(columns: int = 20, rows: int = 10) -> dict[str, Any]:
    """A grid whose last state is accepted."""
    distances: list[int | None] = [columns - state // rows for state in range(columns * rows)]
    edges = [
        (state, (state // rows + 1) * rows + (state % rows + step) % rows, [step])
        for state in range((columns - 1) * rows) for step in range(3)
    ]  # fmt: skip
    return automaton([["a"], ["b"], ["c"]], distances, edges)


def test_two_hundred_states_stay_readable_by_levels(page: Page) -> None:
    show_automaton(page, two_hundred_states())
    counts = {}
    for label in ("the path alone", "1 level", "4 levels"):
        page.get_by_label("around it").select_option(label=label)
        expect(page.locator(".automaton-frame")).not_to_have_attribute("aria-busy", "true")
        counts[label] = page.locator(".node[id^=state]").count()
        text = page.locator("#state-0 text").first.bounding_box()
        assert text is None or text["height"] >= 8, "names can be read"
    assert counts["the path alone"] == 20 < counts["1 level"] <= counts["4 levels"] <= 62
    assert accessibility_violations(page) == []


def test_a_state_is_found_and_centred(page: Page) -> None:
    show_automaton(page, two_hundred_states())
    search = page.get_by_label("find a state")
    search.fill("q157")
    found = page.locator("#state-157")
    expect(found).to_have_class(re.compile("found"))
    expect(page.locator(".automaton-summary")).to_contain_text("a path to q157")
    expect(page.locator(".automaton-info")).to_contain_text("q157: at least 5 tokens to the end")
    frame, node = page.locator(".automaton-frame").bounding_box(), found.bounding_box()
    assert frame and node and frame["x"] <= node["x"] and node["x"] + node["width"] <= frame["x"] + frame["width"]
    search.fill("q999")
    expect(search).to_have_attribute("aria-invalid", "true")
    expect(page.locator(".node.found")).to_have_count(0)
    search.fill("")
    expect(search).to_have_attribute("aria-invalid", "false")


def test_a_folded_path_stays_connected_across_multi_state_tokens(page: Page) -> None:
    chain = [(place, place + 1, [0]) for place in range(99)] + [(place, place, [1]) for place in range(99)]
    distances = [100 - place for place in range(100)]
    show_automaton(page, automaton([["'a'"], ["(a leading space)"]], distances, chain, "characters"))
    page.evaluate("view.path([0, 1, 11, 12, 50], ['a', 'ten more', 'a', 'the rest'])")
    expect(page.locator(".edge.leap.on-path")).to_have_count(2)
    assert (edge_texts(page, 1, 11), edge_texts(page, 0, 1)) == ("ten more", "a")
    expect(page.locator(".edge.on-path")).to_have_count(4)
    expect(page.locator("#edge-1-1")).to_have_count(0)  # nothing is read there
    page.evaluate("view.path([])")
    page.evaluate("view.mark([70], [30, 70])")
    page.evaluate("view.draw()")
    assert edge_texts(page, 30, 70) == "…"


def test_the_latest_automaton_is_shown(page: Page) -> None:
    open_view(page, "automaton/automaton.js", "AutomatonView")
    other_automaton = automaton([["x"]], [2, 1], [(0, 1, [0])])
    page.evaluate("async both => { await Promise.all(both.map(one => view.show(one))); }", [COFFEE, other_automaton])
    expect(page.locator(".node[id^=state]")).to_have_count(2)
    assert edge_texts(page, 0, 1) == "x"


def test_layout_requests_during_a_layout_are_merged(page: Page) -> None:
    show_automaton(page, COFFEE)
    page.evaluate(
        """() => {
            const post = Worker.prototype.postMessage;
            Worker.prototype.postMessage = function (sent) { calls.push(sent.id); post.call(this, sent); };
        }"""
    )
    page.evaluate(
        """async () => {
            for (let i = 0; i < 20; i += 1) { view.draw(); await null; }
            view.mark([2]);
            await view.draw();
        }"""
    )
    assert len(page.evaluate("calls")) == 2
    expect(page.locator(".node.live")).to_have_id("state-2")
    page.evaluate("async () => { view.clear(); await view.draw(); }")
    expect(page.locator(".node")).to_have_count(0)


def test_loading_graphviz_takes_no_time_from_a_layout(page: Page) -> None:
    """A slow connection may take longer than a layout may."""
    loads: list[Route] = []
    page.route("**/wasm-graphviz.js", lambda route: loads.append(route))
    page.clock.install()
    open_view(page, "automaton/automaton.js", "AutomatonView")
    with page.expect_request("**/wasm-graphviz.js"):
        page.evaluate("automaton => { view.show(automaton); }", COFFEE)
    page.clock.fast_forward(60_000)
    expect(page.locator(".automaton-picture")).to_have_count(0)
    assert "took too long" not in (page.text_content("body") or "")
    loads[0].continue_()
    expect(page.locator(".automaton-picture")).to_be_visible()


def test_the_automaton_view_zooms_without_capturing_page_scrolling(page: Page) -> None:
    show_automaton(page, COFFEE)
    width, left = (f"document.querySelector('.automaton-picture').viewBox.baseVal.{name}" for name in ("width", "x"))
    full_width = page.evaluate(width)
    page.locator(".automaton-frame").hover()
    page.mouse.wheel(0, -300)
    assert page.evaluate(width) == full_width
    page.locator(".automaton-frame").focus()
    page.mouse.wheel(0, -300)
    assert page.evaluate(width) < full_width
    page.keyboard.press("0")
    fitted_width = page.evaluate(width)
    page.get_by_role("button", name="Zoom in").click()
    assert page.evaluate(width) < fitted_width
    page.locator(".automaton-frame").focus()
    left_edge = page.evaluate(left)
    page.keyboard.press("ArrowRight")
    assert page.evaluate(left) > left_edge


def test_tokens_are_coloured_by_probability_and_show_figures(page: Page) -> None:
    open_view(page, "answers/answers.js", "TokensView")
    words = (("a", [], 0), ("dog", ["dog"], 2))
    shown_choice = choice((" a", 0, 3, -0.1), (" d", 0, 2, -5.0), ("og", 0, 1, -12.0), ("", 2, 0, -1.0), words=words)
    page.evaluate("choice => view.show(choice, { start: 0 })", shown_choice)
    assert page.locator(".tokens-text").text_content() == " a dog■"
    classes = page.evaluate("[...document.querySelectorAll('.token')].map(token => token.className.match(/p\\d/)[0])")
    assert classes == ["p0", "p3", "p4", "p1"]
    page.locator(".token").first.focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator(".token").nth(1)).to_be_focused()
    expect(page.locator(".token-card")).to_contain_text("log-prob −5.00 (0.67 %); then q0, at least 2 tokens to the")
    assert page.locator(".word").all_inner_texts()[1].split() == ["dog", "dog", "q0", "→", "q2"]
    page.get_by_text("Token by token, as a table").click()
    last_row = page.locator(".token-table tbody tr").last.inner_text().split("\t")
    assert last_row == ["4", "end", "q0 → q2", "0", "−1.000", "37 %", ""]
