"""An engine in a separate process that measures compiles in forks.

    python -m benchmarks.compiler.engine_process ENGINE TOKENIZER

`EngineProcess` starts it, or another module that calls `serve` with a measurement of its own. Each line of standard
input is a `MeasureRequest` as JSON, each line of output an `Outcome`. The vocabulary is loaded once, before the first
request. Each request is measured in a fork, which is killed after the time limit, so that no compile leaves caches or
memory to the next.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from benchmarks.compiler.cases import Expression
from benchmarks.compiler.engines import ExpressionRefused, MaskEngine, Masks, OurMasks, load_engine
from benchmarks.memory import PeakMemory, limit_more_memory, pin_to_one_core
from compiler.errors import LimitExceeded, SpecError

STEPS, WALK_STEPS = 400, 40  # look-ups that are timed, and the longest random walk
SINGLE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "RAYON_NUM_THREADS": "1"}
_SEED = 20_240
_POLL_S = 0.002
_MESSAGE_CHARS = 300


@dataclass(frozen=True, slots=True)
class MeasureRequest:
    """One measurement.

    memory_bytes_max  of address space beyond the loaded vocabulary
    case              what the measurement needs besides the constraint, as JSON
    """

    expression: Expression
    seconds_max: float
    memory_bytes_max: int
    case: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a request.

    outcome   "ok", "time" or "memory" (over the request's limit), "limit" (over a limit of our compiler), "refused" or
              "failed"
    figures   ms, peak_bytes, first_ids (how many ids may start a text), look_up_p50 and look_up_p99 in microseconds
              (for our engine also expand_p50 and expand_p99, of the look-up over all ids), and the engine's own counts
    details   other results of the measurement, as JSON
    """

    outcome: str
    message: str = ""
    figures: dict[str, float] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)


# A measurement yields its outcome after each of its stages; a later one replaces an earlier one.
Measurement: TypeAlias = Callable[[MaskEngine, MeasureRequest], Iterator[Outcome]]


class EngineProcess:
    """The client of an engine's process, which the stack ends. `module` calls `serve`."""

    def __init__(
        self, engine: str, tokenizer: Path, stack: ExitStack, module: str = "benchmarks.compiler.engine_process"
    ) -> None:
        command = [sys.executable, "-m", module, engine, str(tokenizer)]
        self._process = stack.enter_context(
            subprocess.Popen(
                command, env=os.environ | SINGLE_THREAD, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        )
        stack.callback(self._process.kill)
        if self._read_line() != "ready":
            raise RuntimeError(f"{engine} did not load: install the packages that benchmarks/README.md names")

    def _read_line(self) -> str:
        assert self._process.stdout
        return self._process.stdout.readline().strip()

    def measure(self, request: MeasureRequest) -> Outcome:
        """The outcome of one compile."""
        assert self._process.stdin
        self._process.stdin.write(json.dumps(asdict(request)) + "\n")
        self._process.stdin.flush()
        return Outcome(**json.loads(self._read_line()))


def _walk(engine: MaskEngine, masks: Masks) -> dict[str, float]:
    """Times look-ups along random walks. All allowed tokens are equally likely."""
    random = np.random.default_rng(_SEED)
    look_up_ns: list[int] = []
    expand_ns: list[int] = []
    depth = 0
    masks.restart()
    while len(look_up_ns) < STEPS:
        start = time.perf_counter_ns()
        masks.look_up()
        look_up_ns.append(time.perf_counter_ns() - start)
        if isinstance(masks, OurMasks):
            start = time.perf_counter_ns()
            masks.expand()
            expand_ns.append(look_up_ns[-1] + time.perf_counter_ns() - start)
        allowed = masks.allowed()
        allowed = allowed[allowed != engine.eos]
        depth += 1
        if depth == WALK_STEPS or not allowed.size:
            masks.restart()
            depth = 0
        else:
            masks.advance(int(random.choice(allowed)))
    figures = _percentiles("look_up", look_up_ns)
    return figures | _percentiles("expand", expand_ns) if expand_ns else figures


def _percentiles(name: str, nanoseconds: list[int]) -> dict[str, float]:
    median, high = np.percentile(nanoseconds, [50, 99]) / 1e3
    return {f"{name}_p50": float(median), f"{name}_p99": float(high)}


def compile_outcome(engine: MaskEngine, expression: Expression) -> Outcome:
    """The outcome of one compile in this process."""
    engine.warm_up()  # in the fork: it shares its parent's pages until they are written to
    memory = PeakMemory()
    start = time.perf_counter()
    try:
        masks = engine.compile(expression)
        elapsed = time.perf_counter() - start
        figures: dict[str, float] = {"ms": elapsed * 1e3, "peak_bytes": memory.growth(), **engine.figures(masks)}
        figures["first_ids"] = len(masks.allowed())
        return Outcome("ok", "", figures | _walk(engine, masks))
    except LimitExceeded as error:
        return Outcome("limit", str(error)[:_MESSAGE_CHARS])
    except (SpecError, ExpressionRefused, ValueError) as error:
        return Outcome("refused", str(error)[:_MESSAGE_CHARS])
    except MemoryError:
        return Outcome("memory")


def _compile_alone(engine: MaskEngine, request: MeasureRequest) -> Iterator[Outcome]:
    yield compile_outcome(engine, request.expression)


def _run_child(engine: MaskEngine, request: MeasureRequest, measure: Measurement, report: Path) -> None:
    limit_more_memory(request.memory_bytes_max)
    outcome = Outcome("failed")
    try:
        for outcome in measure(engine, request):
            _write_report(report, outcome)
    except BaseException as error:  # a Rust panic is no Exception, and the report must be written
        message = f"{type(error).__name__}: {error}"[:_MESSAGE_CHARS]
        is_memory = isinstance(error, MemoryError) or "alloc" in str(error)
        _write_report(report, replace(outcome, outcome="memory" if is_memory else "failed", message=message))


def _write_report(report: Path, outcome: Outcome) -> None:
    """Write an outcome. A process that is killed meanwhile leaves the earlier one."""
    temporary = report.with_suffix(".new")
    temporary.write_text(json.dumps(asdict(outcome)), encoding="utf-8")
    temporary.replace(report)


def _read_report(report: Path) -> Outcome | None:
    return Outcome(**json.loads(report.read_text(encoding="utf-8"))) if report.exists() else None


def forked_outcome(engine: MaskEngine, request: MeasureRequest, measure: Measurement = _compile_alone) -> Outcome:
    """The outcome of one measurement in a fork. The fork is killed after the time limit.

    A fork that ends early leaves the figures of the stages before.
    """
    with tempfile.TemporaryDirectory() as folder:
        report, errors = Path(folder) / "report", Path(folder) / "errors"
        child = os.fork()
        if not child:
            os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT), 2)
            _run_child(engine, request, measure, report)
            os._exit(0)
        deadline = time.monotonic() + request.seconds_max
        while True:
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid:
                break
            if time.monotonic() > deadline:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                return replace(_read_report(report) or Outcome("time"), outcome="time")
            time.sleep(_POLL_S)
        outcome = _read_report(report)
        if outcome and not status:
            return outcome
        stderr = errors.read_text(encoding="utf-8", errors="replace")[-_MESSAGE_CHARS:]
        message = f"ended with status {status}: {stderr}"
        return replace(outcome or Outcome(""), outcome="memory" if "alloc" in stderr else "failed", message=message)


def serve(measure: Measurement) -> None:
    """Load the engine of the command line, and answer requests from stdin."""
    pin_to_one_core()
    engine = load_engine(sys.argv[1], Path(sys.argv[2]))
    gc.collect()
    gc.freeze()  # the garbage collector of a child leaves the loaded objects alone
    print("ready", flush=True)
    for line in sys.stdin:
        fields = json.loads(line)
        request = MeasureRequest(Expression(**fields.pop("expression")), **fields)
        print(json.dumps(asdict(forked_outcome(engine, request, measure))), flush=True)


if __name__ == "__main__":
    serve(_compile_alone)
