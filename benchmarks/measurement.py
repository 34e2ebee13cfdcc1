"""One cold compile by one engine and a random walk through its masks, in a forked process that may be killed.

    python -m benchmarks.measurement ENGINE TOKENIZER      (started by benchmarks.compile)

Reads one JSON object a line (`Request`), answers with one (`Outcome`). The vocabulary is loaded before the first
request, once; each request is measured in a fork, so that nothing of one compile helps or burdens the next.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.engine import Engine, Masks, Refused
from benchmarks.engines import OurMasks, load_engine
from benchmarks.measure import PeakMemory, limit_more_memory, pin_to_one_core
from benchmarks.suite import Expression
from compiler.errors import LimitExceeded, SpecError

STEPS, WALK_STEPS = 400, 40  # look-ups that are timed, and the longest walk
_SEED = 20_240
_POLL_S = 0.002
_MESSAGE_CHARS = 300


@dataclass(frozen=True, slots=True)
class Request:
    expression: Expression
    seconds_max: float
    memory_bytes_max: int  # of address space beyond the loaded vocabulary


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a request.

    outcome   "ok", "time" or "memory" (over that limit), "limit" (our own limit struck), "refused", "failed"
    figures   ms, peak_bytes, first_ids (how many ids may begin a text), and in microseconds look_up_p50, look_up_p99
              (for ours also of the look-up spread over the ids: expand_p50, expand_p99), with the engine's own counts
    """

    outcome: str
    message: str = ""
    figures: dict[str, float] = field(default_factory=dict)


def _walk(engine: Engine, masks: Masks) -> dict[str, float]:
    """Times look-ups along random walks: each step takes any allowed token with the same chance."""
    dice = np.random.default_rng(_SEED)
    spent: list[int] = []
    expanded: list[int] = []
    depth = 0
    masks.restart()
    while len(spent) < STEPS:
        begin = time.perf_counter_ns()
        masks.look_up()
        spent.append(time.perf_counter_ns() - begin)
        if isinstance(masks, OurMasks):
            begin = time.perf_counter_ns()
            masks.expand()
            expanded.append(spent[-1] + time.perf_counter_ns() - begin)
        allowed = masks.allowed()
        allowed = allowed[allowed != engine.eos]
        depth += 1
        if depth == WALK_STEPS or not allowed.size:
            masks.restart()
            depth = 0
        else:
            masks.advance(int(dice.choice(allowed)))
    figures = _percentiles("look_up", spent)
    return figures | _percentiles("expand", expanded) if expanded else figures


def _percentiles(name: str, nanoseconds: list[int]) -> dict[str, float]:
    middle, high = np.percentile(nanoseconds, [50, 99]) / 1e3
    return {f"{name}_p50": float(middle), f"{name}_p99": float(high)}


def measure(engine: Engine, expression: Expression) -> Outcome:
    """The outcome of one compile in this process, which may die of it."""
    engine.warm_up()  # a fork shares its parent's pages until they are written to
    memory = PeakMemory()
    started = time.perf_counter()
    try:
        masks = engine.compile(expression)
        elapsed = time.perf_counter() - started
        figures: dict[str, float] = {"ms": elapsed * 1e3, "peak_bytes": memory.growth(), **engine.figures(masks)}
        figures["first_ids"] = len(masks.allowed())
        return Outcome("ok", "", figures | _walk(engine, masks))
    except LimitExceeded as error:
        return Outcome("limit", str(error)[:_MESSAGE_CHARS])
    except (SpecError, Refused, ValueError) as error:
        return Outcome("refused", str(error)[:_MESSAGE_CHARS])
    except MemoryError:
        return Outcome("memory")


def _child(engine: Engine, request: Request, report: Path) -> None:
    limit_more_memory(request.memory_bytes_max)
    outcome = Outcome("failed")
    try:
        outcome = measure(engine, request.expression)
    except BaseException as error:  # Rust panics are no Exceptions, and the report must be written
        outcome = Outcome("memory" if "alloc" in str(error) else "failed", f"{type(error).__name__}: {error}"[:300])
    report.write_text(json.dumps(asdict(outcome)), encoding="utf-8")


def answer(engine: Engine, request: Request) -> Outcome:
    """The outcome of a request, measured in a fork that is killed past the time limit."""
    with tempfile.TemporaryDirectory() as folder:
        report, errors = Path(folder) / "report", Path(folder) / "errors"
        child = os.fork()
        if not child:
            os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT), 2)
            _child(engine, request, report)
            os._exit(0)
        deadline = time.monotonic() + request.seconds_max
        while True:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                break
            if time.monotonic() > deadline:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                return Outcome("time")
            time.sleep(_POLL_S)
        if report.exists():
            return Outcome(**json.loads(report.read_text(encoding="utf-8")))
        said = errors.read_text(encoding="utf-8", errors="replace")[-_MESSAGE_CHARS:]
        return Outcome("memory" if "alloc" in said else "failed", f"ended with status {status}: {said}")


def _request(fields: dict[str, Any]) -> Request:
    return Request(Expression(**fields.pop("expression")), **fields)


def main() -> None:
    pin_to_one_core()
    engine = load_engine(sys.argv[1], Path(sys.argv[2]))
    gc.collect()
    gc.freeze()  # what is loaded stays out of the children's collections
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(asdict(answer(engine, _request(json.loads(line))))), flush=True)


if __name__ == "__main__":
    main()
