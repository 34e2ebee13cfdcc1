"""Prometheus metrics of this process. Also the small HTTP server on a worker's metrics port.

All applications and workers of a process share the metrics. Labels are fixed names, never a prompt, a constraint or a
key. app.worker.job_run records the metrics of jobs.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Literal

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    ProcessCollector,
    generate_latest,
    make_wsgi_app,
    start_http_server,
)
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from app import __version__
from app.errors import SettingsInvalid
from app.settings import Settings

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
SILENT_S_MAX = 10.0  # a worker without a heartbeat for longer counts as not ready
SLOW_S_MAX = 5.0  # time in which a client of the metrics port sends its request
HUNG_S_MAX = 60.0  # a worker whose event loop gave no sign for longer must be restarted
REGISTRY = CollectorRegistry()
ProcessCollector(registry=REGISTRY)
GCCollector(registry=REGISTRY)

_SHORT = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_LONG = (*_SHORT, 30.0, 60.0, 120.0, 300.0)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024, 2_048, 4_096)
_STATES = (10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)
CacheResult = Literal["hit", "miss", "negative", "corrupt"]


def _counter(name: str, what: str, *labels: str) -> Counter:
    return Counter(name, what, labels, registry=REGISTRY)


def _gauge(name: str, what: str, *labels: str) -> Gauge:
    return Gauge(name, what, labels, registry=REGISTRY)


def _histogram(name: str, what: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
    return Histogram(name, what, labels, buckets=buckets, registry=REGISTRY)


# requests
HTTP_REQUESTS = _counter("abs_http_requests_total", "Requests answered", "route", "method", "code")
HTTP_SECONDS = _histogram("abs_http_request_duration_seconds", "To the answer's last byte", _LONG, "route")
HTTP_IN_FLIGHT = _gauge("abs_http_in_flight", "Requests that are being answered")
REJECTED = _counter("abs_admission_rejected_total", "Requests rejected temporarily: 429 and 503", "reason")
# queues and jobs
QUEUE_REQUESTS = _gauge("abs_queue_requests", "Waiting jobs", "queue", "priority")
QUEUE_TOKENS = _gauge("abs_queue_tokens", "Rows times tokens of the jobs that wait", "queue")
QUEUE_SECONDS = _histogram("abs_queue_wait_seconds", "Time that jobs waited in their queue", _LONG, "queue")
OTHER_VERSIONS = _gauge("abs_queue_other_version_requests", "Jobs that wait for workers of another version", "queue")
RUNNING = _gauge("abs_running_requests", "Jobs that this process runs", "queue")
ATTEMPTS = _counter("abs_job_attempts_total", "Jobs taken by a worker, every attempt", "job_kind")
REDELIVERED = _counter("abs_job_redelivered_total", "Jobs taken again after a lost worker", "job_kind")
HEARTBEAT = _gauge("abs_worker_heartbeat_timestamp_seconds", "Time of a worker's last heartbeat", "worker")
# compilations
COMPILED = _counter("abs_compile_total", "Compilations, by the constraint's outermost form", "form", "outcome")
COMPILE_SECONDS = _histogram("abs_compile_seconds", "Successful compilations", _LONG, "form")
STATES = _histogram("abs_automaton_states", "Token states of compiled constraints", _STATES)
CACHE = _counter("abs_cache_requests_total", "Look-ups of compiled constraints", "result")
CACHE_BYTES = _gauge("abs_cache_bytes", "Bytes in the store of automata")
WAITERS = _gauge("abs_single_flight_waiters", "Requests that wait for a compilation")
# generations
GENERATED = _counter("abs_generate_total", "Attempts at generations", "outcome")
E2E_SECONDS = _histogram("abs_e2e_seconds", "Generations, from submission to result", _LONG, "outcome")
PROMPT_TOKENS = _counter("abs_prompt_tokens_total", "Tokens of prompts that were answered")
PROMPT_CHUNKS = _counter("abs_prompt_chunks_total", "Chunks of prompts, found among those kept or read", "result")
GENERATED_TOKENS = _counter("abs_generated_tokens_total", "Tokens of answers")
DRAFT_TOKENS = _counter("abs_draft_tokens_total", "Tokens that speculative sampling read in advance", "result")
VIOLATIONS = _counter("abs_constraint_violations_total", "Answers withheld because their check failed; must stay 0")
FIRST_STEP_SECONDS = _histogram(
    "abs_time_to_first_step_seconds", "From the request to the engine to the end of the first step", _LONG
)
STEP_SECONDS = _histogram("abs_step_duration_seconds", "A forward pass for all generations, and their search", _SHORT)
BATCH_SIZE = _histogram("abs_batch_size", "Rows of all generations in one forward pass", _ROWS)
OUT_OF_MEMORY = _counter("abs_out_of_memory_total", "Times that the memory of the model's device ran out", "action")
LAST_STEP = _gauge("abs_last_step_timestamp_seconds", "When the engine last ended a step")
# everything else
GPU_BYTES = _gauge("abs_gpu_memory_bytes", "Memory of the model's GPU; absent without one", "kind")
GROUP_SIZE = _gauge("abs_tensor_parallel_size", "Processes that share the model of this process's worker", "model")
RANKS_ALIVE = _gauge("abs_tensor_parallel_ranks_alive", "Those of them that are alive", "model")
REDIS_ERRORS = _counter("abs_redis_errors_total", "Failed calls to the Redis server", "op")
MODEL = _gauge("abs_model_info", "1, for each model that is served", "model", "revision", "tokenizer")
BUILD = _gauge("abs_build_info", "1, for this version; `compiler` is the format of its automata", "version", "compiler")

REJECTED_CODES = (429, 503)
for _result in ("hit", "miss", "negative", "corrupt"):
    CACHE.labels(_result)  # a rate of an event that never happened is 0, not absent
for _result in ("hit", "miss"):
    PROMPT_CHUNKS.labels(_result)
for _result in ("accepted", "rejected"):
    DRAFT_TOKENS.labels(_result)
for _action in ("batch_split", "restarted", "check_deferred", "rejected"):
    OUT_OF_MEMORY.labels(_action)


def cache(result: CacheResult) -> None:
    """Counts a look-up of a compiled constraint."""
    CACHE.labels(result).inc()


def prompt_chunk(found: bool) -> None:
    """Counts a look-up of a chunk of a prompt."""
    PROMPT_CHUNKS.labels("hit" if found else "miss").inc()


def drafts(drafted: int, accepted: int) -> None:
    """Counts the tokens of a draft."""
    DRAFT_TOKENS.labels("accepted").inc(accepted)
    DRAFT_TOKENS.labels("rejected").inc(drafted - accepted)


def redis_failed(op: str) -> None:
    """Counts a failed call to the server. `op` is a fixed name."""
    REDIS_ERRORS.labels(op).inc()


def serves(model: str, revision: str, tokenizer: str, compiler: int) -> None:
    """Sets a served model. `tokenizer` is the vocabulary's fingerprint, `compiler` the format of automata."""
    MODEL.labels(model, revision, tokenizer[:12]).set(1)
    BUILD.labels(__version__, str(compiler)).set(1)


def gpu(kinds: tuple[str, ...], read: Callable[[], Mapping[str, int]]) -> None:
    """Makes every scrape read the memory of a GPU, by kind."""
    for kind in kinds:
        GPU_BYTES.labels(kind).set_function(lambda kind=kind: read()[kind])  # type: ignore[misc]


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """The processes that share a model by tensor parallelism."""

    size: int
    alive: int


class GroupRegistry:
    """The models of this process, each with the processes that share it."""

    def __init__(self) -> None:
        self._groups: dict[str, tuple[int, Callable[[], int]]] = {}

    def add(self, model: str, size: int, alive: Callable[[], int]) -> None:
        """Show the processes of a model from now on. `alive` counts them, this process included."""
        self._groups[model] = size, alive
        GROUP_SIZE.labels(model).set(size)
        RANKS_ALIVE.labels(model).set_function(alive)

    def status(self) -> dict[str, GroupStatus]:
        """The groups of several processes, by model."""
        return {model: GroupStatus(size, alive()) for model, (size, alive) in self._groups.items() if size > 1}


GROUPS = GroupRegistry()


class HeartbeatRegistry:
    """The last heartbeat of each worker in this process. It holds the reason why a worker does not work."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: dict[str, tuple[float, str]] = {}
        self._loops: dict[str, tuple[float, str]] = {}

    def record_heartbeat(self, worker: str, reason: str) -> None:
        """Records a heartbeat that a worker sends to the broker. `reason` is empty if the worker takes jobs."""
        HEARTBEAT.labels(worker).set_to_current_time()
        with self._lock:
            self._last[worker] = time.monotonic(), reason

    def record_loop_alive(self, worker: str, problem: str) -> None:
        """Records that a worker's event loop runs. `problem` is that of its handler, or empty."""
        with self._lock:
            self._loops[worker] = time.monotonic(), problem

    def drop(self, worker: str) -> None:
        """Removes a worker that has ended."""
        with self._lock:
            self._loops.pop(worker, None)
            if self._last.pop(worker, None):
                HEARTBEAT.remove(worker)

    def reasons(self) -> tuple[str, ...]:
        """Why workers of this process take no jobs. A worker silent for `SILENT_S_MAX` seconds is a reason."""
        now = time.monotonic()
        with self._lock:
            last = dict(self._last)
        silent = {name: now - time_s for name, (time_s, _) in last.items() if now - time_s > SILENT_S_MAX}
        reasons = [f"{name}: {reason}" for name, (_, reason) in last.items() if reason and name not in silent]
        hangs = "it hangs, or the storage is away"
        reasons += [f"{name}: no sign of life for {seconds:.0f} s; {hangs}" for name, seconds in silent.items()]
        return tuple(reasons) if last else ("no worker runs yet",)

    def hung(self) -> tuple[str, ...]:
        """Problems that need a restart of the process. An unreachable server or a missing model needs none."""
        now = time.monotonic()
        with self._lock:
            loops = dict(self._loops)
        problems = []
        for name, (time_s, problem) in loops.items():
            if now - time_s > HUNG_S_MAX:
                problems.append(f"{name}: its event loop gave no sign for {now - time_s:.0f} s")
            elif problem:
                problems.append(f"{name}: {problem}")
        return tuple(problems)


BEATS = HeartbeatRegistry()


def exposition() -> bytes:
    """All metrics in the text format of Prometheus."""
    return generate_latest(REGISTRY)


@contextlib.contextmanager
def listening(settings: Settings, permits: Callable[[str, str], bool]) -> Iterator[None]:
    """Serve /metrics, /health, /live and /ready at `metrics_port` while the body runs.

    Without `metrics_port` nothing is served.

    permits  whether an Authorization header permits a path; only /metrics needs one

    /live reports whether the process must be restarted, /ready whether its workers take jobs. A separate thread
    answers, so it can report a worker whose event loop is blocked. Raises SettingsInvalid if the port is not free.
    """
    if not settings.telemetry.metrics_port:
        yield
        return
    host, port = settings.telemetry.metrics_host, settings.telemetry.metrics_port
    try:
        server, thread = start_http_server(port, host, CollectorRegistry())  # empty until the guard is in place
    except OSError as error:
        raise SettingsInvalid(f"ABS_METRICS_PORT: {host}:{port} is not available ({error.strerror})") from None
    # A connection that sends too slowly is closed.
    server.RequestHandlerClass = type("Handler", (server.RequestHandlerClass,), {"timeout": SLOW_S_MAX})  # type: ignore[arg-type]
    server.set_app(_probes_and_metrics(permits))
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _probes_and_metrics(permits: Callable[[str, str], bool]) -> WSGIApplication:
    """The application of the metrics port.

    /metrics is prometheus_client's, behind the check of the key.
    """
    expose: WSGIApplication = make_wsgi_app(REGISTRY)

    def app(request: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        path, reasons = request["PATH_INFO"], tuple[str, ...]()
        groups = dict[str, dict[str, int]]()
        match path:
            case "/metrics":
                if permits(path, request.get("HTTP_AUTHORIZATION", "")):
                    return expose(request, start_response)
                code, status = HTTPStatus.UNAUTHORIZED, "unauthorized"
            case "/health":
                code, status = HTTPStatus.OK, "ok"
            case "/live":
                code, status, reasons = _status("live", "hung", BEATS.hung())
            case "/ready":
                code, status, reasons = _status("ready", "not_ready", BEATS.reasons())
                groups = {model: asdict(group) for model, group in GROUPS.status().items()}
            case _:
                code, status = HTTPStatus.NOT_FOUND, "not_found"
        start_response(f"{code.value} {code.phrase}", [("content-type", "application/json")])
        body = {"status": status} | ({"reasons": reasons} if reasons else {}) | ({"groups": groups} if groups else {})
        return [json.dumps(body).encode()]

    return app


def _status(ok: str, failed: str, reasons: tuple[str, ...]) -> tuple[HTTPStatus, str, tuple[str, ...]]:
    return (HTTPStatus.SERVICE_UNAVAILABLE, failed, reasons) if reasons else (HTTPStatus.OK, ok, ())
