"""The settings of one process, read once. The only module that reads the environment."""

from __future__ import annotations

import dataclasses
import math
import os
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
DTYPES = ("auto", "float32", "bfloat16", "float16")
REGEX_ENGINES = ("native", "fado")
SECRET_BYTES_MIN = 16
MEASURED = 0  # of decode_memory_bytes: a share of what is free when the worker starts
_MAY_BE_ZERO = ("port", "decode_memory_bytes")


@dataclass(frozen=True, slots=True)
class Settings:
    """Every setting with its default; the variable of `beams_max` is ABS_BEAMS_MAX, and so on.

    model                a folder, or a Hugging Face name, of a causal language model
    store, broker        URLs; their schemes pick the implementations
    embedded_workers     the workers that run inside the API process; empty when they are processes of their own
    secret               signs stored automata; random for each process unless set, which suits an in-memory store
    dtype                precision of the model; "auto" is float32 on a CPU, else the checkpoint's own
    ltlf_engine          what turns formulas into automata: our own translation, or MONA, which must then be installed
    regex_engine         what turns patterns into automata: our own translation, or FAdo, from the extra `reference`
    decode_rows_max      rows of a matrix to be decoded, which are the labels of the answer
    decode_cells_max     rows times labels of such a matrix
    decode_paths_max     rows of the matrix times states of its constraint's automaton, 8 bytes each while it is decoded
    decode_memory_bytes  what all generations together may hold on the model's device; MEASURED takes a quarter of
                         what is free there once the model is loaded
    tables_bytes_max     what the tables of constraints may take there that are kept for further requests

    Raises SettingsInvalid, naming the variable, where a value is out of range.
    """

    model: str = BUILT_IN_MODEL
    host: str = "127.0.0.1"
    port: int = 8000
    store: str = "memory://"
    broker: str = "memory://"
    embedded_workers: tuple[str, ...] = QUEUES
    secret: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    device: str = "auto"
    dtype: str = "auto"
    log_level: str = "info"
    ltlf_engine: str = "native"
    regex_engine: str = "native"
    body_bytes_max: int = 2**20
    prompt_chars_max: int = 32_768
    text_chars_max: int = 32_768
    max_tokens_max: int = 512
    beams_max: int = 128
    n_max: int = 16
    beam_tokens_max: int = 16_384
    decode_rows_max: int = 4_096
    decode_cells_max: int = 2**17
    decode_paths_max: int = 2**21
    requests_at_once_max: int = 32
    decode_memory_bytes: int = MEASURED
    tables_bytes_max: int = 256 * 2**20
    deadline_s_default: float = 60.0
    deadline_s_max: float = 300.0
    picture_cells_max: int = 200_000
    queue_jobs_max: int = 256
    store_bytes_max: int = 512 * 2**20
    decoded_bytes_max: int = 256 * 2**20
    automaton_ttl_s: float = 7 * 86_400.0
    result_ttl_s: float = 600.0
    result_bytes_max: int = 64 * 2**20
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        for name in ("model", "host", "store", "broker", "device"):
            _require(bool(getattr(self, name)), name, "must not be empty")
        _require(0 <= self.port <= 65_535, "port", "must lie between 0 and 65535")
        for worker in self.embedded_workers:
            _require(worker in QUEUES, "embedded_workers", f"lists workers, each one of {', '.join(QUEUES)}")
        _require(len(self.secret) >= SECRET_BYTES_MIN, "secret", f"needs at least {SECRET_BYTES_MIN} characters")
        levels = ("debug", "info", "warning", "error")
        _require(self.log_level in levels, "log_level", f"must be one of {', '.join(levels)}")
        for name, known in (("ltlf_engine", LTLF_ENGINES), ("regex_engine", REGEX_ENGINES), ("dtype", DTYPES)):
            _require(getattr(self, name) in known, name, f"must be one of {', '.join(known)}")
        for holder in (self, self.limits):
            for name, value in _numbers(holder):
                _require(value >= 0 if name in _MAY_BE_ZERO else value > 0, name, "must be greater than 0")
                _require(math.isfinite(value), name, "must be finite")
        _require(self.deadline_s_default <= self.deadline_s_max, "deadline_s_default", "is over deadline_s_max")

    @property
    def model_id(self) -> str:
        """What the API calls the model: a folder's last name, or the whole name of a model of a hub."""
        folder = Path(self.model)
        return folder.resolve().name if folder.is_dir() else self.model


def _numbers(holder: object) -> list[tuple[str, float]]:
    """The numeric fields of a dataclass instance."""
    pairs = [(item.name, getattr(holder, item.name)) for item in dataclasses.fields(holder)]  # type: ignore[arg-type]
    return [(name, value) for name, value in pairs if isinstance(value, int | float)]


def _require(holds: bool, name: str, message: str) -> None:
    if not holds:
        raise SettingsInvalid(f"{PREFIX}{name.upper()} {message}")


def _parse(name: str, text: str, default: object) -> object:
    """The value of a variable, of the type of its default."""
    try:
        match default:
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
    except ValueError:
        wanted = "a whole number" if isinstance(default, int) else "a number"
        raise SettingsInvalid(f"{PREFIX}{name.upper()} must be {wanted}") from None


def _given(environment: Mapping[str, str], defaults: object) -> dict[str, object]:
    """The fields of a dataclass instance that the environment names, parsed."""
    names = [item.name for item in dataclasses.fields(defaults)]  # type: ignore[arg-type]
    variables = {name: environment.get(PREFIX + name.upper()) for name in names if name != "limits"}
    return {
        name: _parse(name, text, getattr(defaults, name)) for name, text in variables.items() if text is not None
    }


def read_settings(environment: Mapping[str, str] | None = None) -> Settings:
    """The settings that the environment (default: this process's) asks for."""
    source = os.environ if environment is None else environment
    limits = dataclasses.replace(Limits(), **_given(source, Limits()))  # type: ignore[arg-type]
    return dataclasses.replace(Settings(limits=limits), **_given(source, Settings()))  # type: ignore[arg-type]


def let_idle_threads_sleep() -> None:
    """Have the threads of PyTorch wait asleep, not spinning; works only before PyTorch is first imported.

    On two busy cores a spinning thread keeps the one it waits for off the core: a step of 15 ms was seen to take 1 s.
    Asleep they cost a few per cent at rest. A deployment that sets OMP_WAIT_POLICY itself is left alone.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def child_environment() -> dict[str, str]:
    """The environment of the processes that compile: where programs and their libraries lie, and nothing else of ours.

    Their libraries of linear algebra stay single-threaded, since only a process of one thread can be forked.
    """
    inherited = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
    threads = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    return inherited | dict.fromkeys(threads, "1")
