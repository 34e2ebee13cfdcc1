"""Draws an automaton as SVG, without other programs. Columns follow breadth-first depth, colours follow distance."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

RADIUS, COLUMN, ROW, MARGIN = 26.0, 210.0, 110.0, 70.0  # user units
STATES_MAX = 200  # more cannot be read; the picture then says so
LABEL_CHARS_MAX = 28
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")


@dataclass(frozen=True, slots=True)
class Drawing:
    """An automaton to draw. S states.

    distances   per state the fewest tokens to acceptance; None where dead
    accepting   the states in which a text may end
    start       the first state
    edges       (from, to, label), one for each pair of states
    """

    distances: Sequence[int | None]
    accepting: frozenset[int]
    start: int
    edges: Sequence[tuple[int, int, str]]


def visible(text: str) -> str:
    """A label with its control characters escaped, as \\u0001. XML forbids them, and they are invisible."""
    return _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def draw(drawing: Drawing, title: str) -> str:
    """The SVG document. Dead states and the edges into them are left out: the caption counts them."""
    live_states = [state for state, distance in enumerate(drawing.distances) if distance is not None]
    dead = len(drawing.distances) - len(live_states)
    if len(live_states) > STATES_MAX:
        return _document(640, 80, title, [_text(20, 45, f"{len(live_states)} states: too many to draw", "start")])
    positions = _layout(drawing)
    # A state that the start does not reach has no place in the layout, and its edges are not drawn.
    live = [edge for edge in drawing.edges if edge[0] in positions and edge[1] in positions]
    pairs = {(source, target) for source, target, _ in live}
    body = [_edge(positions, source, target, label, (target, source) in pairs) for source, target, label in live]
    body += [_state(positions[state], state, drawing) for state in live_states if state in positions]
    if drawing.start in positions:
        x, y = positions[drawing.start]
        body.append(f'<path class="edge" d="M{x - RADIUS - 34:.1f} {y:.1f} L{x - RADIUS - 3:.1f} {y:.1f}"/>')
    width = max((x for x, _ in positions.values()), default=300.0) + MARGIN + 60
    height = max((y for _, y in positions.values()), default=0.0) + MARGIN + 30
    caption = f"{len(live_states)} live states, {dead} dead and not drawn; d: fewest tokens to the end"
    return _document(max(width, 460.0), height + 20, title, [*body, _text(16, height + 8, caption, "start")])


def _layout(drawing: Drawing) -> dict[int, tuple[float, float]]:
    """Where each live state stands that live states lead to."""
    # Breadth-first search: the column of a state is the fewest transitions from the start.
    following: defaultdict[int, list[int]] = defaultdict(list)
    for source, target, _ in drawing.edges:
        if drawing.distances[source] is not None and drawing.distances[target] is not None:
            following[source].append(target)
    depth = {drawing.start: 0} if drawing.distances[drawing.start] is not None else {}
    order = list(depth)
    for state in order:
        for target in following[state]:
            if target not in depth:
                depth[target] = depth[state] + 1
                order.append(target)
    columns: defaultdict[int, list[int]] = defaultdict(list)
    for state in order:
        columns[depth[state]].append(state)
    tallest = max((len(column) for column in columns.values()), default=1)
    return {
        state: (MARGIN + 40 + COLUMN * x, MARGIN + 20 + ROW * (y + (tallest - len(column)) / 2))
        for x, column in columns.items()
        for y, state in enumerate(column)
    }


def _state(at: tuple[float, float], state: int, drawing: Drawing) -> str:
    x, y = at
    distance = drawing.distances[state] or 0
    furthest = max((value for value in drawing.distances if value is not None), default=1)
    ends = "; a text may end here" if state in drawing.accepting else ""
    parts = [
        f"<g><title>state {state}, distance {distance}{ends}</title>",
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{RADIUS}" fill="{_colour(distance, furthest)}" class="state"/>',
    ]
    if state in drawing.accepting:
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{RADIUS - 4}" class="ring"/>')
    parts += [_text(x, y - 2, f"q{state}", "middle"), _text(x, y + 13, f"d {distance}", "middle"), "</g>"]
    return "".join(parts)


def _colour(distance: int, furthest: int) -> str:
    """The fill colour of a state by its distance.

    It runs from green at acceptance over yellow to red at the furthest state, and is light enough for dark text.
    """
    share = min(1.0, (distance - 1) / max(1, furthest - 1)) if distance else 0.0
    return f"hsl({130 - 125 * share:.0f} 70% 78%)"


def _edge(positions: dict[int, tuple[float, float]], source: int, target: int, label: str, both_ways: bool) -> str:
    """The SVG of a transition. A loop lies above its state; a curve bends more the more columns it crosses."""
    (x1, y1), (x2, y2) = positions[source], positions[target]
    label = visible(label)
    name = label if len(label) <= LABEL_CHARS_MAX else label[: LABEL_CHARS_MAX - 1] + "…"
    hint = f"<title>{escape(f'{source} to {target}: {label}')}</title>"
    if source == target:
        top = y1 - RADIUS
        turn = f"C{x1 - 34:.1f} {top - 34:.1f} {x1 + 34:.1f} {top - 34:.1f} {x1 + 11:.1f} {top + 3:.1f}"
        path = f"M{x1 - 11:.1f} {top + 3:.1f} {turn}"
        return f'<g>{hint}<path class="edge" d="{path}"/>{_text(x1, top - 31, name, "middle")}</g>'
    length = math.hypot(x2 - x1, y2 - y1)
    across, along = (-(y2 - y1) / length, (x2 - x1) / length), ((x2 - x1) / length, (y2 - y1) / length)
    columns = abs(x2 - x1) / COLUMN
    bend = (24.0 if both_ways or columns < 0.5 else 0.0) + 46.0 * max(0.0, columns - 1)
    middle = ((x1 + x2) / 2 - across[0] * bend, (y1 + y2) / 2 - across[1] * bend)
    aside = (across[0] * bend * 0.15, across[1] * bend * 0.15)  # so that the two ways between two states stay apart
    begin = (x1 + along[0] * RADIUS - aside[0], y1 + along[1] * RADIUS - aside[1])
    end = (x2 - along[0] * (RADIUS + 3) - aside[0], y2 - along[1] * (RADIUS + 3) - aside[1])
    path = f"M{begin[0]:.1f} {begin[1]:.1f} Q{middle[0]:.1f} {middle[1]:.1f} {end[0]:.1f} {end[1]:.1f}"
    near = 0.4  # labels stand nearer to where the edge begins, for edges cross in the middle
    label_at = (x1 + (x2 - x1) * near - across[0] * bend / 2, y1 + (y2 - y1) * near - across[1] * bend / 2 - 6)
    return f'<g>{hint}<path class="edge" d="{path}"/>{_text(*label_at, name, "middle")}</g>'


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


_STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#1b1b1b}.state{stroke:#333;stroke-width:1.5}"
    ".ring{fill:none;stroke:#333}.edge{fill:none;stroke:#555;stroke-width:1.3;marker-end:url(#tip)}"
)
_TIP = (
    '<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
    '<path d="M0 0 L8 4 L0 8 z" fill="#555"/></marker>'
)


def _document(width: float, height: float, title: str, body: Sequence[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{escape(title, {chr(34): "&quot;"})}" '
        f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}">'
    )
    parts = [head, f"<title>{escape(title)}</title><style>{_STYLE}</style><defs>{_TIP}</defs>"]
    return "\n".join([*parts, '<rect width="100%" height="100%" fill="#fff"/>', *body, "</svg>"]) + "\n"
