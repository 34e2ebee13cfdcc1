"""The command `abs watch`: the steps of a search, live."""

from __future__ import annotations

from types import TracebackType
from typing import Annotated, Any

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

import abs_client
from abs_client import AsyncClient, GenerateResult, Retry
from app.cli.constraint_options import (
    AsJson,
    ConstraintJson,
    Grammar,
    Keyword,
    Ltlf,
    Ordered,
    Prop,
    Regex,
    Url,
    constraint_of,
)
from app.cli.in_process import CreateApp, Observer, followed
from app.cli.processes import Model
from app.cli.render import ProgressEvent, progress_line, show_generated
from app.cli.sender import Sender, remote_model, send_and_show
from app.settings import QUEUES

_CHARS_MAX = 72
_REASONS = {
    "violates": "nothing that satisfies follows", "incomplete": "the text cannot end yet", "no_bytes": "writes no text"
}  # fmt: skip


def add_watch(app: typer.Typer, create_app: CreateApp) -> None:
    """Adds the command."""

    @app.command(epilog='abs watch "sentence:" --ltlf "F(dog) & G(!cat)" --max-tokens 20 --rejected 3')
    def watch(
        prompt: Annotated[str, typer.Argument(help="the text to continue")],
        *,
        ltlf: Ltlf = None, prop: Prop = [], regex: Regex = None, keyword: Keyword = [], ordered: Ordered = False,  # noqa: B006
        grammar: Grammar = None, constraint: ConstraintJson = None,
        max_tokens: Annotated[int | None, typer.Option(help="the budget in tokens, including the end")] = None,
        beams: int | None = None,
        algorithm: Annotated[str | None, typer.Option(help="abs, banked or sample")] = None,
        seed: Annotated[int | None, typer.Option(help="with --algorithm sample")] = None,
        rows: Annotated[int, typer.Option(min=1, help="rows of each step that are shown")] = 8,
        rejected: Annotated[int, typer.Option(min=0, help="probable tokens to compare with the constraint")] = 0,
        as_json: AsJson = False, url: Url = None, model: Model = None,
    ) -> None:
        """Show the steps of a search live, and then its answer."""
        spec = constraint_of(ltlf, prop, regex, keyword, ordered, grammar, constraint)
        options: dict[str, Any] = {
            "max_tokens": max_tokens, "beams": beams, "algorithm": algorithm, "seed": seed, "constraint": spec,
            "rejected_top_k": rejected, "model": remote_model(model, url), "trace": not as_json,
        }

        async def send(client: AsyncClient, observer: Observer) -> GenerateResult:
            return await followed(client, observer, prompt, **options)

        # The steps stay readable above the answer, so they go where it goes; beside JSON they would be in its way.
        display = WatchDisplay(Console(stderr=as_json, highlight=False), rows)
        sender = Sender(create_app, url, model, QUEUES, as_json, Retry(), spec)
        send_and_show(sender, send, show_generated, display)


class WatchDisplay:
    """The rows of each step, in a table that is redrawn. Without a terminal each step is a line."""

    def __init__(self, console: Console, rows: int) -> None:
        self._console, self._rows = console, rows
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None

    def __enter__(self) -> WatchDisplay:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def describe(self, stage: str) -> None:
        self._draw(Text(stage, style="dim"))

    def show(self, event: ProgressEvent) -> None:
        match event:
            case abs_client.Step() if event.rows:  # the last step of a search may have none
                if self._live:
                    self._draw(step_view(event, self._rows))
                else:
                    self._console.print(progress_line(event))
                    for line in rejected_lines(event):
                        self._console.print(line)
            case abs_client.Restart():
                self._draw(Text("another worker restarts the job", style="yellow"))

    def _draw(self, view: RenderableType) -> None:
        if self._live:
            self._live.update(view, refresh=True)


def step_view(step: abs_client.Step, rows: int) -> RenderableType:
    """The best rows of a step, and the tokens that were rejected."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("text", overflow="ellipsis", no_wrap=True, min_width=_CHARS_MAX)
    for name in ("distance", "log-prob"):
        table.add_column(name, justify="right")
    for row in step.rows[:rows]:
        text = row.text.replace("\n", "⏎")
        style = "green" if row.finished else ""
        table.add_row(Text(text[-_CHARS_MAX:]), str(row.distance), f"{row.log_prob:.2f}", style=style)
    head = f"[bold]token {step.step}[/], {step.budget_after} left, {len(step.rows)} rows"
    return Group(head, table, *rejected_lines(step))


def rejected_lines(step: abs_client.Step) -> list[RenderableType]:
    """The rejected tokens after the best row, with the reasons."""
    lines = list[RenderableType]()
    for token in (each for each in step.rejected_tokens if each.parent == 0):
        reason = _REASONS.get(token.reason, f"needs {token.distance} more tokens")
        text = escape(repr(token.text))
        lines.append(f"[dim]rejected[/] {text} [dim](log-prob {token.log_prob:.2f}): {reason}[/]")
    return lines
