"""Shows a compiled constraint as JSON, DOT or SVG."""

from __future__ import annotations

from collections import defaultdict

from app.api.schemas import AutomatonResponse, StateBody, TransitionBody
from app.api.svg import Drawing, draw, visible
from compiler.artifact import CompiledConstraint
from compiler.diagnostics import ConstraintExplanation
from compiler.spec import caller_names, in_caller_names, spec_to_json
from compiler.text import TextAutomaton


def as_json(
    automaton: str, constraint: CompiledConstraint, explanation: ConstraintExplanation | None
) -> AutomatonResponse:
    """The automaton as JSON. It has the states with distances, the letters of each transition, and an explanation."""
    dfa = _text(constraint).display_dfa
    return AutomatonResponse(
        automaton=automaton,
        constraint=spec_to_json(constraint.spec),
        kind=_text(constraint).kind,
        start=dfa.start,
        letters=_letters(constraint),
        states=tuple(
            StateBody(id=state, accepting=bool(dfa.accepting[state]), distance=distance)
            for state, distance in enumerate(constraint.state_distances)
        ),
        transitions=tuple(
            TransitionBody.model_validate({"from": source, "to": target, "letters": letters})
            for (source, target), letters in _transitions(constraint).items()
        ),
        accepting=_accepting(constraint),
        min_tokens=constraint.tokens.min_tokens,
        explanation=explanation,
    )


def as_dot(constraint: CompiledConstraint) -> str:
    """The automaton as DOT text. Each state shows its distance; dead states are dotted."""
    dfa = _text(constraint).display_dfa
    lines = ["digraph automaton {", "  rankdir=LR;", '  node [shape=circle];', '  begin [shape=point];']
    for state, distance in enumerate(constraint.state_distances):
        shape = "doublecircle" if dfa.accepting[state] else "circle"
        label, style = (f"q{state}\\nd {distance}", "solid") if distance is not None else (f"q{state}\\ndead", "dotted")
        lines.append(f'  {state} [label="{label}", shape={shape}, style={style}];')
    lines.append(f"  begin -> {dfa.start};")
    lines += [f"  {source} -> {target} [label={_quoted(label)}];" for source, target, label in _edges(constraint)]
    return "\n".join([*lines, "}"]) + "\n"


def _quoted(text: str) -> str:
    """A DOT string: control characters written out, quotes and backslashes escaped."""
    escaped = visible(text).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def as_svg(constraint: CompiledConstraint) -> str:
    """The SVG document."""
    dfa = _text(constraint).display_dfa
    accepting = frozenset(_accepting(constraint))
    drawing = Drawing(constraint.state_distances, accepting, dfa.start, _edges(constraint))
    return draw(drawing, "the automaton of the constraint")


def _text(constraint: CompiledConstraint) -> TextAutomaton:
    """The automaton that is shown. `Constraints.picture` refuses those that cannot be."""
    assert isinstance(constraint.text, TextAutomaton)
    return constraint.text


def _accepting(constraint: CompiledConstraint) -> tuple[int, ...]:
    return tuple(_text(constraint).display_dfa.accepting.nonzero()[0].tolist())


def _letters(constraint: CompiledConstraint) -> tuple[tuple[str, ...], ...]:
    """The propositions that hold in each symbol of the shown automaton.

    Their names are those of the stored constraint.
    """
    text = _text(constraint)
    if text.kind != "words":
        return tuple((name,) for name in text.symbol_names)
    # A stored automaton is shared, so the names are those of the constraint that was compiled first.
    names = caller_names(constraint.spec)
    return tuple(
        (symbol,) if letter is None else in_caller_names(letter, names)
        for letter, symbol in zip(text.letter_names, text.symbol_names, strict=True)
    )


def _edges(constraint: CompiledConstraint) -> list[tuple[int, int, str]]:
    """The edges of a picture: from, to and label.

    Propositions of our own, such as "(a word)", appear only where none of the caller's holds.
    """
    symbols = zip(_letters(constraint), _text(constraint).symbol_names, strict=True)
    names = [", ".join(letter) or symbol for letter, symbol in symbols]
    return [
        (source, target, " | ".join(names[letter] for letter in letters))
        for (source, target), letters in _transitions(constraint).items()
    ]


def _transitions(constraint: CompiledConstraint) -> dict[tuple[int, int], tuple[int, ...]]:
    """The letters that lead from one state to another."""
    dfa = _text(constraint).display_dfa
    letters: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    table = dfa.next_state[:, dfa.symbol_class].tolist()  # [states, symbols]; `next_state` has a column per class
    for source, row in enumerate(table):
        for symbol, target in enumerate(row):
            letters[source, target].append(symbol)
    return {pair: tuple(symbols) for pair, symbols in letters.items()}
