"""Looks at all that the service needs, and says what is wrong and what to do about it. Owns the checks and their table.

Nothing is changed, and no secret is shown. A check that breaks is a finding, and never the end of the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import importlib.metadata
import itertools
import os
import resource
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from rich.console import Console
from rich.table import Table
from rich.text import Text

from abs_client import AbsError
from app import __version__
from app.auth import read_keys
from app.cli.demo import REQUESTS
from app.cli.in_process import CreateApp, in_process
from app.errors import AppError, ModelChanged
from app.http_server import require_guarded
from app.models import digest_of, digests_of, model_files, open_model_files, require_meant
from app.settings import MEASURED, QUEUES, Settings
from app.wiring import check_storage, describe_device
from compiler.engines import open_engines
from compiler.errors import EngineFailure

OK: Literal["ok"] = "ok"
State = Literal["ok", "warning", "failed"]
STYLES = {"ok": "green", "warning": "yellow", "failed": "red"}
ALWAYS = ("fastapi", "uvicorn", "pydantic", "numpy", "prometheus-client")
WORKS = {"generate": ("torch", "transformers", "tokenizers")}
WEIGHTS = ("*.safetensors", "*.bin")
HASHED_BYTES_MAX = 2**30  # of weights, unless all is to be looked at
FILES_MIN = 1_024  # open files that a process may have: each stream takes one
CLOCK_S_MAX = 5.0  # that two clocks may differ: deadlines and the ends of keys go by them
DEEP_S_MAX = 300.0
ADVICE = {  # where a check ends in an error, which says what is wrong
    "engines": "install what is missing, or set ABS_LTLF_ENGINE and ABS_REGEX_ENGINE to native",
    "model": "set ABS_MODEL to a folder, or to the name, of a causal language model",
    "device": "set ABS_DEVICE=auto, or to a device that PyTorch has here",
    "storage": "start the server, or set ABS_BROKER and ABS_STORE to where it is; see deploy/redis",
    "keys": "correct the file, or make one: abs keys new NAME",
    "round trip": "look at what the service writes to its log when it starts",
}
CONNECT_S_MAX = 3.0
GIB = 2**30


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check came to. `advice` says what to do, empty where all is well."""

    check: str
    state: State
    detail: str
    advice: str = ""


Check = Callable[[Settings], Iterator[Finding]]


def examine(read: Callable[[], Settings], create_app: CreateApp, deep: bool) -> list[Finding]:
    """All findings. `read` reads the settings: where they are invalid, what depends on them is left out.

    deep  load the model, compile and generate as well, and read all of the weights
    """
    findings = list(_python())
    try:
        settings = read()
    except AppError as error:
        return [*findings, Finding("settings", "failed", str(error), "set the variable as it says, or unset it")]
    findings.append(Finding("settings", OK, _settings_told(settings)))
    for name, check in CHECKS.items():
        findings += _findings(name, check, settings)
    if deep:
        findings = [finding for finding in findings if finding.check != "weights"]
        findings += _findings("weights", _weights, settings)
        findings += _findings("round trip", lambda chosen: _round_trip(create_app, chosen), settings)
    return findings


def show(console: Console, findings: list[Finding]) -> None:
    """The findings as a table, and what they come to."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("check", "state", "what was found, and what to do"):
        table.add_column(name, overflow="fold")
    for finding in findings:
        words = Text(finding.detail)
        if finding.advice:
            words.append(f"\n→ {finding.advice}", style="bold")
        table.add_row(finding.check, Text(finding.state, style=STYLES[finding.state]), words)
    console.print(table)
    counts = {state: sum(finding.state == state for finding in findings) for state in STYLES}
    console.print(f"{counts['ok']} ok, {counts['warning']} warnings, {counts['failed']} failed", style="dim")


def _findings(name: str, check: Check, settings: Settings) -> list[Finding]:
    """A check's findings, up to the error that it ends in, if it does."""
    findings: list[Finding] = []
    try:
        findings.extend(check(settings))
    except (AppError, EngineFailure) as error:
        findings.append(Finding(name, "failed", str(error), ADVICE.get(name, "")))
    except Exception as error:  # an error of a library, shown with its class
        findings.append(Finding(name, "failed", f"{type(error).__name__}: {error}", ADVICE.get(name, "")))
    return findings


def _python() -> Iterator[Finding]:
    yield Finding("python", OK, f"{sys.version.split()[0]}; abs-server {__version__}")


def _settings_told(settings: Settings) -> str:
    """What is set that is no default; of what may hold a secret only that it is set."""
    plain = Settings(secret=settings.secret)
    hidden = ("secret", "broker", "store", "api_key")
    names = [item.name for item in dataclasses.fields(settings)]
    changed = [name for name in names if getattr(settings, name) != getattr(plain, name)]
    told = [name if name in hidden else f"{name} = {getattr(settings, name)}" for name in changed if name != "limits"]
    return "as by default, but " + ", ".join(told) if told else "all as by default"


def _packages(settings: Settings) -> Iterator[Finding]:
    """What is installed; what is not is missed only where the settings need it."""
    here = {name: _version(name) for name in (*ALWAYS, *WORKS["generate"], "coredis", "streaq", "lemminflect")}
    yield Finding("packages", OK, ", ".join(f"{name} {version}" for name, version in here.items() if version))
    missing = [name for name in WORKS["generate"] if here[name] is None]
    if missing and "generate" in settings.embedded_workers:
        yield Finding(
            "packages", "failed", f"{', '.join(missing)}: not installed, but a generate worker is to run here",
            "pip install 'abs-server[inference]', or set ABS_EMBEDDED_WORKERS without generate",
        )
    remote = any(not url.startswith("memory:") for url in (settings.broker, settings.store))
    if remote and None in (here["coredis"], here["streaq"]):
        yield Finding("packages", "failed", "coredis or streaq is not installed", "pip install 'abs-server[redis]'")
    if here["lemminflect"] is None:
        yield Finding("packages", "warning", "lemminflect is not installed: keywords with `inflect` are refused",
                      "pip install 'abs-server[compile]', if that is wanted")


def _version(name: str) -> str | None:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(name)
    return None


def _engines(settings: Settings) -> Iterator[Finding]:
    """The outside engines: needed where the settings choose them, worth a word where they are there."""
    open_engines(settings.ltlf_engine, settings.regex_engine)
    mona = shutil.which("mona")
    if settings.ltlf_engine == "mona" and mona is None:
        yield Finding("engines", "failed", "ABS_LTLF_ENGINE is mona, and there is no program mona on PATH",
                      "install MONA, or set ABS_LTLF_ENGINE=native")
        return
    optional = f"mona {'at ' + mona if mona else 'absent'}, FAdo {_version('FAdo') or 'absent'} (both optional)"
    yield Finding("engines", OK, f"formulas: {settings.ltlf_engine}, patterns: {settings.regex_engine}; {optional}")


def _model(settings: Settings) -> Iterator[Finding]:
    files = open_model_files(settings.model)
    vocabulary, context = files.vocabulary, files.context_tokens or "unknown"
    yield Finding(
        "model", OK,
        f"{settings.model_id} ({files.revision}) at {files.folder}: {vocabulary.size} ids, ends with "
        f"{', '.join(map(str, vocabulary.eos_ids))}, context {context}, tokenizer {vocabulary.fingerprint[:12]}",
    )
    weights = _weight_files(files.folder)
    size = sum(file.stat().st_size for file in weights)
    if not weights:
        state: State = "failed" if "generate" in settings.embedded_workers else "warning"
        yield Finding("weights", state, f"no {' or '.join(WEIGHTS)} in {files.folder}",
                      "download the whole model; only a generate worker needs its weights")
    elif size <= HASHED_BYTES_MAX:
        yield from _weights(settings)
    else:
        yield Finding("weights", OK, f"{size / GIB:.1f} GiB in {len(weights)} files; --deep makes their hash")
    free = _available_bytes()
    if weights and free is not None and free < 1.5 * size:
        yield Finding("memory", "warning", f"{free / GIB:.1f} GiB are free, the weights take {size / GIB:.1f} GiB",
                      "use a smaller model, ABS_DTYPE=bfloat16, or a machine with more memory")


def _weight_files(folder: Path) -> list[Path]:
    return sorted(file for pattern in WEIGHTS for file in folder.glob(pattern))


def _weights(settings: Settings) -> Iterator[Finding]:
    """What the model's files are known by, and whether they are those that are meant."""
    folder = open_model_files(settings.model).folder
    digests = digests_of(folder)
    try:
        require_meant(digests, folder, settings)
    except ModelChanged as error:
        yield Finding("weights", "failed", str(error),
                      f"install the model again; what is here is known by the SHA-256 {digest_of(digests)}")
        return
    size = sum(file.stat().st_size for file in model_files(folder))
    yield Finding("weights", OK, f"{size / 2**20:.1f} MiB in {len(digests)} files, with the rest of the model; "
                  f"SHA-256 {digest_of(digests)}")


def _device(settings: Settings) -> Iterator[Finding]:
    if None in map(_version, WORKS["generate"]):
        yield Finding("device", OK, "not looked at: this installation holds no model code")
        return
    yield Finding("device", OK, describe_device(settings))


def _storage(settings: Settings) -> Iterator[Finding]:
    """The server that holds jobs and automata; what is wrong with it is raised."""
    facts = asyncio.run(check_storage(settings))
    if not facts:
        yield Finding("storage", OK, "in the memory of the process: jobs and automata end with it")
        return
    yield Finding("storage", OK, ", ".join(f"{name} {value}" for name, value in facts.items()))
    apart = float(facts.get("clock", 0.0))
    if abs(apart) > CLOCK_S_MAX:
        yield Finding("clock", "warning", f"the server's clock is {apart:+.1f} s from ours",
                      "let both machines keep their time by NTP: deadlines go by it")


def _keys(settings: Settings) -> Iterator[Finding]:
    require_guarded(settings)
    if not settings.keys_file:
        state: State = "warning" if settings.allow_unauthenticated else "ok"
        advice = "make a key: abs keys new; and set ABS_KEYS_FILE" if settings.allow_unauthenticated else ""
        callers = "whoever reaches the port" if settings.allow_unauthenticated else "whoever is on this machine"
        yield Finding("keys", state, f"no ABS_KEYS_FILE: {callers} is let in", advice)
        return
    path = Path(settings.keys_file)
    keys = read_keys(path)
    over = sum(key.expires is not None and key.expires < time.time() for key in keys)
    if path.stat().st_mode & 0o020:
        yield Finding("keys", "warning", f"the group of {path} may let itself in", f"chmod g-w {path}")
    if len(keys) == over:
        yield Finding("keys", "warning", f"{path} holds no key that is still good", "make one: abs keys new NAME")
    else:
        yield Finding("keys", OK, f"{len(keys)} keys in {path}, {over} of them expired")


def _port(settings: Settings) -> Iterator[Finding]:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    where = f"{settings.host}:{settings.port}"
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((settings.host, settings.port))
        except OSError as error:
            yield Finding("port", "warning", f"{where} cannot be listened on now ({error.strerror})",
                          "if that is not this service itself, which runs already: set ABS_PORT or ABS_HOST")
        else:
            yield Finding("port", OK, f"{where} is free")


def _machine(settings: Settings) -> Iterator[Finding]:
    """Memory, processors, open files and the folder of temporary files."""
    free, wanted = _available_bytes(), settings.limits.compile_memory_bytes_max
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if free is not None and free < wanted:
        detail = f"{free / GIB:.1f} GiB are free, one compilation may take {wanted / GIB:.1f} GiB"
        yield Finding("memory", "warning", detail, "free some, or lower ABS_COMPILE_MEMORY_BYTES_MAX")
    elif free is not None:
        share = "a quarter of what is left" if settings.generation_memory_bytes == MEASURED else "as set"
        yield Finding("memory", OK, f"{free / GIB:.1f} GiB free; generations may take {share}")
    yield Finding("processors", OK, f"{cores} for this process")
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if files != resource.RLIM_INFINITY and files < FILES_MIN:
        yield Finding("open files", "warning", f"at most {files} at once", f"raise it: ulimit -n {FILES_MIN * 4}")
    with tempfile.TemporaryDirectory(prefix="abs-doctor-"):
        yield Finding("temporary files", OK, tempfile.gettempdir())


def _available_bytes() -> int | None:
    """The memory that the machine could still give; None where it does not say."""
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    return None


def _traces(settings: Settings) -> Iterator[Finding]:
    if not settings.otlp_endpoint:
        return
    if _version("opentelemetry-exporter-otlp-proto-http") is None:
        yield Finding("traces", "failed", "ABS_OTLP_ENDPOINT is set, the exporter is not installed",
                      "pip install 'abs-server[otel]'")
        return
    parts = urlsplit(settings.otlp_endpoint)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        socket.create_connection((parts.hostname or "", port), CONNECT_S_MAX).close()
        yield Finding("traces", OK, f"{parts.hostname} takes connections")
    except OSError as error:
        yield Finding("traces", "warning", f"{parts.hostname} takes no connection ({error.strerror or error})",
                      "start the collector, or unset ABS_OTLP_ENDPOINT: spans are lost until then")


def _round_trip(create_app: CreateApp, settings: Settings) -> Iterator[Finding]:
    """A constraint compiled and a text generated, in this process, by the service's own paths."""
    took = asyncio.run(_ask(create_app, dataclasses.replace(settings, broker="memory://", store="memory://")))
    told = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in took.items())
    yield Finding("round trip", OK, f"a text that satisfies its constraint: {told}")


async def _ask(create_app: CreateApp, settings: Settings) -> dict[str, float]:
    """How long it took, in s. Raises what goes wrong."""
    request = REQUESTS[0][1]
    times = {"begin": time.perf_counter()}
    try:
        async with asyncio.timeout(DEEP_S_MAX), in_process(create_app, settings, QUEUES, lambda _: None) as client:
            times["loading"] = time.perf_counter()
            await client.compile(request["constraint"])
            times["compiling"] = time.perf_counter()
            answer = await client.generate(**request)
            times["generating"] = time.perf_counter()
    except AbsError as refused:
        raise AppError(f"refused: {refused.detail}") from refused
    if not all(choice.satisfied for choice in answer.choices):
        raise AppError("an answer does not satisfy its constraint")
    return {name: times[name] - times[before] for before, name in itertools.pairwise(times)}


CHECKS: dict[str, Check] = {
    "packages": _packages, "engines": _engines, "model": _model, "device": _device, "storage": _storage,
    "keys": _keys, "port": _port, "machine": _machine, "traces": _traces,
}  # fmt: skip
