"""Workers without a model: python -m tests.servers.fake_worker MODE [ARGUMENTS]

    scripted              no model; a prompt says what its job does
    controlled FOLDER     the built-in model; passes wait while FOLDER/hold exists and fail while FOLDER/fail exists
    scarce ROWS           the built-in model; a pass over more rows runs out of memory, half its layers written
    loading [serve ...]   a model that takes ten minutes to load, in a worker or in the API's process

A scripted prompt is one of these; the answer is always "dog":

    steps N PAUSE   publishes N steps (`max`: the request's max_tokens), one each PAUSE seconds, and answers
    die             ends the process
    anything else   answers at once
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from app import wiring
from app.cli.worker_process import run_worker
from app.errors import JobCancelled
from app.messages import (
    ChoiceBody,
    CompileJobResult,
    GenerateJob,
    GenerateJobResult,
    Job,
    Result,
    StepMessage,
    StepRowBody,
    TimingsBody,
    UsageBody,
)
from app.settings import Settings, read_settings
from app.worker.handlers.base import Context, Handler

SLOTS = 4
LOADING_S = 600.0
LAYERS_WRITTEN = 3
BeforePass = Callable[[Sequence[Any]], None]


def open_scripted(settings: Settings) -> Handler:
    """Opens the handler of the mode `scripted`."""
    return Handler(_run_script, SLOTS)


def _run_script(job: Job, context: Context) -> Result:
    assert isinstance(job, GenerateJob)
    word, *rest = job.prompt.split()
    if word == "die":
        os._exit(1)
    if word == "steps":
        count, pause = job.options.max_tokens if rest[0] == "max" else int(rest[0]), float(rest[1])
        for number in range(1, count + 1):
            if context.cancelled():
                raise JobCancelled("called off")
            context.publish(StepMessage(number, count - number, (StepRowBody("dog", 0, 1, 2, 0.5, -1.0, -2.0, False),)))
            time.sleep(pause)
    choice = ChoiceBody("dog", "eos", -1.0, -1.0, True, (), None)
    compiled = CompileJobResult(job.automaton, 1, 1, 1, 1, 1, True, 0.0)
    timings = TimingsBody(0.0, context.waited_s * 1000, 0.0, 0.0, cached=True)
    return GenerateJobResult(compiled.automaton, (choice,), None, UsageBody(1, 2, 1), timings, (2,), model=job.model)


def open_loading(settings: Settings) -> Handler:
    """Takes longer to load than any test waits."""
    time.sleep(LOADING_S)
    raise RuntimeError("no test waits for this")


def _before_each_pass(call: BeforePass) -> None:
    """Calls a function before each pass, trial passes excepted."""
    from decoding.model import HuggingFaceModel  # imports PyTorch, which a scripted worker does without

    step = HuggingFaceModel.step

    def patched_step(model: HuggingFaceModel, feeds: Sequence[Any]) -> Any:
        if threading.current_thread().name == "engine":
            call(feeds)
        return step(model, feeds)

    HuggingFaceModel.step = patched_step  # type: ignore[method-assign]


def control(folder: Path) -> None:
    """Lets files of a folder delay and fail this process's passes."""

    def obey(feeds: Sequence[Any]) -> None:
        while (folder / "hold").exists():
            time.sleep(0.02)
        if (folder / "fail").exists():
            raise RuntimeError("a pass that was made to fail")

    _before_each_pass(obey)


def limit_rows(rows_max: int) -> None:
    """Makes larger passes fail like a GPU without memory."""
    import torch

    from decoding.model.prefix_tree import PrefixTree

    store, fails = PrefixTree.store, [False]

    def count_rows(feeds: Sequence[Any]) -> None:
        fails[0] = sum(len(feed.parents) for feed in feeds) > rows_max

    def scarce_store(tree: PrefixTree, layer: int, *columns: torch.Tensor) -> Any:
        if fails[0] and layer == LAYERS_WRITTEN:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB")
        return store(tree, layer, *columns)

    _before_each_pass(count_rows)
    PrefixTree.store = scarce_store  # type: ignore[method-assign]


def run(mode: str, *arguments: str) -> None:
    """Runs a process in a mode until it is stopped."""
    if mode in ("scripted", "loading"):
        wiring.HANDLERS["generate"] = f"tests.servers.fake_worker:open_{mode}"
    match mode, arguments:
        case "controlled", (folder,):
            control(Path(folder))
        case "scarce", (rows,):
            limit_rows(int(rows))
        case "loading", ("serve", *_):
            from app.main import main

            del sys.argv[1]  # `main` reads the rest as its command line
            return main()
    run_worker("generate", read_settings())


if __name__ == "__main__":
    run(*sys.argv[1:])
