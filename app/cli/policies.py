"""The commands `abs policy`, which check conversations and list states."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from abs_client import AsyncClient, Policy, PolicyResult
from app.api.middleware.body import read_json
from app.cli.constraint_options import AsJson, Url, decoded
from app.cli.in_process import CreateApp, Observer
from app.cli.sender import Sender, send_and_show
from app.errors import InvalidJson

Opt, Arg = typer.Option, typer.Argument
PolicyFile = Annotated[Path, Arg(exists=True, dir_okay=False, help="rules: NAME.json as in requests, or NAME.decl")]
ToolsFile = Annotated[Path | None, Opt("--tools", exists=True, dir_okay=False, help="the tools, as JSON")]


def policy_commands(create_app: CreateApp) -> typer.Typer:
    """The group of commands."""
    app = typer.Typer(no_args_is_help=True, help="Rules over the calls, results and replies of conversations.")

    @app.command(epilog="abs policy check rules.json messages.json")
    def check(
        policy: PolicyFile,
        messages: Annotated[Path, Arg(exists=True, dir_okay=False, help="the messages, as JSON")],
        *, tools: ToolsFile = None, as_json: AsJson = False, url: Url = None,
    ) -> None:
        """Say which event broke which rule, and what may come next."""
        rules, turns, known = _policy(policy), _list(messages), None if tools is None else _list(tools)

        async def send(client: AsyncClient, _: Observer) -> PolicyResult:
            return await client.check_conversation(rules, turns, tools=known)

        send_and_show(Sender(create_app, url, None, ("compile",), as_json), send, show_conversation)

    @app.command(epilog="abs policy states rules.json tools.json")
    def states(
        policy: PolicyFile,
        tools: Annotated[Path, Arg(exists=True, dir_okay=False, help="the tools, as JSON")],
        as_json: AsJson = False, url: Url = None,
    ) -> None:
        """List the states of a policy with the tools that each allows."""
        rules, known = _policy(policy), _list(tools)

        async def send(client: AsyncClient, _: Observer) -> PolicyResult:
            return await client.policy_states(rules, known)

        send_and_show(Sender(create_app, url, None, ("compile",), as_json), send, show_states)

    return app


def show_conversation(console: Console, answer: Mapping[str, Any]) -> None:
    """The broken rules, and what may come next."""
    for broken in answer["broken"]:
        if broken["event"] is None:
            console.print(Text(f"not met yet: {broken['rule']}"))
        else:
            console.print(Text(f"message {broken['message']}, {broken['event']}: breaks {broken['rule']}", style="red"))
    console.print(f"satisfied: {'[green]yes[/]' if answer['satisfied'] else '[red]no[/]'}")
    if answer["conflict"]:
        console.print(Text(f"cannot be met any more: {'; '.join(answer['conflict'])}"))
        return
    console.print(Text(f"may come next: {', '.join(_following(answer['reply'], answer['tools']))}"))
    if answer["calls_needed"]:
        console.print(f"calls needed before a reply: {answer['calls_needed']}")


def show_states(console: Console, answer: Mapping[str, Any]) -> None:
    """The states as a table."""
    table = Table("past", "may come next", "calls needed")
    for state in answer["states"] or ():
        past, following = ", ".join(state["past"]), ", ".join(_following(state["reply"], state["tools"]))
        needed = "no number is enough" if state["calls_needed"] is None else str(state["calls_needed"])
        table.add_row(Text(past or "(the start)"), Text(following), needed)
    console.print(table)


def _following(reply: bool, tools: Any) -> list[str]:
    return [*(["reply"] if reply else []), *(f"call({name})" for name in tools)] or ["nothing"]


def _policy(path: Path) -> Policy:
    if path.suffix == ".decl":
        return Policy(decl=_text(path))
    fields = _json(path)
    if not isinstance(fields, dict) or not set(fields) <= {"rules", "max_calls", "assume", "decl"}:
        raise typer.BadParameter(f"{path} must be a JSON object with rules, max_calls, assume and decl")
    return Policy(**fields)


def _list(path: Path) -> list[dict[str, Any]]:
    value = _json(path)
    if not isinstance(value, list):
        raise typer.BadParameter(f"{path} must be a JSON list")
    return value


def _json(path: Path) -> Any:
    try:
        return read_json(_text(path).encode())
    except InvalidJson as error:
        raise typer.BadParameter(f"{path}: {error}") from None


def _text(path: Path) -> str:
    return decoded(path.read_bytes(), str(path))
