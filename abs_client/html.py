"""Results as notebooks show them: text, traces, automaton. Whatever comes from elsewhere is escaped; nothing runs.

The picture is embedded as an image, in which a browser runs no script and fetches nothing.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import TypeAlias

from abs_client.errors import AbsError
from abs_client.pieces import Answer, Explanation, TokenStep, Unit

Svg: TypeAlias = Callable[[], str] | None
ROWS_MAX = 200
SVG_BYTES_MAX = 2**21
_COLOURS = ((0.3, "#b7e4c7"), (0.05, "#e4edb0"), (0.005, "#ffe08a"), (0.0, "#ffb3a7"))  # from what probability on
_TOKEN = "border-radius:3px;padding:0 1px;color:#1b1b1b;white-space:pre-wrap;background:"


def generated(choices: Sequence[Answer], said: str, automaton: str, svg: Svg) -> str:
    """Every answer with its traces, what is said of all of them, and the automaton."""
    several = len(choices) > 1
    parts = [_answer(choice, number if several else 0) for number, choice in enumerate(choices, 1)]
    return _block(*parts, _small(said), _picture(svg, automaton))


def compiled(explanation: Explanation | None, sizes: str, automaton: str, svg: Svg) -> str:
    """What was compiled in words, texts that it accepts, and the automaton."""
    sentences = [f"<p>{_shown(one)}</p>" for one in explanation.sentences] if explanation else []
    accepted = (explanation.shortest, *explanation.samples) if explanation else ()
    examples = "".join(f"<li><code>{_shown(text)}</code></li>" for text in accepted if text is not None)
    return _block(*sentences, f"<ul>{examples}</ul>" if examples else "", _small(sizes), _picture(svg, automaton))


def _answer(answer: Answer, number: int) -> str:
    heading = f"{_small(f'answer {number}')}" if number else ""
    text = f'<p style="font-weight:600;white-space:pre-wrap">{_shown(answer.text)}</p>'
    satisfied = "yes" if answer.satisfied else "no"
    sums = _small(f"satisfied: {satisfied}, log-prob {answer.log_prob:.2f}, score {answer.score:.2f}")
    tokens = "" if answer.trace is None else _tokens(answer.trace)
    return f"{heading}{text}{sums}{tokens}{_words(answer.words)}"


def _tokens(trace: Sequence[TokenStep]) -> str:
    """The tokens on colours from green (expected by the model) to red (forced upon it), and a table of the steps."""
    line = "".join(
        f'<span style="{_TOKEN}{_colour(step.log_prob)}" title="log-prob {step.log_prob:.2f}, '
        f'distance {step.distance}">{_shown(step.text) or "∎"}</span>'
        for step in trace[:ROWS_MAX]
    )
    rows = [
        (str(number), step.text, str(step.state), str(step.distance), f"{step.alpha:.2f}", f"{step.log_prob:.2f}")
        for number, step in enumerate(trace, 1)
    ]
    return f"<p>{line}</p>{_table('token trace', ('step', 'token', 'state', 'distance', 'alpha', 'log-prob'), rows)}"


def _words(words: Sequence[Unit]) -> str:
    rows = [
        (str(number), unit.text, ", ".join(unit.propositions), str(unit.state)) for number, unit in enumerate(words, 1)
    ]
    return _table("word trace", ("step", "word", "holds", "state"), rows) if rows else ""


def _table(title: str, head: Iterable[str], rows: Sequence[Sequence[str]]) -> str:
    top = "".join(f"<th>{escape(name)}</th>" for name in head)
    body = "".join(f"<tr>{''.join(f'<td>{_shown(cell)}</td>' for cell in row)}</tr>" for row in rows[:ROWS_MAX])
    more = _small(f"and {len(rows) - ROWS_MAX} more") if len(rows) > ROWS_MAX else ""
    return (
        f"<details><summary>{escape(title)}</summary>"
        f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>{more}</details>"
    )


def _picture(svg: Svg, automaton: str) -> str:
    """The automaton as an image, or where to find it: a notebook may be opened where no service runs."""
    name = _small(f"automaton {automaton}")
    if svg is None:
        return name
    try:
        drawn = svg().encode()
    except AbsError as error:
        return name + _small(f"its picture is not to be had: {error}")
    if len(drawn) > SVG_BYTES_MAX:
        return name + _small("its picture is too large to be shown here")
    data = base64.b64encode(drawn).decode()
    image = f'<img alt="the automaton of the constraint" style="max-width:100%" src="data:image/svg+xml;base64,{data}">'
    return f"<details open><summary>automaton</summary>{image}</details>{name}"


def _colour(log_prob: float) -> str:
    probability = math.exp(min(0.0, log_prob))
    return next(colour for least, colour in _COLOURS if probability >= least)


def _shown(text: str) -> str:
    return escape(text).replace("\n", "⏎\n")


def _small(text: str) -> str:
    return f'<div style="opacity:.7;font-size:85%">{_shown(text)}</div>'


def _block(*parts: str) -> str:
    return f'<div class="abs-result">{"".join(parts)}</div>'
