"""The command `abs chat`: a conversation in the terminal under a constraint."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from abs_client import AbsError, AsyncClient, GenerateResult, Policy
from app.api.middleware.body import read_json
from app.cli.constraint_options import (
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
from app.cli.in_process import CreateApp, followed
from app.cli.processes import Model
from app.cli.progress import ProgressDisplay
from app.cli.render import ProgressEvent, show_error
from app.cli.sender import Sender, exit_status, remote_model
from app.errors import InvalidJson
from app.settings import QUEUES

Message = dict[str, Any]


def add_chat(app: typer.Typer, create_app: CreateApp) -> None:
    """Adds the command."""

    @app.command(epilog='abs chat --constraint \'{"max_words": 12}\' --url http://127.0.0.1:8000')
    def chat(
        *,
        ltlf: Ltlf = None, prop: Prop = [], regex: Regex = None, keyword: Keyword = [], ordered: Ordered = False,  # noqa: B006
        grammar: Grammar = None, constraint: ConstraintJson = None,
        tools: Annotated[Path | None, typer.Option(exists=True, dir_okay=False, help="a file with a JSON list")] = None,
        rule: Annotated[list[str], typer.Option(help="a rule over the calls of tools; may be repeated")] = [],  # noqa: B006
        system: Annotated[str | None, typer.Option(help="the first message, with instructions")] = None,
        max_tokens: Annotated[int | None, typer.Option(help="the budget of each answer in tokens")] = None,
        beams: int | None = None, url: Url = None, model: Model = None,
    ) -> None:
        """Converse in the terminal, until the end of the input. Each answer satisfies the constraint, if there is one.

        With --tools the model may call a tool, and the next line is the result. With --rule each call keeps the rules.
        """
        written = any(each not in (None, []) for each in (ltlf, regex, keyword, grammar, constraint))
        spec = constraint_of(ltlf, prop, regex, keyword, ordered, grammar, constraint) if written else None
        options: dict[str, Any] = {
            "constraint": spec, "tools": None if tools is None else _tools(tools), "max_tokens": max_tokens,
            "policy": Policy(rules=tuple(rule)) if rule else None, "beams": beams, "model": remote_model(model, url),
        }
        terminal = TerminalChat(options, system)
        with BackgroundClient(Sender(create_app, url, model, QUEUES, as_json=False, spec=spec)) as client:
            status = terminal.run(client)
        if status:
            raise typer.Exit(status)


class TerminalChat:
    """The messages of a conversation. A line that is answered by an error leaves none.

    options  of each request
    system   the first message; None without one
    """

    def __init__(self, options: Mapping[str, Any], system: str | None) -> None:
        self._options = options
        self._messages: list[Message] = [] if system is None else [{"role": "system", "content": system}]
        self._calls: list[Mapping[str, Any]] = []  # those without a result yet
        self._output, self._errors = Console(highlight=False), Console(stderr=True, highlight=False)

    def run(self, client: BackgroundClient) -> int:
        """Answer each line of the input. Returns the exit status of the last answer."""
        status = 0
        while (line := self._read()) is not None:
            if line.strip():
                status = self._answer(client, line)
        return status

    def _read(self) -> str | None:
        """The next line of a person or a tool. None at the end of the input."""
        asks = f"result of {self._calls[0]['function']['name']}> " if self._calls else "you> "
        try:
            return input(asks if sys.stdin.isatty() else "")
        except UnicodeDecodeError:
            raise typer.BadParameter("the standard input is not UTF-8") from None
        except (EOFError, KeyboardInterrupt):
            if sys.stdin.isatty():
                self._output.print()
            return None

    def _answer(self, client: BackgroundClient, line: str) -> int:
        asked = self._asked(line)
        if len(self._calls) > 1:  # further calls of the same message wait for their results
            self._messages, self._calls = asked, self._calls[1:]
            return 0
        try:
            result = client.generate(asked, self._options)
        except AbsError as error:
            if not error.problem:
                raise
            show_error(self._errors, error, self._options["constraint"])
            return exit_status(error)
        except KeyboardInterrupt:
            self._errors.print("cancelled", style="dim")
            return 0
        message = result.choices[0].message or {"role": "assistant", "content": result.text}
        self._messages, self._calls = [*asked, message], list(message.get("tool_calls") or ())
        self._show(message)
        return 0

    def _asked(self, line: str) -> list[Message]:
        if self._calls:
            return [*self._messages, {"role": "tool", "tool_call_id": self._calls[0]["id"], "content": line}]
        return [*self._messages, {"role": "user", "content": line}]

    def _show(self, message: Message) -> None:
        if message.get("content") is not None:
            self._output.print(Text(message["content"].strip(), style="bold"))
        for call in self._calls:
            function = call["function"]
            self._output.print(Text(f"calls {function['name']}({function['arguments']})", style="cyan"))


class BackgroundClient:
    """A client whose event loop runs in a thread.

    So the main thread can wait for a person. Entering it waits until requests would be served, and raises what prevents
    that.
    """

    def __init__(self, sender: Sender) -> None:
        self._sender, self._display = sender, ProgressDisplay(Console(stderr=True))
        self._loop, self._stop = asyncio.new_event_loop(), asyncio.Event()
        self._started: Future[AsyncClient] = Future()
        self._thread = threading.Thread(target=self._run, name="client")

    def __enter__(self) -> BackgroundClient:
        self._serving = self._loop.create_task(self._serve())
        try:
            with self._display:
                self._thread.start()
                self._client = self._started.result()
        except BaseException:  # such as an interrupt while the model loads
            self._end(self._serving.cancel)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end(self._stop.set)

    def generate(self, messages: list[Message], options: Mapping[str, Any]) -> GenerateResult:
        """The next message. An interrupt cancels the request."""

        async def send() -> GenerateResult:
            return await followed(self._client, self._show, messages, **options)

        with self._shown():
            future = asyncio.run_coroutine_threadsafe(send(), self._loop)
            try:
                return future.result()
            except KeyboardInterrupt:
                future.cancel()
                raise

    @contextmanager
    def _shown(self) -> Iterator[None]:
        self._display = ProgressDisplay(Console(stderr=True))
        with self._display:
            yield

    def _show(self, event: ProgressEvent) -> None:
        self._display.show(event)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(asyncio.wait({self._serving}))

    def _end(self, stop: Callable[[], object]) -> None:
        with suppress(RuntimeError):  # the loop is closed: the start has failed
            self._loop.call_soon_threadsafe(stop)
        self._thread.join()

    async def _serve(self) -> None:
        try:
            async with self._sender.client(self._display, self._show) as client:
                self._started.set_result(client)
                await self._stop.wait()
        except BaseException as error:
            if self._started.done():
                raise
            self._started.set_exception(error)


def _tools(path: Path) -> list[Any]:
    """The tools of a file. Raises BadParameter for other JSON than a list."""
    try:
        value = read_json(path.read_bytes())
    except InvalidJson as error:
        raise typer.BadParameter(f"--tools: {path}: {error}") from None
    if not isinstance(value, list):
        raise typer.BadParameter(f'--tools: {path} must have a list, such as [{{"type": "function", ...}}]')
    return value
