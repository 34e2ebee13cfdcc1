"""A compiled constraint as people look at it: JSON, DOT, SVG."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from app.api.schemas import AutomatonResponse, State, Transition
from app.svg import Drawing, draw, visible
from compiler.compiled import Compiled
from compiler.spec import spec_to_json


def as_json(automaton: str, compiled: Compiled) -> AutomatonResponse:
    """States with distances, and the letters of every transition."""
    dfa, text = compiled.text.dfa, compiled.text
    return AutomatonResponse(
        automaton=automaton,
        constraint=spec_to_json(compiled.spec),
        kind=text.kind,
        start=dfa.start,
        letters=text.letter_names if text.kind == "words" else tuple((name,) for name in text.symbol_names),
        states=tuple(
            State(id=state, accepting=bool(dfa.accepting[state]), distance=distance)
            for state, distance in enumerate(compiled.state_distances)
        ),
        transitions=tuple(
            Transition.model_validate({"from": source, "to": target, "letters": letters})
            for (source, target), letters in _transitions(compiled).items()
        ),
        accepting=tuple(state for state in range(dfa.states) if dfa.accepting[state]),
        min_tokens=compiled.tokens.min_tokens,
    )


def as_dot(compiled: Compiled) -> str:
    """The DOT text, each state labelled with its distance; dead states are dotted."""
    dfa = compiled.text.dfa
    lines = ["digraph automaton {", "  rankdir=LR;", '  node [shape=circle];', '  begin [shape=point];']
    for state, distance in enumerate(compiled.state_distances):
        shape = "doublecircle" if dfa.accepting[state] else "circle"
        label, style = (f"q{state}\\nd {distance}", "solid") if distance is not None else (f"q{state}\\ndead", "dotted")
        lines.append(f'  {state} [label="{label}", shape={shape}, style={style}];')
    lines.append(f"  begin -> {dfa.start};")
    for (source, target), letters in _transitions(compiled).items():
        lines.append(f"  {source} -> {target} [label={_quoted(_label(compiled, letters))}];")
    return "\n".join([*lines, "}"]) + "\n"


def _quoted(text: str) -> str:
    """A DOT string: control characters written out, quotes and backslashes escaped."""
    escaped = visible(text).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def as_svg(compiled: Compiled) -> str:
    """The SVG document."""
    dfa = compiled.text.dfa
    edges = [
        (source, target, _label(compiled, letters)) for (source, target), letters in _transitions(compiled).items()
    ]
    accepting = frozenset(state for state in range(dfa.states) if dfa.accepting[state])
    return draw(Drawing(compiled.state_distances, accepting, dfa.start, edges), "the automaton of the constraint")


def _label(compiled: Compiled, letters: Sequence[int]) -> str:
    """The letters of an edge, for people to read."""
    return " | ".join(compiled.text.symbol_names[letter] for letter in letters)


def _transitions(compiled: Compiled) -> dict[tuple[int, int], tuple[int, ...]]:
    """The letters that lead from one state to another."""
    dfa = compiled.text.dfa
    letters: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    table = dfa.next_state[:, dfa.symbol_class].tolist()
    for source, row in enumerate(table):
        for symbol, target in enumerate(row):
            letters[source, target].append(symbol)
    return {pair: tuple(found) for pair, found in letters.items()}
