"""The commands `abs keys ...`. They make, list and revoke API keys."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from app.auth import SCOPES, KeyPolicy, add_key, new_key, read_keys, remove_key, when
from app.errors import SettingsInvalid
from app.settings import read_settings

Opt = typer.Option
File = Annotated[Path | None, Opt(help="the keys file, instead of ABS_KEYS_FILE")]
Limit = Annotated[int | None, Opt(min=0, help="instead of the service's limit; 0 is unlimited")]


def key_commands() -> typer.Typer:
    """The group of commands."""
    app = typer.Typer(no_args_is_help=True, help="The keys of the API; a running service reloads their file.")
    app.command(name="new", epilog="abs keys new alice --scope generate --expires 2027-01-31")(_new)
    app.command(name="list", epilog="abs keys list")(_list)
    app.command(name="revoke", epilog="abs keys revoke KEY_ID")(_revoke)
    return app


def _new(
    name: Annotated[str, typer.Argument(help="the owner of the key; jobs and limits belong to the owner")],
    scope: Annotated[list[str], Opt(help=f"a scope of the key: {', '.join(SCOPES)}; may be repeated")],
    expires: Annotated[str | None, Opt(help="a date, 2027-01-31, or a time, in UTC unless it has a time zone")] = None,
    policy: Annotated[
        Path | None, Opt(help="a JSON file with the policy that all conversations keep: docs/policies.md")
    ] = None,
    requests_per_minute: Limit = None, concurrency_max: Limit = None, beam_tokens_per_minute: Limit = None,
    file: File = None,
) -> None:
    """Make a key and print it once; only its SHA-256 is stored."""
    path = _file(file)
    try:
        text, key = new_key(
            name, scope, None if expires is None else when(expires), None if policy is None else _policy(policy),
            requests_per_minute=requests_per_minute, concurrency_max=concurrency_max,
            beam_tokens_per_minute=beam_tokens_per_minute,
        )
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if path.exists():
        read_keys(path)  # an invalid file must not grow
    add_key(path, key)
    Console(stderr=True, highlight=False).print(f"added a key for {name} to {path}; it is not shown again:")
    print(text)  # alone on standard output, so that it can be piped


def _list(file: File = None) -> None:
    """List the keys: ids, names, scopes, expiry and rules."""
    table = Table("id", "name", "scopes", "expires (UTC)", "rules")
    for key in read_keys(_file(file)):
        expires = "" if key.expires is None else f"{datetime.fromtimestamp(key.expires, UTC):%Y-%m-%d %H:%M}"
        rules = () if key.policy is None else key.policy.rules
        table.add_row(key.id, key.name, ", ".join(key.scopes), expires, escape("\n".join(rules)))
    Console(highlight=False).print(table)


def _revoke(
    id: Annotated[str, typer.Argument(help="the id of the key, as in `abs keys list`")], file: File = None
) -> None:
    """Revoke a key."""
    path = _file(file)
    if not remove_key(path, id):
        raise typer.BadParameter(f"{path} has no key with the id {id}")
    Console(highlight=False).print(f"the key {id} is revoked")


def _policy(path: Path) -> KeyPolicy:
    """The policy of a file. Raises ValueError."""
    try:
        return KeyPolicy.of(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror})") from None


def _file(option: Path | None) -> Path:
    """The keys file. Raises SettingsInvalid if neither the option nor the setting names one."""
    path = option or Path(read_settings().auth.keys_file)
    if path == Path():  # an empty setting
        raise SettingsInvalid("set ABS_KEYS_FILE or --file")
    return path
