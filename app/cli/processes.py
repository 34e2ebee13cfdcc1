"""The commands `abs worker` and `abs up`: the service as several processes."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated

import typer

from app.cli.demo import LISTENING
from app.settings import QUEUES, Settings

Model = Annotated[str | None, typer.Option(help="a folder or a Hugging Face name, in place of ABS_MODEL")]


def add_processes(app: typer.Typer, chosen: Callable[..., Settings]) -> None:
    """Add the commands. `chosen` makes settings of the environment and what the command line says."""

    @app.command()
    def worker(
        queue: Annotated[str, typer.Argument(help=f"what it serves: {' or '.join(QUEUES)}", callback=_known_queue)],
        model: Model = None, log_level: str | None = None,
    ) -> None:
        """Run a worker as a process of its own, beside an API, on the server that ABS_BROKER and ABS_STORE name."""
        from app.cli.worker_process import run_worker

        run_worker(queue, chosen(model=model, log_level=log_level))

    @app.command()
    def up(
        host: str | None = None, port: Annotated[int | None, typer.Option(help="0 takes a free one")] = None,
        data: Annotated[Path | None, typer.Option(help="a folder for the server's data, secrets and logs")] = None,
        workers_compile: Annotated[int, typer.Option(min=1, help="how many processes compile")] = 1,
        workers_generate: Annotated[int, typer.Option(min=1, help="how many processes hold the model")] = 1,
        model: Model = None, log_level: str | None = None,
        as_json: Annotated[bool, typer.Option("--json", help="tell what happens as lines of JSON")] = False,
    ) -> None:
        """Run the service as processes that may each die: a server, the API and workers, kept alive until stopped."""
        from app.local.up import run_up

        data_dir = None if data is None else str(data)
        settings = chosen(host=host, port=port, data_dir=data_dir, model=model, log_level=log_level)
        run_up(settings, {"compile": workers_compile, "generate": workers_generate}, _told_as(as_json))


def _told_as(as_json: bool) -> Callable[[Mapping[str, object]], None]:
    """How `abs up` tells what happens: what is meant to be read on standard error, but for the line with the URL."""

    def tell(event: Mapping[str, object]) -> None:
        if as_json:
            print(json.dumps(event), flush=True)
        elif event["event"] == "ready":
            print(f"abs: {LISTENING}{event['url']} (data and logs in {event['data']})", flush=True)
        elif event["event"] == "stopping":
            print("abs: stopping", file=sys.stderr, flush=True)
        else:
            print(f"abs: {event['process']} {event['event']} (process {event['pid']})", file=sys.stderr, flush=True)

    return tell


def _known_queue(queue: str) -> str:
    if queue not in QUEUES:
        raise typer.BadParameter(f"must be {' or '.join(QUEUES)}")
    return queue
