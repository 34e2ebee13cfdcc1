"""Locates MONA: on PATH, or unpacked from Debian's package.

The package is unpacked into a cache of the user, without root.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from pathlib import Path

import pytest

_SECONDS = 120  # for one step of the installation


@functools.cache
def mona_binary() -> str:
    """A program that runs MONA. Skips the test, saying why, where there is none; fails it where CI is set."""
    try:
        return shutil.which("mona") or str(_unpacked())
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        reason = f"MONA is not on PATH and cannot be installed: {error}"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)


def mona_binary_path() -> tuple[str, dict[str, str]]:
    """The program without the script around it, and the environment it needs. For measurements: a shell takes time."""
    wrapper = Path(mona_binary())
    program = wrapper.parent / "root" / "usr" / "bin" / "mona"
    if not program.exists():
        return str(wrapper), {}
    return str(program), {"LD_LIBRARY_PATH": _libraries(wrapper.parent)}


def _libraries(cache: Path) -> str:
    """Where the unpacked package keeps MONA's libraries, as a search path."""
    return ":".join(sorted({str(path.parent) for path in (cache / "root").rglob("libmona*.so*")}))


def _unpacked() -> Path:
    """A wrapper script around MONA in the cache, made if missing.

    The cache is ABS_MONA_CACHE, default ~/.cache/abs-server/mona.
    """
    cache = Path(os.environ.get("ABS_MONA_CACHE") or Path.home() / ".cache" / "abs-server" / "mona").resolve()
    wrapper = cache / "mona"
    if not wrapper.exists():
        cache.mkdir(parents=True, exist_ok=True)
        package = _download(cache)
        _call(["dpkg", "-x", str(package), str(cache / "root")], cache)
        program = cache / "root" / "usr" / "bin" / "mona"
        search = f"LD_LIBRARY_PATH='{_libraries(cache)}'"
        draft = cache / f"mona.{os.getpid()}"
        draft.write_text(f"#!/bin/sh\n{search} exec '{program}' \"$@\"\n", encoding="utf-8")
        draft.chmod(0o755)
        _call(["sh", "-c", f"{search} ldd '{program}' | grep 'not found' && exit 1 || exit 0"], cache)
        draft.replace(wrapper)  # last and atomic: an existing wrapper works even while another process installs
    return wrapper


def _download(cache: Path) -> Path:
    """Downloads Debian's package by apt. The machine's package lists are used, or fresh ones if it has none."""
    state, archives = cache / "lists", cache / "archives"
    for directory in (state / "partial", archives / "archives" / "partial"):
        directory.mkdir(parents=True, exist_ok=True)
    apt_options = [f"-oDir::State::Lists={state}", f"-oDir::Cache={archives}"]
    try:
        _call(["apt-get", "-q", f"-oDir::Cache={archives}", "download", "mona"], cache)
    except RuntimeError:
        _call(["apt-get", "-q", *apt_options, "update"], cache)
        _call(["apt-get", "-q", *apt_options, "download", "mona"], cache)
        shutil.rmtree(state)
    return max(cache.glob("mona_*.deb"))


def _call(command: list[str], directory: Path) -> None:
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=_SECONDS)
    if done.returncode:
        raise RuntimeError(f"{command[0]} ended with status {done.returncode}: {(done.stderr or done.stdout)[-300:]}")
