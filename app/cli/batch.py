"""Answers requests from a file of JSON lines (`abs generate --jsonl`)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import fields as fields_of
from pathlib import Path
from typing import Any, TextIO

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from abs_client import AbsError, AsyncClient, Policy
from app.api.middleware.body import read_json
from app.cli.exit_status import FAILED, UNSATISFIED, UNSATISFIED_CODES
from app.cli.in_process import CreateApp, in_process
from app.cli.sender import service_settings, settings_of
from app.errors import AppError, InvalidJson
from app.settings import QUEUES

LINE = "line"  # the field of an answer that has the number of its request's line
_CONSTRAINTS = ("constraint", "automaton")
POLICY_FIELDS = {field.name for field in fields_of(Policy)}


def send_file(
    requests: Path, answers: Path, create_app: CreateApp, defaults: Mapping[str, Any], *, concurrency: int,
    url: str | None, model: str | None,
) -> None:
    """Sends the requests of a file and reports their number. Raises typer.Exit if one has no answer.

    defaults     the fields of requests that leave them out
    concurrency  requests at a time
    url          a running service; None for one in this process, with `model`
    """

    def connect() -> AbstractAsyncContextManager[AsyncClient]:
        if url is not None:
            return AsyncClient(url, settings_of().auth.api_key)
        return in_process(create_app, service_settings(model), QUEUES, lambda _: None)

    codes = run_batch(requests, answers, connect, concurrency, defaults=defaults)
    unsatisfied = sum(code in UNSATISFIED_CODES for code in codes)
    failed = sum(code is not None for code in codes) - unsatisfied
    Console(stderr=True, highlight=False).print(
        f"{len(codes) - unsatisfied - failed} answered, {unsatisfied} cannot be satisfied, {failed} failed"
    )
    if failed or unsatisfied:
        raise typer.Exit(FAILED if failed else UNSATISFIED)


def run_batch(
    requests: Path, answers: Path, connect: Callable[[], AbstractAsyncContextManager[AsyncClient]], concurrency: int,
    *, defaults: Mapping[str, Any] = {},
) -> list[str | None]:
    """Sends requests without an answer, and appends answers as they come.

    requests     a file of JSON lines, each the fields of POST /generate; empty lines are passed over
    answers      a file of JSON lines, each with the number of its request's line and `answer`, or `error`
    connect      opens the client
    concurrency  requests at a time
    defaults     the fields of requests that leave them out, or have null
    Returns the error code of each request that was sent, None for an answer. Raises AppError for a line that is no
    request, before any is sent.
    """
    wanted = {line: _checked(requests, line, _with_defaults(fields, defaults)) for line, fields in _read(requests)}
    answered = _answered(answers)
    unanswered = {line: request for line, request in wanted.items() if line not in answered}
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    shown = Progress(*columns, console=console, disable=not console.is_terminal)
    with answers.open("a", encoding="utf-8") as sink, shown as progress:
        task = progress.add_task("starting", total=len(wanted), completed=len(wanted) - len(unanswered))
        return asyncio.run(_send_all(
            unanswered, connect, concurrency=concurrency, sink=sink, advance=lambda: progress.advance(task),
            begin=lambda: progress.update(task, description="requests"),
        ))


async def _send_all(
    requests: dict[int, dict[str, Any]], connect: Callable[[], AbstractAsyncContextManager[AsyncClient]],
    *, concurrency: int, sink: TextIO, advance: Callable[[], None], begin: Callable[[], None],
) -> list[str | None]:
    """The error code of each request, None for an answer."""
    codes, waiting = list[str | None](), iter(requests.items())

    async def send(client: AsyncClient) -> None:
        for line, fields in waiting:
            written: dict[str, Any]
            try:
                written, code = {"answer": await _answer(client, fields)}, None
            except AbsError as error:
                written, code = {"error": error.problem or {"detail": str(error)}}, error.code
            except (TypeError, ValueError) as error:  # of a field that the client cannot send
                written, code = {"error": {"detail": str(error)}}, ""
            sink.write(json.dumps({LINE: line} | written, ensure_ascii=False) + "\n")
            sink.flush()  # what was answered survives an interrupt
            codes.append(code)
            advance()

    if requests:
        async with connect() as client, asyncio.TaskGroup() as group:
            begin()  # a service in this process has loaded its model by now
            for _ in range(concurrency):
                group.create_task(send(client))
    return codes


async def _answer(client: AsyncClient, fields: dict[str, Any]) -> dict[str, Any]:
    options = {name: value for name, value in fields.items() if name not in ("prompt", "messages")}
    if isinstance(options.get("policy"), dict):
        options["policy"] = Policy(**options["policy"])
    prompt = fields["prompt"] if "prompt" in fields else fields["messages"]
    return dict((await client.generate(prompt, **options)).raw)


def _with_defaults(fields: dict[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """A request with defaults for what it leaves out. A constraint and an automaton stand for each other."""
    given = {name for name, value in fields.items() if value is not None}
    if given & set(_CONSTRAINTS):
        given.update(_CONSTRAINTS)
    return fields | {name: value for name, value in defaults.items() if name not in given}


def _checked(path: Path, line: int, fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of a request. Raises AppError for those that the client could not send."""
    given = [kind for name, kind in (("prompt", str), ("messages", list)) if name in fields]
    if len(given) != 1 or not isinstance(fields.get("prompt", fields.get("messages")), given[0]):
        raise AppError(f"{path}, line {line}: a request has a prompt (a text) or messages (a list)")
    policy = fields.get("policy")
    if policy is not None and not (isinstance(policy, dict) and policy.keys() <= POLICY_FIELDS):
        raise AppError(f"{path}, line {line}: policy is an object with {', '.join(sorted(POLICY_FIELDS))}")
    return fields


def _read(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of JSON lines, by their numbers from 1 on."""
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        if not line.strip():
            continue
        try:
            fields = read_json(line)
        except InvalidJson as error:
            raise AppError(f"{path}, line {number}: {error}") from None
        if not isinstance(fields, dict):
            raise AppError(f"{path}, line {number}: must be a JSON object")
        yield number, fields


def _answered(answers: Path) -> set[int]:
    """The lines whose requests have an answer."""
    if not answers.exists():
        return set()
    data = answers.read_bytes()
    if not data.endswith(b"\n"):  # an interrupt has cut the last line
        answers.write_bytes(data[: data.rfind(b"\n") + 1])
    return {fields[LINE] for _, fields in _read(answers) if "answer" in fields}
