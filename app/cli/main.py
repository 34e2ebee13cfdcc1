"""The command `abs`. It sends requests to the API in this process, or to a running service (--url)."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
import math
import socket
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import httpx2
import typer
from rich.console import Console

from abs_client import AbsError, AsyncClient, CheckResult, CompileResult, GenerateResult, Retry
from app import __version__, http_server
from app.cli.batch import send_file
from app.cli.chat import add_chat
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
    any_given,
    constraint_of,
    decoded,
    require_alone,
)
from app.cli.demo import LISTENING, ServerFailed, run_demo
from app.cli.exit_status import FAILED, OK, USAGE
from app.cli.in_process import ONCE, CreateApp, Observer, followed
from app.cli.keys import key_commands
from app.cli.policies import policy_commands
from app.cli.processes import Model, add_processes
from app.cli.render import show_checked, show_compiled, show_generated
from app.cli.sender import Sender, remote_model, send_and_show, service_settings, settings_of
from app.cli.watch import add_watch
from app.errors import AppError, StorageDown
from app.models import open_model_files, served_sources
from app.observability import logs
from app.settings import QUEUES, Settings
from app.wiring import check_storage, open_broker, open_store
from app.worker.handler_loader import exit_if_still_loading

Opt = typer.Option
_JSONL = "a file with the fields of a request in each line; the options are for lines that leave them out"
_OUTPUT = "with --jsonl: the file to which answers are appended; a further run sends requests without one"

EXTRAS = {  # the extra that installs each optional library
    "redis": "redis", "torch": "inference", "transformers": "inference", "tokenizers": "inference",
}


def _finite(value: float | None) -> float | None:
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter("must be a finite number")
    return value


Finite = Annotated[float | None, Opt(callback=_finite)]


def run(create_app: CreateApp) -> int:
    """Runs the command line and returns the exit status. A usage error exits with 2."""
    try:
        "".join(sys.argv[1:]).encode()
    except UnicodeEncodeError:  # Python decodes other bytes than UTF-8 to lone surrogates
        _print_error("an argument is not UTF-8")
        return USAGE
    try:
        _commands(create_app)()
    except (AppError, AbsError, ServerFailed, httpx2.HTTPError, OSError) as error:
        _print_error(str(error))
        return FAILED
    except ModuleNotFoundError as error:
        extra = EXTRAS.get((error.name or "").partition(".")[0])
        if extra is None:
            raise
        _print_error(f"{error.name} is not installed: run pip install 'abs-server[{extra}]' or make setup")
        return FAILED
    return OK


def _print_error(message: str) -> None:
    Console(stderr=True).print(f"abs: {message}", style="red", markup=False, highlight=False)


def _commands(create_app: CreateApp) -> typer.Typer:
    app = typer.Typer(name="abs", no_args_is_help=True, pretty_exceptions_enable=False,
                      help="Text from a language model that satisfies a constraint, within a token budget.")
    app.callback(invoke_without_command=True)(_options)
    _add_generate(app, create_app)
    add_watch(app, create_app)
    add_chat(app, create_app)
    _add_requests(app, create_app)
    _add_service(app, create_app)
    add_processes(app, settings_of)
    app.add_typer(key_commands(), name="keys")
    app.add_typer(policy_commands(create_app), name="policy")
    return app


def _options(version: Annotated[bool, Opt("--version", is_eager=True, help="print the version")] = False) -> None:
    if version:
        print(f"abs-server {__version__}")
        raise typer.Exit


def _add_generate(app: typer.Typer, create_app: CreateApp) -> None:
    """Adds the command that needs the model."""

    @app.command(epilog='abs generate "sentence:" --ltlf "F(dog) & G(!cat)" --max-tokens 20')
    def generate(
        prompt: Annotated[str | None, typer.Argument(help="the text to continue; left out with --jsonl")] = None,
        ltlf: Ltlf = None, prop: Prop = [], regex: Regex = None, keyword: Keyword = [], ordered: Ordered = False,  # noqa: B006
        grammar: Grammar = None, constraint: ConstraintJson = None,
        automaton: Annotated[str | None, Opt(help="the hash of a compiled constraint, with --url")] = None,
        max_tokens: Annotated[int | None, Opt(help="the budget in tokens, including the end")] = None,
        beams: int | None = None, n: Annotated[int | None, Opt("-n", "--n", help="number of answers")] = None,
        scope: Annotated[str | None, Opt(help="the text that satisfies: answer, or full for prompt and answer")] = None,
        algorithm: Annotated[str | None, Opt(help="abs, banked or sample")] = None,
        alpha_min: Finite = None, gamma: Finite = None, rank_by: str | None = None, length_penalty: Finite = None,
        temperature: Finite = None, top_p: Finite = None, top_k: int | None = None, min_p: Finite = None,
        frequency_penalty: Finite = None, presence_penalty: Finite = None, repetition_penalty: Finite = None,
        seed: int | None = None, timeout_s: Finite = None,
        stop: Annotated[list[str], Opt(help="a string that no answer contains; may be repeated")] = [],  # noqa: B006
        stream: Annotated[bool, Opt("--stream", help="show the text during generation")] = False,
        trace: Annotated[bool, Opt("--trace", help="with --json: the token trace too")] = False,
        as_json: AsJson = False, url: Url = None, model: Model = None,
        jsonl: Annotated[Path | None, Opt(exists=True, dir_okay=False, help=_JSONL)] = None,
        output: Annotated[Path | None, Opt(dir_okay=False, help=_OUTPUT)] = None,
        concurrency: Annotated[int, Opt(min=1, help="with --jsonl: requests at a time")] = 8,
    ) -> None:
        """Continue a prompt with a text that satisfies a constraint."""
        spec, constraints = None, (ltlf, prop, regex, keyword, ordered, grammar, constraint)
        if automaton is not None:
            require_alone(url, *constraints)
        elif jsonl is None or any_given(*constraints):
            spec = constraint_of(*constraints)
        options: dict[str, Any] = {
            "automaton": automaton, "max_tokens": max_tokens, "beams": beams, "n": n,
            "scope": scope, "algorithm": algorithm, "alpha_min": alpha_min, "gamma": gamma, "rank_by": rank_by,
            "length_penalty": length_penalty, "temperature": temperature, "top_p": top_p, "seed": seed,
            "top_k": top_k, "min_p": min_p, "frequency_penalty": frequency_penalty,
            "presence_penalty": presence_penalty, "repetition_penalty": repetition_penalty,
            "timeout_s": timeout_s, "model": remote_model(model, url), "stop": stop or None, "constraint": spec,
        }
        if jsonl is not None:
            if prompt is not None or output is None or stream or as_json:
                raise typer.BadParameter("--jsonl goes with --output, and without a prompt, --stream and --json")
            defaults = {name: value for name, value in options.items() if value is not None}
            if trace:
                defaults["trace"] = True
            send_file(jsonl, output, create_app, defaults, concurrency=concurrency, url=url, model=model)
            return
        if prompt is None or output is not None:
            raise typer.BadParameter("give a prompt, or --jsonl and --output")
        options["trace"] = trace or not as_json

        async def send(client: AsyncClient, observer: Observer) -> GenerateResult:
            if stream:
                return await followed(client, observer, prompt, **options)
            return await client.generate(prompt, **options)

        retry = Retry() if stream else ONCE  # a broken stream is resumed
        sender = Sender(create_app, url, model, QUEUES, as_json, retry, spec)
        send_and_show(sender, send, partial(show_generated, spec=spec))


def _add_requests(app: typer.Typer, create_app: CreateApp) -> None:
    """Adds the commands that need no model."""

    @app.command(name="compile", epilog="abs compile --regex '[A-Z][a-z ]+[.]'")
    def compile_(
        ltlf: Ltlf = None, prop: Prop = [], regex: Regex = None, keyword: Keyword = [], ordered: Ordered = False,  # noqa: B006
        grammar: Grammar = None, constraint: ConstraintJson = None, as_json: AsJson = False, url: Url = None,
        model: Model = None,
    ) -> None:
        """Compile a constraint: its sizes, and the smallest budget for it."""
        spec = constraint_of(ltlf, prop, regex, keyword, ordered, grammar, constraint)
        sender = Sender(create_app, url, model, ("compile",), as_json, spec=spec)

        async def send(client: AsyncClient, _: Observer) -> CompileResult:
            return await client.compile(spec, model=remote_model(model, url))

        send_and_show(sender, send, partial(show_compiled, spec=spec))

    @app.command(epilog='echo "A cat in a hat" | abs check - --keyword cat --keyword hat --ordered')
    def check(
        text: Annotated[str, typer.Argument(help="the text, or - for standard input")],
        ltlf: Ltlf = None, prop: Prop = [], regex: Regex = None, keyword: Keyword = [], ordered: Ordered = False,  # noqa: B006
        grammar: Grammar = None, constraint: ConstraintJson = None, as_json: AsJson = False, url: Url = None,
    ) -> None:
        """Check a text against a constraint."""
        spec = constraint_of(ltlf, prop, regex, keyword, ordered, grammar, constraint)
        checked = decoded(sys.stdin.buffer.read(), "the standard input") if text == "-" else text
        sender = Sender(create_app, url, None, ("compile",), as_json, spec=spec)

        def show(console: Console, answer: Mapping[str, Any]) -> None:
            show_checked(console, answer, checked, spec)

        async def send(client: AsyncClient, _: Observer) -> CheckResult:
            return await client.check(spec, checked)

        send_and_show(sender, send, show)


def _add_service(app: typer.Typer, create_app: CreateApp) -> None:
    """Adds the commands that run or check the service."""

    @app.command(epilog="abs serve --port 8000")
    def serve(
        host: str | None = None, port: Annotated[int | None, Opt(help="0 for a free port")] = None,
        model: Model = None, log_level: str | None = None,
    ) -> None:
        """Run the service. Alone, without ABS_MODEL, it has both built-in models."""
        _serve(create_app, service_settings(model, host=host, port=port, log_level=log_level))

    @app.command(epilog="abs doctor --deep")
    def doctor(
        deep: Annotated[bool, Opt("--deep", help="also load the model, compile and generate")] = False,
        as_json: Annotated[bool, Opt("--json", help="print the findings as JSON")] = False,
        model: Model = None,
    ) -> None:
        """Check everything that the service needs, and report problems with advice."""
        from app.cli.doctor import examine, show  # imported here, so that help is fast

        findings = examine(lambda: settings_of(model=model), create_app, deep)
        if as_json:
            print(json.dumps([dataclasses.asdict(finding) for finding in findings]))
        else:
            show(Console(highlight=False), findings)
        if any(finding.state == "failed" for finding in findings):
            raise typer.Exit(FAILED)

    @app.command(epilog="abs demo")
    def demo() -> None:
        """Start the service with the built-in models, answer three questions, and stop."""
        run_demo(Console(highlight=False))

    @app.command(epilog="abs openapi --output openapi.json")
    def openapi(output: Annotated[Path | None, Opt(help="write to this file")] = None) -> None:
        """Print the OpenAPI document."""
        text = json.dumps(create_app(Settings()).openapi(), indent=2) + "\n"
        if output:
            output.write_text(text, encoding="utf-8")
        else:
            sys.stdout.write(text)


def _serve(create_app: CreateApp, settings: Settings) -> None:
    """Serves until a signal. Invalid settings are reported before the port is bound."""
    http_server.require_guarded(settings)
    open_broker(settings), open_store(settings)
    for source in served_sources(settings):
        open_model_files(source.location)
    with logs.writing(settings):
        _check_storage(settings)
        served = http_server.serve(create_app(settings), _listen(settings), settings)
    exit_if_still_loading(0 if served else FAILED)
    if not served:
        raise typer.Exit(FAILED)


def _listen(settings: Settings) -> socket.socket:
    """The listening socket, whose URL is printed."""
    family, host = socket.AF_INET, settings.server.host
    if ":" in settings.server.host:
        family, host = socket.AF_INET6, f"[{settings.server.host}]"
    listener = socket.create_server((settings.server.host, settings.server.port), family=family, backlog=512)
    # Accepted connections inherit TCP_NODELAY. asyncio does not set it on them, because create_server sets no protocol.
    # Without it the body of a response waits 40 ms until the client acknowledges the header.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    print(f"abs: {LISTENING}http://{host}:{listener.getsockname()[1]}", flush=True)
    return listener


def _check_storage(settings: Settings) -> None:
    """Rejects a server that would lose jobs.

    An unreachable server does not prevent the start; requests fail until it is back.
    """
    try:
        asyncio.run(check_storage(settings))
    except StorageDown as error:
        logging.getLogger(__name__).warning("%s", error)
