"""Plots and the table of versions show the stored figures."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from benchmarks.report.plots import draw_distributions, draw_scaling, draw_shapes, draw_tails
from benchmarks.systems import releases


def panels_of(count: int) -> list[Any]:
    figure = pytest.importorskip("matplotlib.figure").Figure()
    return list(figure.subplots(1, count, squeeze=False).flatten())


def lines_of(panel: Any) -> dict[str, tuple[list[float], list[float]]]:
    """The points of each line with a name."""
    lines = [line for line in panel.lines if not line.get_label().startswith("_")]
    return {line.get_label(): (list(line.get_xdata()), list(line.get_ydata())) for line in lines}


def test_a_distribution_ends_at_the_number_of_values() -> None:
    panels = panels_of(1)
    draw_distributions([{"ours": [3.0, 1.0, 2.0], "other": [9.0]}], ["ms"], panels)
    assert lines_of(panels[0]) == {"ours, 3": ([1.0, 2.0, 3.0], [1, 2, 3]), "other, 1": ([9.0], [1])}


def test_shapes_have_a_panel_for_each_prompt() -> None:
    row = {"shape": "a", "prompt": 16, "method": "beams", "k": 4, "ours": 2.0, "transformers": 1.0}
    rows = [row, row | {"ours": 4.0}, row | {"ours": 6.0}, row | {"shape": "b", "prompt": 512, "ours": 0.5}]
    panels = panels_of(2)
    draw_shapes(rows, panels)
    assert [lines_of(panel)["beams, k = 4"] for panel in panels] == [([4.0], [0]), ([0.5], [1])]
    panels = panels_of(1)
    draw_shapes([row | {"method": "greedy", "k": 1, "variant": 0.8}], panels)
    assert lines_of(panels[0]) == {"greedy": ([2.0], [0]), "greedy, batch variant": ([0.8], [0])}


def test_scaling_is_drawn_beside_proportional_growth() -> None:
    rows = [
        {"workers": workers, "answers_per_s": rate, "request_s": {"p50": 1.0, "p99": 2.0}}
        for workers, rate in ((1, 2.0), (4, 7.0))
    ]
    panels = panels_of(2)
    draw_scaling(rows, panels)
    assert lines_of(panels[0]) == {"in proportion": ([1, 4], [2.0, 8.0]), "measured": ([1, 4], [2.0, 7.0])}
    assert lines_of(panels[1])["p99"] == ([1, 4], [2.0, 2.0])


def test_tails_have_a_line_for_each_quantity() -> None:
    panels = panels_of(1)
    draw_tails([("a", {"p50": 1.0, "p99": 3.0}), ("b", {"p50": 2.0, "p99": 4.0})], ("p50", "p99"), panels)
    assert [text.get_text() for text in panels[0].get_yticklabels()] == ["a", "b"]
    assert lines_of(panels[0]) == {"p50": ([1.0], [0]), "p99": ([3.0], [0])}


def test_releases_are_those_of_the_index(monkeypatch: pytest.MonkeyPatch) -> None:
    used = releases.pinned_version("xgrammar", "xgrammar")
    files = {
        used: [{"upload_time": "2026-02-03T04:05:06"}, {"upload_time": "2026-02-02T23:00:00"}],
        "99.0": [{"upload_time": "2026-09-09T00:00:00"}], "98.0": [],
    }  # fmt: skip
    addresses = []

    def answer(address: str, timeout: float) -> io.BytesIO:
        addresses.append((address, timeout > 0))
        return io.BytesIO(json.dumps({"info": {"version": "99.0"}, "releases": files}).encode())

    monkeypatch.setattr(releases, "urlopen", answer)
    assert releases.release_row("http://index/", "XGrammar") == {
        "system": "XGrammar", "package": "xgrammar", "version": used, "released": "2026-02-02",
        "newest": "99.0", "newest_released": "2026-09-09",
    }  # fmt: skip
    assert addresses == [("http://index/xgrammar/json", True)]
    with pytest.raises(ValueError, match="does not pin"):
        releases.pinned_version("xgrammar", "outlines")
