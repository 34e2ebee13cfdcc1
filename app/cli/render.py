"""Renders results of the API for a terminal. It shows coloured tokens, the word trace, and errors with a caret."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Mapping
from typing import Any, TypeAlias

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

import abs_client
from app.messages import Progress, StepMessage

ProgressEvent: TypeAlias = (
    Progress | StepMessage | abs_client.Event[abs_client.GenerateResult]
)  # of this process, or of a service over HTTP

COLUMN_CHARS_MAX = 40
LINE_CHARS_MAX = 80
COLOURS = ((0.3, "green4"), (0.05, "dark_olive_green3"), (0.005, "gold3"), (0.0, "red3"))  # by the minimum probability


def show_compiled(
    console: Console, answer: Mapping[str, Any], spec: Mapping[str, Any] | None = None
) -> None:
    """The sizes of a compiled constraint."""
    origin = "found compiled" if answer["cached"] else f"compiled in {answer['compile_ms']:.0f} ms"
    console.print(f"[bold]{answer['automaton']}[/]")
    console.print(
        f"{answer['states']} states, {answer['letters']} letters; over tokens {answer['token_states']} states, "
        f"{answer['token_classes']} classes; {origin}"
    )
    least = answer.get("min_tokens_at_least")
    needs = "needs at least" if least is None else f"needs at least {least} tokens; enough are"
    console.print(f"{needs} [bold]{answer['min_tokens']}[/] tokens, including the end of the text")
    if answer["not_enforced"]:
        console.print(Text(f"has no effect: {', '.join(answer['not_enforced'])}"))
    if answer["approximate"]:
        console.print(Text(f"is approximated: {', '.join(answer['approximate'])}"))
    _show_warnings(console, answer, spec)
    if answer["explanation"] is not None:
        _show_explanation(console, answer["explanation"])


def _show_warnings(console: Console, answer: Mapping[str, Any], spec: Mapping[str, Any] | None) -> None:
    """What is probably a mistake in the constraint, and the corrected `spec`."""
    for warning in answer.get("warnings", ()):
        line = f"line {warning['line']}, column {warning['column']}" if "line" in warning else warning["field"]
        console.print(Text(f"warning, {line}: {warning['message']}", style="yellow"))
        _show_correction(console, spec, warning.get("suggestion"))


def _show_explanation(console: Console, explanation: Mapping[str, Any]) -> None:
    """The explanation in sentences, and sample texts."""
    for sentence in explanation["sentences"]:
        console.print(Text(sentence))  # the caller's words are not markup
    if explanation["shortest"] is not None:
        examples = [("shortest", explanation["shortest"]), *(("accepted", text) for text in explanation["samples"])]
        for kind, text in examples:
            console.print(Text(f"{kind}: ", style="dim").append(text or "(the empty text)", style="bold not dim"))


def show_generated(
    console: Console, answer: Mapping[str, Any], spec: Mapping[str, Any] | None = None
) -> None:
    """Every choice with its traces, then timings and usage."""
    for number, choice in enumerate(answer["choices"], 1):
        if len(answer["choices"]) > 1:
            console.rule(f"answer {number}")
        console.print(Text(choice["text"].strip("\n"), style="bold"))
        if choice["trace"]:
            console.print(_token_line(choice["trace"]))
        console.print(_word_table(choice["words"]))
        if choice["trace"]:
            console.print(_distances(choice["trace"]))
        sums = f"log-prob {choice['log_prob']:.2f}   score {choice['score']:.2f}"
        console.print(f"satisfied: {_yes(choice['satisfied'])}   {sums}")
    _show_warnings(console, answer, spec)
    times, usage = answer["timings"], answer["usage"]
    seed = "" if answer["seed"] is None else f", seed {answer['seed']}"
    compile_time = "constraint cached" if times["cached"] else f"compile {times['compile_ms']:.0f} ms"
    console.print(
        f"[dim]{compile_time}, queue {times['queue_ms']:.0f} ms, decode {times['decode_ms']:.0f} ms, "
        f"total {times['total_ms']:.0f} ms; {usage['prompt_tokens']} + {usage['completion_tokens']} tokens, "
        f"{usage['sequences']} sequences{seed}[/]"
    )


def progress_line(event: ProgressEvent) -> str | Text:
    """The progress of a job in one line. A step shows the best text."""
    match event:
        case Progress():
            return f"decoding, token {event.step} of at most {event.steps}" if event.stage == "decode" else "compiling"
        case StepMessage() | abs_client.Step():
            best = event.rows[0].text.replace("\n", "⏎") if event.rows else ""
            return Text(f"token {event.step}, {event.budget_after} left: ").append(best[-LINE_CHARS_MAX:], style="bold")
        case abs_client.Restart():
            return "another worker restarts the job"
        case _:
            return "done" if isinstance(event, abs_client.Done) else "compiled"


def show_checked(console: Console, answer: Mapping[str, Any], text: str, spec: Mapping[str, Any]) -> None:
    """Whether the text satisfies `spec`, the first violation, and warnings."""
    console.print(_word_table(answer["words"]))
    console.print(f"satisfied: {_yes(answer['satisfied'])}")
    if answer["satisfied"] and answer["canonical"] is False:
        console.print("generation would write it otherwise")
    if violation := answer["violation"]:
        console.print(Text(f"{violation['path']} violates {violation['keyword']}: {violation['message']}"))
    at = answer["violated_at"]
    if at is not None and at < len(text):
        console.print(f"the text violates the constraint at character {at + 1}:")
        _show_position(console, text, at)
    elif at is not None:
        console.print("the text ends too early: more text could satisfy the constraint")
    _show_warnings(console, answer, spec)


def _show_position(console: Console, source: str, position: int) -> None:
    """Print the line of a position with a caret under its character."""
    begin = source.rfind("\n", 0, position) + 1
    console.print(Text("  " + source[begin:].partition("\n")[0]))
    console.print(Text("  " + " " * (position - begin) + "^", style="red"))


def show_error(console: Console, error: abs_client.AbsError, spec: Mapping[str, Any] | None = None) -> None:
    """Print an error. A syntax error has a caret under its place in the constraint, and the corrected `spec`."""
    text = Text(str(error))
    text.stylize("red", 0, len(error.code))
    console.print(text)
    expected = error.problem.get("expected")
    if expected and str(expected) not in error.detail:
        console.print(Text(f"expected: {expected}"))
    _show_correction(console, spec, error.problem.get("suggestion"))


def _show_correction(
    console: Console, spec: Mapping[str, Any] | None, suggestion: list[Mapping[str, Any]] | None
) -> None:
    if spec is not None and (corrected := _corrected(spec, suggestion)):
        console.print(Text(f"try: --constraint {shlex.quote(corrected)}"))


def _corrected(spec: Mapping[str, Any], suggestion: list[Mapping[str, Any]] | None) -> str:
    """The JSON of the corrected constraint; empty without a correction."""
    try:
        edited = abs_client.apply_suggestion({"constraint": spec}, suggestion or ())["constraint"]
    except ValueError:
        return ""
    return json.dumps(edited, ensure_ascii=False) if suggestion else ""


def _yes(holds: bool) -> str:
    return "[green]yes[/]" if holds else "[red]no[/]"


def _token_line(trace: list[Mapping[str, Any]]) -> RenderableType:
    """The tokens, coloured from green (probable) to red (improbable)."""
    line = Text("tokens: ", style="dim")
    for step in trace:
        probability = math.exp(step["log_prob"])
        # The last threshold is 0, so there always is a colour.
        colour = next(name for least, name in COLOURS if probability >= least)
        line.append(step["text"].replace("\n", "⏎") or "∎", style=f"black on {colour}")
    return line


def _distances(trace: list[Mapping[str, Any]]) -> RenderableType:
    """The distance after each token: the fewest tokens to acceptance."""
    return Text("distances: " + " ".join(str(step["distance"]) for step in trace), style="dim")


def _word_table(words: list[Mapping[str, Any]]) -> Table:
    """The word trace as a table. Rows with propositions or a change of state are bold."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("step", "word", "holds", "state"):
        table.add_column(name)
    before = None
    for number, word in enumerate(words, 1):
        changed = before is not None and word["state"] != before
        style = "bold" if word["propositions"] or changed else "dim"
        text = word["text"] if len(word["text"]) <= COLUMN_CHARS_MAX else word["text"][: COLUMN_CHARS_MAX - 1] + "…"
        propositions = Text(", ".join(word["propositions"]))  # names are not markup
        table.add_row(str(number), Text(text or "(end)"), propositions, str(word["state"]), style=style)
        before = word["state"]
    return table
