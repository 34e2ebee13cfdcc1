"""The command `abs`: the API's requests from a shell, in this process or against a running service (--url)."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import logging
import math
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import httpx2
import typer
from rich.console import Console
from rich.status import Status

from abs_client import AbsError, AsyncClient, CheckResult, CompileResult, GenerateResult, Retry
from app import http_server
from app.api.middleware.body import read_json
from app.cli.demo import LISTENING, ServerFailed, run_demo
from app.cli.in_process import ONCE, CreateApp, Observer, followed, in_process
from app.cli.keys import key_commands
from app.cli.processes import add_processes
from app.cli.render import ProgressEvent, progress_line, show_checked, show_compiled, show_generated, show_problem
from app.errors import AppError, InvalidJson, StorageDown
from app.models import open_model_files
from app.observability import logs
from app.settings import QUEUES, Settings, read_settings
from app.wiring import check_storage, open_broker, open_store
from app.worker.opening import end_without_openings

OK, USAGE, UNMET, TROUBLE = 0, 2, 3, 4
UNMET_CODES = ("constraint_unsatisfiable", "budget_too_small")
Opt = typer.Option

EXTRAS = {  # libraries that only some commands and settings take, and what installs them
    "coredis": "redis", "streaq": "redis", "supervisor": "up,redis", "torch": "inference", "transformers": "inference",
    "tokenizers": "inference",
}


def _finite(value: float | None) -> float | None:
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter("must be a finite number")
    return value


Ltlf = Annotated[str | None, Opt(help="an LTLf formula over the words of the text")]
Prop = Annotated[list[str], Opt(help="NAME=word,phrase,... : what a proposition of --ltlf means; may be repeated")]
Regex = Annotated[str | None, Opt(help="a pattern that the whole text matches")]
Keyword = Annotated[list[str], Opt(help="a word that occurs, or its forms: catch,catches; may be repeated")]
Ordered = Annotated[bool, Opt("--ordered", help="the keywords occur in the order given")]
ConstraintJson = Annotated[str | None, Opt("--constraint", help="a constraint object, as JSON")]
AsJson = Annotated[bool, Opt("--json", help="print the API's JSON")]
Finite = Annotated[float | None, Opt(callback=_finite)]
Url = Annotated[str | None, Opt(help="a running service; without it this process does the work")]
Model = Annotated[str | None, Opt(help="a folder or a Hugging Face name, in place of ABS_MODEL")]


def run(create_app: CreateApp) -> int:
    """Run the command line of this process; the exit status. Usage errors end the process themselves, with 2."""
    if not all(_is_unicode(argument) for argument in sys.argv[1:]):
        _complain("an argument is not UTF-8")
        return USAGE
    try:
        _commands(create_app)()
    except (AppError, AbsError, ServerFailed, httpx2.HTTPError, OSError) as error:
        _complain(str(error))
        return TROUBLE
    except ModuleNotFoundError as error:
        extra = EXTRAS.get((error.name or "").partition(".")[0])
        if extra is None:
            raise
        _complain(f"{error.name} is not installed, which this takes: pip install 'abs-server[{extra}]', or make setup")
        return TROUBLE
    return OK


def _complain(message: str) -> None:
    Console(stderr=True).print(f"abs: {message}", style="red", markup=False, highlight=False)


def _is_unicode(text: str) -> bool:
    """False for an argument that holds bytes which are not UTF-8: Python makes halves of surrogate pairs of them."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _commands(create_app: CreateApp) -> typer.Typer:
    app = typer.Typer(name="abs", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False,
                      help="Text from a language model that satisfies a constraint, within a token budget.")
    _add_generate(app, create_app)
    _add_requests(app, create_app)
    _add_service(app, create_app)
    add_processes(app, _settings)
    app.add_typer(key_commands(), name="keys")
    return app


def _add_generate(app: typer.Typer, create_app: CreateApp) -> None:
    """The command that asks the model."""

    @app.command()
    def generate(
        prompt: Annotated[str, typer.Argument(help="the text to continue")],
        ltlf: Ltlf = None, prop: Prop = [], regex: Regex = None, keyword: Keyword = [], ordered: Ordered = False,  # noqa: B006
        constraint: ConstraintJson = None,
        automaton: Annotated[str | None, Opt(help="the hash of a compiled constraint, with --url")] = None,
        max_tokens: Annotated[int | None, Opt(help="the budget in tokens, the end among them")] = None,
        beams: int | None = None, n: Annotated[int | None, Opt("-n", "--n", help="how many answers")] = None,
        scope: Annotated[str | None, Opt(help="what satisfies: answer, or full, with the prompt")] = None,
        algorithm: Annotated[str | None, Opt(help="abs, banked or sample")] = None,
        alpha_min: Finite = None, gamma: Finite = None, rank_by: str | None = None, length_penalty: Finite = None,
        temperature: Finite = None, top_p: Finite = None, seed: int | None = None, timeout_s: Finite = None,
        stream: Annotated[bool, Opt("--stream", help="show the text while it is written")] = False,
        trace: Annotated[bool, Opt("--trace", help="with --json: the token trace too")] = False,
        as_json: AsJson = False, url: Url = None, model: Model = None,
    ) -> None:
        """Continue a prompt with a text that satisfies a constraint."""
        if automaton is None:
            source, given = _constraint(ltlf, prop, regex, keyword, ordered, constraint)
        else:
            source, given = "", None
            _require_alone(url, ltlf, prop, regex, keyword, ordered, constraint)
        options: dict[str, Any] = {
            "automaton": automaton, "max_tokens": max_tokens, "beams": beams, "n": n,
            "scope": scope, "algorithm": algorithm, "alpha_min": alpha_min, "gamma": gamma, "rank_by": rank_by,
            "length_penalty": length_penalty, "temperature": temperature, "top_p": top_p, "seed": seed,
            "timeout_s": timeout_s, "model": _remote(model, url), "trace": trace or not as_json, "constraint": given,
        }

        async def ask(client: AsyncClient, observer: Observer) -> GenerateResult:
            if stream:
                return await followed(client, observer, prompt, **options)
            return await client.generate(prompt, **options)

        retry = Retry() if stream else ONCE  # a stream that breaks is read on
        _send(_Sender(create_app, url, model, QUEUES, as_json, retry), ask, show_generated, source)


def _add_requests(app: typer.Typer, create_app: CreateApp) -> None:
    """The commands that need no model."""

    @app.command(name="compile")
    def compile_(
        ltlf: Ltlf = None, prop: Prop = [], regex: Regex = None, keyword: Keyword = [], ordered: Ordered = False,  # noqa: B006
        constraint: ConstraintJson = None, as_json: AsJson = False, url: Url = None, model: Model = None,
    ) -> None:
        """Compile a constraint: its sizes, and the least budget that can meet it."""
        source, given = _constraint(ltlf, prop, regex, keyword, ordered, constraint)
        sender = _Sender(create_app, url, model, ("compile",), as_json)

        async def ask(client: AsyncClient, _: Observer) -> CompileResult:
            return await client.compile(given, model=_remote(model, url))

        _send(sender, ask, show_compiled, source)

    @app.command()
    def check(
        text: Annotated[str, typer.Argument(help="the text; - reads it from standard input")],
        ltlf: Ltlf = None, prop: Prop = [], regex: Regex = None, keyword: Keyword = [], ordered: Ordered = False,  # noqa: B006
        constraint: ConstraintJson = None, as_json: AsJson = False, url: Url = None,
    ) -> None:
        """Check a text against a constraint."""
        source, given = _constraint(ltlf, prop, regex, keyword, ordered, constraint)
        whole = _standard_input() if text == "-" else text
        sender = _Sender(create_app, url, None, ("compile",), as_json)

        def show(console: Console, answer: Mapping[str, Any]) -> None:
            show_checked(console, answer, whole)

        async def ask(client: AsyncClient, _: Observer) -> CheckResult:
            return await client.check(given, whole)

        _send(sender, ask, show, source)


def _add_service(app: typer.Typer, create_app: CreateApp) -> None:
    """The commands about the service itself."""

    @app.command()
    def serve(
        host: str | None = None, port: Annotated[int | None, Opt(help="0 takes a free one")] = None,
        model: Model = None, log_level: str | None = None,
    ) -> None:
        """Run the service."""
        _serve(create_app, _settings(host=host, port=port, model=model, log_level=log_level))

    @app.command()
    def doctor(
        deep: Annotated[bool, Opt("--deep", help="load the model too, compile and generate")] = False,
        as_json: Annotated[bool, Opt("--json", help="print the findings as JSON")] = False,
        model: Model = None,
    ) -> None:
        """Look at everything the service needs, and say what is wrong and what to do about it."""
        from app.cli.doctor import examine, show

        findings = examine(lambda: _settings(model=model), create_app, deep)
        if as_json:
            print(json.dumps([dataclasses.asdict(finding) for finding in findings]))
        else:
            show(Console(highlight=False), findings)
        if any(finding.state == "failed" for finding in findings):
            raise typer.Exit(TROUBLE)

    @app.command()
    def demo() -> None:
        """Start the service with the built-in model, send three requests, show the answers, stop."""
        run_demo(Console(highlight=False))

    @app.command()
    def openapi(output: Annotated[Path | None, Opt(help="write to this file")] = None) -> None:
        """Print the OpenAPI document."""
        text = json.dumps(create_app(Settings()).openapi(), indent=2) + "\n"
        if output:
            output.write_text(text, encoding="utf-8")
        else:
            sys.stdout.write(text)


def _settings(**given: object) -> Settings:
    """The environment's settings, with what the command line says in their place."""
    chosen = {name: value for name, value in given.items() if value is not None}
    return dataclasses.replace(read_settings(), **chosen)  # type: ignore[arg-type]


def _serve(create_app: CreateApp, settings: Settings) -> None:
    """Serve until a signal stops the process. Invalid settings are reported before the port is bound."""
    http_server.require_guarded(settings)
    open_broker(settings), open_store(settings), open_model_files(settings.model)
    logs.set_up(settings)
    _check_storage(settings)
    app = create_app(settings)
    family, host = socket.AF_INET, settings.host
    if ":" in settings.host:
        family, host = socket.AF_INET6, f"[{settings.host}]"
    listener = socket.create_server((settings.host, settings.port), family=family, backlog=512)
    # Those that it accepts inherit this, and asyncio does not set it for them, since create_server names no protocol:
    # without it an answer's body waits, 40 ms, for the client to confirm its header.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    print(f"abs: {LISTENING}http://{host}:{listener.getsockname()[1]}", flush=True)
    served = http_server.serve(app, listener, settings)
    end_without_openings(0 if served else TROUBLE)
    if not served:
        raise typer.Exit(TROUBLE)


def _check_storage(settings: Settings) -> None:
    """Refuse a server that would lose jobs.

    An unreachable server does not prevent the start; requests fail until it is back.
    """
    try:
        asyncio.run(check_storage(settings))
    except StorageDown as down:
        logging.getLogger(__name__).warning("%s", down)


@dataclasses.dataclass(frozen=True)
class _Sender:
    """Where a request goes and how its answer is printed."""

    create_app: CreateApp
    url: str | None
    model: str | None
    queues: tuple[str, ...]
    as_json: bool
    retry: Retry = ONCE

    @contextlib.asynccontextmanager
    async def client(self, status: Status, observer: Observer) -> AsyncIterator[AsyncClient]:
        if self.url is not None:
            status.update(f"waiting for {self.url}")
            async with AsyncClient(self.url, _settings().api_key, retry=self.retry) as client:
                yield client
        else:
            status.update("loading the model" if "generate" in self.queues else "loading the tokenizer")
            async with in_process(self.create_app, _settings(model=self.model), self.queues, observer) as client:
                yield client


Ask = Callable[[AsyncClient, Observer], Awaitable[GenerateResult | CompileResult | CheckResult]]


def _send(sender: _Sender, ask: Ask, show: Callable[[Console, Mapping[str, Any]], None], source: str) -> None:
    """Send one request and print its answer. Raises typer.Exit with the exit status where it is not 0."""
    console = Console(highlight=False)
    try:
        answer = asyncio.run(_answer(sender, ask))
    except AbsError as refused:
        if not refused.problem:  # no server answered, or another kind of server did
            raise
        if sender.as_json:
            print(json.dumps(refused.problem, ensure_ascii=False))
        else:
            show_problem(Console(stderr=True, highlight=False), refused.problem, source)
        raise typer.Exit(_exit_status(refused)) from None
    if sender.as_json:
        print(json.dumps(answer, ensure_ascii=False))
    else:
        show(console, answer)
    if not answer.get("satisfied", True):
        raise typer.Exit(UNMET)


async def _answer(sender: _Sender, ask: Ask) -> Mapping[str, Any]:
    """The JSON of the answer."""
    with Console(stderr=True).status("starting") as status:

        def observe(event: ProgressEvent) -> None:
            status.update(progress_line(event))

        async with sender.client(status, observe) as client:
            return (await ask(client, observe)).raw


def _exit_status(refused: AbsError) -> int:
    if refused.code in UNMET_CODES:
        return UNMET
    return USAGE if refused.status < 500 and refused.status != 429 else TROUBLE


def _constraint(
    ltlf: str | None, prop: list[str], regex: str | None, keyword: list[str], ordered: bool, constraint: str | None
) -> tuple[str, dict[str, Any]]:
    """The text that an error's position points into, and the constraint object."""
    if sum((ltlf is not None, regex is not None, bool(keyword), constraint is not None)) != 1:
        raise typer.BadParameter("give exactly one of --ltlf, --regex, --keyword and --constraint")
    if (prop and ltlf is None) or (ordered and not keyword):
        raise typer.BadParameter("--prop goes with --ltlf, --ordered with --keyword")
    if ltlf is not None:
        propositions = dict(_proposition(text) for text in prop)
        if len(propositions) != len(prop):
            raise typer.BadParameter("--prop gives one name twice; list all its words in one: NAME=word,phrase,...")
        return ltlf, {"ltlf": ltlf, "propositions": propositions}
    if regex is not None:
        return regex, {"regex": regex}
    if constraint is not None:
        try:
            given = read_json(constraint.encode())
        except InvalidJson as error:
            raise typer.BadParameter(f"--constraint: {error}") from None
        if not isinstance(given, dict):
            raise typer.BadParameter("--constraint is a JSON object")
        return "", given
    return "", {"keywords": [_forms(text) for text in keyword], "ordered": ordered}


def _require_alone(url: str | None, *given: object) -> None:
    """Raise BadParameter if --automaton comes with another constraint or without --url.

    A process without --url has no compiled automata yet.
    """
    if any(option not in (None, [], False) for option in given):
        raise typer.BadParameter("--automaton names a whole constraint: leave the other constraint options out")
    if url is None:
        raise typer.BadParameter("--automaton goes with --url: this process has compiled nothing yet")


def _remote(model: str | None, url: str | None) -> str | None:
    """The name of the model that a running service is asked for; in this process the settings name it."""
    return model if url is not None else None


def _standard_input() -> str:
    try:
        return sys.stdin.buffer.read().decode()
    except UnicodeDecodeError as error:
        raise typer.BadParameter(f"the standard input is not UTF-8: byte {error.start}") from None


def _proposition(text: str) -> tuple[str, list[str]]:
    name, equals, words = text.partition("=")
    if not equals:
        raise typer.BadParameter("--prop is NAME=word,phrase,...")
    return name.strip(), _forms(words)


def _forms(text: str) -> list[str]:
    return [form.strip() for form in text.split(",") if form.strip()]
