from __future__ import annotations

from xml.etree import ElementTree

from app.api.svg import STATES_MAX, Drawing, draw

SVG = "{http://www.w3.org/2000/svg}"
EDGES = [(0, 0, "other"), (0, 1, "a & <b>"), (1, 2, "c"), (2, 1, "d"), (1, 3, "x")]
DRAWING = Drawing((3, 2, 1, None), frozenset({2}), 0, EDGES)


def circles(document: str) -> list[ElementTree.Element]:
    return [node for node in ElementTree.fromstring(document).iter(f"{SVG}circle") if node.get("class") == "state"]


def test_the_live_states_are_drawn_coloured_by_distance() -> None:
    document = draw(DRAWING, 'a "title"')
    assert len(circles(document)) == 3
    assert len({circle.get("fill") for circle in circles(document)}) == 3
    texts = [node.text for node in ElementTree.fromstring(document).iter(f"{SVG}text")]
    assert {"q0", "d 3", "a & <b>", "c", "d"} <= set(texts)
    assert "x" not in texts
    assert any("1 dead" in (text or "") for text in texts)


def test_control_characters_are_written_out() -> None:
    document = draw(Drawing((1, 0), frozenset({1}), 0, [(0, 1, "a\x01\x1b\x85\ufffe\nb")]), "t")
    texts = [node.text for node in ElementTree.fromstring(document).iter(f"{SVG}text")]
    assert "a\\u0001\\u001b\\u0085\\ufffe\\u…" in texts
    assert any(node.text and node.text.endswith("\\ufffe\\u000ab") for node in ElementTree.fromstring(document).iter())


def test_an_image_has_an_accessible_name() -> None:
    root = ElementTree.fromstring(draw(DRAWING, 'a "title"'))
    assert (root.get("role"), root.get("aria-label")) == ("img", 'a "title"')


def test_states_do_not_overlap() -> None:
    drawing = Drawing([2] * 10 + [1], frozenset({10}), 0, [(0, n, f"l{n}") for n in range(11)])
    positions = {(circle.get("cx"), circle.get("cy")) for circle in circles(draw(drawing, "t"))}
    assert len(positions) == 11


def test_the_same_automaton_is_drawn_the_same() -> None:
    assert draw(DRAWING, "t") == draw(DRAWING, "t")


def test_an_automaton_too_large_to_read_is_not_drawn() -> None:
    drawing = Drawing([1] * (STATES_MAX + 1), frozenset(), 0, [])
    assert not circles(draw(drawing, "t"))
    assert f"{STATES_MAX + 1} states" in draw(drawing, "t")


def test_an_automaton_whose_start_is_dead_has_an_empty_picture() -> None:
    assert not circles(draw(Drawing([None], frozenset(), 0, [(0, 0, "a")]), "t"))
