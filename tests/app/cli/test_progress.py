"""Progress appears on a terminal alone, and steps of `abs watch` everywhere."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

import abs_client
from app.cli import progress
from app.cli.progress import ProgressDisplay
from app.cli.watch import WatchDisplay
from app.messages import Progress
from tests.app.cli.conftest import Command

ROW = abs_client.Beam(
    text=" A [dog]", parent=0, state=1, distance=3, alpha=0.0, score=-2.5, log_prob=-2.5, finished=False
)
STEP = abs_client.Step(
    4, 8, (ROW,), (
        abs_client.RejectedToken(0, " cat", -1.5, "violates"),
        abs_client.RejectedToken(0, " x", -2.0, "over_budget", 9),
        abs_client.RejectedToken(1, " other", -2.0, "violates"),
    ),
)  # fmt: skip


def console(terminal: bool) -> tuple[Console, io.StringIO]:
    output = io.StringIO()
    return Console(file=output, force_terminal=terminal, width=120, color_system=None), output


def test_stages_and_bars_appear_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "BAR_AFTER_S", 0.0)
    target, output = console(terminal=True)
    with ProgressDisplay(target) as display:
        display.describe("waiting for http://[::1]:8000")
        display.show(Progress("compile"))
        display.show(Progress("decode", 3, 12))
        display.show(STEP)
    text = output.getvalue()
    assert "A [dog]" in text and "━" in text and "0:00:0" in text


def test_a_fast_stage_has_no_bar() -> None:
    target, output = console(terminal=True)
    with ProgressDisplay(target) as display:
        display.describe("loading the model")
    assert "loading the model" in output.getvalue() and "━" not in output.getvalue()


def test_nothing_is_written_without_a_terminal() -> None:
    target, output = console(terminal=False)
    with ProgressDisplay(target) as display:
        display.describe("loading the model")
        display.show(STEP)
    assert output.getvalue() == ""


@pytest.mark.parametrize("terminal", [True, False])
def test_a_step_shows_its_rows_and_rejected_tokens(terminal: bool) -> None:
    target, output = console(terminal)
    with WatchDisplay(target, rows=8) as display:
        display.show(STEP)
        display.show(abs_client.Step(5, 7, ()))
    text = output.getvalue()
    assert "token 4" in text and "8 left" in text and "A [dog]" in text and "token 5" not in text
    assert "rejected ' cat' (log-prob -1.50): nothing that satisfies follows" in text
    assert "rejected ' x' (log-prob -2.00): needs 9 more tokens" in text and "other" not in text


def test_watch_shows_steps_and_then_the_answer(command: Command) -> None:
    options = ("sentence:", "--keyword", "dog", "--max-tokens", "12", "--beams", "4")
    status, output, _ = command("watch", *options)
    lines = output.splitlines()
    assert status == 0
    assert lines[0].startswith("token 1, 11 left:") and any(line.startswith("satisfied: yes") for line in lines)
    status, output, errors = command("watch", *options, "--json")
    assert status == 0 and json.loads(output)["choices"][0]["satisfied"] and errors.startswith("token 1,")
    assert command("watch", "sentence:", "--regex", "(")[0] == 2
