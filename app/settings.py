"""The settings of one process, read once. Beside `environment`, no other module reads the environment."""

from __future__ import annotations

import dataclasses
import os
import re
import secrets
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    create_model,
)

from app.errors import SettingsInvalid
from compiler.errors import nearest
from compiler.limits import Limits

PREFIX = "ABS_"
BUILT_IN = {name: str(Path(__file__).parent / "models" / name) for name in ("captions", "stories")}
BUILT_IN_MODEL = BUILT_IN["captions"]
SECRET_BYTES_MIN = 16  # of each value of ABS_SECRET
LEASE_S_MIN = 2.0  # a worker on a busy machine may be late by a second
MEASURED = 0  # of generation_memory_bytes: a share of what is free when the worker starts
FROM_FILES = ("secret", "broker", "store", "api_key")  # ABS_SECRET_FILE names a file that holds what ABS_SECRET would

Queue = Literal["compile", "generate"]
PublicPath = Literal["/ready", "/metrics", "/version", "/"]
QUEUES: tuple[Queue, ...] = get_args(Queue)
MAY_BE_PUBLIC: tuple[PublicPath, ...] = get_args(PublicPath)


def _split(value: object) -> object:
    """The parts of a variable's text; other values are passed on."""
    return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value


def _folders(models: tuple[str, ...]) -> tuple[str, ...]:
    """The models, built-in ones by their folders."""
    return tuple(model if Path(model).is_dir() else BUILT_IN.get(model, model) for model in models)


def _require_one_for_each(digests: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
    if digests and len(digests) != len(info.data.get("model", digests)):
        raise ValueError(f"should have one SHA-256 for each model of {PREFIX}MODEL")
    return digests


def _require_possible_timeout(value: float, info: ValidationInfo) -> float:
    if value > info.data.get("timeout_s_max", value):
        raise ValueError(f"should be at most {PREFIX}TIMEOUT_S_MAX")
    return value


def _require_long_keys(value: bytes) -> bytes:
    if any(len(key.strip()) < SECRET_BYTES_MIN for key in value.split(b",")):
        raise ValueError(f"should have at least {SECRET_BYTES_MIN} characters")
    return value


Text = Annotated[str, Field(min_length=1)]
Port = Annotated[int, Field(ge=0, le=65_535)]
Count = Annotated[int, Field(gt=0)]
Amount = Annotated[int, Field(ge=0)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Duration = Annotated[float, Field(ge=0, allow_inf_nan=False)]  # may be 0
Digests = Annotated[tuple[Annotated[str, Field(pattern="^[0-9a-f]{64}$")], ...], BeforeValidator(_split)]
Words = Annotated[tuple[str, ...], BeforeValidator(_split)]


def _setting(default: object, description: str, **rules: Any) -> Any:
    """A field of a group; docs/settings.md shows its description."""
    return Field(default, description=description, **rules)


class _Group(BaseModel):
    # Schemas are built when they are first used, so that help is fast.
    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, defer_build=True)


class InferenceSettings(_Group):
    """Model and generation."""

    model: Annotated[Words, Field(min_length=1), AfterValidator(_folders)] = _setting(
        (BUILT_IN_MODEL,), "causal language models, each by its folder, its Hugging Face name, or as `captions` or "
        "`stories`; a request's `model` selects one, the first is the default; `abs serve` alone has both of these")
    model_sha256: Annotated[Digests, AfterValidator(_require_one_for_each)] = _setting(
        (), "SHA-256 of each model's files as `abs doctor` prints it; a worker loads no other files; empty: any")
    device: Text = _setting("auto", "where the model runs: `cpu`, `cuda`, ...; `auto` takes a GPU where there is one")
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = _setting(
        "auto", "precision: `float32`, `bfloat16` or `float16`; `auto` is float32 on a CPU, else the checkpoint's")
    batch_invariant: bool = _setting(
        True, "whether an answer's last bits are the same whatever is served beside it, on a CPU; `no` makes requests "
        "of one row up to a third faster")
    tensor_parallel: Annotated[int, Field(ge=1, le=64)] = _setting(
        1, "processes that share the model of one worker by tensor parallelism, each with a part of every layer")
    cuda_graphs: bool = _setting(
        False, "replay the steps of searches on a GPU as CUDA graphs where their shapes repeat; not yet run on a GPU")
    adapters: Words = _setting(
        (), "LoRA adapters of the first model, which a request's `model` may name, as `name=folder` with commas "
        "between them")
    scorers: Words = _setting(
        (), "sequence models that requests to `/decode` may name, as `name=folder` with commas between them")
    chat_format: Literal[
        "auto", "harmony", "gemma4", "seed", "qwen-coder", "glm", "nemotron", "granite", "hermes", "mistral-args",
        "mistral", "mistral-v7", "deepseek-v3", "deepseek-v3.1", "kimi-k2", "command", "lfm2", "pythonic",
        "llama3-json", "plain",
    ] = _setting(
        "auto", "how the model writes tool calls: a format of docs/tools.md; `auto` finds it from the chat template")
    batch_requests_max: Count = _setting(32, "requests in the continuous batch")
    grammar_readings_max: Count = _setting(
        32, "readings of an unfinished text that are followed where a grammar is ambiguous; the same for all workers")
    witness_expansions_max: Count = _setting(
        128, "states that a row's step expands to find ways to the end, where a constraint is too large for one "
        "automaton; the same for all workers")
    generation_memory_bytes: Amount = _setting(
        MEASURED, "memory of a model's generations, of which one request may take seven eighths; 0: a quarter of what "
        "is free on its device after it is loaded")
    device_table_cache_bytes: Count = _setting(256 * 2**20, "constraints' tables kept on the device, for each model")
    prompt_cache_bytes: Amount = _setting(
        256 * 2**20, "what was read of prompts, kept for prompts that begin alike, for each model; 0: nothing")


class ProcessSettings(_Group):
    """Processes."""

    embedded_workers: Annotated[tuple[Queue, ...], BeforeValidator(_split)] = _setting(
        QUEUES, "workers inside the API process; empty where `abs worker` runs them as processes")
    data_dir: Text = _setting(
        "~/.local/state/abs", "folder in which `abs up` keeps its server's data, its secret and its logs")
    nice: Amount = _setting(0, "niceness of a worker process, see nice(1); `abs up` sets 10", le=19)
    stall_timeout_s: Seconds = _setting(60.0, "time without progress after which a worker counts as stuck")
    shutdown_grace_s: Duration = _setting(30.0, "time that a stopping process has to finish its running work")


class ServerSettings(_Group):
    """HTTP server."""

    host: Text = _setting("127.0.0.1", "address on which the service listens")
    port: Port = _setting(8000, "port on which the service listens; 0 takes a free one")
    behind_proxy: bool = _setting(
        False, "a proxy is in front, so there is no warning if the service listens beyond this machine")
    header_bytes_max: Count = _setting(16 * 2**10, "size of a request's header")
    header_fields_max: Count = _setting(64, "fields of a request's header")
    keep_alive_s: Seconds = _setting(30.0, "time that a connection may be idle")
    body_timeout_s: Seconds = _setting(30.0, "time in which a client sends its body")
    write_timeout_s: Seconds = _setting(30.0, "time that a client may not read its answer")
    body_bytes_max: Count = _setting(2**21, "size of a request's body")
    stream_grace_s: Duration = _setting(10.0, "time to reconnect to a stream before its request is cancelled")


class TelemetrySettings(_Group):
    """Logs, metrics and traces."""

    log_level: Literal["debug", "info", "warning", "error"] = _setting(
        "info", "lines of this level and above are written: `debug`, `info`, `warning` or `error`")
    log_format: Literal["text", "json"] = _setting("text", "lines of `text` or of `json` on standard error")
    metrics_host: Text = _setting("127.0.0.1", "address on which a worker process serves its metrics and health")
    metrics_port: Port = _setting(0, "port of the same; 0: none")
    otlp_endpoint: str = _setting(
        "", "URL to send traces to, by OTLP over HTTP; needs the extra `otel`; empty: no traces",
        pattern="^(https?://.*)?$")


class AuthSettings(_Group):
    """Access."""

    secret: Annotated[bytes, AfterValidator(_require_long_keys)] = Field(
        default_factory=lambda: secrets.token_hex(32).encode(), repr=False, description=(
            "signs jobs, answers and stored automata; at least 16 characters, the same for all processes; after a "
            "comma may follow former or future values that are accepted, too"))
    keys_file: str = _setting("", "API keys as `abs keys new` writes them; empty: no key is needed")
    allow_unauthenticated: bool = _setting(False, "serve beyond this machine without keys")
    public_paths: Annotated[tuple[PublicPath, ...], BeforeValidator(_split)] = _setting(
        (), "paths that need no key: `/ready`, `/metrics`, `/version`, `/` (the playground)")
    allowed_hosts: Words = _setting(
        (), "accepted Host headers, `*` for any; empty: this machine's names, or any with `ABS_KEYS_FILE`")
    allowed_origins: Words = _setting((), "origins whose pages may send requests; empty: the service's own")
    api_key: str = _setting("", "key that `abs --url` sends", repr=False)
    key_requests_per_minute: Amount = _setting(60, "requests of one key, unless the key has its own share; 0: no limit")
    key_concurrency_max: Amount = _setting(8, "concurrent requests of one key; 0: no limit")
    key_beam_tokens_per_minute: Amount = _setting(50_000, "beams times tokens of one key, its fair share; 0: no limit")
    key_pending_compiles_max: Amount = _setting(
        2, "constraints of one key that are compiled or wait for it; 0: no limit")
    key_store_bytes_max: Amount = _setting(
        128 * 2**20, "stored constraints of one key; more evicts its oldest; 0: no limit")


class RequestSettings(_Group):
    """Requests."""

    prompt_chars_max: Amount = _setting(0, "length of a prompt; 0: what the model's context holds")
    text_chars_max: Count = _setting(32_768, "length of a text to check")
    beams_max: Amount = _setting(0, "largest `beams`; 0: as many as memory carries")
    n_max: Count = _setting(16, "largest `n`")
    matrix_rows_max: Count = _setting(4_096, "rows of the matrix of `/decode`, or labels with the prefix")
    matrix_cells_max: Count = _setting(2**17, "rows times labels of that matrix")
    matrix_states_max: Count = _setting(
        2**21, "rows times states of the constraint's automaton, 8 bytes each during decoding")
    timeout_s_max: Seconds = _setting(300.0, "largest `timeout_s`")
    timeout_s_default: Annotated[Seconds, AfterValidator(_require_possible_timeout)] = _setting(
        60.0, "`timeout_s` of a request that has none")
    unknown_fields: Literal["ignore", "refuse"] = _setting(
        "ignore", "unknown fields of requests below `/v1` that cannot be meant as constraints: `ignore` and name them "
        "in `X-Ignored-Fields`, or `refuse`")
    automaton_view_cells_max: Count = _setting(200_000, "largest states times letters that `GET /automata` draws")


class StorageSettings(_Group):
    """Storage."""

    store: Text = _setting(
        "memory://",
        "where automata are stored: `redis://`, `rediss://`, `unix://`, `redis+sentinel://`, `rediss+sentinel://` or "
        "`memory://`")
    broker: Text = _setting("memory://", "where jobs are queued: the same kinds of URL")
    redis_wait_s: Seconds = _setting(
        5.0, "time that a request waits for a server of jobs and automata that does not answer")
    redis_replicas_min: Amount = _setting(
        0, "replicas that must have a job or result before it is acknowledged; 0: none")
    allow_non_persistent_redis: bool = _setting(
        False, "accept a server without persistence, which loses all jobs when it ends")


class QueueSettings(_Group):
    """Queues and jobs."""

    pending_compiles_max: Count = _setting(100, "constraints of all keys that are compiled or wait for it")
    queue_jobs_max: Count = _setting(256, "jobs that wait in one queue")
    queue_weight_max: Count = _setting(
        1_000_000, "rows times tokens of all jobs that wait, for a search beams times `max_tokens`")
    job_lease_s: Seconds = _setting(
        30.0, "time without a heartbeat after which another worker takes the job; at least 2", ge=LEASE_S_MIN)
    job_attempts_max: Count = _setting(3, "attempts before a job whose workers died fails with `worker_lost`")


class RetentionSettings(_Group):
    """Retention."""

    store_bytes_max: Count = _setting(
        512 * 2**20, "compiled constraints in `memory://`, the least recently used evicted first")
    store_value_bytes_max: Count = _setting(32 * 2**20, "size of one automaton on a server")
    automaton_cache_bytes: Count = _setting(256 * 2**20, "compiled constraints that a process keeps decoded")
    automaton_ttl_s: Seconds = _setting(7 * 86_400.0, "time that an automaton is kept after its last use")
    result_ttl_s: Seconds = _setting(600.0, "time that a result is kept")
    idempotency_ttl_s: Seconds = _setting(86_400.0, "time that an answer is kept under its Idempotency-Key")
    result_bytes_max: Count = _setting(64 * 2**20, "all kept results for which no request waits")
    answer_bytes_max: Count = _setting(8 * 2**20, "size of one result")


class EngineSettings(_Group):
    """Engines."""

    ltlf_engine: Literal["native", "mona"] = _setting(
        "native", "translates formulas: `native`, or `mona`, which must be on PATH")
    regex_engine: Literal["native", "fado"] = _setting(
        "native", "translates patterns: `native`, or `fado`, which `make test` and `make reference` install")


class Settings(_Group):
    """All settings in groups. The variable of `requests.beams_max` is ABS_BEAMS_MAX.

    A name occurs in one group only. `python -m docs.tools.settings_page` makes docs/settings.md from the groups.
    """

    inference: InferenceSettings = Field(default_factory=InferenceSettings)
    process: ProcessSettings = Field(default_factory=ProcessSettings)
    server: ServerSettings = Field(default_factory=ServerSettings)
    telemetry: TelemetrySettings = Field(default_factory=TelemetrySettings)
    auth: AuthSettings = Field(default_factory=AuthSettings)
    requests: RequestSettings = Field(default_factory=RequestSettings)
    storage: StorageSettings = Field(default_factory=StorageSettings)
    queue: QueueSettings = Field(default_factory=QueueSettings)
    retention: RetentionSettings = Field(default_factory=RetentionSettings)
    engines: EngineSettings = Field(default_factory=EngineSettings)
    limits: Limits = Field(default_factory=Limits)

    @classmethod
    def of(cls, **values: object) -> Settings:
        """Settings with these values and defaults for all others.

        The names are those of the groups' fields. The environment is not read.
        """
        groups: dict[str, dict[str, object]] = {}
        for name, value in values.items():
            groups.setdefault(GROUP_OF[name], {})[name] = value
        try:
            return cls.model_validate(groups)
        except ValidationError as error:
            raise SettingsInvalid("\n".join(_faults(error))) from None

    def values(self) -> dict[str, object]:
        """The values of all groups by name."""
        return {name: getattr(getattr(self, group), name) for name, group in GROUP_OF.items()}

    def changed(self, **values: object) -> Settings:
        """These settings with other values."""
        return Settings.of(**self.values() | values)


def _definitions() -> dict[str, dict[str, Any]]:
    """The fields of each group by name, as `create_model` takes them."""
    groups: dict[str, dict[str, Any]] = {
        name: {item: (field.rebuild_annotation(), field) for item, field in group.annotation.model_fields.items()}
        for name, group in Settings.model_fields.items()
        if group.annotation not in (None, Limits)
    }
    caps = {
        cap.name: (Count if isinstance(cap.default, int) else Seconds, Field(cap.default, **cap.metadata))
        for cap in dataclasses.fields(Limits)
    }
    return groups | {"limits": caps}


DEFINITIONS = _definitions()
GROUP_OF = {name: group for group, fields in DEFINITIONS.items() for name in fields}


def _faults(error: ValidationError) -> list[str]:
    """One line for each value at fault.

    It has the variable, the rule and the remedy, but not the value, which may be secret.
    """
    lines = []
    for fault in error.errors(include_url=False, include_input=False, include_context=False):
        name = next(part for part in fault["loc"] if part in GROUP_OF)
        rule = re.sub(r"^(Input|String|Data|Value error,) ", "", fault["msg"])
        lines.append(f"{PREFIX}{str(name).upper()} {rule}; correct it or unset it")
    return lines


def _texts_of_files(faults: list[str]) -> dict[str, str]:
    """The settings that come from the files of variables such as ABS_SECRET_FILE."""
    texts: dict[str, str] = {}
    for name in FROM_FILES:
        variable = PREFIX + name.upper()
        file = os.environ.get(f"{variable}_FILE")
        if file is None:
            continue
        if variable in os.environ:
            faults.append(f"{variable} and {variable}_FILE are both set; unset one of them")
        try:
            texts[name] = Path(file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            faults.append(f"{variable}_FILE names a file that cannot be read: {file} ({reason})")
    return texts


def read_settings(**options: object) -> Settings:
    """The settings of the environment; options of a command line precede it.

    Raises SettingsInvalid, which has a line for each variable at fault.
    """
    from pydantic_settings import BaseSettings, SettingsConfigDict  # imported here, so that help is fast

    class Variables(BaseSettings):
        model_config = SettingsConfigDict(env_prefix=PREFIX, enable_decoding=False, validate_default=True)

    # A misspelled variable would have no effect. Other software may use names that are less similar.
    known = {f"{PREFIX}{name.upper()}{end}" for name in GROUP_OF for end in ("", "_FILE" if name in FROM_FILES else "")}
    similar = {name: nearest(name, known) for name in os.environ.keys() - known if name.startswith(PREFIX)}
    faults = [f"{name} is no setting; did you mean {near}? Rename it" for name, near in similar.items() if near]
    texts = _texts_of_files(faults)
    fields = {name: definition for group in DEFINITIONS.values() for name, definition in group.items()}
    try:
        variables = create_model("Variables", __base__=Variables, **fields)(**texts | options)
    except ValidationError as error:
        faults += _faults(error)
    if faults:
        raise SettingsInvalid("\n".join(faults))
    return Settings.of(**variables.model_dump(exclude_unset=True))


def is_set(name: str, prefix: str = PREFIX) -> bool:
    """Whether the environment names a setting, or another variable with another prefix."""
    return prefix + name.upper() in os.environ
