"""Results as HTML for notebooks: texts, traces and the automaton.

All text is escaped, and the picture is embedded as an image, in which browsers run no script and load nothing.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

from abs_client.errors import AbsError

if TYPE_CHECKING:  # `results` imports this module
    from abs_client import results

ROWS_MAX = 200  # of a table: a browser is slow with thousands of rows
SVG_BYTES_MAX = 2**21  # a notebook stores its outputs in its file
_COLOURS = ((0.3, "#b7e4c7"), (0.05, "#e4edb0"), (0.005, "#ffe08a"), (0.0, "#ffb3a7"))  # least probability, colour
_TOKEN = "border-radius:3px;padding:0 1px;color:#1b1b1b;white-space:pre-wrap;background:"


def generated_html(result: results.GenerateResult) -> str:
    """The HTML of a result: its texts with traces, costs and automaton."""
    usage, timings, several = result.usage, result.timings, len(result.choices) > 1
    tokens = f"{usage.prompt_tokens} + {usage.completion_tokens} tokens"
    compile_time = "constraint cached" if timings.cached else f"compile {timings.compile_ms:.0f} ms"
    costs = f"{result.model}: {tokens}, {compile_time}, total {timings.total_ms:.0f} ms"
    parts = [_choice(choice, number if several else 0) for number, choice in enumerate(result.choices, 1)]
    return _block(*parts, _small(costs), _picture(result))


def automaton_html(result: results.CompileResult | results.Automaton, sizes: str) -> str:
    """The HTML of a constraint. It has its sentences, example texts, sizes and automaton."""
    explanation = result.explanation
    sentences = [f"<p>{_escape(sentence)}</p>" for sentence in explanation.sentences] if explanation else []
    accepted = (explanation.shortest, *explanation.samples) if explanation else ()
    examples = "".join(f"<li><code>{_escape(text)}</code></li>" for text in accepted if text is not None)
    sizes = _small(f"{sizes}; needs at least {result.min_tokens} tokens")
    return _block(*sentences, f"<ul>{examples}</ul>" if examples else "", sizes, _picture(result))


def checked_html(result: results.CheckResult) -> str:
    """The HTML of a check. It has the verdict, the parts of the constraint and the words."""
    where = "" if result.violated_at is None else f", violated at character or label {result.violated_at}"
    verdict = f'<p style="font-weight:600">{"satisfied" if result.satisfied else f"not satisfied{where}"}</p>'
    violation = result.violation
    fault = "" if violation is None else f"<p>{_escape(f'{violation.path}: {violation.message}')}</p>"
    parts = [
        (part.path, part.summary, "yes" if part.satisfied else "no", "" if part.satisfied else str(part.violated_at))
        for part in result.conjuncts or ()
    ]
    table = _table("parts of the constraint", ("part", "meaning", "satisfied", "violated at"), parts) if parts else ""
    return _block(verdict, fault, table, _words(result.words))


def decoded_html(result: results.DecodeResult) -> str:
    """The HTML of a decoded sequence. It has the labels, their trace and the automaton."""
    labels = f'<p style="font-weight:600">{_escape(" ".join(result.labels))}</p>'
    costs = f"satisfied: {'yes' if result.satisfied else 'no'}, log-prob {result.log_prob:.2f}"
    rows = [
        (str(number), step.label, ", ".join(step.propositions), str(step.state), f"{step.log_prob:.2f}")
        for number, step in enumerate(result.trace, 1)
    ]
    table = _table("label trace", ("step", "label", "holds", "state", "log-prob"), rows) if rows else ""
    return _block(labels, _small(costs), table, _picture(result))


def _choice(choice: results.GeneratedText, number: int) -> str:
    heading = f"{_small(f'text {number}')}" if number else ""
    text = f'<p style="font-weight:600;white-space:pre-wrap">{_escape(choice.text)}</p>'
    satisfied = "yes" if choice.satisfied else "no"
    sums = _small(f"satisfied: {satisfied}, log-prob {choice.log_prob:.2f}, score {choice.score:.2f}")
    tokens = "" if choice.trace is None else _tokens(choice.trace)
    return f"{heading}{text}{sums}{tokens}{_words(choice.words)}"


def _tokens(trace: Sequence[results.TokenStep]) -> str:
    """The tokens, coloured by probability, and a table of the steps."""
    line = "".join(
        f'<span style="{_TOKEN}{_colour(step.log_prob)}" title="log-prob {step.log_prob:.2f}, '
        f'distance {step.distance}">{_escape(step.text) or "∎"}</span>'
        for step in trace[:ROWS_MAX]
    )
    rows = [
        (str(number), step.text, str(step.state), str(step.distance), f"{step.alpha:.2f}", f"{step.log_prob:.2f}")
        for number, step in enumerate(trace, 1)
    ]
    return f"<p>{line}</p>{_table('token trace', ('step', 'token', 'state', 'distance', 'alpha', 'log-prob'), rows)}"


def _words(words: Sequence[results.TracedWord]) -> str:
    rows = [
        (str(number), word.text, ", ".join(word.propositions), str(word.state)) for number, word in enumerate(words, 1)
    ]
    return _table("word trace", ("step", "word", "holds", "state"), rows) if rows else ""


def _table(title: str, head: Iterable[str], rows: Sequence[Sequence[str]]) -> str:
    top = "".join(f"<th>{escape(name)}</th>" for name in head)
    body = "".join(f"<tr>{''.join(f'<td>{_escape(cell)}</td>' for cell in row)}</tr>" for row in rows[:ROWS_MAX])
    more = _small(f"and {len(rows) - ROWS_MAX} more") if len(rows) > ROWS_MAX else ""
    return (
        f"<details><summary>{escape(title)}</summary>"
        f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>{more}</details>"
    )


def _picture(result: results.Result) -> str:
    """The automaton as an image and its hash. Without a service: the hash alone."""
    name = _small(f"automaton {result.automaton}")
    if result.svg is None:
        return name
    try:
        svg = result.svg().encode()
    except AbsError as error:
        return name + _small(f"no picture: {error}")
    if len(svg) > SVG_BYTES_MAX:
        return name + _small("no picture: it is too large")
    data = base64.b64encode(svg).decode()
    image = f'<img alt="the automaton of the constraint" style="max-width:100%" src="data:image/svg+xml;base64,{data}">'
    return f"<details open><summary>automaton</summary>{image}</details>{name}"


def _colour(log_prob: float) -> str:
    probability = math.exp(min(0.0, log_prob))  # rounding may lift a log-prob above 0
    return next(colour for least, colour in _COLOURS if probability >= least)


def _escape(text: str) -> str:
    # A line break is visible, because it may be all that a token writes.
    return escape(text).replace("\n", "⏎\n")


def _small(text: str) -> str:
    return f'<div style="opacity:.7;font-size:85%">{_escape(text)}</div>'


def _block(*parts: str) -> str:
    return f'<div class="abs-result">{"".join(parts)}</div>'
