"""Sends the requests of the command line and prints their answers."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

import typer
from rich.console import Console

from abs_client import AbsError, AsyncClient, CheckResult, CompileResult, GenerateResult, PolicyResult, Retry
from app.cli.exit_status import FAILED, UNSATISFIED, UNSATISFIED_CODES, USAGE
from app.cli.in_process import ONCE, CreateApp, Observer, in_process
from app.cli.progress import Display, ProgressDisplay
from app.cli.render import show_error
from app.models import model_sources, only
from app.settings import BUILT_IN, Settings, is_set, read_settings


def settings_of(**options: object) -> Settings:
    """The settings of the environment, overridden by options of the command line."""
    return read_settings(**{name: value for name, value in options.items() if value is not None})


def service_settings(model: str | None, **options: object) -> Settings:
    """The settings of a service in this process. Alone, without ABS_MODEL, it has both built-in models.

    Processes that share a model by tensor parallelism have the first one only.
    """
    settings = settings_of(model=model, **options)
    # With a server there are other processes, which have to serve the same models.
    chosen = model is not None or is_set("model") or is_set("model_sha256")
    alone = settings.storage.broker.startswith("memory:") and settings.inference.tensor_parallel == 1
    if not chosen and alone:
        return settings.changed(model=tuple(BUILT_IN))
    return settings


def remote_model(model: str | None, url: str | None) -> str | None:
    """The model of a request to a running service. In this process the settings name it."""
    return model if url is not None else None


@dataclasses.dataclass(frozen=True)
class Sender:
    """The destination of a request, its constraint, and its output's format."""

    create_app: CreateApp
    url: str | None
    model: str | None
    queues: tuple[str, ...]
    as_json: bool
    retry: Retry = ONCE
    spec: dict[str, Any] | None = None

    def client(self, display: Display, observer: Observer) -> AbstractAsyncContextManager[AsyncClient]:
        """The client to send with. Its events go to the observer."""
        if self.url is not None:
            display.describe(f"waiting for {self.url}")
            return AsyncClient(self.url, settings_of().auth.api_key, retry=self.retry)
        display.describe("loading the model" if "generate" in self.queues else "loading the tokenizer")
        settings = settings_of(model=self.model)
        # A command has one request, which needs one model.
        return in_process(self.create_app, only(model_sources(settings)[0], settings), self.queues, observer)


Send = Callable[[AsyncClient, Observer], Awaitable[GenerateResult | CompileResult | CheckResult | PolicyResult]]


def send_and_show(
    sender: Sender, send: Send, show: Callable[[Console, Mapping[str, Any]], None],
    display: Display | None = None,
) -> None:
    """Sends a request and prints its answer. Raises typer.Exit if the exit status is not 0.

    display  shows the progress; by default one line on standard error
    """
    console = Console(highlight=False)
    try:
        answer = asyncio.run(_answer(sender, send, display or ProgressDisplay(Console(stderr=True))))
    except AbsError as error:
        if not error.problem:  # not the answer of our service
            raise
        if sender.as_json:
            print(json.dumps(error.problem, ensure_ascii=False))
        else:
            show_error(Console(stderr=True, highlight=False), error, sender.spec)
        raise typer.Exit(exit_status(error)) from None
    if sender.as_json:
        print(json.dumps(answer, ensure_ascii=False))
    else:
        show(console, answer)
    if not answer.get("satisfied", True):
        raise typer.Exit(UNSATISFIED)


async def _answer(sender: Sender, send: Send, display: Display) -> Mapping[str, Any]:
    """The JSON of the answer."""
    with display:
        async with sender.client(display, display.show) as client:
            return (await send(client, display.show)).raw


def exit_status(error: AbsError) -> int:
    """The exit status of an error that a service answered."""
    if error.code in UNSATISFIED_CODES:
        return UNSATISFIED
    # 429 is no usage error: the same request may succeed later.
    return USAGE if error.status < 500 and error.status != 429 else FAILED
