"""The constraint that options of the command line say."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from abs_client.errors import pointed_at
from app.api.middleware.body import read_json
from app.errors import InvalidJson
from compiler.spec import not_an_object

_Opt = typer.Option
Ltlf = Annotated[str | None, _Opt(help="an LTLf formula over the words of the text")]
Prop = Annotated[list[str], _Opt(help="NAME=word,phrase,... : the meaning of a proposition in --ltlf; may be repeated")]
Regex = Annotated[str | None, _Opt(help="a pattern for the whole text")]
Keyword = Annotated[list[str], _Opt(help="a required word, or its forms: catch,catches; may be repeated")]
Ordered = Annotated[bool, _Opt("--ordered", help="the keywords occur in this order")]
Grammar = Annotated[Path | None, _Opt(exists=True, dir_okay=False, help="a file NAME.lark, NAME.gbnf or NAME.ebnf")]
ConstraintJson = Annotated[str | None, _Opt("--constraint", help="a constraint object, as JSON")]
AsJson = Annotated[bool, _Opt("--json", help="print the API's JSON")]
Url = Annotated[str | None, _Opt(help="a running service; by default the request runs in this process")]


def constraint_of(
    ltlf: str | None, prop: list[str], regex: str | None, keyword: list[str], ordered: bool, grammar: Path | None,
    constraint: str | None,
) -> dict[str, Any]:
    """The constraint of the options."""
    if sum(each not in (None, []) for each in (ltlf, regex, keyword, grammar, constraint)) != 1:
        raise typer.BadParameter("give exactly one of --ltlf, --regex, --keyword, --grammar and --constraint")
    if (prop and ltlf is None) or (ordered and not keyword):
        raise typer.BadParameter("--prop requires --ltlf, and --ordered requires --keyword")
    if ltlf is not None:
        propositions = dict(_proposition(text) for text in prop)
        if len(propositions) != len(prop):
            raise typer.BadParameter("--prop has the same name twice: list all its words in one: NAME=word,phrase,...")
        return {"ltlf": ltlf, "propositions": propositions}
    if regex is not None:
        return {"regex": regex}
    if grammar is not None:
        return {"grammar": decoded(grammar.read_bytes(), str(grammar)), "syntax": grammar.suffix[1:]}
    if constraint is not None:
        return _parsed(constraint)
    return {"keywords": [_forms(text) for text in keyword], "ordered": ordered}


def any_given(*options: object) -> bool:
    """Whether one of the options of a constraint is given."""
    return any(option not in (None, [], False) for option in options)


def require_alone(url: str | None, *options: object) -> None:
    """Raises BadParameter if --automaton comes with another constraint or without --url.

    A process without --url has no compiled automata yet.
    """
    if any_given(*options):
        raise typer.BadParameter("--automaton is a complete constraint: leave out the other constraint options")
    if url is None:
        raise typer.BadParameter("--automaton requires --url, because this process has no compiled constraints")


def _parsed(constraint: str) -> dict[str, Any]:
    """The value of --constraint. Raises BadParameter, with a caret under the place of a fault."""
    try:
        spec = read_json(constraint.encode())
    except InvalidJson as error:
        if not constraint.lstrip().startswith(("{", "[", '"')):
            raise typer.BadParameter(f"--constraint: {not_an_object(constraint)}") from None
        raise typer.BadParameter(f"--constraint: {error}{pointed_at(constraint, error.position)}") from None
    if not isinstance(spec, dict):
        raise typer.BadParameter(f"--constraint: {not_an_object(spec)}")
    return spec


def decoded(data: bytes, source: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise typer.BadParameter(f"{source} is not UTF-8: byte {error.start}") from None


def _proposition(text: str) -> tuple[str, list[str]]:
    name, equals, words = text.partition("=")
    if not equals:
        raise typer.BadParameter("--prop must be NAME=word,phrase,...")
    return name.strip(), _forms(words)


def _forms(text: str) -> list[str]:
    return [form.strip() for form in text.split(",") if form.strip()]
