"""The commands `abs worker` and `abs up`: the service as several processes."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from app.cli.demo import LISTENING
from app.settings import Settings
from app.wiring import require_engines

Model = Annotated[
    str | None, typer.Option(help="folder or Hugging Face name, in place of ABS_MODEL; or several, separated by commas")
]


def add_processes(app: typer.Typer, chosen: Callable[..., Settings]) -> None:
    """Adds the commands. `chosen` makes settings of the environment and the options."""

    @app.command(epilog="ABS_BROKER=redis://localhost ABS_STORE=redis://localhost abs worker generate")
    def worker(
        queue: Annotated[str, typer.Argument(help="compile, generate, or generate/NAME for one of several models")],
        model: Model = None, log_level: str | None = None,
    ) -> None:
        """Run a worker as a separate process. ABS_BROKER and ABS_STORE name its server."""
        from app.cli.worker_process import run_worker  # imported here, so that help is fast

        run_worker(queue, chosen(model=model, log_level=log_level))

    @app.command(epilog="abs up --workers-generate 2")
    def up(
        host: str | None = None, port: Annotated[int | None, typer.Option(help="0 for a free port")] = None,
        data: Annotated[Path | None, typer.Option(help="a folder for the server's data, secrets and logs")] = None,
        workers_compile: Annotated[int, typer.Option(min=1, help="number of processes that compile")] = 1,
        workers_generate: Annotated[int, typer.Option(min=1, help="number of processes with the model")] = 1,
        model: Model = None, log_level: str | None = None,
        as_json: Annotated[bool, typer.Option("--json", help="print events as JSON lines")] = False,
    ) -> None:
        """Run the service as supervised processes. They are a Redis server, the API and workers."""
        from app.local.up import run_up

        # None leaves the setting of the environment.
        data_dir = None if data is None else str(data)
        settings = chosen(host=host, port=port, data_dir=data_dir, model=model, log_level=log_level)
        require_engines(settings, ("compile",))
        run_up(settings, {"compile": workers_compile, "generate": workers_generate}, partial(_print_event, as_json))


def _print_event(as_json: bool, event: Mapping[str, object]) -> None:
    """Prints an event of `abs up`: JSON, or text on standard error except for the line with the URL."""
    if as_json:
        print(json.dumps(event), flush=True)  # the reader may be a program that waits for the line
    elif event["event"] == "ready":
        print(f"abs: {LISTENING}{event['url']} (data and logs in {event['data']})", flush=True)
    elif event["event"] == "stopping":
        print("abs: stopping", file=sys.stderr, flush=True)
    else:
        status = f", status {event['status']}" if "status" in event else ""
        text = f"abs: {event['process']} {event['event']} (process {event['pid']}{status})"
        print(text, file=sys.stderr, flush=True)
