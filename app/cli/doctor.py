"""Checks everything that the service needs, and reports problems with advice.

Nothing is changed and no secret is shown. A check that fails is reported, and the other checks still run.
"""

from __future__ import annotations

import asyncio
import contextlib
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
from app.cli.demo_questions import FLIGHT, PROMPT
from app.cli.in_process import CreateApp, in_process
from app.cli.origins import ROOT, rivals, shadowing
from app.errors import AppError, ModelChanged
from app.http_server import exposure_warning, require_guarded
from app.models import (
    ModelSource,
    digest_of,
    digests_of,
    model_files,
    model_sources,
    only,
    open_model_files,
    require_meant,
    served_sources,
)
from app.settings import FROM_FILES, MEASURED, QUEUES, Settings
from app.wiring import check_storage, describe_device
from compiler.engines import open_engines
from compiler.errors import EngineFailure

OK: Literal["ok"] = "ok"
State = Literal["ok", "warning", "failed"]
STYLES = {"ok": "green", "warning": "yellow", "failed": "red"}
ALWAYS = ("fastapi", "uvicorn", "pydantic", "numpy", "prometheus-client")
WORKS = {"generate": ("torch", "transformers", "tokenizers")}
WEIGHTS = ("*.safetensors", "*.bin")
HASHED_BYTES_MAX = 2**30  # of weights that are hashed without --deep
FILES_MIN = 1_024  # open files per process: each stream uses one
CLOCK_S_MAX = 5.0  # difference of two clocks: deadlines and the expiry of keys depend on them
DEEP_S_MAX = 300.0
ADVICE = {  # for a check that ends with an error
    "engines": "install what is missing, or set ABS_LTLF_ENGINE and ABS_REGEX_ENGINE to native",
    "adapters": "name folders of LoRA adapters in ABS_ADAPTERS, as name=folder",
    "model": "set ABS_MODEL to the folder or the name of a causal language model",
    "device": "set ABS_DEVICE to auto or to a device of PyTorch on this machine",
    "storage": "start the server, or set ABS_BROKER and ABS_STORE to its URL; see deploy/redis",
    "keys": "correct the file, or make one: abs keys new NAME",
    "round trip": "read the log of the service at its start",
}
CONNECT_S_MAX = 3.0
GIB = 2**30


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check. `advice` says what to do; empty without a problem."""

    check: str
    state: State
    detail: str
    advice: str = ""


Check = Callable[[Settings], Iterator[Finding]]


def examine(read: Callable[[], Settings], create_app: CreateApp, deep: bool) -> list[Finding]:
    """All findings. `read` reads the settings; if they are invalid, the checks that depend on them are skipped.

    deep  also load the model, compile, generate, and hash all weights
    """
    # The first check needs no settings.
    findings = [Finding("python", OK, f"{sys.version.split()[0]}; abs-server {__version__}")]
    try:
        settings = read()
    except AppError as error:
        return [*findings, Finding("settings", "failed", str(error), "correct the variable or unset it")]
    findings.append(Finding("settings", OK, _settings_summary(settings)))
    for name, check in CHECKS.items():
        findings += _findings(name, check, settings)
    if deep:
        findings = [finding for finding in findings if finding.check != "weights"]
        findings += _findings("weights", _all_weights, settings)
        findings += _findings("round trip", lambda chosen: _round_trip(create_app, chosen), settings)
    return findings


def show(console: Console, findings: list[Finding]) -> None:
    """Prints the findings as a table, and their counts."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("check", "state", "result and advice"):
        table.add_column(name, overflow="fold")
    for finding in findings:
        detail = Text(finding.detail)
        if finding.advice:
            detail.append(f"\n→ {finding.advice}", style="bold")
        table.add_row(finding.check, Text(finding.state, style=STYLES[finding.state]), detail)
    console.print(table)
    counts = {state: sum(finding.state == state for finding in findings) for state in STYLES}
    console.print(f"{counts['ok']} ok, {counts['warning']} warnings, {counts['failed']} failed", style="dim")


def _findings(name: str, check: Check, settings: Settings) -> list[Finding]:
    """The findings of a check. An error that ends it is a finding."""
    findings: list[Finding] = []
    try:
        findings.extend(check(settings))
    except (AppError, EngineFailure) as error:
        findings.append(Finding(name, "failed", str(error), ADVICE.get(name, "")))
    except Exception as error:  # of a library: shown with its class
        findings.append(Finding(name, "failed", f"{type(error).__name__}: {error}", ADVICE.get(name, "")))
    return findings


def _settings_summary(settings: Settings) -> str:
    """The settings that differ from the defaults. Values that may contain a secret are hidden."""
    values, defaults = settings.values(), Settings.of(secret=settings.auth.secret).values()
    changed = {
        name: ",".join(value) if isinstance(value, tuple) else value
        for name, value in values.items() if value != defaults[name]
    }  # fmt: skip
    # URLs may contain a password.
    texts = [name if name in FROM_FILES else f"{name} = {value}" for name, value in changed.items()]
    return "defaults except " + ", ".join(texts) if texts else "all defaults"


def _packages(settings: Settings) -> Iterator[Finding]:
    """The installed packages. A missing one is a problem only if the settings need it."""
    versions = {name: _version(name) for name in (*ALWAYS, *WORKS["generate"], "redis", "lemminflect")}
    yield Finding("packages", OK, ", ".join(f"{name} {version}" for name, version in versions.items() if version))
    missing = [name for name in WORKS["generate"] if versions[name] is None]
    if missing and "generate" in settings.process.embedded_workers:
        yield Finding(
            "packages", "failed", f"{', '.join(missing)}: not installed, but a generate worker runs here",
            "pip install 'abs-server[inference]', or set ABS_EMBEDDED_WORKERS without generate",
        )
    remote = any(not url.startswith("memory:") for url in (settings.storage.broker, settings.storage.store))
    if remote and versions["redis"] is None:
        yield Finding("packages", "failed", "redis is not installed", "pip install 'abs-server[redis]'")
    if versions["lemminflect"] is None:
        yield Finding("packages", "warning", "lemminflect is not installed: keywords with `inflect` are rejected",
                      "to use them: pip install 'abs-server[compile]'")


def _origins(settings: Settings) -> Iterator[Finding]:
    """Packages of other origin with the names of ours."""
    apart = "install the service into a virtual environment of its own, and start it in another folder"
    wrong = list(shadowing())
    others = [] if wrong else list(rivals())
    for text in wrong:
        yield Finding("origins", "failed", text, apart)
    for text in others:
        yield Finding("origins", "warning", f"{text}: processes that are started in another way may import it", apart)
    if not wrong and not others:
        yield Finding("origins", OK, f"all packages come from {ROOT}")


def _version(name: str) -> str | None:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(name)
    return None


def _engines(settings: Settings) -> Iterator[Finding]:
    """The external engines, which are needed only if the settings select them."""
    open_engines(settings.engines.ltlf_engine, settings.engines.regex_engine)
    mona = shutil.which("mona")
    optional = f"mona {'at ' + mona if mona else 'absent'}, FAdo {_version('FAdo') or 'absent'} (both optional)"
    chosen = f"formulas: {settings.engines.ltlf_engine}, patterns: {settings.engines.regex_engine}"
    yield Finding("engines", OK, f"{chosen}; {optional}")


def _models(settings: Settings) -> Iterator[Finding]:
    for source in model_sources(settings):
        yield from _model(source, settings)


def _model(source: ModelSource, settings: Settings) -> Iterator[Finding]:
    files = open_model_files(source.location)
    vocabulary, context = files.vocabulary, files.context_tokens or "unknown"
    yield Finding(
        "model", OK,
        f"{source.name} ({files.revision}) at {files.folder}: {vocabulary.size} ids, ends with "
        f"{', '.join(map(str, vocabulary.eos_ids))}, context {context}, tokenizer {vocabulary.fingerprint[:12]}",
    )
    weights = sorted(file for pattern in WEIGHTS for file in files.folder.glob(pattern))
    size = sum(file.stat().st_size for file in weights)
    if not weights:
        state: State = "failed" if "generate" in settings.process.embedded_workers else "warning"
        yield Finding("weights", state, f"no {' or '.join(WEIGHTS)} in {files.folder}",
                      "download the whole model; only a generate worker needs its weights")
    elif size <= HASHED_BYTES_MAX:
        yield from _weights(source)
    else:
        yield Finding("weights", OK, f"{size / GIB:.1f} GiB in {len(weights)} files; --deep hashes them")
    free = _available_bytes()
    # The factor leaves memory for activations and the KV cache.
    if weights and free is not None and free < 1.5 * size:
        yield Finding("memory", "warning", f"{free / GIB:.1f} GiB are free, the weights need {size / GIB:.1f} GiB",
                      "use a smaller model, ABS_DTYPE=bfloat16, or a machine with more memory")


def _adapters(settings: Settings) -> Iterator[Finding]:
    names = [source.name for source in served_sources(settings) if source.parent]
    if names:
        yield Finding("adapters", OK, f"{', '.join(names)} of {model_sources(settings)[0].name}; --deep reads them")


def _all_weights(settings: Settings) -> Iterator[Finding]:
    for source in model_sources(settings):
        yield from _weights(source)


def _weights(source: ModelSource) -> Iterator[Finding]:
    """The digest of a model's files, compared with the expected one."""
    folder = open_model_files(source.location).folder
    digests = digests_of(folder)
    try:
        require_meant(digests, folder, source)
    except ModelChanged as error:
        yield Finding("weights", "failed", str(error),
                      f"install the model again; the SHA-256 of these files is {digest_of(digests)}")
        return
    size = sum(file.stat().st_size for file in model_files(folder))
    yield Finding("weights", OK, f"{size / 2**20:.1f} MiB in {len(digests)} model files; "
                  f"SHA-256 {digest_of(digests)}")


def _device(settings: Settings) -> Iterator[Finding]:
    if None in map(_version, WORKS["generate"]):
        yield Finding("device", OK, "skipped: this installation has no model code")
        return
    yield Finding("device", OK, describe_device(settings))


def _storage(settings: Settings) -> Iterator[Finding]:
    """The server of jobs and automata. Raises its problems."""
    facts = asyncio.run(check_storage(settings))
    if not facts:
        yield Finding("storage", OK, "in the memory of the process: jobs and automata are lost with it")
        return
    yield Finding("storage", OK, ", ".join(f"{name} {value}" for name, value in facts.items()))
    offset_s = float(facts.get("clock", 0.0))
    if abs(offset_s) > CLOCK_S_MAX:
        yield Finding("clock", "warning", f"the server's clock is {offset_s:+.1f} s off ours",
                      "synchronise both clocks with NTP, because deadlines depend on them")


def _keys(settings: Settings) -> Iterator[Finding]:
    require_guarded(settings)
    if warning := exposure_warning(settings):
        yield Finding("proxy", "warning", warning)
    if not settings.auth.keys_file:
        state: State = "warning" if settings.auth.allow_unauthenticated else "ok"
        advice = "set ABS_KEYS_FILE and make a key: abs keys new NAME" if settings.auth.allow_unauthenticated else ""
        origin = "the network" if settings.auth.allow_unauthenticated else "this machine"
        yield Finding("keys", state, f"no ABS_KEYS_FILE: all requests from {origin} are accepted", advice)
        return
    path = Path(settings.auth.keys_file)
    keys = read_keys(path)
    expired = sum(key.expires is not None and key.expires < time.time() for key in keys)
    if path.stat().st_mode & 0o020:
        yield Finding("keys", "warning", f"the group of {path} can add keys", f"chmod g-w {path}")
    if len(keys) == expired:
        yield Finding("keys", "warning", f"{path} has no valid key", "make one: abs keys new NAME")
    else:
        yield Finding("keys", OK, f"{len(keys)} keys in {path}, {expired} of them expired")


def _port(settings: Settings) -> Iterator[Finding]:
    family = socket.AF_INET6 if ":" in settings.server.host else socket.AF_INET
    where = f"{settings.server.host}:{settings.server.port}"
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((settings.server.host, settings.server.port))
        except OSError as error:
            yield Finding("port", "warning", f"{where} is in use or not available ({error.strerror})",
                          "set ABS_PORT or ABS_HOST, unless this service is already running there")
        else:
            yield Finding("port", OK, f"{where} is free")


def _machine(settings: Settings) -> Iterator[Finding]:
    """Memory, processors, open files and the folder of temporary files."""
    free, needed = _available_bytes(), settings.limits.compile_memory_bytes_max
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if free is not None and free < needed:
        detail = f"{free / GIB:.1f} GiB are free, one compilation may need {needed / GIB:.1f} GiB"
        yield Finding("memory", "warning", detail, "free memory, or lower ABS_COMPILE_MEMORY_BYTES_MAX")
    elif free is not None:
        share = "a quarter of the rest" if settings.inference.generation_memory_bytes == MEASURED else "as set"
        yield Finding("memory", OK, f"{free / GIB:.1f} GiB free; generations may use {share}")
    yield Finding("processors", OK, f"{cores} for this process")
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if files != resource.RLIM_INFINITY and files < FILES_MIN:
        yield Finding("open files", "warning", f"at most {files}", f"raise the limit: ulimit -n {FILES_MIN * 4}")
    with tempfile.TemporaryDirectory(prefix="abs-doctor-"):  # raises OSError if the folder is not writable
        yield Finding("temporary files", OK, tempfile.gettempdir())


def _available_bytes() -> int | None:
    """The available memory of the machine; None if unknown."""
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    return None


def _traces(settings: Settings) -> Iterator[Finding]:
    if not settings.telemetry.otlp_endpoint:
        return
    if _version("opentelemetry-exporter-otlp-proto-http") is None:
        yield Finding("traces", "failed", "ABS_OTLP_ENDPOINT is set, but the exporter is not installed",
                      "pip install 'abs-server[otel]'")
        return
    parts = urlsplit(settings.telemetry.otlp_endpoint)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        socket.create_connection((parts.hostname or "", port), CONNECT_S_MAX).close()
        yield Finding("traces", OK, f"{parts.hostname} accepts connections")
    except OSError as error:
        yield Finding("traces", "warning", f"{parts.hostname} accepts no connection ({error.strerror or error})",
                      "start the collector, or unset ABS_OTLP_ENDPOINT: spans are lost until then")


def _round_trip(create_app: CreateApp, settings: Settings) -> Iterator[Finding]:
    """Compiles and generates with each model, by the service's routes."""
    for source in model_sources(settings):
        alone = only(source, settings).changed(broker="memory://", store="memory://")
        durations = asyncio.run(_compile_and_generate(create_app, alone))
        times = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in durations.items())
        yield Finding("round trip", OK, f"the text of {source.name} satisfies its constraint: {times}")


async def _compile_and_generate(create_app: CreateApp, settings: Settings) -> dict[str, float]:
    """The durations in s. Raises the first error."""
    times = {"begin": time.perf_counter()}
    try:
        async with asyncio.timeout(DEEP_S_MAX), in_process(create_app, settings, QUEUES, lambda _: None) as client:
            times["loading"] = time.perf_counter()
            await client.compile(FLIGHT)
            times["compiling"] = time.perf_counter()
            answer = await client.generate(PROMPT, FLIGHT, max_tokens=24)
            times["generating"] = time.perf_counter()
    except AbsError as error:
        raise AppError(f"rejected: {error.detail}") from error
    if not all(choice.satisfied for choice in answer.choices):
        raise AppError("an answer does not satisfy its constraint")
    return {name: times[name] - times[before] for before, name in itertools.pairwise(times)}


CHECKS: dict[str, Check] = {
    "packages": _packages, "origins": _origins, "engines": _engines, "model": _models, "adapters": _adapters,
    "device": _device, "storage": _storage, "keys": _keys, "port": _port, "machine": _machine,
    "traces": _traces,
}  # fmt: skip
