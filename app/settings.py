"""The settings of one process, read once. The only module that reads the environment."""

from __future__ import annotations

import dataclasses
import functools
import math
import os
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from app.errors import SettingsInvalid
from compiler.limits import Limits

PREFIX = "ABS_"
BUILT_IN_MODEL = str(Path(__file__).parent / "models" / "captions")
QUEUES = ("compile", "generate")
LTLF_ENGINES = ("native", "mona")
LOG_LEVELS = ("debug", "info", "warning", "error")
LOG_FORMATS = ("text", "json")
DTYPES = ("auto", "float32", "bfloat16", "float16")
REGEX_ENGINES = ("native", "fado")
SECRET_BYTES_MIN = 16
LEASE_S_MIN = 2.0  # a worker on a busy machine may be late by a second
MEASURED = 0  # of generation_memory_bytes: a share of what is free when the worker starts
NICE_MAX = 19
_MAY_BE_ZERO = (
    "nice", "port", "metrics_port", "generation_memory_bytes", "stream_grace_s", "shutdown_grace_s",
    "redis_replicas_min",
)
KEY_LIMITS = (  # 0 is without limit
    "key_requests_per_minute", "key_concurrency_max", "key_beam_tokens_per_minute", "key_pending_compiles_max",
    "key_store_bytes_max",
)
MAY_BE_PUBLIC = ("/ready", "/metrics", "/version", "/")
_TRUTHS = {"yes": True, "true": True, "1": True, "on": True, "no": False, "false": False, "0": False, "off": False}
FROM_FILES = ("secret", "broker", "store", "api_key")  # ABS_SECRET_FILE names a file that holds what ABS_SECRET would

RENAMED = {  # former names, which stop the start: otherwise an old setting would be ignored silently
    "decode_memory_bytes": "generation_memory_bytes", "decoded_bytes_max": "automaton_cache_bytes",
    "decode_rows_max": "matrix_rows_max", "decode_cells_max": "matrix_cells_max",
    "decode_paths_max": "matrix_states_max", "tables_bytes_max": "device_table_cache_bytes",
    "stuck_s": "stall_timeout_s", "blocked_s_max": "write_timeout_s", "header_s_max": "header_timeout_s",
    "body_s_max": "body_timeout_s", "idle_s_max": "keep_alive_s", "drain_s": "shutdown_grace_s",
    "deadline_s_default": "timeout_s_default", "deadline_s_max": "timeout_s_max",
    "key_at_once_max": "key_concurrency_max", "requests_at_once_max": "batch_requests_max",
    "compilations_max": "pending_compiles_max", "key_compilations_max": "key_pending_compiles_max",
    "read_chars_max": "formulas_chars_max", "picture_cells_max": "automaton_view_cells_max",
    "job_tries_max": "job_attempts_max", "redis_volatile": "allow_non_persistent_redis",
    "storage_wait_s": "redis_wait_s", "open": "allow_unauthenticated", "hosts": "allowed_hosts",
    "origins": "allowed_origins",
}


@dataclass(frozen=True, slots=True)
class Settings:
    """Every setting with its default; `beams_max` is the variable ABS_BEAMS_MAX.

    `python -m docs.tools.settings_page` makes docs/settings.md from the lines below and from those of Limits.

    Model:
      model                       folder or Hugging Face name of a causal language model
      model_sha256                SHA-256 of the model's files as `abs doctor` prints it; a worker loads no other files;
                                  empty: any
      device                      where the model runs: `cpu`, `cuda`, ...; `auto` takes a GPU where there is one
      dtype                       precision: `float32`, `bfloat16` or `float16`; `auto` is float32 on a CPU, else the
                                  checkpoint's
    Service and processes:
      host                        address on which the service listens
      port                        port on which the service listens; 0 takes a free one
      store                       where automata are stored: `redis://`, `rediss://`, `unix://`,
                                  `redis+sentinel://`, `rediss+sentinel://` or `memory://`
      broker                      where jobs are queued: the same kinds of URL
      embedded_workers            workers inside the API process; empty where `abs worker` runs them as processes
      secret                      signs stored automata; at least 16 characters, the same for all processes
      data_dir                    folder in which `abs up` keeps its server's data, its secret and its logs
      nice                        niceness of a worker process, see nice(1); `abs up` sets 10
      stall_timeout_s             time without progress after which a worker counts as stuck
      shutdown_grace_s            time that a stopping process has to finish its running work
    Logs, metrics and traces:
      log_level                   `debug`, `info`, `warning` or `error`
      log_format                  lines of `text` or of `json` on standard error
      metrics_host                address on which a worker process serves its metrics and health
      metrics_port                port of the same; 0: none
      otlp_endpoint               URL to send traces to, by OTLP over HTTP; needs the extra `otel`; empty: no traces
    Access:
      keys_file                   API keys as `abs keys new` writes them; empty: no key is needed
      allow_unauthenticated       serve beyond this machine without keys
      public_paths                paths that need no key: `/ready`, `/metrics`, `/version`, `/` (the playground)
      allowed_hosts               accepted Host headers, `*` for any; empty: this machine's names, or any with
                                  `ABS_KEYS_FILE`
      allowed_origins             origins whose pages may send requests; empty: the service's own
      api_key                     key that `abs --url` sends
      key_requests_per_minute     requests of one key, unless the key has its own share; 0: no limit
      key_concurrency_max         concurrent requests of one key; 0: no limit
      key_beam_tokens_per_minute  beams times tokens of one key; 0: no limit
      key_pending_compiles_max    constraints of one key that are compiled or wait for it; 0: no limit
      key_store_bytes_max         stored constraints of one key; more evicts its oldest; 0: no limit
    Connections:
      connections_max             open connections
      header_bytes_max            size of a request's header
      header_fields_max           fields of a request's header
      header_timeout_s            time in which a client sends its header
      keep_alive_s                time that a connection may be idle
      body_timeout_s              time in which a client sends its body
      write_timeout_s             time that a client may not read its answer
      body_bytes_max              size of a request's body
    Requests:
      prompt_chars_max            length of a prompt
      text_chars_max              length of a text to check
      max_tokens_max              largest `max_tokens`
      beams_max                   largest `beams`
      n_max                       largest `n`
      beam_tokens_max             largest `beams` times `max_tokens`
      matrix_rows_max             rows of the matrix of `/decode`, which are the labels of the answer
      matrix_cells_max            rows times labels of that matrix
      matrix_states_max           rows times states of the constraint's automaton, 8 bytes each during decoding
      timeout_s_default           `timeout_s` of a request that has none
      timeout_s_max               largest `timeout_s`
      automaton_view_cells_max    largest states times letters that `GET /automata` draws
    Generation:
      batch_requests_max          requests in the continuous batch
      generation_memory_bytes     memory of all generations on the model's device; 0: a quarter of what is free after
                                  the model is loaded
      device_table_cache_bytes    constraints' tables kept on the device for further requests
    Queue and jobs:
      pending_compiles_max        constraints of all keys that are compiled or wait for it
      queue_jobs_max              jobs that wait in one queue
      queue_weight_max            rows times tokens of all jobs that wait, for a search beams times `max_tokens`
      job_lease_s                 time without a heartbeat after which another worker takes the job; at least 2
      job_attempts_max            attempts before a job whose workers died fails with `worker_lost`
      stream_grace_s              time that a stream's reader has to reconnect before the request is cancelled
      redis_wait_s                time that a request waits for a server of jobs and automata that does not answer
      redis_replicas_min          replicas that must have a job or result before it is acknowledged; 0: none
      allow_non_persistent_redis  accept a server without persistence, which loses all jobs when it ends
    What is kept:
      store_bytes_max             compiled constraints in `memory://`, the least recently used evicted first
      store_value_bytes_max       size of one automaton on a server
      automaton_cache_bytes       compiled constraints that a process keeps decoded
      automaton_ttl_s             time that an automaton is kept after its last use
      result_ttl_s                time that a result is kept
      idempotency_ttl_s           time that an answer is kept under its Idempotency-Key
      result_bytes_max            all kept results for which no request waits
      answer_bytes_max            size of one result
    Engines:
      ltlf_engine                 translates formulas: `native`, or `mona`, which must be on PATH
      regex_engine                translates patterns: `native`, or `fado`, which `make test` and `make reference`
                                  install

    Raises SettingsInvalid, naming the variable, where a value is out of range.
    """

    model: str = BUILT_IN_MODEL
    model_sha256: str = ""
    host: str = "127.0.0.1"
    port: int = 8000
    store: str = "memory://"
    broker: str = "memory://"
    embedded_workers: tuple[str, ...] = QUEUES
    secret: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    device: str = "auto"
    dtype: str = "auto"
    log_level: str = "info"
    log_format: str = "text"
    metrics_host: str = "127.0.0.1"
    metrics_port: int = 0
    otlp_endpoint: str = ""
    nice: int = 0
    stall_timeout_s: float = 60.0
    ltlf_engine: str = "native"
    regex_engine: str = "native"
    keys_file: str = ""
    allow_unauthenticated: bool = False
    public_paths: tuple[str, ...] = ()
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    data_dir: str = "~/.local/state/abs"
    api_key: str = field(default="", repr=False)
    key_requests_per_minute: int = 60
    key_concurrency_max: int = 8
    key_beam_tokens_per_minute: int = 50_000
    key_pending_compiles_max: int = 2
    key_store_bytes_max: int = 128 * 2**20
    connections_max: int = 1_000
    header_bytes_max: int = 16 * 2**10
    header_fields_max: int = 64
    header_timeout_s: float = 10.0
    keep_alive_s: float = 30.0
    body_timeout_s: float = 30.0
    write_timeout_s: float = 30.0
    body_bytes_max: int = 2**20
    prompt_chars_max: int = 32_768
    text_chars_max: int = 32_768
    max_tokens_max: int = 512
    beams_max: int = 128
    n_max: int = 16
    beam_tokens_max: int = 16_384
    matrix_rows_max: int = 4_096
    matrix_cells_max: int = 2**17
    matrix_states_max: int = 2**21
    batch_requests_max: int = 32
    generation_memory_bytes: int = MEASURED
    device_table_cache_bytes: int = 256 * 2**20
    timeout_s_default: float = 60.0
    timeout_s_max: float = 300.0
    automaton_view_cells_max: int = 200_000
    pending_compiles_max: int = 100
    queue_jobs_max: int = 256
    queue_weight_max: int = 1_000_000
    stream_grace_s: float = 10.0
    shutdown_grace_s: float = 30.0
    idempotency_ttl_s: float = 86_400.0
    job_lease_s: float = 30.0
    job_attempts_max: int = 3
    redis_wait_s: float = 5.0
    store_value_bytes_max: int = 16 * 2**20
    redis_replicas_min: int = 0
    allow_non_persistent_redis: bool = False
    store_bytes_max: int = 512 * 2**20
    automaton_cache_bytes: int = 256 * 2**20
    automaton_ttl_s: float = 7 * 86_400.0
    result_ttl_s: float = 600.0
    result_bytes_max: int = 64 * 2**20
    answer_bytes_max: int = 8 * 2**20
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        for name in ("model", "host", "metrics_host", "store", "broker", "device", "data_dir"):
            _require(bool(getattr(self, name)), name, "must not be empty")
        pinned = not self.model_sha256 or re.fullmatch(r"[0-9a-f]{64}", self.model_sha256)
        _require(bool(pinned), "model_sha256", "must be 64 hexadecimal digits in lower case, as abs doctor shows them")
        for name in ("port", "metrics_port"):
            _require(0 <= getattr(self, name) <= 65_535, name, "must lie between 0 and 65535")
        _require(self.nice <= NICE_MAX, "nice", f"must lie between 0 and {NICE_MAX}")
        traced = not self.otlp_endpoint or self.otlp_endpoint.startswith(("http://", "https://"))
        _require(traced, "otlp_endpoint", "must be a URL that begins with http:// or https://")
        for worker in self.embedded_workers:
            _require(worker in QUEUES, "embedded_workers", f"lists workers, each one of {', '.join(QUEUES)}")
        _require(len(self.secret) >= SECRET_BYTES_MIN, "secret", f"needs at least {SECRET_BYTES_MIN} characters")
        for name, choices in (("log_level", LOG_LEVELS), ("ltlf_engine", LTLF_ENGINES), ("regex_engine", REGEX_ENGINES),
                              ("dtype", DTYPES), ("log_format", LOG_FORMATS)):
            _require(getattr(self, name) in choices, name, f"must be one of {', '.join(choices)}")
        for holder in (self, self.limits):
            for name, value in _numbers(holder):
                holds = value >= 0 if name in (*_MAY_BE_ZERO, *KEY_LIMITS) else value > 0
                _require(holds, name, "must be greater than 0")
                _require(math.isfinite(value), name, "must be finite")
        _require(self.job_lease_s >= LEASE_S_MIN, "job_lease_s", f"must be at least {LEASE_S_MIN:g}")
        for path in self.public_paths:
            _require(path in MAY_BE_PUBLIC, "public_paths", f"lists paths, each one of {', '.join(MAY_BE_PUBLIC)}")
        _require(self.timeout_s_default <= self.timeout_s_max, "timeout_s_default", "is over timeout_s_max")

    @property
    def model_id(self) -> str:
        """The model's name in the API. It is a folder's last name, or the whole name of a model of a hub."""
        return _model_id(self.model)


@functools.lru_cache(maxsize=16)  # read by every request
def _model_id(model: str) -> str:
    folder = Path(model)
    return folder.resolve().name if folder.is_dir() else model


def _numbers(holder: object) -> list[tuple[str, float]]:
    """The numeric fields of a dataclass instance."""
    pairs = [(item.name, getattr(holder, item.name)) for item in dataclasses.fields(holder)]  # type: ignore[arg-type]
    return [(name, value) for name, value in pairs if isinstance(value, int | float) and not isinstance(value, bool)]


def _require(holds: bool, name: str, message: str) -> None:
    if not holds:
        raise SettingsInvalid(f"{PREFIX}{name.upper()} {message}")


def _parse(name: str, text: str, default: object) -> object:
    """The value of a variable, of the type of its default."""
    try:
        match default:
            case bool():
                return _TRUTHS[text.strip().lower()]
            case bytes():
                return text.encode()
            case int():
                return int(text)
            case float():
                return float(text)
            case tuple():
                return tuple(part.strip() for part in text.split(",") if part.strip())
            case _:
                return text
    except KeyError:
        raise SettingsInvalid(f"{PREFIX}{name.upper()} must be yes or no") from None
    except ValueError:
        kind = "a whole number" if isinstance(default, int) else "a number"
        raise SettingsInvalid(f"{PREFIX}{name.upper()} must be {kind}") from None


def _overrides(environment: Mapping[str, str], defaults: object) -> dict[str, object]:
    """The fields of a dataclass instance that the environment names, parsed."""
    names = [item.name for item in dataclasses.fields(defaults)]  # type: ignore[arg-type]
    variables = {name: _variable_text(environment, name) for name in names if name != "limits"}
    return {
        name: _parse(name, text, getattr(defaults, name)) for name, text in variables.items() if text is not None
    }


def _variable_text(environment: Mapping[str, str], name: str) -> str | None:
    """The text of a variable. It may come from the file that ABS_..._FILE names."""
    variable = PREFIX + name.upper()
    file = environment.get(f"{variable}_FILE") if name in FROM_FILES else None
    if file is None:
        return environment.get(variable)
    if variable in environment:
        raise SettingsInvalid(f"{variable} and {variable}_FILE are both set: unset one of them")
    try:
        return Path(file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise SettingsInvalid(f"{variable}_FILE names a file that cannot be read: {file} ({reason})") from None


def read_settings(environment: Mapping[str, str] | None = None) -> Settings:
    """The settings that the environment (default: this process's) asks for."""
    source = os.environ if environment is None else environment
    for former, name in RENAMED.items():
        if f"{PREFIX}{former.upper()}" in source:
            raise SettingsInvalid(f"{PREFIX}{former.upper()} was renamed: set {PREFIX}{name.upper()} instead")
    limits = dataclasses.replace(Limits(), **_overrides(source, Limits()))  # type: ignore[arg-type]
    return dataclasses.replace(Settings(limits=limits), **_overrides(source, Settings()))  # type: ignore[arg-type]


def let_idle_threads_sleep() -> None:
    """Make idle threads of PyTorch sleep, not spin. It works only before PyTorch is first imported.

    On two busy cores a spinning thread keeps the one it waits for off the core: a step of 15 ms was seen to take 1 s.
    Asleep they cost a few per cent at rest. A deployment that sets OMP_WAIT_POLICY itself is left alone.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def is_set(name: str) -> bool:
    """Whether the environment names a setting."""
    return PREFIX + name.upper() in os.environ


def environment_with(values: Mapping[str, str], without: tuple[str, ...] = ()) -> dict[str, str]:
    """This process's environment with some variables set and some removed."""
    return {name: text for name, text in os.environ.items() if name not in without} | dict(values)


def child_environment() -> dict[str, str]:
    """The environment of the processes that compile.

    It has the paths of programs and libraries, and none of our settings. Libraries of linear algebra stay
    single-threaded, since only a process of one thread can be forked.
    """
    inherited = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
    threads = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    return inherited | dict.fromkeys(threads, "1")
